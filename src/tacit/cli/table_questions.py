"""`tacit table init --ask`: what a draft asks, in at most twelve prompts; one may answer for all columns at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tacit import check
from tacit.cli.console import screen
from tacit.data.answers import CATEGORY, DATE, DROP, METHODS, NUMBER, USUAL_CODES, Draft, Entry
from tacit.data.declarations import column_named
from tacit.data.delimited import TableFormat
from tacit.data.draft import draft_of, look_at
from tacit.data.labels import TASKS
from tacit.errors import TacitError

_LARGEST = 1_000_000  # bytes of a list of categories
_SHOWN = 5  # faults of one answer
_WAYS = {
    NUMBER: (("low", "high"), "Lowest and highest value", '"income=0..200000; age=0..110"'),
    DATE: (("low", "high"), "First and last day", '"born=1900-01-01..2012-12-31"'),
    CATEGORY: (("values",), "Every value that can occur", '"ward=north|south; code=@codes.txt"'),
}
_MORE = '"*=..." for the rest, "look" for what occurs (read, unpaid)'


def ask_about(
    name: str, columns: Mapping[str, np.ndarray], form: TableFormat, *, target: str | None, task: str
) -> Draft:
    """The draft of the table with every question answered.

    Args:
        name: of the file.
        columns: of it, by name.
        form: how it is written.
        target: proposed first.
        task: proposed first.

    Raises:
        InvalidInput: the input ends before the last answer.
    """

    def drafted(now: Draft, goal: str, kind: str) -> Draft:
        if (goal, kind) == (now.target.key, now.task):
            return now
        return draft_of(name, columns, form, target=goal, task=kind)

    def goal(now: Draft, typed: str) -> Draft:
        return drafted(now, column_named("target", typed, columns) if typed else now.target.key, now.task)

    found = draft_of(name, columns, form, target=target, task=task)
    first = _Question(lambda now: f"Column to predict [{now.target.key}]", goal)
    second = _Question(
        lambda now: f"Task: {', '.join(TASKS)} [{now.task}]",
        lambda now, typed: drafted(now, now.target.key, typed or now.task),
    )
    for question in (first, second, *_further(columns)):
        found = question.asked(found)
    return found


@dataclass(frozen=True)
class _Question:
    """One prompt.

    Attributes:
        prompt: of a draft; empty where nothing is asked.
        step: the draft with an answer.
        fields: whose faults are told and asked for again.
        about: the entries whose fields they are; all by default.
    """

    prompt: Callable[[Draft], str]
    step: Callable[[Draft, str], Draft]
    fields: tuple[str, ...] = ()
    about: Callable[[Draft], Sequence[Entry]] = lambda now: (now.target, *now.entries)

    def asked(self, now: Draft) -> Draft:
        """The draft with the answer; what is wrong is told and asked for again, and what was right stays."""
        prompt = self.prompt(now)
        while prompt:
            try:
                now = self.step(now, input(f"{prompt}: ").strip())
            except EOFError:
                raise check.fail("the answers", "given to every question", "an end of the input") from None
            except TacitError as error:
                _tell(str(error))
                continue
            wrong = self._wrong(now)
            for sentence in wrong[:_SHOWN]:
                _tell(sentence)
            if not wrong:
                break
        return now

    def _wrong(self, now: Draft) -> list[str]:
        """A sentence for each of its entries whose answer breaks its rule, and for the settings beside them."""
        keys = [entry.key for entry in self.about(now)]
        found: dict[str, str] = {}
        for name, sentence in now.faults().items():
            field, colon, key = name.partition(":")
            if field in self.fields and (not colon or key in keys):
                found.setdefault(key or field, sentence)
        return list(found.values())


def _tell(sentence: str) -> None:
    screen(stderr=True).print(sentence, soft_wrap=True)


def _further(columns: Mapping[str, np.ndarray]) -> Iterator[_Question]:
    """What is asked once target and task are known."""
    yield _Question(
        lambda _: "Column of persons, if one may have several records (Enter: none)",
        lambda now, typed: now.answered({"user": column_named("user", typed, columns) if typed else ""}),
    )
    yield _Question(_roles_prompt, lambda now, typed: now.answered(_roles(now, typed)), ("role", "features"))
    yield from (_range_question(role, columns) for role in _WAYS)
    yield _Question(
        _target_prompt,
        lambda now, typed: _target(now, typed, columns),
        ("values", "low", "high"),
        lambda now: (now.target,),
    )
    codes = ",".join(USUAL_CODES)
    yield _Question(
        lambda _: f"Codes of missing cells, besides an empty one [{codes}]",
        lambda now, typed: now.answered({"missing": typed or codes}),
        ("values",),
    )
    yield _Question(_fill_prompt, lambda now, typed: now.answered(_each("fill", typed, now.entries)), ("fill",))
    yield _Question(_source_prompt, _with_sources, ("source",))
    yield _Question(
        lambda now: f"Epsilon, delta and method ({', '.join(METHODS)}) [2.0, {now.delta_used:g}, gradient]",
        _with_cost,
        ("epsilon", "delta", "method"),
    )


def _range_question(role: str, columns: Mapping[str, np.ndarray]) -> _Question:
    """The question about the ranges, days or categories of all columns of a role."""
    fields, what, example = _WAYS[role]

    def about(now: Draft) -> list[Entry]:
        return [entry for entry in now.entries if entry.role == role]

    def prompt(now: Draft) -> str:
        asked = ", ".join(entry.key for entry in about(now))
        return f"{what} of {asked}, as {example}; {_MORE}" if asked else ""

    return _Question(prompt, lambda now, typed: _declared(now, typed, about(now), columns), fields, about)


def _roles_prompt(now: Draft) -> str:
    for number, entry in enumerate(now.entries, 1):
        role = "left out" if entry.role == DROP else entry.role
        screen().print(f"{number:4d} {entry.key:24} {role} {entry.date_format}".rstrip())
    return 'Columns to change, as "2=drop; born=date %d.%m.%Y"; number, date, category or drop (Enter: none)'


def _roles(now: Draft, typed: str) -> dict[str, str]:
    given = {}
    for key, value in _items(typed, now.entries):
        role, _, form = value.partition(" ")
        given |= {f"role:{key}": role} | ({f"date_format:{key}": form.strip()} if form else {})
    return given


def _declared(now: Draft, typed: str, asked: Sequence[Entry], columns: Mapping[str, np.ndarray]) -> Draft:
    """With the ends or categories of the columns that are `asked` for."""
    changed: dict[str, Entry] = {}
    given: dict[str, str] = {}
    for key, value in _items(typed, asked, [entry.key for entry in asked if not entry.known]):
        (entry,) = [entry for entry in asked if entry.key == key]
        if value == "look":
            changed[key] = look_at(entry, columns)
        else:
            given |= _values(entry, value)
    return replace(now, entries=tuple(changed.get(entry.key, entry) for entry in now.entries)).answered(given)


def _values(entry: Entry, value: str) -> dict[str, str]:
    if entry.role == CATEGORY:
        return {f"values:{entry.key}": _listed(value)}
    low, found, high = value.partition("..")
    if not found:
        raise check.fail(f"the range of {entry.key}", "LOWEST..HIGHEST", value)
    return {f"low:{entry.key}": low, f"high:{entry.key}": high}


def _listed(value: str) -> str:
    """Categories, one a line: those between bars, or those of a file."""
    if not value.startswith("@"):
        return value.replace("|", "\n")
    file = Path(value[1:])
    if not file.is_file() or file.stat().st_size > _LARGEST:
        raise check.fail("the list of categories", f"a file of at most {_LARGEST} bytes", value)
    return file.read_text(encoding="utf-8", errors="replace")


def _target_prompt(now: Draft) -> str:
    if now.task == "regression":
        return f'Lowest and highest {now.target.key} that can occur, as "0..100" (or look)'
    return f'Classes of {now.target.key}, as "no|yes" (or look)'


def _target(now: Draft, typed: str, columns: Mapping[str, np.ndarray]) -> Draft:
    if typed == "look":
        return replace(now, target=look_at(now.target, columns))
    return now.answered(_values(now.target, typed))


def _fill_prompt(now: Draft) -> str:
    asked = [entry.key for entry in now.entries if entry.role in (NUMBER, DATE)]
    if not asked or now.task == "ratings":
        return ""
    return f'Constants for missing cells, as "{asked[0]}=VALUE" (Enter: the middle of each range)'


def _source_prompt(now: Draft) -> str:
    asked = [entry.key for entry in (now.target, *now.entries) if entry.role != DROP and not entry.source]
    if not asked:
        return ""
    return f'Where are the answers known from? One source for all, or "{asked[0]}=SOURCE; *=SOURCE"'


def _with_sources(now: Draft, typed: str) -> Draft:
    every = (now.target, *now.entries)
    typed = f"*={typed}" if typed and "=" not in typed else typed
    return now.answered(_each("source", typed, [each for each in every if each.role != DROP and not each.source]))


def _with_cost(now: Draft, typed: str) -> Draft:
    parts = [part.strip() for part in typed.replace(";", ",").split(",")]
    if len(parts) > 3:
        raise check.fail("the answer", "at most three: epsilon, delta, method", typed)
    return now.answered({name: part for name, part in zip(("epsilon", "delta", "method"), parts, strict=False) if part})


def _each(field: str, typed: str, entries: Sequence[Entry]) -> dict[str, str]:
    return {f"{field}:{key}": value for key, value in _items(typed, entries, [entry.key for entry in entries])}


def _items(typed: str, entries: Sequence[Entry], rest: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """(key, answer) of "NAME=ANSWER; 3=ANSWER; *=ANSWER", where * stands for those of `rest` that are not named."""
    known = [entry.key for entry in entries]
    found: dict[str, str] = {}
    others = None
    for part in filter(None, map(str.strip, typed.split(";"))):
        name, equals, answer = (each.strip() for each in part.partition("="))
        if not equals:
            raise check.fail("each answer", "COLUMN=ANSWER", part)
        if name == "*":
            others = answer
        elif name not in known and name.isdecimal() and 0 < int(name) <= len(known):
            found[known[int(name) - 1]] = answer
        else:
            found[column_named("the column", name, known)] = answer
    yield from found.items()
    if others is not None:
        yield from ((key, others) for key in rest if key not in found)
