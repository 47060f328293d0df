"""`reproduce`: recompute tables and figures of a paper, resumably, and put them beside the published values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.papers.base import SIZES, Figures, Item, Paper, Row
from tacit.papers.registry import PAPERS
from tacit.plain import json_text
from tacit.sweeps import Result, Store, expected_seconds, sweep
from tacit.sweeps.run import Progress


@dataclass(frozen=True)
class Reproduced:
    """One item of a paper, recomputed."""

    paper: Paper
    item: Item
    size: str
    rows: tuple[Row, ...]
    figures: Figures
    results: tuple[Result, ...]

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write FOLDER/KEY/ITEM.json and the figures beside it; returns the JSON's path."""
        from tacit.atomic import write_text

        place = Path(folder) / self.paper.key
        for name, svg in self.figures.items():
            write_text(place / f"{name}.svg", svg)
        path = place / f"{self.item.name}.json"
        write_text(path, json_text(self.plain()) + "\n")
        return path

    def plain(self) -> dict[str, Any]:
        """Rows, figures' names, and how every number came about."""
        return {
            "paper": self.paper.key,
            "item": self.item.name,
            "title": self.item.title,
            "size": self.size,
            "rows": [row.plain() for row in self.rows],
            "figures": sorted(self.figures),
            "command": f"tacit reproduce {self.paper.key}/{self.item.name} --{self.size}",
            "versions": self.results[0].versions if self.results else {},
            "machine": _machine(),
            "task_seconds": round(sum(result.seconds for result in self.results), 1),
            "runs": [
                {"settings": result.settings, "value": result.value, "seconds": round(result.seconds, 2)}
                for result in self.results
            ],
        }


def items_of(name: str) -> list[tuple[Paper, Item]]:
    """The items that "all", a paper's key or "KEY/ITEM" names; raises `InvalidInput` with the nearest name."""
    if name == "all":
        return [(paper, item) for paper in PAPERS.values() for item in paper.items]
    key, _, wanted = name.partition("/")
    paper = PAPERS[check.choice("paper", key, ["all", *PAPERS])]
    if not wanted:
        return [(paper, item) for item in paper.items]
    check.choice(f"item of {key}", wanted, [item.name for item in paper.items])
    return [(paper, item) for item in paper.items if item.name == wanted]


def estimate(name: str, *, size: str, store: Store, data_dir: Any = None, workers: int | None = None) -> float:
    """Seconds that `reproduce` needs for what is not stored yet, by the tasks' own estimates."""
    check.choice("size", size, SIZES)
    tasks = [task for _, item in items_of(name) for task in item.tasks(size)]
    return expected_seconds(tasks, store, data_dir=data_dir, workers=workers)


def reproduce(
    name: str,
    *,
    size: str,
    store: Store,
    data_dir: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    engine: str = "local",
    on_progress: Progress = lambda done, total, seconds_left: None,
) -> list[Reproduced]:
    """Recompute `name` ("all", "KEY" or "KEY/ITEM") at `size` ("quick" or "full").

    All tasks run as one sweep, so several run at a time and a killed reproduction continues where it was.
    """
    check.choice("size", size, SIZES)
    chosen = items_of(name)
    plans = [item.tasks(size) for _, item in chosen]
    tasks = [task for plan in plans for task in plan]
    results = sweep(
        f"reproduce {name}",
        tasks,
        store,
        data_dir=data_dir,
        workers=workers,
        engine=engine,
        on_progress=on_progress,
    )
    done: list[Reproduced] = []
    for (paper, item), plan in zip(chosen, plans, strict=True):
        own, results = results[: len(plan)], results[len(plan) :]
        done.append(_reproduced(paper, item, size, own))
    return done


def _reproduced(paper: Paper, item: Item, size: str, results: Sequence[Result]) -> Reproduced:
    values = [result.value for result in results]
    rows, figures = item.rows(size, values), item.figures(size, values)
    return Reproduced(paper, item, size, tuple(rows), figures, tuple(results))


def _machine() -> str:
    import platform

    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
