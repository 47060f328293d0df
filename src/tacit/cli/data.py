"""`tacit data`: which data sets there are, which files they need, and fetching them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.serialization import json_text


def command(
    name: Annotated[str | None, typer.Argument(help="Name of one data set; all by default.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Download the missing files of NAME.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the data sets, show the files and licence of one, or download it."""
    from tacit import check, data

    if download and name is None:
        raise check.fail("NAME", "given with --download", None)
    if download and name is not None:
        data.download(name, data_dir=data_dir)
    facts = [data.describe(each, data_dir=data_dir) for each in ([name] if name else data.names())]
    if json:
        print(json_text({"datasets": facts}))
        return
    from rich.table import Table

    from tacit.cli.console import screen

    table = Table("name", "train", "test", "features", "answers", "here", box=None)
    for fact in facts:
        shape = " x ".join(map(str, fact["features"]))
        rows = (str(fact["rows"]["train"]), str(fact["rows"]["test"]))
        table.add_row(fact["name"], *rows, shape, _answers(fact), "yes" if fact["present"] else "no")
    console = screen()
    console.print(table)
    for fact in facts if name else []:
        console.print(f"{fact['summary']}\nLicence: {fact['licence']}")
        for file in fact["files"]:
            console.print(f"{file['path']}  {file['bytes']} bytes  {file['state']}", soft_wrap=True)


def _answers(fact: dict[str, Any]) -> str:
    return "numbers" if fact["task"] == "regression" else f"{len(fact['classes'])} {_KINDS[fact['task']]}"


_KINDS = {"classification": "classes", "ratings": "stars"}
