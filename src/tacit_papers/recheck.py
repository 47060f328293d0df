"""`check_results`: stored runs of the papers computed again, a random share of them, and compared."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.sweeps import Result, Store, Task, stored, sweep
from tacit.sweeps.run import Progress
from tacit_papers.reproduce import items_of
from tacit_papers.stored import read_item, results_of, task_name

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
