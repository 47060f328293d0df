"""`Draft`: what is answered and what is still asked about a table, and the TOML file that `tacit train` takes.

The command line and the workbench ask the same: both give what somebody typed to `Draft.answered`, by field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from tacit import check
from tacit.data import labels
from tacit.data.delimited import TableFormat
from tacit.data.files import listed
from tacit.data.schema import date_of_end
from tacit.errors import InvalidInput
from tacit.tradeoff.gaussian import gaussian_mu

NUMBER, DATE, CATEGORY, DROP = "number", "date", "category", "drop"
ROLES = (NUMBER, DATE, CATEGORY, DROP)
"""What a column can be; the target and the column of persons are named apart."""
STATED = ("owner", "contact", "purpose")
"""What may be said of the release, by the names of `tacit.statement.Subject`."""
METHODS = ("auto", "gradient", "objective")
_LOOPS = ("auto", "gradient")  # methods that can train by DP-SGD
FROM_FILE = "this file"
"""The source of an answer that was read off the data, so that the guarantee is only claimed."""
USUAL_CODES = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?", "-", ".")
"""Texts that stand for a missing cell in the files of common programs."""
_SECTIONS = {
    NUMBER: ("bounds", "Between which values? Values outside count as the nearest end."),
    DATE: ("dates", "Which first and last day? Values outside count as the nearest end."),
    CATEGORY: ("categories", 'Which values can occur? "" is a missing cell. Drop free text and names.'),
}
_LARGEST_BATCH = 4096
_EPOCH = date(1970, 1, 1).toordinal()
EXPECTED = {
    "classification": ((4.0, 26, 62), (12.0, 61, 88), (40.0, 93, 101), (120.0, 100, 103), (math.inf, 92, 118)),
    "regression": ((4.0, -1, 22), (12.0, 23, 28), (40.0, 69, 86), (120.0, 86, 95), (math.inf, 101, 115)),
}
"""Below which n mu / p, the middle half of 32 public tables kept so many hundredths of the lead (docs/auto.md)."""


@dataclass(frozen=True)
class Entry:
    """A column, or the columns under one pattern, and what is answered about it; empty where nothing is.

    Attributes:
        key: name or pattern.
        columns: that it stands for.
        role: one of `ROLES`; of the target "category" for classes, "number" for a range.
        low: least number or first day, as typed.
        high: largest number or last day.
        date_format: of `strptime`, empty for ISO 8601.
        values: every category or class.
        fill: constant for a missing cell; the middle of the range where it is empty.
        source: where low, high and values are known from.
    """

    key: str
    columns: tuple[str, ...]
    role: str
    low: str = ""
    high: str = ""
    date_format: str = ""
    values: tuple[str, ...] = ()
    fill: str = ""
    source: str = ""

    @property
    def known(self) -> bool:
        """Whether nothing is asked about it any more."""
        return self.role == DROP or bool(self.values if self.role == CATEGORY else self.low and self.high)

    def answered(self, given: Mapping[str, str]) -> Entry:
        """With the fields "role:KEY", "low:KEY", ... that were given; categories stand one on a line."""
        typed = {name: given[f"{name}:{self.key}"].strip() for name in _TYPED if f"{name}:{self.key}" in given}
        if f"values:{self.key}" in given:
            lines = (line.strip() for line in given[f"values:{self.key}"].splitlines())
            typed["values"] = tuple(line for line in lines if line)  # type: ignore[assignment]
        return replace(self, **typed)

    def faults(self, codes: Sequence[str]) -> Iterable[tuple[str, Callable[[], object]]]:
        """(field, check that raises `InvalidInput`) of each answer."""
        yield "role", lambda: check.choice(f"role of {self.key}", self.role, ROLES)
        if self.role == CATEGORY:
            yield "values", lambda: self._check_values(codes)
        elif self.role in (NUMBER, DATE):
            yield "low", lambda: self._needs("a lowest value", self.low) or self.end(self.low)
            yield "high", lambda: self._needs("a highest value", self.high) or self._check_order()
            yield "fill", lambda: self._check_fill()
        if self.role in _SECTIONS:
            yield "source", lambda: self._needs("a source: where its values are known from", self.source)

    def end(self, typed: str) -> float:
        """A typed number, or the days since 1970 of a typed date."""
        if self.role == DATE:
            found = date_of_end(typed, self.date_format)
            if found != found:
                form = self.date_format or "2020-12-31"
                raise check.fail(f"a day of {self.key}", f"a date such as 2020-12-31, or in the form {form}", typed)
            return found
        return check.real(f"a bound of {self.key}", check.read_real(f"a bound of {self.key}", _point(typed)))

    @property
    def middle(self) -> str:
        """The constant for missing cells as TOML, by default the middle of the public range."""
        if self.fill and self.role == DATE:
            return quoted(self.fill)
        middle = self.end(self.fill) if self.fill else (self.end(self.low) + self.end(self.high)) / 2
        return quoted(str(date.fromordinal(_EPOCH + round(middle)))) if self.role == DATE else _number(middle)

    def _needs(self, what: str, given: object) -> None:
        if not given:
            raise InvalidInput(f"{self.key} needs {what}.")

    def _check_order(self) -> None:
        try:
            low = self.end(self.low)
        except InvalidInput:
            low = -float("inf")
        check.that(self.end(self.high) > low, f"the highest value of {self.key}", "above the lowest", self.high)

    def _check_fill(self) -> None:
        if self.fill and self.known and not self.end(self.low) <= self.end(self.fill) <= self.end(self.high):
            raise check.fail(f"the constant for a missing {self.key}", "inside of the range", self.fill)

    def _check_values(self, codes: Sequence[str]) -> None:
        self._needs("at least two values, one a line", self.values)
        labels.declared(f"values of {self.key}", self.values)
        both = [value for value in self.values if value in codes]
        hint = "Leave it out here, or among the codes of missing cells."
        check.that(not both, f"values of {self.key}", "other texts than those of missing cells", both, hint)

    @property
    def inside(self) -> str:
        """What stands in the brackets of the declaration, a question mark for what is not answered."""
        if self.role == CATEGORY:
            return ", ".join(map(quoted, self.values)) or "?"
        written = quoted if self.role == DATE else lambda typed: _number(self.end(typed))
        ends = [written(each) if each else "?" for each in (self.low, self.high)]
        return ", ".join([*ends, *([quoted(self.date_format)] if self.date_format else [])])


_TYPED = ("role", "low", "high", "date_format", "fill", "source")


@dataclass(frozen=True)
class Draft:
    """A drafted configuration of a table.

    Attributes:
        path: of the file, as the configuration names it.
        form: how it is written.
        records: rows of the file.
        task: one of `labels.TASKS`.
        target: what is predicted.
        entries: the features, and what is left out.
        columns: names of all columns.
        missing: codes of missing cells; None where they are not answered yet.
        indicator: columns in which absence says something itself.
        user: the column that says whose a record is; empty where each is somebody else's.
        method: one of `METHODS`.
        epsilon: as typed.
        delta: as typed; min(1e-5, n^-1.1) where it is empty.
        stated: owner, contact and purpose, for the statement.
        notes: what was noticed about the file, a sentence each.
        looked: whether values were read.
    """

    path: str
    form: TableFormat
    records: int
    task: str
    target: Entry
    entries: tuple[Entry, ...]
    columns: tuple[str, ...]
    missing: tuple[str, ...] | None = None
    indicator: tuple[str, ...] = ()
    user: str = ""
    method: str = "auto"
    epsilon: str = "2.0"
    delta: str = ""
    stated: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), repr=False)
    looked: bool = False

    def answered(self, given: Mapping[str, str]) -> Draft:
        """With the fields that were given: those of each entry, those of `STATED`, and the settings."""
        names = ("method", "epsilon", "delta", "user")
        plain: dict[str, Any] = {name: given[name].strip() for name in names if name in given}
        plain["stated"] = {**self.stated, **{name: given[name].strip() for name in STATED if name in given}}
        if "missing" in given:
            plain["looked"] = False
            plain["missing"] = tuple(code.strip() for code in given["missing"].split(",") if code.strip())
        every = tuple(entry.answered(given) for entry in self.entries if entry.columns != (plain.get("user"),))
        return replace(self, target=self.target.answered(given), entries=every, **plain)

    def faults(self) -> dict[str, str]:
        """A sentence for each field whose answer is missing or breaks its rule; empty where it can be trained on."""
        checks: dict[str, Callable[[], object]] = {
            "epsilon": lambda: check.positive("epsilon", check.read_real("epsilon", _point(self.epsilon))),
            "delta": self._check_delta,
            "method": self._check_method,
            "user": self._check_user,
            "features": self._check_features,
        }
        for entry in (self.target, *self.entries):
            checks |= {f"{name}:{entry.key}": asked for name, asked in entry.faults(self.missing or ())}
        found = {}
        for name, asked in checks.items():
            try:
                asked()
            except InvalidInput as error:
                found[name] = str(error)
        return found

    @property
    def read(self) -> list[str]:
        """What was read off the data and makes the guarantee only claimed."""
        target = "target_range" if self.task == "regression" else "classes"
        found = [target] if self.target.source == FROM_FILE else []
        for role, (name, _) in _SECTIONS.items():
            keys = [entry.key for entry in self.entries if entry.role == role and entry.source == FROM_FILE]
            found += [f"{name} of {', '.join(keys)}"] if keys else []
        return [*found, "missing-value codes"] if self.looked and self.missing else found

    @property
    def promise(self) -> str:
        """What a training costs, before it reads a value: epsilon, delta and the standing that they can have."""
        wrong = self.faults()
        for name in ("epsilon", "delta"):
            if name in wrong:
                return wrong[name]
        unit = f"everything of one {self.user}" if self.user else "one record"
        cost = f"Epsilon {float(_point(self.epsilon)):g} at delta {self.delta_used:g} for {unit} of {self.records:,}"
        if self.read:
            return f"{cost}; only claimed, because of what was read from the file: {'; '.join(self.read)}."
        if wrong:
            return f"{cost}. Answers that are missing or wrong: {len(wrong)}."
        return f"{cost}; it can be proven, because every declaration has a public source."

    @property
    def expected(self) -> str:
        """How accurate a model may be, from the numbers of records and columns alone; empty where nothing is known."""
        wrong = self.faults()
        if self.task not in EXPECTED or self.user or any(name in wrong for name in ("epsilon", "delta", "features")):
            return ""
        used = [entry for entry in self.entries if entry.role != DROP]
        columns = sum(len(entry.columns) * (max(len(entry.values), 1)) for entry in used)
        signal = 0.8 * self.records * gaussian_mu(float(_point(self.epsilon)), self.delta_used) / columns
        low, high = next((low, high) for below, low, high in EXPECTED[self.task] if signal < below)
        few = " Few records for so many columns: leave some out or raise epsilon." if high < 90 else ""
        return (
            f"Expected: {max(low, 0)} to {high} % of the lead over a constant answer that a linear model without "
            f"privacy has, as the middle half of public tables of like shape.{few}"
        )

    @property
    def text(self) -> str:
        """The configuration as TOML, with a question in a comment wherever an answer is needed."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        shown = Environment(
            loader=PackageLoader("tacit.data", "templates"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        shown.filters |= {"toml": quoted, "key": key_of}
        ranged = [entry for entry in self.entries if entry.role in (NUMBER, DATE) and entry.known]
        return shown.get_template("table.toml.j2").render(
            draft=self,
            path=check.visible(self.path),
            settings=self._settings(),
            epsilon=float(_point(self.epsilon)),
            form={name: value for name, value in self.form.spec().items() if value != _FORM[name]},
            others=[each for each in labels.TASKS if each != self.task],
            dropped=[name for entry in self.entries if entry.role == DROP for name in entry.columns],
            sections=[(name, asked, self._declared(role)) for role, (name, asked) in _SECTIONS.items()],
            filled=[] if self.missing is None or self.task == "ratings" else ranged,
            stated=self._stated(),
        )

    @property
    def delta_used(self) -> float:
        """The delta of the guarantee: the one that was given, or below 1 / n."""
        return check.read_real("delta", _point(self.delta)) if self.delta else usual_delta(self.records)

    def _settings(self) -> dict[str, Any]:
        """The method, where it is named, and the settings of the loop, where one may train."""
        named = {} if self.method == "gradient" else {"method": self.method}
        return named | (usual_settings(self.records, self.task) if self.method in _LOOPS else {})

    def _check_delta(self) -> None:
        delta = check.delta(self.delta_used)
        if delta * self.records >= 1:
            raise check.fail("delta", f"below 1 / {self.records:,} records = {1 / self.records:.2g}", self.delta)

    def _check_method(self) -> None:
        check.choice("method", self.method, METHODS)
        if self.method not in _LOOPS and (self.user or self.task != "classification"):
            rule = "auto or gradient where whole persons are protected, or where the answers are no classes"
            raise check.fail("method", rule, self.method)

    def _check_user(self) -> None:
        if self.user == self.target.key:
            raise check.fail("the column of persons", "another one than what is predicted", self.user)

    def _check_features(self) -> None:
        used = [name for entry in self.entries if entry.role != DROP for name in entry.columns]
        check.that(used, "columns", "at least one that is no target and not left out", "none")
        if self.task == "ratings" and len(used) != 2:
            raise check.fail("columns", "two for ratings, user and item", f"{len(used)}", "Leave the others out.")

    def _declared(self, role: str) -> list[Entry]:
        """The entries of a role; a missing cell is a category of its own, once its codes are known."""
        found = [entry for entry in self.entries if entry.role == role]
        more = role == CATEGORY and self.missing is not None and self.task != "ratings"
        return [replace(each, values=each.values and (*each.values, "")) for each in found] if more else found

    def _stated(self) -> dict[str, Any]:
        """What was said of the release, and where the declarations are known from."""
        sources: dict[str, list[str]] = {}
        for entry in (self.target, *self.entries):
            if entry.role != DROP and entry.source not in ("", FROM_FILE):
                sources.setdefault(entry.source, []).append(entry.key)
        facts = [f"known from {source}: {listed(keys, 20)}" for source, keys in sources.items()]
        return {name: value for name, value in {**self.stated, "facts": facts}.items() if value}


_FORM = TableFormat().spec()


AVERAGED = {"model": "linear", "zero_start": True, "momentum": 0.9, "average": 0.95}
"""A linear model from zero whose weights are averaged over the steps."""


def usual_delta(records: int) -> float:
    """A delta below 1 / n: min(1e-5, n^-1.1), cut to two digits."""
    return min(1e-5, float(f"{0.99 * float(records) ** -1.1:.1e}"))


def usual_settings(records: int, task: str = "classification") -> dict[str, Any]:
    """Settings of a linear model from zero by DP-SGD, whose weights are averaged: constants looked at on Adult.

    Squared errors have no bound on their slope, and steps as long as those of classes do not settle.
    """
    return {
        **AVERAGED,
        "batch_size": max(1, min(records // 8, _LARGEST_BATCH)),
        "epochs": 40.0,
        "learning_rate": 0.1 if task == "regression" else 2.0,
        "clip_norm": 0.5,
        "nonprivate_learning_rate": 0.2,
    }


def quoted(value: object) -> str:
    """`value` as TOML writes it: a string in quotation marks, true or false, a number, a list."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(quoted, value))}]"
    return json.dumps(value, ensure_ascii=False)


def key_of(name: str) -> str:
    """`name` as a key of TOML."""
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else quoted(name)


def _point(typed: str) -> str:
    return typed.replace(",", ".") if typed.count(",") == 1 and "." not in typed else typed


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
