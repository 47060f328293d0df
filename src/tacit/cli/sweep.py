"""`tacit sweep`: a grid of runs that continues where it was stopped."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import ShowValues
from tacit.cli.results import show


def command(
    grid: Annotated[
        Path, typer.Argument(help="TOML file with a preset, [fixed] settings and [grid] lists.", metavar="FILE.toml")
    ],
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files.")] = None,
    store: Annotated[Path, typer.Option(help="SQLite file of results.")] = Path("results.sqlite"),
    workers: Annotated[int | None, typer.Option(help="Number of processes; the number of cores by default.")] = None,
    engine: Annotated[str, typer.Option(help="Where runs execute: local or ray.")] = "local",
    budget: Annotated[str | None, typer.Option(help="Data set of the registry that every run is charged to.")] = None,
    no_budget: Annotated[
        bool, typer.Option("--no-budget", help="Charge no registry: across sweeps the total is only claimed.")
    ] = False,
    show_values: ShowValues = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train every combination of a grid; stored combinations are not trained again."""
    from tacit.cli.budget import charged_name
    from tacit.cli.console import sweep_bar
    from tacit.sweeps import Store, stored, sweep
    from tacit.sweeps.grid import check_affordable, read_grid, total_sentences

    plan, opened = read_grid(grid), Store(store)
    name = charged_name(budget, no_budget)
    with _charged(name):
        if name is not None:
            before = stored(plan.tasks, opened, data_dir=data_dir)
            missing = [task for task, result in zip(plan.tasks, before, strict=True) if result is None]
            check_affordable(plan.name, missing, name)
        with sweep_bar("runs") as on_progress:
            results = sweep(
                plan.name,
                plan.tasks,
                opened,
                data_dir=data_dir,
                workers=workers,
                engine=engine,
                on_progress=on_progress,
            )
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
