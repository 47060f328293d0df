"""`tacit account`: what a SPEC or ledger costs, by every accountant."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.serialization import json_text


def command(
    spec: Annotated[Path, typer.Argument(help="SPEC.json or ledger.json.", metavar="SPEC.json")],
    delta: Annotated[float | None, typer.Option(help="Compute epsilon at this delta (default 1e-5).")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Compute delta at this epsilon instead.")] = None,
    accountant: Annotated[list[str] | None, typer.Option(help="Use only this accountant (repeatable).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw trade-off curves and epsilon by step into FILE (.svg, .png, .pdf).")
    ] = None,
) -> None:
    """Compute the privacy cost of the mechanisms in SPEC.json by every accountant that applies, with its standing."""
    from tacit.accounting import Ledger, account

    if delta is None and epsilon is None:
        delta = 1e-5
    ledger = Ledger.load(spec)
    answer = account(ledger, delta=delta, epsilon=epsilon, accountants=accountant)
    if json:
        refused = [{"accountant": name, "why": why} for name, why in answer.refused]
        of = "run" if ledger.is_run else "spec"
        print(json_text({"of": of, "results": [result.row() for result in answer.results], "refused": refused}))
    else:
        from tacit.cli.console import screen
        from tacit.reports import account_table

        screen().print(account_table(answer, ledger))
    if plot is not None:
        from tacit.reports.plots import plot_account

        plot_account(ledger, answer, delta=1e-5 if delta is None else delta, path=plot)
