"""`tacit sweep`: a grid of runs that continues where it was stopped."""

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
    show_values: ShowValues = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train every combination of a grid; stored combinations are not trained again."""
    from tacit.cli.console import sweep_bar
    from tacit.sweeps import Store, sweep
    from tacit.sweeps.grid import read_grid

    plan, opened = read_grid(grid), Store(store)
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
