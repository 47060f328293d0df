"""Encoding of tables: columns scaled to [0, 1] by declared bounds, or one-hot by declared categories.

`tabular` is the source of a published table, encoded so and split at random.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.files import File, bad_cells
from tacit.data.labels import numbers, one_hot, scaled
from tacit.data.source import Source


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


def _refuse(bad: Mapping[str, np.ndarray], bounds: Mapping[str, object]) -> None:
    wrong = [column for column, cells in bad.items() if cells.any()]
    numeric = [column for column in wrong if column in bounds]
    for rule, columns in (
        ("finite numbers in every column with bounds", numeric),
        ("one of the declared categories in every row", [column for column in wrong if column not in bounds]),
    ):
        if columns:
            rows = np.flatnonzero(np.any([bad[column] for column in columns], axis=0))
            raise bad_cells("table", rule, rows, columns)


Columns = Mapping[str, np.ndarray]
Bounds = Mapping[str, tuple[float, float]]
Categories = Mapping[str, Sequence[str]]


def tabular(
    name: str,
    *,
    summary: str,
    rows: tuple[int, int],
    licence: str,
    origin: str,
    read: Callable[[Path], tuple[Columns, np.ndarray]],
    bounds: Bounds,
    categories: Categories | None = None,
    logarithmic: Sequence[str] = (),
    classes: Sequence[str] = (),
    target_range: tuple[float, float] | None = None,
    remark: str = "",
    files: Sequence[File] = (),
) -> Source:
    """The source of a table whose rows are pooled and split at random.

    Args:
        name: of the data set.
        summary: what a row is and what is predicted, in one line.
        rows: training and test rows.
        licence: of the files.
        origin: for the note "source: ...".
        read: data folder -> (columns by name, answers).
        bounds: column -> (low, high), public constants; values outside saturate.
        categories: column -> every value that can occur.
        logarithmic: columns that become log(1 + value) before the scaling; their bounds are those of the raw value.
        classes: names of the classes; left out for a regression, which has a `target_range` instead.
        target_range: (low, high) of the answers of a regression, public constants.
        remark: what else the preparation did.
        files: that `read` needs, with their hashes.
    """
    kinds = categories or {}
    how = ["scaled by declared bounds"]
    how += [f"log(1 + x) of {', '.join(logarithmic)}"] * bool(logarithmic)
    how += ["one-hot by declared categories"] * bool(kinds) + [remark] * bool(remark)
    task = "classification" if classes else "regression"
    notes = (f"source: {origin}", f"licence: {licence}", f"preprocessing: {', '.join(how)}")
    declared = partial(encoded, bounds=bounds, categories=kinds, logarithmic=logarithmic)

    def dataset(folder: Path) -> Dataset:
        columns, answers = read(folder)
        x, feature_names = declared(columns)
        return from_arrays(
            x,
            y_train=answers,
            classes=classes or None,
            task=task,
            target_range=target_range,
            bounds=(0.0, 1.0),
            feature_names=feature_names,
            name=name,
            notes=notes,
        )

    return Source(
        name=name,
        summary=summary,
        rows=rows,
        features=(len(bounds) + sum(map(len, kinds.values())),),
        classes=tuple(classes),
        licence=licence,
        read=dataset,
        files=tuple(files),
        task=task,
    )


def encoded(
    columns: Columns, *, bounds: Bounds, categories: Categories, logarithmic: Sequence[str] = ()
) -> tuple[np.ndarray, tuple[str, ...]]:
    """`encode` after log(1 + value) of the columns `logarithmic` and of their bounds, which are >= 0.

    Args:
        columns: columns by name, each of shape (rows,).
        bounds: column -> (low, high), public constants.
        categories: column -> every value that can occur.
        logarithmic: columns that become log(1 + value).
    """
    limits = {name: (np.log1p(low), np.log1p(high)) for name, (low, high) in bounds.items() if name in logarithmic}
    raw = {
        name: np.log1p(np.maximum(numbers(values), 0)) if name in logarithmic else values
        for name, values in columns.items()
    }
    return encode(raw, bounds={**bounds, **limits}, categories=categories)


def cells(content: bytes, *, separator: str = ",", header: bool = False) -> np.ndarray:
    """The cells of delimited text as texts, (rows, columns), quotes and the header line left out."""
    lines = content.decode("ascii").replace('"', "").splitlines()
    return np.array([line.split(separator) for line in lines[header:] if line])


def named(table: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The first columns of `table` by name."""
    return {name: table[:, place] for place, name in enumerate(names)}
