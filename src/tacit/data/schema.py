"""`Schema`: how the columns of a table become features, by public declarations alone; also of rows seen later."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from tacit import check
from tacit.data import labels
from tacit.data.files import bad_cells, listed
from tacit.serialization import tuples

NUMBER, DATE, CATEGORY, CODE = "number", "date", "category", "code"
KINDS = (NUMBER, DATE, CATEGORY, CODE)
_DAY = 86400.0
_RULES = {
    NUMBER: "finite numbers in every column with bounds",
    DATE: "dates in every column with a range of dates",
    CATEGORY: "one of the declared categories in every row",
    CODE: "one of the declared numbers or categories in every row",
}


@dataclass(frozen=True)
class Column:
    """One column of a table as it is declared.

    Attributes:
        name: of the column.
        kind: "number", "date", "category", or "code" (a user or an item, kept as its position).
        low: least value; of a date in days since 1970.
        high: largest value.
        categories: every value that can occur; "" among them admits missing cells.
        date_format: as in `datetime.strptime`; empty for ISO 8601.
        missing: texts that stand for a missing cell, besides an empty one.
        fill: public constant for a missing cell of a number or date; None refuses missing cells.
        indicator: whether a further feature says that the cell was missing.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 1.0
    categories: tuple[str, ...] = ()
    date_format: str = ""
    missing: tuple[str, ...] = ()
    fill: float | None = None
    indicator: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that the column becomes."""
        if self.kind == CATEGORY:
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)

    @property
    def size(self) -> int:
        """The number of values of a code."""
        return len(self.categories) or round(self.high - self.low) + 1

    def encode(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The features, (rows, width), and which rows break the declaration.

        A number x becomes (clip(x, low, high) - low) / (high - low), a date likewise; a category becomes one 0/1
        feature for each of the categories.
        """
        absent = missing_cells(values, self.missing)
        if self.kind == CATEGORY:
            hot = labels.one_hot(np.where(absent, "", values.astype(object)), self.categories)
            return hot, hot.sum(axis=1) == 0
        if self.kind == CODE:
            return self._codes(values)
        read = labels.numbers(values) if self.kind == NUMBER else days(values, self.date_format)
        if self.fill is not None:
            read = np.where(absent, self.fill, read)
        elif absent.any():
            read = np.where(absent, np.nan, read)
        block = labels.scaled(read, self.low, self.high)
        bad = ~np.isfinite(block[:, 0])
        return (np.hstack([block, absent.astype(np.float32)[:, None]]) if self.indicator else block), bad

    def _codes(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.categories:
            place = {category: float(position) for position, category in enumerate(self.categories)}
            found, inverse = labels.distinct(values)
            read = np.array([place.get(value, np.nan) for value in found])[inverse]
        else:
            read = labels.numbers(values) - self.low
        bad = ~((read >= 0) & (read < self.size) & (read == np.floor(read)))
        return np.where(bad, 0, read).astype(np.int64)[:, None], bad


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table in the order of their features; `encode` reads nothing else off the data.

    Attributes:
        columns: the declarations.

    Example:
        >>> schema = Schema((Column("age", "number", 0.0, 100.0), Column("ward", "category", categories=("a", "b"))))
        >>> schema.encode({"age": np.array(["50"]), "ward": np.array(["b"])}).tolist()
        [[0.5, 0.0, 1.0]]
    """

    columns: tuple[Column, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def codes(self) -> bool:
        """Whether the features are positions of users and items, int64, instead of float32 numbers."""
        return any(column.kind == CODE for column in self.columns)

    def encode(self, table: Mapping[str, np.ndarray], *, toml: bool = False) -> np.ndarray:
        """Features (rows, width) of the columns of `table`; columns that are not declared are ignored.

        Args:
            table: columns by name.
            toml: whether messages speak of the keys of a TOML file.

        Raises:
            InvalidInput: a declared column is not there, or a cell breaks its declaration (rows and columns are named).
        """
        absent = [column.name for column in self.columns if column.name not in table]
        hint = "The first line of the file must name them."
        check.that(not absent, "table", f"a table with the columns {listed(absent)}", "one without them", hint)
        encoded = [(column, *column.encode(table[column.name])) for column in self.columns]
        for kind in KINDS:
            wrong = [(column, bad) for column, _, bad in encoded if column.kind == kind and bad.any()]
            if wrong:
                rows = np.flatnonzero(np.any([bad for _, bad in wrong], axis=0))
                gone = any((missing_cells(table[each.name], each.missing) & bad).any() for each, bad in wrong)
                names = [column.name for column, _ in wrong]
                raise bad_cells("table", _RULES[kind], rows, names, _remedy(kind, gone, toml))
        return np.hstack([block for _, block, _ in encoded])

    def spec(self) -> list[dict[str, Any]]:
        """The schema as plain values."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_spec(cls, spec: Sequence[Mapping[str, Any]]) -> Schema:
        """The schema of `spec()`; raises `InvalidInput` for anything else."""
        try:
            return cls(tuple(Column(**tuples(row)) for row in spec))
        except (TypeError, AttributeError):
            raise check.fail("schema", "a list of columns as a run wrote it", "another table") from None


def _remedy(kind: str, gone: bool, toml: bool) -> str:
    """What to do about cells of a `kind`, some of which are missing where `gone`."""
    fill = "declare a constant under [table.fill]" if toml else "pass fill={column: constant}"
    codes = "list their codes, such as 'NA', in missing" if toml else "pass their codes, such as 'NA', as missing=[...]"
    filled = f"for missing cells {fill}, and {codes}"
    where = "under [table.{}]" if toml else "by {}={{...}}"
    if kind == DATE:
        form = '"%d.%m.%Y"' if toml else "'%d.%m.%Y'"
        form = f"Write them as ISO 8601, 2020-12-31, or declare their form as a third entry of dates, such as {form}"
        return f"{form}; {filled}." if gone else f"{form}."
    if kind == NUMBER and gone:
        return f"{filled[0].upper()}{filled[1:]}; correct all others."
    if kind == NUMBER:
        other = f"Correct them, or declare the column {where.format('dates')} or {where.format('categories')}"
        return f"{other}; {filled}."
    if kind == CATEGORY:
        return f'Correct them, or declare every value {where.format("categories")}, "" for a missing cell.'
    return f"Correct or remove them, or declare all users and items {where.format('bounds')}."


def missing_cells(values: np.ndarray, codes: Sequence[str]) -> np.ndarray:
    """Which of `values` are empty, NaN or one of `codes`, compared as numbers where both are numbers."""
    amounts = {float(code) for code in codes if check.is_number(code)}
    if values.dtype.kind in "biuf":
        return np.isnan(values.astype(np.float64)) | np.isin(values, list(amounts))
    texts = {"", *codes}
    found, inverse = labels.distinct(values)
    flags = [value in texts or (check.is_number(value) and float(value) in amounts) for value in found]
    return np.array(flags, dtype=bool)[inverse]


def days(values: np.ndarray, date_format: str = "") -> np.ndarray:
    """Days since 1970-01-01 (UTC where a zone is given) of texts, NaN where one is no date of the format."""
    found, inverse = labels.distinct(values)
    return np.array([day_of(value, date_format) for value in found], dtype=np.float64)[inverse]


def day_of(value: object, date_format: str = "") -> float:
    """Days since 1970-01-01 of a date, a time or a text; NaN for anything else."""
    if isinstance(value, str):
        try:
            value = datetime.strptime(value, date_format) if date_format else datetime.fromisoformat(value)
        except ValueError:
            return float("nan")
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        return float("nan")
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).timestamp() / _DAY


def date_of_end(value: object, date_format: str = "") -> float:
    """`day_of` for a date that somebody declares: in the form of the cells, or as ISO 8601."""
    days = day_of(value, date_format)
    return day_of(value) if days != days else days


def is_pattern(key: str) -> bool:
    """Whether `key` stands for several columns: it has *, ? or [ in it."""
    return re.search(r"[*?\[]", key) is not None
