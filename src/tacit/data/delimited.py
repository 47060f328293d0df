"""Reading table files: `TableFormat` says how a CSV file is written, `read_columns` gives its columns by name."""

import bz2
import csv
import gzip
import io
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from tacit import check
from tacit.data.files import listed, optional
from tacit.data.labels import text
from tacit.errors import MissingData

_OPEN = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_CSV = (".csv", ".data", ".tsv", ".txt")
CSV = (*_CSV, *(f"{kind}{ending}" for kind in _CSV for ending in _OPEN))
"""Endings of the names of text files."""
PARQUET = (".parquet", ".pq")
"""Endings of the names of Parquet files."""
SEPARATORS = (",", ";", "\t", "|")
"""Separators that a message or a draft proposes; any single character is accepted."""
HEADERLESS = "If no line of the file names the columns, declare header = false and names = [...], one for each column."
"""What to do about a file without names."""
_WORDS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class TableFormat:
    r"""How the text of a table is written.

    Attributes:
        separator: one character between the cells, e.g. "," or ";" or a tab.
        decimal: "." or ","; with "," a cell such as 3,5 is the number 3.5 in every column.
        encoding: of the text, e.g. "utf-8" or "latin-1".
        header: whether the first line names the columns.
        names: of the columns, where no line names them.
    """

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    header: bool = True
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or len(self.separator) != 1 or self.separator in '"\r\n':
            raise check.fail("separator", "one character, such as ',' or ';' or a tab", self.separator)
        check.choice("decimal", self.decimal, (".", ","))
        check.that(self.decimal != self.separator, "decimal", "another character than the separator", self.decimal)
        try:
            "".encode(check.text("encoding", self.encoding))
        except LookupError:
            hint = "E.g. utf-8, latin-1 or cp1252."
            raise check.fail("encoding", "one that Python knows", self.encoding, hint) from None
        check.instance("header", self.header, bool, "true or false")
        rule = "empty where the first line names the columns" if self.header else "given where header = false"
        hint = "header = false goes with names, one for each column in their order, and header = true without."
        check.that(self.header != bool(self.names), "names", rule, list(self.names), hint)
        for name in self.names:
            check.text("each of names", name)
        _unique(self.names)

    def spec(self) -> dict[str, Any]:
        """The format as plain values."""
        return asdict(self)

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "TableFormat":
        """The format of `spec()`."""
        given: dict[str, Any] = spec | {"names": tuple(spec.get("names", ()))}
        return cls(**given)


def table_file(path: str | os.PathLike[str]) -> Path:
    """`path`, if it is a file whose name says that it is a table.

    Raises:
        MissingData: no such file.
        InvalidInput: another ending.
    """
    file = Path(path)
    if not file.is_file():
        looked = "" if file.is_absolute() else f" It was looked for at {str(file.absolute())!r}."
        got = f"{str(file)!r}.{looked} Check the spelling."
        raise MissingData(f"path must be an existing CSV or Parquet file; got {got}")
    if not file.name.lower().endswith((*CSV, *PARQUET)):
        raise check.fail("path", f"a file whose name ends in {', '.join((*CSV, *PARQUET))}", str(file))
    return file


def read_columns(path: str | os.PathLike[str], form: TableFormat | None = None) -> dict[str, np.ndarray]:
    """The columns of a table by name: float64 where the file stores numbers, texts otherwise.

    A text file (plain or compressed) stores texts only; spaces around a cell are dropped. Missing cells are NaN
    or "". Parquet needs pandas and pyarrow.

    Raises:
        MissingData: no such file.
        InvalidInput: another format, no rows, lines of different widths, or a column name used twice.
        TacitError: pandas or pyarrow is not installed.
    """
    file = table_file(path)
    columns = _parquet(file) if is_parquet(file) else _csv(file, form or TableFormat())
    if not columns or not len(next(iter(columns.values()))):
        raise check.fail("table", "at least one row and one column", f"no rows in {file}")
    return columns


def is_parquet(file: Path) -> bool:
    """Whether the name of `file` says that it is a Parquet file."""
    return file.name.lower().endswith(PARQUET)


def opened(file: Path, encoding: str) -> IO[str]:
    """The text of `file`, decompressed by the ending of its name."""
    by = _OPEN.get(file.suffix.lower())
    stream = file.open("rb") if by is None else by(file)
    # Spreadsheets begin UTF-8 files with a mark that belongs to no column.
    named = "utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding
    return io.TextIOWrapper(stream, encoding=named, newline="")


