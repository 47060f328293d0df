"""`tacit results`: what sweeps have stored, as a table or exported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.serialization import json_text

if TYPE_CHECKING:
    from tacit.sweeps import Result


def command(
    store: Annotated[Path, typer.Argument(help="SQLite file of results.")] = Path("results.sqlite"),
    sweep: Annotated[str | None, typer.Option(help="Show only this sweep.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the results to FILE.csv or FILE.parquet.")] = None,
    mlflow: Annotated[str | None, typer.Option(help="Log every result to this MLflow tracking URI.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the stored results of sweeps."""
    from tacit import check
    from tacit.sweeps import Store
    from tacit.sweeps import export as write

    if not store.exists():
        raise check.fail("store", "a file that exists", str(store), "Run `tacit sweep FILE.toml` first.")
    results = Store(store, read_only=True).results(sweep)
    if export is not None:
        write(results, export)
    if mlflow is not None:
        from tacit.integrations.mlflow import log_results

        log_results(results, mlflow)
    show(results, json=json)


def show(results: Sequence[Result], *, json: bool) -> None:
    """Print results: every number as JSON, or a table for each sweep and function in it."""
    from tacit.sweeps.store import settings_row, table, value_row, varying

    if json:
        print(json_text(table(results)))
        return
    from rich.console import Console

    from tacit.reports import sweep_table

    console = Console()
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.sweep, result.function), []).append(result)
    for (sweep, function), group in groups.items():
        settings = varying([settings_row(result) for result in group])
        values = [value_row(result) for result in group]
        console.print(sweep_table(f"{sweep} ({function})", settings, values, width=console.width))
