"""Figures 4 and 5: accuracy of logistic regression against epsilon, by every method, 10 repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.improved_accounting.counterexamples import KEY
from tacit_papers.improved_accounting.inference import SETTINGS

REPEATS = {"quick": 1, "full": 10}
_INFERENCE = "tacit_papers.improved_accounting.inference"


@dataclass(frozen=True)
class Sweep:
    """One method at every value of what it is set up with, each repeated with other seeds."""

    method: str
    parameter: str
    values: Mapping[str, tuple[float | None, ...]]
    seconds: float

    def tasks(self, dataset: str, size: str) -> list[Task]:
        """Value by value, seed by seed."""
        return [
            Task(
                f"{_INFERENCE}:{self.method}",
                {"dataset": dataset, self.parameter: value, "seed": seed},
                self.seconds,
                reads_data=True,
            )
            for value in self.values[size]
            for seed in range(REPEATS[size])
        ]


SWEEPS = {
    "plain": Sweep("variational", "epsilon", {"quick": (None,), "full": (None,)}, 3.0),
    "dpvi": Sweep("variational", "epsilon", {"quick": (0.3, 1.0), "full": (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)}, 5.0),
    "langevin": Sweep("langevin", "epsilon", {"quick": (1.0, 30.0), "full": (1.0, 4.0, 10.0, 30.0, 100.0)}, 1.0),
    "concealed": Sweep("concealed", "sigma", {"quick": (100.0,), "full": (1.0, 3.0, 10.0, 100.0, 1000.0)}, 8.0),
}


@dataclass(frozen=True)
class Repeats:
    """What the runs of one method at one value gave, those that have run so far."""

    runs: tuple[Mapping[str, float], ...]

    def mean(self, key: str) -> float | None:
        """None where none has run."""
        return float(np.mean([run[key] for run in self.runs])) if self.runs else None

    def spread(self, key: str) -> float | None:
        """Standard deviation; None below two runs."""
        return float(np.std([run[key] for run in self.runs], ddof=1)) if len(self.runs) > 1 else None


def by_value(dataset: str, size: str, values: Sequence[Any]) -> dict[str, list[Repeats]]:
    """The results of all tasks in order, by sweep and value."""
    found: dict[str, list[Repeats]] = {}
    start, each = 0, REPEATS[size]
    for name, swept in SWEEPS.items():
        end = start + len(swept.tasks(dataset, size))
        groups = [values[k : k + each] for k in range(start, end, each)]
        found[name] = [Repeats(tuple(run for run in group if run is not None)) for group in groups]
        start = end
    return found


def _tasks(dataset: str, size: str) -> list[Task]:
    return [task for swept in SWEEPS.values() for task in swept.tasks(dataset, size)]


def _rows(number: int, dataset: str, size: str, values: Sequence[Any]) -> list[Row]:
    found, title = by_value(dataset, size, values), SETTINGS[dataset].title
    (plain,) = found["plain"]
    rows: list[Row] = []

    def add(runs: Repeats, quantity: str, value: float | None, standing: Standing = Standing.MEASURED) -> None:
        name = f"{title}, {quantity}"
        rows.append(Row(KEY, f"figure-{number}", name, None, value, None, standing, len(runs.runs)))

    add(plain, "no privacy: accuracy", plain.mean("accuracy"))
    add(plain, "no privacy: calibration error", plain.mean("calibration"))
    for epsilon, runs in zip(SWEEPS["dpvi"].values[size], found["dpvi"], strict=True):
        prefix = f"DPVI, epsilon {epsilon:g} (proven)"
        reached, without = runs.mean("accuracy"), plain.mean("accuracy")
        below = None if reached is None or without is None else 100 * (without - reached)
        add(runs, f"{prefix}: accuracy", reached)
        add(runs, f"{prefix}: its standard deviation", runs.spread("accuracy"))
        add(runs, f"{prefix}: points below no privacy", below)
        add(runs, f"{prefix}: calibration error", runs.mean("calibration"))
    for epsilon, runs in zip(SWEEPS["langevin"].values[size], found["langevin"], strict=True):
        prefix = f"DP-SGLD set up for {epsilon:g} (claimed)"
        add(runs, f"{prefix}: accuracy", runs.mean("accuracy"))
        add(runs, f"{prefix}: epsilon, exact", runs.mean("exact"), Standing.PROVEN)
    for sigma, runs in zip(SWEEPS["concealed"].values[size], found["concealed"], strict=True):
        prefix = f"concealed parameters, sigma {sigma:g}"
        add(runs, f"{prefix}: accuracy", runs.mean("accuracy"))
        add(runs, f"{prefix}: epsilon, generic accountant", runs.mean("claimed"), Standing.CLAIMED)
        add(runs, f"{prefix}: epsilon, Bayesian accountant", runs.mean("bayesian"), Standing.BAYESIAN)
        add(runs, f"{prefix}: epsilon of the released path", runs.mean("proven"), Standing.PROVEN)
    return rows


def _drawings(number: int, dataset: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    found = by_value(dataset, size, values)

    def line(name: str, cost: str) -> tuple[list[float], list[float]]:
        """(epsilon, accuracy) of what has run."""
        ran = [(runs.mean(cost), runs.mean("accuracy")) for runs in found[name] if runs.runs]
        return [float(x) for x, _ in ran if x is not None], [float(y) for _, y in ran if y is not None]

    private = [
        (epsilon, runs.mean("accuracy"))
        for epsilon, runs in zip(SWEEPS["dpvi"].values[size], found["dpvi"], strict=True)
        if runs.runs
    ]
    epsilons = [float(epsilon or 0.0) for epsilon, _ in private]
    lines = {
        "DPVI (proven)": (epsilons, [accuracy for _, accuracy in private]),
        "DP-SGLD (proven)": line("langevin", "exact"),
        "concealed (generic, claimed)": line("concealed", "claimed"),
        "concealed (Bayesian)": line("concealed", "bayesian"),
        "concealed (proven)": line("concealed", "proven"),
        "non-private": (epsilons, [found["plain"][0].mean("accuracy")] * len(epsilons)),
    }
    shown = {name: (x, y) for name, (x, y) in lines.items() if x and None not in y}
    return {f"figure-{number}": lines_svg(shown, across="epsilon at delta 1e-5", up="test accuracy", log_across=True)}


ITEMS = tuple(
    Item(
        f"figure-{number}",
        f"{SETTINGS[dataset].title}: accuracy of logistic regression against epsilon",
        partial(_tasks, dataset),
        partial(_rows, number, dataset),
        partial(_drawings, number, dataset),
        partial=True,
    )
    for number, dataset in ((4, "abalone_over9"), (5, "adult"))
)
