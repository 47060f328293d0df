"""`tacit data`: which data sets there are, which files they need, and fetching them.

`tacit table`: a first configuration for a table of one's own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.console import CommandGroup, screen
from tacit.serialization import json_text

if TYPE_CHECKING:
    from tacit.data.delimited import TableFormat


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
    from tacit import check, data

    if download and name is None:
        raise check.fail("NAME", "given with --download", None)
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
    return "numbers" if fact["task"] == "regression" else f"{len(fact['classes'])} {_KINDS[fact['task']]}"


_KINDS = {"classification": "classes", "ratings": "stars"}


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
    from dataclasses import replace

    from tacit import check
    from tacit.data.delimited import TableFormat, is_parquet, read_columns, table_file
    from tacit.data.draft import draft, format_of
    from tacit.serialization import write_text

    file = table_file(file)
    home = out if out is not None else file.with_name(file.name.split(".")[0] + ".toml")
    if str(home) != "-" and home.exists():
        raise check.fail("out", "a file that is not there yet", str(home), "Name another one by --out.")
    if ask and look:
        raise check.fail("--look", "left out with --ask", "both", 'Answer "look" where values may be read.')
    form = _form(file, separator, decimal, encoding, no_header or names is not None, names)
    if ask:
        from tacit.cli.table_questions import ask_about

        form = form or (TableFormat() if is_parquet(file) else format_of(file))
        found = ask_about(file.name, read_columns(file, form), form, target=target, task=task)
    else:
        found = draft(file, target=target, task=task, look=look, form=form)
    if home.resolve().parent != file.resolve().parent and str(home) != "-":
        found = replace(found, path=str(file.resolve()))
    for note in found.notes:
        print(note, file=sys.stderr)
    if look:
        print("Values were read: what the draft proposes from them is no public knowledge.", file=sys.stderr)
    if str(home) == "-":
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
    from dataclasses import replace

    from tacit.data.delimited import TableFormat, numbered
    from tacit.data.draft import format_of

    if separator is None and not no_header:
        return None
    tab = {"\\t": "\t", "tab": "\t"}.get(separator or "", separator)
    form = format_of(file) if tab is None else TableFormat(separator=tab, decimal=decimal, encoding=encoding)
    if not no_header:
        return form
    given = tuple(name.strip() for name in names.split(",")) if names else numbered(file, form)
    return replace(form, header=False, names=given)
