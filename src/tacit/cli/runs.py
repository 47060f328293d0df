"""`tacit runs`: list, show, compare, export and clean the folders of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.console import TrustCode
from tacit.serialization import json_text, write_bytes

app = typer.Typer(help="List, compare, export and clean runs.", no_args_is_help=True, rich_markup_mode=None)
Run = Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="Folder with the folders of runs.")] = Path("runs"),
    json: Json = False,
) -> None:
    """List the runs in FOLDER: state, test result and best guarantee of each."""
    from tacit.runs.folders import runs_in

    rows = [run.row for run in runs_in(folder)]
    if json:
        print(json_text({"runs": rows}))
        return
    if not rows:
        print(f"No runs in {folder}.")
        return
    _print_rows(rows)


@app.command()
def show(run: Run, json: Json = False) -> None:
    """Show one run: its state, guarantee, test results and settings."""
    from tacit.runs.folders import run_folder
    from tacit.runs.open_run import open_run

    found, reserve = run_folder(run), open_run(run).reserve
    if json:
        print(json_text(found.row | {"card": found.card}))
        return
    content = {**found.row, **(found.card.get("metrics") or {}), **(found.card.get("settings") or {})}
    if found.state == "stopped":
        content["go on with"] = f"tacit train --resume {run}"
    from tacit.cli.console import screen
    from tacit.reports.tables import pairs_table
    from tacit.reports.words import OUTSIDE

    console = screen()
    console.print(pairs_table(content))
    if reserve:
        console.print(reserve)
    console.print(OUTSIDE, style="dim")


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs.", metavar="RUN...")],
    json: Json = False,
) -> None:
    """Compare finished runs: results, guarantees, and the settings in which they differ.

    Each guarantee is of its run alone: choosing among runs by their results costs more (tacit tune).
    """
    from tacit.runs.folders import compared, run_folder

    rows = compared([run_folder(run) for run in runs])
    if json:
        print(json_text({"runs": rows}))
        return
    _print_rows([{**row, **row["settings"], "settings": None} for row in rows])
    print("Each guarantee is of its run alone; all runs on the same data add up (tacit budget).")


@app.command()
def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="New folder.")],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Add model.onnx: the model with its preprocessing; extra tacit[onnx].")
    ] = False,
    trust_code: TrustCode = False,
) -> None:
    """Copy the model of RUN with its preprocessing, card, ledger and signature."""
    from tacit.runs.folders import export_run, run_folder

    graph = _onnx(run, trust_code) if onnx else None
    paths = export_run(run_folder(run), out)
    if graph is not None:
        paths.append(out / "model.onnx")
        write_bytes(paths[-1], graph)
    for path in paths:
        print(path)


def _onnx(run: Path, trust_code: bool) -> bytes:
    from tacit.runs.prediction import load

    return load(run, trust_code=trust_code).onnx()


@app.command()
def clean(
    folder: Annotated[Path, typer.Argument(help="Folder with the folders of runs.")] = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; otherwise they are listed.")] = False,
) -> None:
    """Remove runs that were begun and released nothing; what was spent is never removed."""
    from tacit.runs.folders import clean as remove
    from tacit.runs.folders import cleanable, runs_in

    found = cleanable(runs_in(folder))
    for run in found:
        if yes:
            remove(run)
        print(f"{'removed' if yes else 'would be removed'}: {run.path}")
    if not found:
        print("Nothing to remove: every run has released something, and its ledger must stay.")
    elif not yes:
        print("--yes removes them.")


def _print_rows(rows: list[dict[str, Any]]) -> None:
    from tacit.cli.console import screen
    from tacit.reports.tables import pairs_table, plain_table

    console = screen()
    kept = [{name: value for name, value in row.items() if value is not None} for row in rows]
    table = plain_table(kept)
    width = sum(2 + max(len(str(column.header)), 8) for column in table.columns)
    if width <= console.width:
        console.print(table)
        return
    for row in kept:
        console.print(pairs_table(row))
        console.print()
