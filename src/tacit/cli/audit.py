"""`tacit audit`: attack the model of an earlier run."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.plain import json_text


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished `tacit train`.", metavar="RUN")],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the original data files.")] = None,
    attack: Annotated[list[str] | None, typer.Option(help="Only this attack (repeatable).")] = None,
    confidence: Annotated[float | None, typer.Option(help="Of every bound, in (0, 1).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What attacks find in the model of RUN: advantage, PPV and lower bounds with their confidence."""
    from tacit.runs import audit

    results = audit(run, data_dir=data_dir, attacks=attack, confidence=confidence)
    if json:
        print(json_text({"audits": [result.row() for result in results]}))
        return
    from rich.console import Console

    from tacit.reports import audit_table

    console = Console()
    console.print(audit_table(results))
    for result in results:
        console.print(result.statement, style="dim")
