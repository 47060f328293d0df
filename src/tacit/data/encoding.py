"""Columns of a table -> features in [0, 1], by declared bounds and categories alone."""

from collections.abc import Mapping, Sequence

import numpy as np

from tacit.data import labels
from tacit.data.places import bad_cells


def encode(
    columns: Mapping[str, np.ndarray],
    *,
    bounds: Mapping[str, tuple[float, float]],
    categories: Mapping[str, Sequence[str]],
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Features, float32 (rows, width), and their names, in the order of `columns`.

    A column with bounds (low, high) becomes (clip(value, low, high) - low) / (high - low). A column with
    categories becomes one 0/1 column for each of them, named `column=category`. A missing value is a
    category only where "" is declared as one.

    Raises:
        InvalidInput: a cell that is no finite number or none of the categories; rows and columns are named.
    """
    blocks, names = [], []
    bad: dict[str, np.ndarray] = {}
    for column, values in columns.items():
        if column in bounds:
            block = scaled(numbers(values), *bounds[column])
            bad[column] = ~np.isfinite(block[:, 0])
            names.append(column)
        else:
            block = one_hot(values, categories[column])
            bad[column] = block.sum(axis=1) == 0
            names += [f"{column}={category}" for category in categories[column]]
        blocks.append(block)
    _refuse(bad, bounds)
    return np.hstack(blocks), tuple(names)


def numbers(values: np.ndarray) -> np.ndarray:
    """`values` as float64, NaN where a text is no number."""
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        pass
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
    try:
        return float(value)
    except ValueError:
        return float("nan")


def _refuse(bad: Mapping[str, np.ndarray], bounds: Mapping[str, object]) -> None:
    wrong = [column for column, cells in bad.items() if cells.any()]
    numeric = [column for column in wrong if column in bounds]
    for rule, columns in (
        ("finite numbers in every row of a column with bounds", numeric),
        ("one of the declared categories in every row", [column for column in wrong if column not in bounds]),
    ):
        if columns:
            rows = np.flatnonzero(np.any([bad[column] for column in columns], axis=0))
            raise bad_cells("table", rule, rows, columns)
