"""Table 2 and Figures 1 to 3: tickets against dense networks at the paper's settings, and tuned dense baselines.

For every data set "gain" is the short answer (epsilon .2: the dense network at the paper's settings, the same network
with a random mask, a tuned dense one) and "table-2" all of it. They share their runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, stdev
from typing import Any

from tacit.papers.base import Item, Row
from tacit.papers.lottery_ticket.choice import NUMBERS
from tacit.papers.lottery_ticket.mask_attack import KEY
from tacit.papers.lottery_ticket.variants import CORE, FIGURE, NONPRIVATE, SHORT, VARIANTS, settings_of
from tacit.papers.runs import history_task
from tacit.sweeps import Task

DATA = {"mnist": 60.0, "fashion_mnist": 60.0, "kmnist": 8.0, "isolet": 6.0, "har": 5.0}
_TIGHT, _BETWEEN = (1.0, 0.2), (0.5, 0.25)
_REPEATS = 3
_QUICK_EPOCHS = {"mnist": 2, "fashion_mnist": 2, "kmnist": 5, "isolet": 10, "har": 10}


@dataclass(frozen=True)
class Cell:
    """One cell of the table: `repeats` runs of a variant at an epsilon (None: without privacy)."""

    epsilon: float | None
    variant: str
    repeats: int


def cells(part: str, size: str) -> list[Cell]:
    """What is run for "gain" or "table-2": all repeats at epsilon 1 and .2, one at .5 and .25."""
    if size == "quick":
        return [Cell(0.2, name, 1) for name in SHORT]
    if part == "gain":
        return [Cell(0.2, name, _REPEATS) for name in SHORT]
    tight = [Cell(e, name, _REPEATS if name in CORE else 1) for e in _TIGHT for name in VARIANTS]
    return [*tight, *(Cell(e, name, 1) for e in _BETWEEN for name in FIGURE), Cell(None, NONPRIVATE, 1)]


def tasks(part: str, dataset: str, size: str) -> list[Task]:
    """One task a run; in full, the tickets of a data set are found once and shared by way of a folder."""
    return [_task(dataset, cell, seed, size) for cell in cells(part, size) for seed in range(cell.repeats)]


def _task(dataset: str, cell: Cell, seed: int, size: str) -> Task:
    settings = settings_of(cell.variant, dataset, cell.epsilon)
    if size == "quick":
        settings["epochs"] = _QUICK_EPOCHS[dataset]
    seconds = DATA[dataset] * settings["epochs"] / 50
    return history_task("mnist", seed, seconds=seconds, private=cell.epsilon is not None, **settings)


def _accuracies(part: str, size: str, values: Sequence[Any]) -> Iterator[tuple[Cell, list[list[float]]]]:
    """Every cell with the test accuracy in percent after every epoch of each of its runs."""
    place = iter(values)
    for cell in cells(part, size):
        yield cell, [[100 * value for value in next(place)["test"]] for _ in range(cell.repeats)]


def rows(part: str, dataset: str, size: str, values: Sequence[Any]) -> list[Row]:
    """Means over the repeats, in percent; published values are Table 2's."""
    make, table = partial(Row, KEY, _name(part, dataset)), NUMBERS["table_2"]
    found = []
    for cell, runs in _accuracies(part, size, values):
        last = [run[-1] for run in runs]
        spread = f" (mean of {len(last)}, std {stdev(last):.1f})" if len(last) > 1 else ""
        level = "" if cell.epsilon is None else f"epsilon {cell.epsilon:g}, "
        column = {"paper mode (claimed)": "winning", "T1, random mask": "random"}.get(cell.variant)
        published = 100 * table[column][dataset] if column and cell.epsilon == table["epsilon"] else None
        words = f"{level}{cell.variant}: test accuracy %{spread}"
        found.append(make(words, published if size == "full" else None, round(mean(last), 2)))
    return found


def figures(part: str, dataset: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Figure 1, accuracy against epsilon; 2, against epochs at epsilon 1; 3, transfer. Of the whole table only."""
    from tacit.papers.drawing import lines_svg

    if size == "quick" or part == "gain":
        return {}
    ends: dict[str, dict[float, float]] = {}
    courses: dict[str, list[float]] = {}
    bare: list[float] = []
    for cell, runs in _accuracies(part, size, values):
        course = [mean(step) for step in zip(*runs, strict=True)]
        if cell.epsilon is None:
            bare = course
            continue
        ends.setdefault(cell.variant, {})[cell.epsilon] = course[-1]
        if cell.epsilon == 1.0 and cell.variant in FIGURE:
            courses[cell.variant] = course
    against: dict[str, Any] = {name: tuple(zip(*sorted(ends[name].items()), strict=True)) for name in FIGURE}
    epsilons = sorted({epsilon for line in ends.values() for epsilon in line})
    against["not private"] = (epsilons, [bare[-1]] * len(epsilons))
    by_epoch = {name: (range(1, len(line) + 1), line) for name, line in (courses | {"not private": bare}).items()}
    moved = {name: against[name] for name in ("T1, public ticket", "dense, the paper's settings")}
    draw = partial(lines_svg, up="test accuracy %")
    short = dataset.replace("_", "-")
    return {
        f"figure-1-{short}": draw(against, across="epsilon", log_across=True),
        f"figure-2-{short}": draw(by_epoch, across="epoch (epsilon 1)"),
        f"figure-3-{short}": draw(moved, across="epsilon", log_across=True),
    }


def _name(part: str, dataset: str) -> str:
    return f"{part}-{dataset.replace('_', '-')}"


def _item(part: str, dataset: str) -> Item:
    title = f"{dataset}: {_TITLES[part]}"
    given = part, dataset
    return Item(_name(*given), title, partial(tasks, *given), partial(rows, *given), partial(figures, *given))


_TITLES = {
    "gain": "a random mask against dense networks at epsilon .2",
    "table-2": "tickets, dense networks and tuned baselines",
}
ITEMS = tuple(_item(part, dataset) for part in _TITLES for dataset in DATA)
