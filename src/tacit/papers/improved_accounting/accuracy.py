"""Figures 4 and 5: accuracy of logistic regression against epsilon, by every method, 10 repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tacit.papers.base import Item, Row
from tacit.papers.drawing import lines_svg
from tacit.papers.improved_accounting.counterexamples import KEY
from tacit.papers.improved_accounting.inference import SETTINGS
from tacit.standing import Standing
from tacit.sweeps import Task

REPEATS = {"quick": 1, "full": 10}
_INFERENCE = "tacit.papers.improved_accounting.inference"


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
class Means:
    """Averages over the repeats of each sweep, value by value: `of["dpvi"]["accuracy"][k]`; `spread` is their std."""

    of: Mapping[str, Mapping[str, list[float]]]
    spread: Mapping[str, list[float]]

    @classmethod
    def from_values(cls, dataset: str, size: str, values: Sequence[Any]) -> Means:
        """From the results of all sweeps' tasks in order."""
        of, spread, start = {}, {}, 0
        for name, swept in SWEEPS.items():
            count = len(swept.tasks(dataset, size))
            own, start = values[start : start + count], start + count
            table = {key: np.array([value[key] for value in own]).reshape(-1, REPEATS[size]) for key in own[0]}
            of[name] = {key: rows.mean(axis=1).tolist() for key, rows in table.items()}
            spread[name] = table["accuracy"].std(axis=1, ddof=1 if REPEATS[size] > 1 else 0).tolist()
        return cls(of, spread)


def _tasks(dataset: str, size: str) -> list[Task]:
    return [task for swept in SWEEPS.values() for task in swept.tasks(dataset, size)]


def _rows(number: int, dataset: str, size: str, values: Sequence[Any]) -> list[Row]:
    make, title = partial(Row, KEY, f"figure-{number}"), SETTINGS[dataset].title
    means = Means.from_values(dataset, size, values)
    plain = means.of["plain"]
    rows = [
        make(f"{title}: accuracy without privacy", None, plain["accuracy"][0]),
        make(f"{title}: calibration error without privacy", None, plain["calibration"][0]),
    ]
    for k, epsilon in enumerate(SWEEPS["dpvi"].values[size]):
        prefix, found = f"{title}, DPVI, epsilon {epsilon:g} (proven)", means.of["dpvi"]
        rows += [
            make(f"{prefix}: accuracy", None, found["accuracy"][k]),
            make(f"{prefix}: its standard deviation", None, means.spread["dpvi"][k]),
            make(f"{prefix}: points below no privacy", None, 100 * (plain["accuracy"][0] - found["accuracy"][k])),
            make(f"{prefix}: calibration error", None, found["calibration"][k]),
        ]
    for k, epsilon in enumerate(SWEEPS["langevin"].values[size]):
        prefix, found = f"{title}, DP-SGLD set up for {epsilon:g} (claimed)", means.of["langevin"]
        rows += [
            make(f"{prefix}: accuracy", None, found["accuracy"][k]),
            make(f"{prefix}: epsilon, exact", None, found["exact"][k], None, Standing.PROVEN),
        ]
    for k, sigma in enumerate(SWEEPS["concealed"].values[size]):
        prefix, found = f"{title}, concealed parameters, sigma {sigma:g}", means.of["concealed"]
        rows += [
            make(f"{prefix}: accuracy", None, found["accuracy"][k]),
            make(f"{prefix}: epsilon, generic accountant", None, found["claimed"][k], None, Standing.CLAIMED),
            make(f"{prefix}: epsilon, Bayesian accountant", None, found["bayesian"][k], None, Standing.BAYESIAN),
            make(f"{prefix}: epsilon", None, found["proven"][k], None, Standing.PROVEN),
        ]
    return rows


def _drawings(number: int, dataset: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    of = Means.from_values(dataset, size, values).of
    private, chain, hidden = of["dpvi"]["accuracy"], of["langevin"], of["concealed"]
    epsilons = [float(epsilon or 0.0) for epsilon in SWEEPS["dpvi"].values[size]]
    lines = {
        "DPVI (proven)": (epsilons, private),
        "DP-SGLD (proven)": (chain["exact"], chain["accuracy"]),
        "concealed (generic, claimed)": (hidden["claimed"], hidden["accuracy"]),
        "concealed (Bayesian)": (hidden["bayesian"], hidden["accuracy"]),
        "concealed (proven)": (hidden["proven"], hidden["accuracy"]),
        "non-private": (epsilons, of["plain"]["accuracy"] * len(epsilons)),
    }
    return {f"figure-{number}": lines_svg(lines, across="epsilon at delta 1e-5", up="test accuracy", log_across=True)}


ITEMS = tuple(
    Item(
        f"figure-{number}",
        f"{SETTINGS[dataset].title}: accuracy of logistic regression against epsilon",
        partial(_tasks, dataset),
        partial(_rows, number, dataset),
        partial(_drawings, number, dataset),
    )
    for number, dataset in ((4, "abalone_over9"), (5, "adult"))
)
