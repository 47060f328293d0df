"""`Design`: raw rows -> feature rows of norm at most 1, by public constants and the row alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import check

Array = np.ndarray
Ends = float | Array

_SAFE = 1 - 1e-12


@dataclass(frozen=True, eq=False)
class Design:
    """x -> (clip(x, low, high) scaled down to norm <= norm_bound) / R, with the intercept's constant inside the bound.

    A row becomes (x / norm_bound, c) / sqrt(1 + c^2), c = intercept_scale, so its norm is at most 1 whatever x was.
    The intercept is regularised like every other coordinate, since the sensitivity of a minimiser rests on that.

    Args:
        low, high: bounds of each column, numbers or arrays of one value for each column; public.
        norm_bound: > 0, bound on a row's L2 norm after clipping; public.
        intercept_scale: c >= 0; 0 leaves the intercept out.
    """

    low: Ends
    high: Ends
    norm_bound: float
    intercept_scale: float = 1.0

    @property
    def reach(self) -> float:
        """sqrt(1 + c^2): how much longer the constant makes the longest row."""
        return math.hypot(1.0, self.intercept_scale)

    def clipped(self, x: Array) -> Array:
        """Rows inside the declared box and ball, in their own units, float64."""
        inside = np.clip(np.asarray(x, dtype=np.float64), self.low, self.high)
        norms = np.sqrt(np.einsum("ij,ij->i", inside, inside))
        longer = norms > self.norm_bound
        if longer.any():
            inside[longer] *= (self.norm_bound / norms[longer])[:, None]
        return inside

    def features(self, x: Array) -> Array:
        """Feature rows, (n, columns) or (n, columns + 1) with the constant last; every norm is at most 1."""
        rows = self.clipped(x)
        rows *= _SAFE / (self.norm_bound * self.reach)
        if not self.intercept_scale:
            return rows
        constant = np.full((len(rows), 1), _SAFE * self.intercept_scale / self.reach)
        return np.hstack([rows, constant])

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """(coefficients (k, columns), intercepts (k,)) for raw rows, from theta (p, k)."""
        scale = _SAFE / self.reach
        if not self.intercept_scale:
            return theta.T * (scale / self.norm_bound), np.zeros(theta.shape[1])
        return theta[:-1].T * (scale / self.norm_bound), theta[-1] * (scale * self.intercept_scale)


def largest_norm(low: Ends, high: Ends, columns: int) -> float:
    """The largest norm of a row inside the box: a public constant; 1 for a box that holds only 0."""
    ends = np.broadcast_to(np.maximum(np.abs(low), np.abs(high)), (columns,))
    return float(np.linalg.norm(ends)) or 1.0


def declared_bounds(bounds: object, columns: int) -> tuple[Ends, Ends]:
    """(low, high) of `data_bounds`; raises `InvalidInput` unless low <= high, finite and of a fitting shape."""
    rule = f"(low, high) with low <= high, finite, each a number or one value for each of {columns} columns"
    try:
        low, high = (np.asarray(end, dtype=np.float64) for end in bounds)  # type: ignore[union-attr]
        fits = bool(np.all(np.broadcast_to(low, (columns,)) <= np.broadcast_to(high, (columns,))))
    except (TypeError, ValueError):
        raise check.fail("data_bounds", rule, bounds) from None
    if not (fits and np.isfinite(low).all() and np.isfinite(high).all()):
        raise check.fail("data_bounds", rule, bounds)
    return (float(low) if low.ndim == 0 else low, float(high) if high.ndim == 0 else high)
