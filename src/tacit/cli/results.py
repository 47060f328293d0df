"""`tacit results`: what sweeps have stored, as a table or exported."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.plain import json_text


def command(
    store: Annotated[Path, typer.Argument(help="SQLite file of results.")] = Path("results.sqlite"),
    sweep: Annotated[str | None, typer.Option(help="Only this sweep.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write FILE.csv or FILE.parquet.")] = None,
    mlflow: Annotated[str | None, typer.Option(help="Log every result to this MLflow tracking URI.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the results that sweeps have stored."""
    from tacit import check
    from tacit.sweeps import Store, table
    from tacit.sweeps import export as write

    if not store.exists():
        raise check.fail("store", "a file that exists", str(store), "Run `tacit sweep FILE.toml` first.")
    results = Store(store).results(sweep)
    if export is not None:
        write(results, export)
    if mlflow is not None:
        from tacit.integrations.mlflow import log_results

        log_results(results, mlflow)
    rows = table(results)
    if json:
        print(json_text(rows))
        return
    from rich.console import Console

    from tacit.reports import plain_table

    Console().print(plain_table(rows))
