"""`tacit sweep`: a grid of runs that continues where it was stopped.

`tacit results`: what sweeps have stored, as a table or exported.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit import check, sweeps
from tacit.cli.console import screen, sweep_bar
from tacit.errors import PrivacyWarning
from tacit.serialization import json_text
from tacit.sweeps import Result, Store
from tacit.sweeps.store import settings_row, table, value_row, varying


def sweep_command(
    grid: Path,
    *,
    data_dir: Path | None = None,
    store: Path = Path("results.sqlite"),
    workers: int | None = None,
    engine: str = "local",
    budget: str | None = None,
    no_budget: bool = False,
    show_values: bool = False,
    json: bool = False,
) -> None:
    """Train every combination of a grid; stored combinations are not trained again.

    Args:
        grid (FILE.toml): TOML file with a preset, [fixed] settings and [grid] lists.
        store: SQLite file of results.
        workers: Number of processes; the number of cores by default.
        engine: Where runs execute: local or ray.
        budget: Data set of the registry that every run is charged to.
        data_dir: Folder of the data files.
        no_budget: Charge no registry: across runs the number is only claimed.
        show_values: Error messages may quote values of the data.
        json: Print JSON.
    """
    from tacit.cli.budget import charged_name
    from tacit.sweeps.grid import check_affordable, read_grid, total_sentences

    plan, opened = read_grid(grid), Store(store)
    name = charged_name(budget, no_budget)
    with _charged(name), sweep_bar("runs") as on_progress:
        if name is not None:
            before = sweeps.stored(plan.tasks, opened, data_dir=data_dir)
            missing = [task for task, result in zip(plan.tasks, before, strict=True) if result is None]
            check_affordable(plan.name, missing, name)
        given: dict[str, Any] = {"data_dir": data_dir, "workers": workers, "engine": engine}
        results = sweeps.sweep(plan.name, plan.tasks, opened, on_progress=on_progress, **given)
    show([replace(result, sweep=plan.name) for result in results], unfinished=opened.unfinished, json=json)
    for sentence in total_sentences(results):
        print(sentence, file=sys.stderr if json else sys.stdout)


@contextmanager
def _charged(name: str | None) -> Iterator[None]:
    """Context in which runs, those of worker processes included, are charged to the data set `name`."""
    from tacit.runs.run_budget import DATASET

    before = os.environ.get(DATASET)
    if name is not None:
        os.environ[DATASET] = name
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(DATASET, None)
        else:
            os.environ[DATASET] = before


def results_command(
    store: Path = Path("results.sqlite"),
    *,
    sweep: str | None = None,
    export: Path | None = None,
    mlflow: str | None = None,
    json: bool = False,
) -> None:
    """Show the stored results of sweeps.

    Args:
        store: SQLite file of results.
        sweep: Show only this sweep.
        export: Write the results to FILE.csv or FILE.parquet.
        mlflow: Log every result to this MLflow tracking URI.
        json: Print JSON.
    """
    check.that(store.exists(), "store", "a file that exists", str(store), "Run `tacit sweep FILE.toml` first.")
    opened = Store(store, read_only=True)
    results = opened.results(sweep)
    if export is not None:
        sweeps.export(results, export)
    if mlflow is not None:
        from tacit.integrations.mlflow import log_results

        log_results(results, mlflow)
    show(results, unfinished=opened.unfinished, json=json)


def show(results: Sequence[Result], *, unfinished: int, json: bool) -> None:
    """Print results: every number as JSON, or a table for each sweep and function in it.

    What the numbers leave out stands on stderr: rows that nobody vouches for, and tasks that were started more often.
    """
    for told in reserves(results, unfinished):
        warnings.warn(told, PrivacyWarning, stacklevel=2)
    if json:
        print(json_text(table(results)))
        return
    from tacit.reports import sweep_table

    console = screen()
    for sweep, function in dict.fromkeys((result.sweep, result.function) for result in results):
        group = [result for result in results if (result.sweep, result.function) == (sweep, function)]
        rows = varying([settings_row(result) for result in group])
        # The cells `of` and `ran` stand where a row of the group needs them.
        if any(each.of == "spec" for each in group):
            rows = [row | {"of": result.of} for row, result in zip(rows, group, strict=True)]
        if any(each.ran > 1 for each in group):
            rows = [row | {"ran": result.ran} for row, result in zip(rows, group, strict=True)]
        values = [value_row(result) for result in group]
        console.print(sweep_table(f"{sweep} ({function})", rows, values, width=console.width))


def reserves(results: Sequence[Result], unfinished: int) -> list[str]:
    """What has to be said beside the results, a sentence each; nothing where all are as this user's sweeps wrote them.

    Args:
        results: those that are shown.
        unfinished: `Store.unfinished`.
    """
    found = []
    for origin in dict.fromkeys(result.origin for result in results if not result.origin.trusted):
        number = sum(result.origin is origin for result in results)
        found.append(f"{number} of {len(results)} results: {origin.value}. Their numbers are what the store says.")
    again = sum(result.ran > 1 for result in results)
    if again:
        found.append(
            f"{again} of {len(results)} results: started more than once (ran); the guarantee is that of one run, and "
            "a start that did not finish may have released as much."
        )
    if unfinished:
        found.append(f"tasks without a result were started {unfinished} times; what they released is in no result.")
    return found
