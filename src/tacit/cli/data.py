"""`tacit data`: which data sets there are, which files they need, and fetching them.

`tacit table`: a first configuration for a table of one's own; by `--ask` its questions, in at most twelve prompts, of
which one may answer for all columns at once.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit import check, data
from tacit.cli.console import CommandGroup, screen
from tacit.data.answers import CATEGORY, DATE, DROP, METHODS, NUMBER, USUAL_CODES, Draft, Entry
from tacit.data.declarations import column_named
from tacit.data.delimited import TableFormat, is_parquet, numbered, read_columns, table_file
from tacit.data.draft import draft, draft_of, format_of, look_at
from tacit.data.labels import TASKS
from tacit.errors import TacitError
from tacit.serialization import json_text, write_text


def data_command(
    name: str | None = None, *, data_dir: Path | None = None, download: bool = False, json: bool = False
) -> None:
    """List the data sets, show the files and licence of one, or download it.

    Args:
        name: Name of one data set; all by default.
        download: Download the missing files of NAME.
        data_dir: Folder of the data files.
        json: Print JSON.
    """
    check.that(not download or name is not None, "NAME", "given with --download", None)
    if download and name is not None:
        data.download(name, data_dir=data_dir)
    facts = [data.describe(each, data_dir=data_dir) for each in ([name] if name else data.names())]
    if json:
        print(json_text({"datasets": facts}))
        return
    from tacit.reports import plain_table

    rows = [
        {"name": fact["name"], "train": str(fact["rows"]["train"]), "test": str(fact["rows"]["test"])}
        | {"features": " x ".join(map(str, fact["features"])), "answers": _answers(fact)}
        | {"here": "yes" if fact["present"] else "no"}
        for fact in facts
    ]
    console = screen()
    console.print(plain_table(rows))
    for fact in facts if name else []:
        console.print(f"{fact['summary']}\nLicence: {fact['licence']}")
        for file in fact["files"]:
            console.print(f"{file['path']}  {file['bytes']} bytes  {file['state']}", soft_wrap=True)


def _answers(fact: dict[str, Any]) -> str:
    kinds = {"classification": "classes", "ratings": "stars"}
    return f"{len(fact['classes'])} {kinds[fact['task']]}" if fact["task"] in kinds else "numbers"


table_app = CommandGroup("Draft a configuration for a table of your own.")


@table_app.callback()
def _group() -> None:
    """Draft a configuration for a table of your own."""


@table_app.command()
def init(
    file: Path,
    *,
    target: str | None = None,
    task: str = "classification",
    look: bool = False,
    separator: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    no_header: bool = False,
    names: str | None = None,
    out: Path | None = None,
    ask: bool = False,
) -> None:
    """Draft the configuration of a table: its header and the types of its columns are read, values only with --look.

    Args:
        file (FILE): CSV or Parquet file.
        target: Column to predict; the last one by default.
        task: classification, regression or ratings.
        look: Propose ranges and categories that occur: read from the data, unpaid.
        separator: Between cells; found out by default.
        decimal: "." or ",", with --separator.
        encoding: Of the text, with --separator or --no-header.
        no_header: No line names the columns; see --names.
        names: Names of the columns, with commas between them.
        out: TOML file to write; - prints it.
        ask: Ask every question here, in at most twelve prompts.
    """
    file = table_file(file)
    home = out if out is not None else file.with_name(file.name.split(".")[0] + ".toml")
    to_screen = str(home) == "-"
    if home.exists() and not to_screen:
        raise check.fail("out", "a file that is not there yet", str(home), "Name another one by --out.")
    check.that(not ask or not look, "--look", "left out with --ask", "both", 'Answer "look" where values may be read.')
    form = _form(file, separator, decimal, encoding, no_header or names is not None, names)
    if ask:
        form = form or (TableFormat() if is_parquet(file) else format_of(file))
        found = ask_about(file.name, read_columns(file, form), form, target=target, task=task)
    else:
        found = draft(file, target=target, task=task, look=look, form=form)
    if home.resolve().parent != file.resolve().parent and not to_screen:
        found = replace(found, path=str(file.resolve()))
    for note in found.notes:
        print(note, file=sys.stderr)
    if look:
        print("Values were read: what the draft proposes from them is no public knowledge.", file=sys.stderr)
    if to_screen:
        print(found.text)
        return
    write_text(home, found.text)
    if ask:
        print("\n".join(filter(None, (found.promise, found.expected, f"Train: tacit train {home}"))))
    else:
        print(f"Answer the questions in {home}, then: tacit train {home}")


def _form(
    file: Path, separator: str | None, decimal: str, encoding: str, no_header: bool, names: str | None
) -> TableFormat | None:
    """How the file is written; None to find it out."""
    if separator is None and not no_header:
        return None
    tab = {"\\t": "\t", "tab": "\t"}.get(separator or "", separator)
    form = format_of(file) if tab is None else TableFormat(separator=tab, decimal=decimal, encoding=encoding)
    if not no_header:
        return form
    given = tuple(name.strip() for name in names.split(",")) if names else numbered(file, form)
    return replace(form, header=False, names=given)


_LARGEST = 1_000_000  # bytes of a list of categories
_SHOWN = 5  # faults of one answer
_WAYS = {
    NUMBER: ("Lowest and highest value", "0..200000"),
    DATE: ("First and last day", "1900-01-01..2012-12-31"),
    CATEGORY: ("Every value that can occur", "north|south, or @FILE with one a line"),
}
_RANGE = ("low", "high", "values")
_SETTINGS = ("epsilon", "delta", "method")


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

    def of_target(now: Draft, typed: str) -> Draft:
        return drafted(now, column_named("target", typed or now.target.key, columns), now.task)

    def of_user(now: Draft, typed: str) -> Draft:
        return now.answered({"user": column_named("user", typed, columns) if typed else ""})

    now = draft_of(name, columns, form, target=target, task=task)
    now = _asked(now, f"Column to predict [{now.target.key}]", of_target)
    tasks = f"Task: {', '.join(TASKS)} [{now.task}]"
    now = _asked(now, tasks, lambda now, typed: drafted(now, now.target.key, typed or now.task))
    now = _asked(now, "Column of persons, if one may have several records (Enter: none)", of_user, ("user",))
    now = _asked(now, _roles_prompt(now), _with_roles, ("role", "features"))
    for role in _WAYS:
        now = _with_range(now, lambda now, role=role: [entry for entry in now.entries if entry.role == role], columns)
    now = _with_range(now, lambda now: [now.target], columns)
    codes = ",".join(USUAL_CODES)
    missing = f"Codes of missing cells, besides an empty one [{codes}]"
    now = _asked(now, missing, lambda now, typed: now.answered({"missing": typed or codes}), ("values",))
    now = _asked(now, _fill_prompt(now), lambda now, typed: now.answered(_each("fill", typed, now.entries)), ("fill",))
    now = _asked(now, _source_prompt(now), _with_sources, ("source",))
    cost = f"Epsilon, delta and method ({', '.join(METHODS)}) [2.0, {now.delta_used:g}, auto]"
    return _asked(now, cost, _with_cost, _SETTINGS)


def _every(now: Draft) -> list[Entry]:
    return [now.target, *now.entries]


def _asked(
    now: Draft,
    prompt: str,
    step: Callable[[Draft, str], Draft],
    fields: tuple[str, ...] = (),
    about: Callable[[Draft], Sequence[Entry]] = _every,
) -> Draft:
    """The draft with the answer to a prompt; what is wrong is told and asked for again, and what was right stays.

    Args:
        now: the draft before it.
        prompt: empty where nothing is asked.
        step: the draft with an answer.
        fields: whose faults are told and asked for again.
        about: the entries whose fields they are.
    """
    while prompt:
        try:
            now = step(now, input(f"{prompt}: ").strip())
            wrong = _wrong(now, fields, [entry.key for entry in about(now)])
        except EOFError:
            raise check.fail("the answers", "given to every question", "an end of the input") from None
        except TacitError as error:
            wrong = [str(error)]
        for sentence in wrong[:_SHOWN]:
            screen(stderr=True).print(sentence, soft_wrap=True)
        prompt = prompt if wrong else ""
    return now


def _wrong(now: Draft, fields: tuple[str, ...], keys: Sequence[str]) -> list[str]:
    """A sentence for each of the entries `keys` whose answer breaks its rule, and for the settings beside them."""
    found: dict[str, str] = {}
    for name, sentence in now.faults().items():
        field, colon, key = name.partition(":")
        if field in fields and (not colon or key in keys):
            found.setdefault(key or field, sentence)
    return list(found.values())


def _with_range(now: Draft, about: Callable[[Draft], list[Entry]], columns: Mapping[str, np.ndarray]) -> Draft:
    """With the ranges, days or categories of columns of one role."""
    asked = about(now)
    if not asked:
        return now
    what, example = _WAYS[asked[0].role]
    names, more = ", ".join(entry.key for entry in asked), "; *=... for the rest" if len(asked) > 1 else ""
    prompt = f'{what} of {names}, as "{asked[0].key}={example}{more}"; look for what occurs (read, unpaid)'
    return _asked(now, prompt, lambda now, typed: _declared(now, typed, about(now), columns), _RANGE, about)


def _roles_prompt(now: Draft) -> str:
    for number, entry in enumerate(now.entries, 1):
        role = "left out" if entry.role == DROP else entry.role
        screen().print(f"{number:4d} {entry.key:24} {role} {entry.date_format}".rstrip())
    return 'Columns to change, as "2=drop; born=date %d.%m.%Y"; number, date, category or drop (Enter: none)'


def _with_roles(now: Draft, typed: str) -> Draft:
    given = {}
    for key, value in _items(typed, now.entries):
        role, _, form = value.partition(" ")
        given |= {f"role:{key}": role} | ({f"date_format:{key}": form.strip()} if form else {})
    return now.answered(given)


def _declared(now: Draft, typed: str, asked: Sequence[Entry], columns: Mapping[str, np.ndarray]) -> Draft:
    """With the ends or categories of the columns that are `asked` for; one column alone needs no name."""
    given: dict[str, str] = {}
    looked: dict[str, Entry] = {}
    typed = f"{asked[0].key}={typed}" if len(asked) == 1 and "=" not in typed else typed
    for key, value in _items(typed, asked, [entry.key for entry in asked if not entry.known]):
        (entry,) = [entry for entry in asked if entry.key == key]
        if value == "look":
            looked[key] = look_at(entry, columns)
        elif entry.role == CATEGORY:
            given[f"values:{key}"] = _listed(value)
        else:
            low, found, high = value.partition("..")
            check.that(found, f"the range of {key}", "LOWEST..HIGHEST", value)
            given |= {f"low:{key}": low, f"high:{key}": high}
    target, *entries = [looked.get(entry.key, entry) for entry in _every(now)]
    return replace(now, target=target, entries=tuple(entries)).answered(given)


def _listed(value: str) -> str:
    """Categories, one a line: those between bars, or those of a file."""
    if not value.startswith("@"):
        return value.replace("|", "\n")
    file = Path(value[1:])
    if not file.is_file() or file.stat().st_size > _LARGEST:
        raise check.fail("the list of categories", f"a file of at most {_LARGEST} bytes", value)
    return file.read_text(encoding="utf-8", errors="replace")


def _fill_prompt(now: Draft) -> str:
    asked = [entry.key for entry in now.entries if entry.role in (NUMBER, DATE)]
    if not asked or now.task == "ratings":
        return ""
    return f'Constants for missing cells, as "{asked[0]}=VALUE" (Enter: the middle of each range)'


def _without_source(now: Draft) -> list[Entry]:
    return [entry for entry in _every(now) if entry.role != DROP and not entry.source]


def _source_prompt(now: Draft) -> str:
    told = 'Where are the answers known from? One source for all, or "{}=SOURCE; *=SOURCE"'
    return next((told.format(entry.key) for entry in _without_source(now)), "")


def _with_sources(now: Draft, typed: str) -> Draft:
    typed = f"*={typed}" if typed and "=" not in typed else typed
    return now.answered(_each("source", typed, _without_source(now)))


def _with_cost(now: Draft, typed: str) -> Draft:
    parts = [part.strip() for part in typed.split(",")]
    check.that(len(parts) <= len(_SETTINGS), "the answer", "at most three: epsilon, delta, method", typed)
    return now.answered({name: part for name, part in zip(_SETTINGS, parts, strict=False) if part})


def _each(field: str, typed: str, entries: Sequence[Entry]) -> dict[str, str]:
    return {f"{field}:{key}": value for key, value in _items(typed, entries, [entry.key for entry in entries])}


def _items(typed: str, entries: Sequence[Entry], rest: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """(key, answer) of "NAME=ANSWER; 3=ANSWER; *=ANSWER", where * stands for those of `rest` that are not named."""
    known = [entry.key for entry in entries]
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, typed.split(";"))):
        name, equals, answer = (each.strip() for each in part.partition("="))
        check.that(equals, "each answer", "COLUMN=ANSWER", part)
        if name not in known and name.isdecimal() and 0 < int(name) <= len(known):
            name = known[int(name) - 1]
        found[name if name == "*" else column_named("the column", name, known)] = answer
    others = found.pop("*", None)
    yield from found.items()
    if others is not None:
        yield from ((key, others) for key in rest if key not in found)
