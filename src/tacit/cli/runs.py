"""`tacit runs`: list, show, compare, export and clean the folders of runs.

`tacit card`: the card of a run for other readers: Markdown, or the claim table of NIST SP 800-226.

`tacit predict`: answers of a run's model for the rows of a file.

`tacit serve`: the local workbench in the browser.
"""

import csv
import io
from pathlib import Path
from typing import Any

import typer

from tacit import check
from tacit.cli.console import CommandGroup, screen
from tacit.reports import card_markdown
from tacit.reports.tables import pairs_table, rows_table
from tacit.reports.words import OUTSIDE
from tacit.runs import folders
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import CARD
from tacit.serialization import json_text, write_bytes, write_text

runs_app = CommandGroup("List, compare, export and clean runs.")


@runs_app.command("list")
def list_runs(folder: Path = Path("runs"), *, json: bool = False) -> None:
    """List the runs in FOLDER: state, test result and best guarantee of each.

    Args:
        folder: Folder with the folders of runs.
        json: Print JSON.
    """
    rows = list(folders.runs_in(folder).values())
    if json:
        print(json_text({"runs": rows}))
    elif rows:
        _print_rows(rows)
    else:
        print(f"No runs in {folder}.")


@runs_app.command()
def show(run: Path, *, json: bool = False) -> None:
    """Show one run: its state, guarantee, test results and settings.

    Args:
        run (RUN): Folder of a run.
        json: Print JSON.
    """
    found = open_run(run)
    row, card = folders.run_row(found, found.card), found.card
    if json:
        print(json_text(row | {"card": card}))
        return
    content = {**row, **(card.get("metrics") or {}), **(card.get("settings") or {})}
    if found.state == "stopped":
        content["go on with"] = f"tacit train --resume {run}"
    console = screen()
    console.print(pairs_table(content))
    if found.reserve:
        console.print(found.reserve)
    console.print(OUTSIDE, style="dim")


@runs_app.command()
def compare(runs: list[Path], *, json: bool = False) -> None:
    """Compare finished runs: results, guarantees, and the settings in which they differ.

    Each guarantee is of its run alone: choosing among runs by their results costs more (tacit tune).

    Args:
        runs (RUN...): Folders of finished runs.
        json: Print JSON.
    """
    rows = folders.compared([open_run(run) for run in runs])
    if json:
        print(json_text({"runs": rows}))
        return
    _print_rows([{**row, **row["settings"], "settings": None} for row in rows])
    print("Each guarantee is of its run alone; all runs on the same data add up (tacit budget).")


@runs_app.command()
def export(run: Path, *, out: Path, onnx: bool = False, trust_code: bool = False) -> None:
    """Copy the model of RUN with its preprocessing, card, ledger and signature.

    Args:
        run (RUN): Folder of a run.
        out: New folder.
        onnx: Add model.onnx: the model with its preprocessing; extra tacit[onnx].
        trust_code: Run the model's own code that RUN names; shows its file and hash.
    """
    from tacit.runs import load

    graph = load(run, trust_code=trust_code).onnx() if onnx else None
    paths = folders.export_run(open_run(run), out)
    if graph is not None:
        paths.append(out / "model.onnx")
        write_bytes(paths[-1], graph)
    for path in paths:
        print(path)


@runs_app.command()
def clean(folder: Path = Path("runs"), *, yes: bool = False) -> None:
    """Remove runs that were begun and released nothing; what was spent is never removed.

    Args:
        folder: Folder with the folders of runs.
        yes: Remove them; otherwise they are listed.
    """
    # A stopped run stays, because its ledger says what was spent; so does a finished one.
    found = [path for path, row in folders.runs_in(folder).items() if row["state"] == "begun"]
    for run in found:
        if yes:
            folders.clean(run)
        print(f"{'removed' if yes else 'would be removed'}: {run}")
    if not found:
        print("Nothing to remove: every run has released something, and its ledger must stay.")
    elif not yes:
        print("--yes removes them.")


def _print_rows(rows: list[dict[str, Any]]) -> None:
    console = screen()
    console.print(rows_table(rows, width=console.width))


def card_command(run: Path, *, out: Path | None = None) -> None:
    """Export the card of RUN; without --out print it as Markdown.

    Args:
        run (RUN): Folder of a finished `tacit train`, or its card.json.
        out: Markdown file to write; printed by default.
    """
    opened = open_run(run if run.is_dir() or run.name != CARD else run.parent)
    opened.needs(CARD)
    text = card_markdown(opened.card, reserve=opened.reserve.replace("This run", "This card", 1))
    if out is None:
        print(text)
    else:
        check.choice("ending of the exported file", out.suffix.lower(), [".md"])
        write_text(out, text)
        typer.echo(str(out), err=True)


def predict_command(
    run: Path, file: Path, *, out: Path | None = None, trust_code: bool = False, show_values: bool = False
) -> None:
    """Predict the rows of FILE in their order, as CSV: a prediction a row, and the probability of each class.

    Args:
        run (RUN): Folder of a finished `tacit train`.
        file (FILE): Table with the run's columns, or a .npy of features.
        out: CSV file to write; printed by default.
        trust_code: Run the model's own code that RUN names; shows its file and hash.
        show_values: Error messages may quote values of the data.
    """
    from tacit.runs import load

    check.that(out is None or not out.exists(), "out", "a file that is not there yet", str(out), "Name another one.")
    model = load(run, trust_code=trust_code)
    features = model.features(file)
    header, columns = ["prediction"], [model.predict(features).tolist()]
    if model.task != "regression":
        header += [f"probability {name}" for name in model.classes_]
        columns += model.predict_proba(features).T.tolist()
    cells = [[f"{cell:.6g}" if isinstance(cell, float) else cell for cell in column] for column in columns]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *zip(*cells, strict=True)])
    if out is None:
        print(text.getvalue(), end="")
    else:
        write_text(out, text.getvalue())
        print(f"{len(cells[0])} predictions: {out}")


def serve_command(runs: Path = Path("runs"), *, port: int = 8765, open_browser: bool = False) -> None:
    """Serve runs, a calculator, jobs and budgets on 127.0.0.1; the address that it prints holds the token.

    Args:
        runs ([RUNS]): Folder that holds the folders of runs.
        port: Port on 127.0.0.1.
        open_browser (--open): Open the browser.
    """
    from tacit.workbench import serve

    serve(runs, port=port, open_browser=open_browser)
