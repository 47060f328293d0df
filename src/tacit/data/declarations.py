"""`Declarations`: what is declared about a table, by column or by pattern, and `schema_of`, what it makes of a file."""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import numpy as np

from tacit import check
from tacit.data import labels
from tacit.data.delimited import HEADERLESS
from tacit.data.schema import CATEGORY, CODE, DATE, NUMBER, Column, Schema, date_of_end, is_pattern, missing_cells

Value = TypeVar("Value")
# A column of identifiers or free text would otherwise become one feature for each record.
MOST_UNDECLARED_CATEGORIES = 256
READ = {"bounds": "(low, high)", "categories": "[...]"}
"""What can be read off the data where it is not declared, and its form in Python."""


@dataclass(frozen=True)
class Declarations:
    """What is declared about a table.

    Keys of the mappings are names of columns, or patterns with * and ?. A name counts before a pattern, a longer
    pattern before a shorter one.

    Attributes:
        target: the column with the labels.
        classes: every label that can occur; of ratings, numbers.
        task: "classification", "regression", or "ratings" of items by users (two columns of features besides).
        target_range: of a regression: (low, high) of its answers.
        bounds: column -> (low, high) with low < high.
        categories: column -> every value that can occur; "" among them admits missing cells.
        dates: column -> (first, last), as dates or ISO 8601 texts, and a format of `strptime` where cells are others.
        missing: texts or numbers that stand for a missing cell, besides an empty one.
        fill: column -> public constant for a missing number or date; without one a missing cell is an error.
        indicator: columns of `fill` that get a further 0/1 feature, 1 where the cell was missing.
        drop: columns to leave out, such as record numbers.
        user: the column that says whose record it is: the unit that grouped sampling protects. No feature, except of
            ratings; users are held out as a whole, each by its own name and `seed`.
        weights: the column of the records' weights in the loss, >= 0.
        weight_bound: largest weight, public; larger ones count as this one.
        read_from_data: which of the declarations somebody read off the data: a leak.
        test_fraction: share of the rows held out, in (0, 1); see `split`.
        seed: of that split; public.
    """

    target: str
    classes: Sequence[object] | None = None
    task: str = "classification"
    target_range: Sequence[float] | None = None
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[object]] = field(default_factory=dict)
    dates: Mapping[str, Sequence[object]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    fill: Mapping[str, object] = field(default_factory=dict)
    indicator: Sequence[str] = ()
    drop: Sequence[str] = ()
    user: str | None = None
    weights: str | None = None
    weight_bound: float | None = None
    read_from_data: Sequence[str] = ()
    test_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        check.text("target", self.target)
        check.choice("task", self.task, labels.TASKS)
        for name in ("missing", "drop", "indicator", "read_from_data"):
            given = getattr(self, name)
            check.that(not isinstance(given, str) and isinstance(given, Sequence), name, "a list", given)
        for name in ("bounds", "categories", "dates", "fill"):
            check.instance(name, getattr(self, name), Mapping, "a table of columns")
        if self.task == "regression" and self.classes is not None:
            raise check.fail("classes", "left out for a regression, which has a target_range", list(self.classes))
        if self.task != "regression" and self.target_range is not None:
            rule = "left out where answers are classes; a regression has task = 'regression'"
            raise check.fail("target_range", rule, list(self.target_range))
        if (self.weights is None) != (self.weight_bound is None):
            hint = "No record counts more than weight_bound, whatever its weight says."
            raise check.fail("weights", "given together with weight_bound", self.weights or self.weight_bound, hint)
        if self.weight_bound is not None:
            check.positive("weight_bound", self.weight_bound)

    @property
    def codes(self) -> tuple[str, ...]:
        """The texts of missing cells."""
        return tuple(labels.text(value) for value in self.missing)

    @property
    def span(self) -> tuple[float, float] | None:
        """The declared range of a regression's answers."""
        return None if self.target_range is None else pair("target_range", self.target_range)


def schema_of(
    declared: Declarations, table: Mapping[str, np.ndarray], *, toml: bool, headed: bool = False
) -> tuple[Schema, dict[str, list[str]]]:
    """The schema of the features of `table`, and the names of the columns whose bounds or categories were read off it.

    Args:
        declared: about the table.
        table: its columns by name.
        toml: whether messages speak of the keys of a TOML file.
        headed: whether the names are names for sure; those of a file may be its first record.

    Raises:
        InvalidInput: a declaration names no column, or two contradict each other; an undeclared column is free text.
    """
    features = _features(declared, table, headed=headed)
    chosen = {name: _matched(getattr(declared, name), features, name) for name in ("bounds", "categories", "dates")}
    kinds = {column: _kind(column, chosen) for column in features}
    fills = _matched(declared.fill, features, "fill")
    flags = _matched(dict.fromkeys(declared.indicator, True), features, "indicator")
    read: dict[str, list[str]] = {name: [] for name in READ}
    columns = []
    for name in features:
        kind, given = kinds[name] or read_off(name, table[name], declared.codes, toml=toml)
        if kinds[name] is None:
            read[kind].append(name)
        column = _column(name, kind, given, coded=declared.task == "ratings", read=kinds[name] is None)
        columns.append(_with_missing(column, declared, fills.get(name), name in flags))
    if declared.task == "ratings" and len(columns) != 2:
        hint = "Leave the other columns out by drop = [...]."
        raise check.fail("ratings", "of a table with two columns of features, user and item", features, hint)
    return Schema(tuple(columns)), read


def _features(declared: Declarations, table: Mapping[str, np.ndarray], *, headed: bool) -> list[str]:
    """The columns that become features, in their order."""
    _check_names(declared, table, headed=headed)
    dropped = set(_matched(dict.fromkeys(declared.drop, True), list(table), "drop"))
    special = {declared.target, declared.weights}
    # A user of ratings is a feature, and the unit of privacy where that is asked for.
    special |= {declared.user} if declared.task != "ratings" else set()
    features = [name for name in table if name not in dropped | special]
    check.that(features, "table", "at least one column besides the target", f"only {declared.target!r}")
    return features


def _check_names(declared: Declarations, table: Mapping[str, np.ndarray], *, headed: bool) -> None:
    """The columns that are named are there; the names are listed unless they may be the first record of the file."""
    single = {"target": declared.target, "user": declared.user, "weights": declared.weights}
    exact = {key for each in (declared.bounds, declared.categories, declared.dates) for key in each}
    known = any(name in table for name in (*filter(None, single.values()), *exact))
    for what, name in single.items():
        if name is not None and name not in table:
            if not headed and (not known or any(check.is_number(each) for each in table)):
                numeric = "it holds numbers" if any(map(check.is_number, table)) else "no declared name is in it"
                hint = f"The first line must name the columns; in this file {numeric}. {HEADERLESS}"
                raise check.fail(what, "one of the columns", name, hint)
            column_named(what, name, table)


def column_named(what: str, name: str, names: Iterable[str]) -> str:
    """`name` if it is one of the columns; otherwise an error with the three that are nearest."""
    known = list(names)
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
    rule = f"one of the {len(known)} columns"
    raise check.fail(what, rule, name, f"The nearest are {', '.join(map(repr, near))}.")


def _matched(given: Mapping[str, Value], features: Sequence[str], name: str) -> dict[str, tuple[str, Value]]:
    """Column -> (key, value) of the declaration that counts for it; every key must be of some column."""
    known = set(features)
    found = {key: (key, value) for key, value in given.items() if key in known}
    for key in sorted((key for key in given if key not in known), key=len, reverse=True):
        if not is_pattern(key):
            check.choice(name if name in ("drop", "indicator") else f"key of {name}", key, features)
        columns = [column for column in features if fnmatchcase(column, key)]
        if not columns:
            near = difflib.get_close_matches(key.strip("*?"), features, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "Leave it out."
            raise check.fail(f"pattern of {name}", "one that some column matches", key, hint)
        for column in columns:
            before, _ = found.setdefault(column, (key, given[key]))
            if _rank(column, before) == _rank(column, key) and before != key:
                rule = f"clear for column {column!r}: two patterns of one length match it"
                raise check.fail(name, rule, [before, key], "Name the column itself.")
    return found


def _rank(column: str, key: str) -> tuple[bool, int]:
    """Which of two keys for `column` counts: its own name first, then the longest pattern."""
    return key == column, len(key)


def _kind(column: str, chosen: Mapping[str, Mapping[str, tuple[str, Any]]]) -> tuple[str, Any] | None:
    """What is declared about a column, "bounds", "categories" or "dates", and how; None where nothing is."""
    kinds = {kind: found[column] for kind, found in chosen.items() if column in found}
    ranked = sorted(kinds, key=lambda kind: _rank(column, kinds[kind][0]))
    if len(ranked) > 1 and _rank(column, kinds[ranked[-1]][0]) == _rank(column, kinds[ranked[-2]][0]):
        raise check.fail("a column", f"declared either by {' or by '.join(kinds)}", [column])
    return (ranked[-1], kinds[ranked[-1]][1]) if ranked else None


def _column(name: str, kind: str, given: Any, *, coded: bool, read: bool) -> Column:
    """A column as declared, or `read` off the data, where equal bounds, of a constant column, encode as 0."""
    if kind == "categories":
        kinds = tuple(given) if read else labels.declared(f"categories of {name}", given)
        return Column(name, CODE if coded else CATEGORY, categories=kinds)
    if kind == "dates":
        low, high, how = _dates(name, given)
        return Column(name, DATE, low, high, date_format=how)
    low, high = given if read else pair(f"bounds of {name}", given)
    if coded and not (low.is_integer() and high.is_integer()):
        if read:
            told = check.private_values(given)
            raise check.fail(f"column {name!r}", "of integers or texts, as users and items are", told)
        raise check.fail(f"bounds of {name}", "integers for a column of users or items", list(given))
    return Column(name, CODE if coded else NUMBER, low, high)


def _with_missing(column: Column, declared: Declarations, fill: tuple[str, Any] | None, indicator: bool) -> Column:
    if column.kind not in (NUMBER, DATE):
        if fill is not None and not is_pattern(fill[0]):
            hint = 'Declare "" as one of its categories instead.'
            raise check.fail(f"fill of {column.name}", "left out for a column of categories", fill[1], hint)
        return replace(column, missing=declared.codes)
    if indicator and fill is None:
        rule = "given for every column with an indicator"
        raise check.fail(f"fill of {column.name}", rule, None, "It is the constant that stands for a missing cell.")
    value = None if fill is None else _constant(column, fill[1])
    return replace(column, missing=declared.codes, fill=value, indicator=indicator)


def _constant(column: Column, given: Any) -> float:
    """The fill of a column, inside of its declared bounds."""
    name = f"fill of {column.name}"
    if column.kind == DATE:
        value = date_of_end(given, column.date_format)
        check.that(column.low <= value <= column.high, name, "a date in the declared range", str(given))
        return value
    return check.real(name, given, low=column.low, high=column.high, hint="It must be inside of the column's bounds.")


def _dates(column: str, given: object) -> tuple[float, float, str]:
    name, form = f"dates of {column}", "a format such as '%d.%m.%Y' where they are not ISO 8601"
    rule = f"a list [first, last] of dates such as 2015-01-01, and {form}"
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) not in (2, 3):
        raise check.fail(name, rule, given)
    how = given[2] if len(given) == 3 else ""
    if not isinstance(how, str):
        raise check.fail(name, rule, list(given))
    low, high = (date_of_end(end, how) for end in given[:2])
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise check.fail(name, f"{rule}, first before last", [str(each) for each in given])
    return low, high, how


def pair(name: str, given: object) -> tuple[float, float]:
    """A pair of finite numbers low < high."""
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise check.fail(name, "a pair (low, high)", given)
    low = check.real(f"low of {name}", given[0])
    return low, check.real(f"high of {name}", given[1], low=low, open_low=True)


def read_off(name: str, values: np.ndarray, codes: Sequence[str], *, toml: bool) -> tuple[str, Any]:
    """("bounds", (low, high)) or ("categories", names) of a column that nothing is declared about: a leak.

    Args:
        name: of the column.
        values: its cells.
        codes: texts of missing cells.
        toml: whether messages speak of the keys of a TOML file.

    Raises:
        InvalidInput: there are more than 256 different texts.
    """
    texts, _ = labels.distinct(values[~missing_cells(values, codes)])
    if all(check.is_number(value) for value in texts):
        finite = [value for value in labels.numbers(np.array(texts)) if np.isfinite(value)]
        low, high = min(finite, default=0.0), max(finite, default=0.0)
        return "bounds", (low, high)
    if len(texts) > MOST_UNDECLARED_CATEGORIES:
        rule = f"declared: at most {MOST_UNDECLARED_CATEGORIES} categories are read from a column"
        hint = "Pass categories=... or drop=[...]."
        if toml:
            hint = f"Leave it out by drop = [{name!r}] of [table], or list its values under [table.categories]."
        raise check.fail(name, rule, f"{len(texts)} different texts", hint)
    return "categories", tuple(texts)


def undeclared_hint(what: str, columns: Iterable[str], *, toml: bool) -> str:
    """What to declare in place of the bounds or categories that were read off `columns`."""
    first = next(iter(columns))
    if not toml:
        return f"Pass {what}={{{first!r}: {READ[what]}, ...}} from public knowledge."
    form = "[low, high]" if what == "bounds" else "[...]"
    key = first if first.replace("_", "").isalnum() and first.isascii() else f'"{first}"'
    more = ' A pattern such as "lab_*" stands for many columns.' if what == "bounds" else ""
    return f"Under [table.{what}] declare {key} = {form}, ... from public knowledge.{more}"
