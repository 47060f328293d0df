"""CSV and Parquet files -> named columns."""

import bz2
import csv
import gzip
import lzma
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data.extras import optional
from tacit.data.labels import text
from tacit.data.places import listed
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
        raise check.fail("table", "a Parquet file", str(error)) from None
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
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise check.fail("table", "a table whose columns have different names", twice)
    return names
