"""`reproduce`: recompute tables and figures of a paper, resumably, and put them beside the published values.

`check_results`: stored runs of the papers computed again, a random share of them, and compared.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.serialization import write_text
from tacit.sweeps import Result, Store, Task, stored, sweep
from tacit.sweeps.run import Progress
from tacit_papers.base import SIZES, Figures, Item, Paper, Row
from tacit_papers.evaluating_dp import PAPER as EVALUATING_DP
from tacit_papers.gaussian_dp import PAPER as GAUSSIAN_DP
from tacit_papers.improved_accounting import PAPER as IMPROVED_ACCOUNTING
from tacit_papers.input_perturbation import PAPER as INPUT_PERTURBATION
from tacit_papers.lottery_ticket import PAPER as LOTTERY_TICKET
from tacit_papers.stored import read_item, results_of, task_name, write_item

PAPERS: dict[str, Paper] = {
    paper.key: paper for paper in (GAUSSIAN_DP, EVALUATING_DP, LOTTERY_TICKET, IMPROVED_ACCOUNTING, INPUT_PERTURBATION)
}


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


_COMPUTED = 1e-6
"""Relative change that a computed number may show, each element of a list by itself: the accountants' own accuracy."""
_ROUNDING = 1e-15
"""Absolute change that says nothing, of numbers that are 0 but for rounding."""
_TRAINED = 0.02
"""Change of the mean over each quarter of a run, such as of the accuracies of its epochs, where a network is trained.

Sums in another order and noise that is larger by the allowance for rounding move every weight a little, and training
amplifies it; repeats with other seeds differ by up to .02 in the stored tables.
"""
_TRAININGS = (
    "history", "repeated_words", "imdb_lstm", "movielens", "leakage", "shadows_by_epochs", "every_attribute",
    "batch_clipped", "watched", "observed", "concealed", "unclipped", "variational", "langevin", "linear", "logistic",
    "violations", "released", "compared", "attribute_rates", "every_ticket", "chosen", "networks", "converged",
)  # fmt: skip
_TIMES = ("seconds",)
"""Tasks that measure time: nothing of them is repeatable."""


@dataclass(frozen=True)
class Checked:
    """One stored run beside the same run of this version.

    Attributes:
        item: "PAPER/ITEM".
        task: name of the function that ran, with the settings that tell it from the others.
        difference: largest change of a number: of a computed one relative to itself, of a trained one absolute or
            relative, whichever is less, the lists of a training by the means of their quarters.
        allowed: the difference up to which it passes.
        value: name of the number that changed most; empty where nothing did.
    """

    item: str
    task: str
    difference: float
    allowed: float
    value: str

    @property
    def passed(self) -> bool:
        """Whether the difference is within what is allowed."""
        return self.difference <= self.allowed

    def plain(self) -> dict[str, Any]:
        """As `tacit reproduce --check --json` prints it."""
        return {
            "item": self.item,
            "task": self.task,
            "value": self.value,
            "difference": self.difference,
            "allowed": self.allowed,
            "pass": self.passed,
        }


def check_results(
    name: str,
    results: str | os.PathLike[str],
    *,
    store: Store,
    share: float = 0.1,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    minutes: float | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[Checked]:
    """Run a random `share` of the stored runs of each item again, at least one, and compare.

    Runs that `minutes` leave no time for are not in the list. Runs that measure time are left out.

    Args:
        name: "all", "KEY" or "KEY/ITEM".
        results: folder of stored results, PAPER/ITEM.json.
        store: where the runs of this version are kept, so that a stopped check goes on.
        share: of the runs of each item, in (0, 1].
        seed: of the draw.
        data_dir: folder of the data files.
        workers: processes; the number of cores by default.
        minutes: after that long no further run starts.
        on_progress: called with (done, total).

    Raises:
        InvalidInput: an argument breaks its rule, or nothing of `name` is stored in `results`.
    """
    check.real("share", share, low=0.0, high=1.0, open_low=True)
    drawn = list(_drawn(name, Path(results), share, Random(seed)))
    if not drawn:
        raise InvalidInput(f"results must hold stored runs of {name}; got {str(results)!r}.")
    tasks = list({task.key(data_dir): task for _, task, _ in drawn}.values())
    sweep(f"check {name}", tasks, store, data_dir=data_dir, workers=workers, minutes=minutes, on_progress=on_progress)
    again = stored([task for _, task, _ in drawn], store, data_dir=data_dir)
    return [
        _checked(item, task, before.value, now.value)
        for (item, task, before), now in zip(drawn, again, strict=True)
        if now is not None
    ]


def _drawn(name: str, results: Path, share: float, draw: Random) -> Iterator[tuple[str, Task, Result]]:
    for paper, item in items_of(name):
        path = results / paper.key / f"{item.name}.json"
        if not path.exists():
            continue
        kept = read_item(path)
        tasks = item.tasks(kept["size"])
        known = [(task, run) for task, run in zip(tasks, results_of(tasks, kept), strict=True) if run is not None]
        known = [(task, run) for task, run in known if task_name(task.function) not in _TIMES]
        for task, run in draw.sample(known, math.ceil(share * len(known))):
            yield f"{paper.key}/{item.name}", task, run


def _checked(item: str, task: Task, before: Any, now: Any) -> Checked:
    name = task_name(task.function)
    words = ", ".join(f"{key} {value}" for key, value in task.settings.items() if not isinstance(value, dict | list))
    trained = name in _TRAININGS
    old, new = dict(_numbers(before, trained)), dict(_numbers(now, trained))
    changes = {key: _change(old.get(key), new.get(key), trained) for key in {**old, **new}}
    value, worst = max(changes.items(), key=lambda each: each[1], default=("", 0.0))
    allowed = _TRAINED if trained else _COMPUTED
    return Checked(item, f"{name} ({words})" if words else name, worst, allowed, value if worst else "")


def _change(old: float | None, new: float | None, trained: bool) -> float:
    if old is None or new is None:
        return math.inf
    if old == new or (math.isnan(old) and math.isnan(new)) or abs(new - old) <= _ROUNDING:
        return 0.0
    change = abs(new - old) / max(1.0 if trained else 0.0, abs(old), abs(new) if not math.isinf(new) else 0.0)
    return math.inf if math.isnan(change) else change


def _numbers(value: Any, trained: bool, name: str = "value") -> Iterator[tuple[str, float]]:
    """Every number of a result by its place; of a list that a training left, the means of its quarters."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, trained, f"{name}.{key}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        numbers = [_number(each) for each in value]
        known = [number for number in numbers if number is not None]
        if trained and known and len(known) == len(numbers):
            yield f"{name}: length", float(len(known))
            for quarter in range(4):
                part = known[quarter * len(known) // 4 : (quarter + 1) * len(known) // 4]
                if part:
                    yield f"{name}: quarter {quarter + 1}", fmean(part)
        else:
            for index, inner in enumerate(value):
                yield from _numbers(inner, trained, f"{name}[{index}]")
    elif (number := _number(value)) is not None:
        yield name, number


def _number(value: Any) -> float | None:
    """A number as JSON holds it: those that are not finite are text."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, int | float):
        return float(value)
    return float(value) if value in ("inf", "-inf", "nan") else None
