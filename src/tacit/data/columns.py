"""CSV and Parquet files -> named columns."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data.extras import optional
from tacit.data.labels import text
from tacit.data.places import listed
from tacit.errors import InvalidInput, MissingData

_CSV = (".csv", ".csv.gz", ".csv.xz", ".csv.bz2", ".csv.zip")
_PARQUET = (".parquet", ".pq")


def read_columns(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The columns of a table by name: float64 where the file stores numbers, texts otherwise.

    CSV (comma, one header line, UTF-8, plain or compressed) stores texts only; spaces around a cell are
    dropped. Missing cells are NaN or "". Needs pandas, and pyarrow for Parquet.

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
    pandas = optional("pandas", "to read a CSV file")
    try:
        # The header is read as a row, so that pandas neither renames a repeated column nor takes a
        # surplus field as an index.
        frame = pandas.read_csv(file, header=None, dtype=str, keep_default_na=False, na_values=[], encoding="utf-8-sig")
    except pandas.errors.EmptyDataError:
        return {}
    except pandas.errors.ParserError as error:
        raise _uneven(str(error).split("C error:")[-1].strip()) from None
    except UnicodeDecodeError as error:
        raise check.fail("table", "UTF-8 text", f"{error.reason} at byte {error.start}") from None
    short = np.flatnonzero(frame.isna().any(axis=1).to_numpy())
    if len(short):
        raise _uneven(f"fewer fields in rows {listed(short - 1)}")
    header = _unique([str(cell).strip() for cell in frame.iloc[0]])
    body = frame.iloc[1:]
    return {name: body[place].str.strip().to_numpy(dtype=object) for place, name in enumerate(header)}


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


def _uneven(got: str) -> InvalidInput:
    return check.fail("table", "a table with the same number of fields in every row", got)
