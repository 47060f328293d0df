"""`reproduce`: recompute tables and figures of a paper, resumably, and put them beside the published values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit import check
from tacit.serialization import write_text
from tacit.sweeps import Result, Store, Task, stored, sweep
from tacit.sweeps.run import Progress
from tacit_papers.base import SIZES, Figures, Item, Paper, Row
from tacit_papers.registry import PAPERS
from tacit_papers.stored import read_item, results_of, task_name, write_item


@dataclass(frozen=True)
class Reproduced:
    """One item of a paper, recomputed; `planned` is how many tasks it has, `results` those that have run."""

    paper: Paper
    item: Item
    size: str
    rows: tuple[Row, ...]
    figures: Figures
    results: tuple[Result, ...]
    planned: int

    def save(self, folder: str | os.PathLike[str], *, figures: bool = True) -> Path | None:
        """Write FOLDER/KEY/ITEM.json, its tables and, if asked for, the figures; returns the JSON's path.

        Nothing is written, and None returned, where there are no rows, or in place of rows of full size.
        """
        place = Path(folder) / self.paper.key
        path = place / f"{self.item.name}.json"
        if not self.rows or (self.size == "quick" and path.exists() and read_item(path)["size"] == "full"):
            return None
        if figures:
            for name, svg in self.figures.items():
                write_text(place / f"{name}.svg", svg)
        write_item(path, self.plain())
        return path

    def plain(self) -> dict[str, Any]:
        """Rows, figures' names, and how every number came about."""
        return {
            "paper": self.paper.key,
            "item": self.item.name,
            "title": self.item.title,
            "size": self.size,
            "version": self.item.version,
            "rows": [row.plain() for row in self.rows],
            "figures": list(self.figures),
            "command": f"tacit reproduce {self.paper.key}/{self.item.name} --{self.size}",
            "versions": _versions(self.results),
            "machine": _machine(),
            "finished": _day(self.results),
            "tasks": self.planned,
            "task_seconds": round(sum(result.seconds for result in self.results), 1),
            "runs": [
                {
                    "task": task_name(result.function),
                    "settings": result.settings,
                    "seconds": round(result.seconds, 2),
                    "value": result.value,
                }
                for result in self.results
            ],
        }


def items_of(name: str) -> list[tuple[Paper, Item]]:
    """The items that "all", a paper's key or "KEY/ITEM" names; raises `InvalidInput` with the nearest name.

    "KEY/table-2" names "table-2-mnist", "table-2-har", ... where there is no item of just that name.
    """
    key, _, wanted = name.partition("/")
    if key == "all" and not wanted:
        return [(paper, item) for paper in PAPERS.values() for item in paper.items]
    paper = PAPERS[check.choice("paper", key, PAPERS if wanted else ["all", *PAPERS])]
    if not wanted:
        return [(paper, item) for item in paper.items]
    parts = [item for item in paper.items if item.name.startswith(f"{wanted}-")]
    exact = [item for item in paper.items if item.name == wanted]
    if not parts and not exact:
        check.choice(f"item of {key}", wanted, [item.name for item in paper.items])
    return [(paper, item) for item in exact or parts]


def estimate(
    name: str,
    *,
    size: str,
    store: Store,
    data_dir: Any = None,
    workers: int | None = None,
    kept: str | os.PathLike[str] | None = None,
) -> float:
    """Seconds that `reproduce` needs for what is not stored yet, by the tasks' own estimates.

    Args:
        name: "all", "KEY" or "KEY/ITEM".
        size: "quick" or "full".
        store: where finished tasks are looked up.
        data_dir: folder of the data files.
        workers: processes; the number of cores by default.
        kept: as of `reproduce`.

    Raises:
        InvalidInput: the name or the size is unknown.
    """
    check.choice("size", size, SIZES)
    tasks = _missing([task for _, _, plan in _plans(name, size, kept) for task in plan])
    found = stored(tasks, store, data_dir=data_dir)
    missing = {task.key(data_dir): task for task, result in zip(tasks, found, strict=True) if result is None}
    seconds = [task.seconds for task in missing.values()]
    return max(sum(seconds) / (workers or os.cpu_count() or 1), max(seconds, default=0.0))


