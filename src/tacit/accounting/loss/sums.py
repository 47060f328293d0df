"""Characteristic functions as weighted sums of exponentials, at many equally spaced frequencies."""

from __future__ import annotations

import numpy as np

_CHUNK = 1024


def shifted_sum(
    weights: np.ndarray, offset: np.ndarray, t: np.ndarray, spacing: float
) -> tuple[np.ndarray, np.ndarray]:
    """sum_k w_k (e^{i t l_k} - 1) for complex w and l, and the sum of sizes that its rounding error scales with.

    The t are multiples of `spacing`. With t = (row a + b) spacing the sum is a product of two matrices: of
    e^x - 1 = A at the multiples of row and e^y - 1 = B below row, e^{x + y} - 1 = A B + A + B keeps its digits.
    """
    index = np.rint(t / spacing).astype(int)
    row = 1 << int(np.ceil(np.log2(len(t) + 1) / 2))
    heads, place = np.unique(index // row, return_inverse=True)
    value = np.zeros((len(heads), row), dtype=complex)
    size = np.zeros((len(heads), row))
    for start in range(0, len(weights), _CHUNK):
        part = slice(start, start + _CHUNK)
        w, mass, step = weights[part], np.abs(weights[part]), 1j * spacing * offset[part]
        a, b = (np.expm1(np.multiply.outer(count, step)) for count in (heads * row, np.arange(row)))
        value += (a * w) @ b.T + (a @ w)[:, None] + b @ w
        a, b = np.abs(a), np.abs(b)
        size += (a * mass) @ b.T + (a @ mass)[:, None] + b @ mass
    drift = t * float(np.abs(weights) @ np.abs(offset))
    return value[place, index % row], size[place, index % row] + drift
