"""Encoding of one column: numbers scaled to [0, 1] by public bounds, texts one-hot by public categories."""

from collections.abc import Sequence

import numpy as np

from tacit import check
from tacit.data import labels


def numbers(values: np.ndarray) -> np.ndarray:
    """`values` as float64, NaN where a text is no number."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    found, inverse = labels.distinct(values)
    return np.array([_number(value) for value in found])[inverse]


def scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """(clip(value, low, high) - low) / (high - low) as float32 (rows, 1); NaN where a value is not finite.

    Equal bounds, which only a constant undeclared column has, give 0.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    return ((np.clip(finite, low, high) - low) / ((high - low) or 1.0)).astype(np.float32)[:, None]


def one_hot(values: np.ndarray, categories: Sequence[str]) -> np.ndarray:
    """float32 (rows, categories) with a single 1 in each row; no 1 where the value is none of them."""
    found, inverse = labels.distinct(values)
    hot = np.array([[value == category for category in categories] for value in found], dtype=np.float32)
    return hot[inverse]


def _number(value: str) -> float:
    return float(value) if check.is_number(value) else float("nan")
