"""Tables of public layout: columns scaled by declared bounds or one-hot by declared categories, then split."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.encoding import encode, numbers
from tacit.data.files import File
from tacit.data.source import Source

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
        rows: training and test rows.
        origin: for the note "source: ...".
        read: data folder -> (columns by name, answers).
        bounds: column -> (low, high), public constants; values outside saturate.
        categories: column -> every value that can occur.
        logarithmic: columns that become log(1 + value) before the scaling; their bounds are those of the raw value.
        classes: names of the classes; left out for a regression, which has a `target_range` instead.
        remark: what else the preparation did.
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
    """`encode` after log(1 + value) of the columns `logarithmic` and of their bounds, which are >= 0."""
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
