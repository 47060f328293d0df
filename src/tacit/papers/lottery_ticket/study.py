"""Table 2 and Figure 1: tickets against dense networks at the paper's settings, and a tuned dense baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean, stdev
from typing import Any

from tacit.papers.base import Item, Row
from tacit.papers.drawing import lines_svg
from tacit.papers.lottery_ticket.choice import NUMBERS
from tacit.papers.lottery_ticket.mask_attack import KEY
from tacit.papers.runs import history_task
from tacit.sweeps import Task

DATA = {"mnist": 1.0, "fashion_mnist": 1.0, "isolet": 0.15, "har": 0.15, "kmnist": 0.2}
EPSILONS = {"quick": (0.2,), "full": (1.0, 0.5, 0.25, 0.2)}
_FULL_DATA = ("mnist", "fashion_mnist", "isolet", "har", "kmnist")
_MINUTES = 100.0
_PAPER = {"model": "mlp", "hidden": [300, 100], "optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.0,
          "batch_size": 400, "clip_norm": 1.0, "delta": 1e-5}  # fmt: skip

VARIANTS: dict[str, dict[str, Any]] = {
    "T1, KMNIST ticket": {"method": "ticket", "ticket": {"mode": "T1", "origin": "kmnist"}},
    "T1, random mask": {"method": "ticket", "ticket": {"mode": "T1", "origin": "random", "density": 0.083}},
    "T1, largest initial weights": {"method": "ticket", "ticket": {"mode": "T1", "origin": "start_magnitude",
                                                                   "density": 0.083}},
    "T1, SynFlow": {"method": "ticket", "ticket": {"mode": "T1", "origin": "synflow", "density": 0.083}},
    "T2, private ticket": {"method": "ticket", "ticket": {"mode": "T2"}},
    "T4, private ticket, parallel": {"method": "ticket", "ticket": {"mode": "T4"}},
    "paper mode (claimed)": {"method": "ticket", "ticket": {"mode": "paper"}},
    "dense, the paper's settings": {},
    "dense 784-28-10": {"hidden": [28]},
    "dense, batch 4000, rate 1, 20 epochs": {"batch_size": 4000, "learning_rate": 1.0, "epochs": 20},
}  # fmt: skip
_QUICK = ("T1, random mask", "dense, the paper's settings", "dense 784-28-10")


def _names(size: str) -> tuple[str, ...]:
    return _QUICK if size == "quick" else tuple(VARIANTS)


def _datasets(size: str) -> tuple[str, ...]:
    return ("isolet",) if size == "quick" else _FULL_DATA


def _seeds(size: str) -> tuple[int, ...]:
    return (0,) if size == "quick" else (0, 1, 2)


def tasks(size: str) -> list[Task]:
    """Every data set, epsilon, variant and seed; quick: ISOLET, one seed, ten epochs."""
    return [
        _task(dataset, epsilon, VARIANTS[name], seed, size)
        for dataset in _datasets(size)
        for epsilon in EPSILONS[size]
        for name in _names(size)
        for seed in _seeds(size)
    ]


def _task(dataset: str, epsilon: float, variant: Mapping[str, Any], seed: int, size: str) -> Task:
    epochs = {"epochs": 10 if size == "quick" else 50}
    settings: dict[str, Any] = {"dataset": dataset, "epsilon": epsilon} | _PAPER | epochs | dict(variant)
    if dataset in ("isolet", "har", "kmnist") and settings["batch_size"] > 1000:
        settings["batch_size"] = 1000
    seconds = _MINUTES * DATA[dataset] * settings["epochs"] / 50
    return history_task("mnist", seed, seconds=seconds, private=True, **settings)


def rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Means over the seeds, in percent; published values are Table 2's."""
    found, place = [], iter(values)
    table, make = NUMBERS["table_2"], partial(Row, KEY, "table-2")
    for dataset in _datasets(size):
        for epsilon in EPSILONS[size]:
            for name in _names(size):
                ours = [next(place)["test"][-1] for _ in _seeds(size)]
                spread = f" +- {100 * stdev(ours):.1f}" if len(ours) > 1 else ""
                words = f"{dataset}, epsilon {epsilon:g}, {name}: test accuracy %{spread}"
                known = _published(table, dataset, epsilon, name) if size == "full" else None
                tolerance = 100 * table["tolerance"] if known is not None else None
                found.append(make(words, known, round(100 * mean(ours), 2), tolerance))
    return found


def _published(table: Mapping[str, Any], dataset: str, epsilon: float, name: str) -> float | None:
    column = {"paper mode (claimed)": "winning", "T1, random mask": "random"}.get(name)
    return None if column is None or epsilon != table["epsilon"] else 100 * table[column][dataset]


def drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Accuracy against epsilon, one figure a data set; full size only."""
    if size == "quick":
        return {}
    place, drawn = iter(values), {}
    for dataset in _datasets(size):
        lines: dict[str, tuple[list[float], list[float]]] = {}
        for epsilon in EPSILONS[size]:
            for name in _names(size):
                ours = 100 * mean(next(place)["test"][-1] for _ in _seeds(size))
                xs, ys = lines.setdefault(name, ([], []))
                xs.append(epsilon)
                ys.append(ours)
        drawn[f"figure-1-{dataset}"] = lines_svg(lines, across="epsilon", up="test accuracy %", log_across=True)
    return drawn


ITEM = Item("table-2", "tickets, dense networks and a tuned baseline", tasks, rows, drawings)