def reproduce(
    name: str,
    *,
    size: str,
    store: Store,
    data_dir: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    engine: str = "local",
    minutes: float | None = None,
    kept: str | os.PathLike[str] | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[Reproduced]:
    """Recompute `name` ("all", "KEY" or "KEY/ITEM") at `size` ("quick" or "full").

    All tasks run as one sweep, so several run at a time and a killed reproduction continues where it was.
    Where `minutes` end before an item is complete, it has the rows that its runs
    so far give, or none.

    Args:
        name: "all", "KEY" or "KEY/ITEM".
        size: "quick" or "full".
        store: where finished tasks are looked up and kept.
        data_dir: folder of the data files.
        workers: processes; the number of cores by default.
        engine: "local" or "ray".
        minutes: after that long (0: at once) no further task starts.
        kept: folder of stored results, PAPER/ITEM.json, whose runs of the same version count as finished.
        on_progress: called with (done, total).

    Raises:
        InvalidInput: the name or the size is unknown.
    """
    check.choice("size", size, SIZES)
    plans = _plans(name, size, kept)
    sweep(
        f"reproduce {name}",
        _missing([planned for _, _, plan in plans for planned in plan]),
        store,
        data_dir=data_dir,
        workers=workers,
        engine=engine,
        minutes=minutes,
        on_progress=on_progress,
    )
    done: list[Reproduced] = []
    for paper, item, plan in plans:
        ran = iter(stored(_missing(plan), store, data_dir=data_dir))
        done.append(_reproduced(paper, item, size, [result or next(ran) for _, result in plan]))
    return done


_Planned = tuple[Task, Result | None]


def _plans(name: str, size: str, kept: str | os.PathLike[str] | None) -> list[tuple[Paper, Item, list[_Planned]]]:
    """Every item with its tasks, each beside its result where an item of the paper that is kept has it."""
    plans: list[tuple[Paper, Item, list[_Planned]]] = []
    for paper, item in items_of(name):
        tasks = item.versioned(size)
        found: list[Result | None] = [None] * len(tasks)
        for path in sorted((Path(kept) / paper.key).glob("*.json")) if kept is not None else ():
            stored_item = read_item(path)
            other = results_of(tasks, stored_item) if stored_item["version"] == item.version else found
            found = [mine or theirs for mine, theirs in zip(found, other, strict=True)]
        plans.append((paper, item, list(zip(tasks, found, strict=True))))
    return plans


def _missing(plan: Sequence[_Planned]) -> list[Task]:
    return [task for task, result in plan if result is None]


def _reproduced(paper: Paper, item: Item, size: str, results: Sequence[Result | None]) -> Reproduced:
    finished = tuple(result for result in results if result is not None)
    if len(finished) < len(results) and not (item.partial and finished):
        return Reproduced(paper, item, size, (), {}, finished, len(results))
    values = [result.value if result is not None else None for result in results]
    rows, figures = item.rows(size, values), item.figures(size, values)
    return Reproduced(paper, item, size, tuple(rows), figures, finished, len(results))


def _versions(results: Sequence[Result]) -> dict[str, str]:
    """The versions that ran; several, oldest first, where tasks ran by different ones."""
    found: dict[str, dict[str, None]] = {}
    for result in sorted(results, key=lambda each: each.finished):
        for name, version in result.versions.items():
            found.setdefault(name, {}).update(dict.fromkeys(version.split(", ")))
    return {name: ", ".join(each) for name, each in found.items()}


def _day(results: Sequence[Result]) -> str | None:
    """When the last task finished, as a date."""
    last = max((result.finished for result in results), default=None)
    return None if last is None else datetime.fromtimestamp(last, UTC).date().isoformat()


def _machine() -> str:
    import platform

    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
