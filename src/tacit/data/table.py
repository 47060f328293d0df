"""`table`: a CSV or Parquet file as a `Dataset`, and `read_columns`, its columns by name."""

import bz2
import csv
import gzip
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data import labels
from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset, report
from tacit.data.files import optional
from tacit.data.labels import text
from tacit.data.places import listed
from tacit.data.tabular import encode, numbers
from tacit.errors import MissingData

_OPEN = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_CSV = (".csv", *(f".csv{ending}" for ending in _OPEN))
_PARQUET = (".parquet", ".pq")


def read_columns(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The columns of a table by name: float64 where the file stores numbers, texts otherwise.

    CSV (comma, one header line, UTF-8, plain or compressed) stores texts only; spaces around a cell are
    dropped. Missing cells are NaN or "". Parquet needs pandas and pyarrow.

    Raises:
        MissingData: no such file.
        InvalidInput: another format, no rows, lines of different widths, or a column name used twice.
        TacitError: pandas or pyarrow is not installed.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingData(f"path must be an existing CSV or Parquet file; got {str(file)!r}. Check the spelling.")
    if not file.name.lower().endswith((*_CSV, *_PARQUET)):
        endings = ", ".join((*_CSV, *_PARQUET))
        raise check.fail("path", f"a file whose name ends in {endings}", str(file))
    columns = _parquet(file) if file.name.lower().endswith(_PARQUET) else _csv(file)
    if not columns or not len(next(iter(columns.values()))):
        raise check.fail("table", "at least one row and one column", f"no rows in {file}")
    return columns


def _csv(file: Path) -> dict[str, np.ndarray]:
    opened = _OPEN.get(file.suffix.lower(), open)
    try:
        with opened(file, "rt", encoding="utf-8-sig", newline="") as stream:
            # Strict, because a lost quotation mark would otherwise swallow rows without a word.
            header, *rows = [row for row in csv.reader(stream, skipinitialspace=True, strict=True) if row] or [[]]
    except UnicodeDecodeError as error:
        raise check.fail("table", "UTF-8 text", f"{error.reason} at byte {error.start}") from None
    except (csv.Error, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise check.fail("table", "well-formed CSV", str(error)) from None
    if len(header) == 1 and any(separator in header[0] for separator in ";\t|"):
        hint = "The header has another separator in it, such as a semicolon: save the file with commas."
        raise check.fail("table", "separated by commas", "one column", hint)
    uneven = [place for place, row in enumerate(rows) if len(row) != len(header)]
    if uneven:
        got = f"{len(rows[uneven[0]])} in rows {listed(uneven)}"
        raise check.fail("table", f"as many fields in every row as the header's {len(header)}", got)
    names = _unique([cell.strip() for cell in header])
    columns = [np.array([cell.strip() for cell in column], dtype=object) for column in zip(*rows, strict=True)]
    return dict(zip(names, columns, strict=True)) if rows else {}


def _parquet(file: Path) -> dict[str, np.ndarray]:
    pandas = optional("pandas", "to read a Parquet file")
    parquet = optional("pyarrow.parquet", "to read a Parquet file")
    try:
        frame = parquet.read_table(file).to_pandas()
    except (OSError, ValueError) as error:
        told = check.private_values([str(error)])
        raise check.fail("table", "a Parquet file", told, type(error).__name__ + ".") from None
    numeric = pandas.api.types.is_numeric_dtype
    columns = {}
    for place, name in enumerate(_unique([str(label) for label in frame.columns])):
        column = frame.iloc[:, place]
        if numeric(column.dtype):
            columns[name] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            missing = column.isna().to_numpy()
            columns[name] = np.array(
                ["" if absent else text(cell) for cell, absent in zip(column, missing, strict=True)], dtype=object
            )
    return columns


def _unique(names: Sequence[str]) -> Sequence[str]:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise check.fail("table", "a table whose columns have different names", twice)
    return names


# A column of identifiers or free text would otherwise become one feature for each record.
_MOST_UNDECLARED_CATEGORIES = 256
_KINDS = {"bounds": "(low, high)", "categories": "[...]"}


def table(
    path: str | os.PathLike[str],
    *,
    target: str,
    classes: Sequence[object] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
    drop: Sequence[str] = (),
    test_fraction: float = 0.2,
    seed: int = 0,
    name: str | None = None,
    strict: bool = False,
) -> Dataset:
    """A `Dataset` from a CSV or Parquet file, encoded by declared public knowledge.

    Numeric columns are clipped to their bounds and scaled to [0, 1]; columns with categories become one 0/1
    column for each category. Values outside the bounds saturate silently: to count them would leak.

    Args:
        path: `.csv` (comma separated, header line, also compressed) or `.parquet`.
        target: the column with the labels.
        classes: every label that can occur.
        bounds: column -> (low, high) with low < high.
        categories: column -> every value that can occur; "" among them admits missing cells.
        drop: columns to leave out, such as record numbers.
        test_fraction: share of the rows held out, in (0, 1); see `split`.
        seed: of that split; public.
        name: for cards and tables; the file's name without its ending by default.
        strict: bounds, categories or classes that are read from the data are an error instead of a
            `LeakWarning`.

    Raises:
        MissingData: no such file.
        InvalidInput: what `from_arrays` refuses; unknown columns; a cell that is no finite number or no
            declared category (rows and columns are named).
        TacitError: pandas and pyarrow, which Parquet needs, are not installed.
    """
    columns = read_columns(path)
    _check_target(target, columns)
    for unwanted in drop:
        if unwanted not in columns:
            check.choice("drop", unwanted, columns)
    answers = columns.pop(target)
    dropped = set(drop)
    columns = {column: values for column, values in columns.items() if column not in dropped}
    if not columns:
        raise check.fail("table", "at least one column besides the target", f"only {target!r}")
    limits, kinds = _declared(bounds or {}, categories or {}, columns)
    found = _read_undeclared({column: columns[column] for column in columns.keys() - limits.keys() - kinds.keys()})
    leaks = tuple(_leak(what, sorted(read), strict) for what, read in zip(_KINDS, found, strict=True) if read)
    x, names = encode(columns, bounds=limits | found[0], categories=kinds | found[1])
    dataset = from_arrays(
        x,
        y_train=answers,
        classes=classes,
        bounds=(0.0, 1.0),
        feature_names=names,
        name=Path(path).name.split(".")[0] if name is None else name,
        notes=(f"source: {Path(path).name}, target column {target}",),
        test_fraction=test_fraction,
        seed=seed,
        strict=strict,
    )
    public = [f"{what} of {', '.join(given)}" for what, given in zip(_KINDS, (limits, kinds), strict=True) if given]
    facts = tuple(fact for fact in dataset.public_facts if fact != "bounds")
    return replace(dataset, public_facts=(*facts, *public), leaks=(*leaks, *dataset.leaks))


def _check_target(target: str, columns: Mapping[str, np.ndarray]) -> None:
    """The target is a column; a message lists the names unless they may be the first record of a file without names."""
    if target not in columns and any(labels.is_number(name) for name in columns):
        hint = "The first line must name the columns; in this file it holds numbers."
        raise check.fail("target", "one of the columns", target, hint)
    check.choice("target", target, columns)


def _declared(
    bounds: Mapping[str, tuple[float, float]],
    categories: Mapping[str, Sequence[object]],
    columns: Mapping[str, np.ndarray],
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[str, ...]]]:
    check.keys("bounds", bounds, columns)
    check.keys("categories", categories, columns)
    both = sorted(bounds.keys() & categories.keys())
    if both:
        raise check.fail("a column", "declared either by bounds or by categories", both)
    kinds = {column: labels.declared(f"categories of {column}", given) for column, given in categories.items()}
    return {column: _pair(column, given) for column, given in bounds.items()}, kinds


def _pair(column: str, given: object) -> tuple[float, float]:
    name = f"bounds of {column}"
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise check.fail(name, "a pair (low, high)", given)
    low = check.real(f"low of {name}", given[0])
    return low, check.real(f"high of {name}", given[1], low=low, open_low=True)


def _read_undeclared(
    columns: Mapping[str, np.ndarray],
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[str, ...]]]:
    limits, kinds = {}, {}
    for column, values in columns.items():
        texts, _ = labels.distinct(values)
        if all(not value or labels.is_number(value) for value in texts):
            finite = [value for value in numbers(np.array(texts)) if np.isfinite(value)]
            limits[column] = (min(finite, default=0.0), max(finite, default=0.0))
        elif len(texts) > _MOST_UNDECLARED_CATEGORIES:
            rule = f"declared: at most {_MOST_UNDECLARED_CATEGORIES} categories are read from a column"
            raise check.fail(column, rule, f"{len(texts)} different texts", "Pass categories=... or drop=[...].")
        else:
            kinds[column] = tuple(value for value in texts if value)
    return limits, kinds


def _leak(what: str, columns: Sequence[str], strict: bool) -> str:
    read = f"{what} of {listed(columns)}"
    how = f"Pass {what}={{{columns[0]!r}: {_KINDS[what]}, ...}} from public knowledge."
    report(read, how, strict=strict, stacklevel=5)
    return read