def numbered(file: Path, form: TableFormat) -> tuple[str, ...]:
    """Names column_1, column_2, ... for the cells of the first line."""
    with opened(file, form.encoding) as stream:
        first = next(csv.reader(stream, delimiter=form.separator), [])
    return tuple(f"column_{place + 1}" for place in range(len(first)))


def _csv(file: Path, form: TableFormat) -> dict[str, np.ndarray]:
    try:
        with opened(file, form.encoding) as stream:
            # Strict, because a lost quotation mark would otherwise swallow rows without a word.
            reader = csv.reader(stream, delimiter=form.separator, skipinitialspace=form.separator != " ", strict=True)
            rows = [row for row in reader if row]
    except UnicodeError as error:
        told = f"{error.reason} at byte {error.start}" if isinstance(error, UnicodeDecodeError) else "other bytes"
        hint = "Declare how the file is written, e.g. encoding = 'latin-1' or 'cp1252'."
        spelt = "UTF-8" if form.encoding.lower() in ("utf-8", "utf8") else form.encoding
        raise check.fail("table", f"{spelt} text", told, hint) from None
    except (csv.Error, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise check.fail("table", "well-formed CSV", str(error)) from None
    names, rows = _names(rows, form)
    uneven = [place for place, row in enumerate(rows) if len(row) != len(names)]
    if uneven:
        width, rule = len(rows[uneven[0]]), "as many fields in every row as the"
        rule = f"{rule} header's {len(names)}" if form.header else f"{rule} names' {len(names)}"
        hint = "Numbers such as 3,5 need another separator between cells and decimal = ','."
        hint = hint if form.separator == "," and width > len(names) else ""
        raise check.fail("table", rule, f"{width} in rows {listed(uneven)}", hint)
    read = str if form.decimal == "." else _with_point
    columns = [np.array([read(cell.strip()) for cell in column], dtype=object) for column in zip(*rows, strict=True)]
    return dict(zip(names, columns, strict=True)) if rows else {}


def _names(rows: list[list[str]], form: TableFormat) -> tuple[Sequence[str], list[list[str]]]:
    """The names of the columns and the rows of the records."""
    first = rows[0] if rows else []
    other = next((each for each in SEPARATORS if each != form.separator and len(first) == 1 and each in first[0]), "")
    if other:
        hint = f"The first line has another separator in it, {_WORDS[other]}: declare separator = {other!r}."
        words = "commas" if form.separator == "," else repr(form.separator)
        raise check.fail("table", f"separated by {words}", check.Told("one column"), hint)
    if not form.header:
        return form.names, rows
    return _unique([cell.strip() for cell in first]), rows[1:]


def _with_point(cell: str) -> str:
    return cell.replace(",", ".") if _COMMA_NUMBER.fullmatch(cell) else cell


def _parquet(file: Path) -> dict[str, np.ndarray]:
    pandas = optional("pandas", "to read a Parquet file")
    parquet = optional("pyarrow.parquet", "to read a Parquet file")
    try:
        frame = parquet.read_table(file).to_pandas()
    except (OSError, ValueError) as error:
        told = check.private_values([str(error)])
        raise check.fail("table", "a Parquet file", told, type(error).__name__ + ".") from None
    return frame_columns(frame, pandas)


def frame_columns(frame: Any, pandas: Any) -> dict[str, np.ndarray]:
    """The columns of a data frame by name: float64 for numbers, texts otherwise; missing cells are NaN or ""."""
    numeric = pandas.api.types.is_numeric_dtype
    columns = {}
    for place, name in enumerate(_unique([str(label) for label in frame.columns])):
        column = frame.iloc[:, place]
        if numeric(column.dtype):
            columns[name] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            cells = ["" if absent else text(cell) for cell, absent in zip(column, column.isna(), strict=True)]
            columns[name] = np.array(cells, dtype=object)
    return columns


def _unique(names: Sequence[str]) -> Sequence[str]:
    """`names`, if they differ; they are not quoted, because they may be the first record of a file without names."""
    counts = Counter(names)
    twice = [place + 1 for place, name in enumerate(names) if counts[name] > 1]
    if twice:
        hint = HEADERLESS if any(check.is_number(name) for name in names) else f"Rename them. {HEADERLESS}"
        rule = "a table whose columns have different names"
        raise check.fail("table", rule, f"one name for columns {listed(twice)}", hint)
    return names
