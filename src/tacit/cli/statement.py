"""`tacit statement`: the signed privacy statement of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import screen


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write (default statement.json in the run's folder).")
    ] = None,
    owner: Annotated[str, typer.Option(help="Who answers for the data.")] = "",
    contact: Annotated[str, typer.Option(help="How to reach them.")] = "",
    purpose: Annotated[str, typer.Option(help="What the model is for.")] = "",
    delta: Annotated[list[float] | None, typer.Option(help="Bound epsilon at this delta too (repeatable).")] = None,
) -> None:
    """Write the statement of a run: ledger, numbers, evidence and digests in one signed file that anybody can check.

    The key of this user signs it and is made where there is none. A later statement about the same run takes the next
    number. Check it with `tacit check`.
    """
    from tacit.runs.statement import write_statement

    path = write_statement(run, out, owner=owner, contact=contact, purpose=purpose, deltas=delta or ())
    screen().print(f"{path}: check it with tacit check {path}", markup=False)
