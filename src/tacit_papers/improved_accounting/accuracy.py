"""Figures 4 and 5: accuracy of logistic regression against epsilon, by every method, 10 repeats.

Coverage of 90 % credible intervals over 1,000 simulations with parameters from the prior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.improved_accounting.counterexamples import KEY
from tacit_papers.improved_accounting.inference import SETTINGS

if TYPE_CHECKING:
    from tacit.variational.linear import LinearPosterior, NoisyStatistics

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
    "dpvi": Sweep("variational", "epsilon", {"quick": (1.0,), "full": (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)}, 5.0),
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


_LEVEL, _FEATURES = 0.9, 3
_PER_TASK = 100
SIMULATIONS = {"quick": 10, "full": 1000}
LINEAR = ((500, 2.0), (2000, 5.0))
LOGISTIC = (None, 4.0)


def naive_posterior(statistics: NoisyStatistics, *, noise_std: float, prior_std: float) -> LinearPosterior:
    """The usual posterior with the noisy statistics taken for the true ones: its intervals are too short."""
    from tacit.variational.linear import LinearPosterior, positive

    gram = positive(statistics.gram)
    precision = gram / noise_std**2 + np.eye(len(gram)) / prior_std**2
    covariance = np.linalg.inv(precision)
    return LinearPosterior(np.ones(1), (covariance @ statistics.cross / noise_std**2)[None], covariance[None])


def linear(records: int, noise_multiplier: float, first: int, count: int) -> dict[str, float]:
    """Share of true coefficients in the intervals of linear regression, noise-aware and naive.

    theta ~ N(0, 0.3^2 I), rows uniform in the cube inside the unit ball, y = x^T theta + N(0, 0.1^2).

    Args:
        records: of each data set.
        noise_multiplier: > 0.
        first: first seed.
        count: number of seeds.
    """
    from tacit.noise import SeededStream
    from tacit.variational.linear import noise_aware, noisy_statistics

    inside = np.zeros(2)
    for seed in range(first, first + count):
        random = np.random.default_rng(seed)
        theta = 0.3 * random.standard_normal(_FEATURES)
        x = random.uniform(-1, 1, (records, _FEATURES)) / math.sqrt(_FEATURES)
        y = np.clip(x @ theta + 0.1 * random.standard_normal(records), -1, 1)
        released = noisy_statistics(x, y, noise_multiplier=noise_multiplier, stream=SeededStream(seed))
        aware = noise_aware(released, noise_std=0.1, prior_std=0.3, components=150).interval(_LEVEL, samples=1000)
        naive = naive_posterior(released, noise_std=0.1, prior_std=0.3).interval(_LEVEL, samples=1000)
        inside += [np.mean((ends[:, 0] <= theta) & (theta <= ends[:, 1])) for ends in (aware, naive)]
    return {"aware": float(inside[0]) / count, "naive": float(inside[1]) / count}


def logistic(noise_multiplier: float | None, first: int, count: int) -> dict[str, float]:
    """Share of true coefficients in the intervals of logistic regression by DPVI, or without privacy (None).

    w ~ N(0, I), 500 rows uniform in [-1, 1]^3, 100 steps at rate 0.2, clip 1.
    """
    import torch

    from tacit.noise import SeededStream
    from tacit.variational import LogisticLikelihood, infer, infer_nonprivate

    inside, width = 0.0, 0.0
    for seed in range(first, first + count):
        generator = torch.Generator().manual_seed(seed)
        w = torch.randn(_FEATURES, generator=generator)
        x = 2 * torch.rand(500, _FEATURES, generator=generator) - 1
        y = torch.bernoulli(torch.sigmoid(x @ w), generator=generator).long()
        length = {"steps": 100, "sample_rate": 0.2, "learning_rate": 0.1, "seed": seed}
        stream = SeededStream(seed)
        if noise_multiplier is None:
            found = infer_nonprivate(LogisticLikelihood(), x, y, stream=stream, **length)
        else:
            found = infer(
                LogisticLikelihood(), x, y, clip_norm=1.0, noise_multiplier=noise_multiplier, stream=stream, **length
            )
        ends = found.posterior.interval(_LEVEL)
        inside += float(((ends[:, 0] <= w) & (w <= ends[:, 1])).double().mean())
        width += float((ends[:, 1] - ends[:, 0]).mean())
    return {"share": inside / count, "width": width / count}


def _coverage_tasks(size: str) -> list[Task]:
    count = min(_PER_TASK, SIMULATIONS[size])
    starts = range(0, SIMULATIONS[size], count)
    return [
        Task(
            f"{__name__}:linear",
            {"records": records, "noise_multiplier": sigma, "first": first, "count": count},
            0.02 * count,
        )
        for records, sigma in LINEAR
        for first in starts
    ] + [
        Task(f"{__name__}:logistic", {"noise_multiplier": sigma, "first": first, "count": count}, 0.4 * count)
        for sigma in LOGISTIC
        for first in starts
    ]


def _coverage_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """What the intervals should hold is 90 %; the paper states nothing to compare with."""
    rows: list[Row] = []
    each = len(values) // (len(LINEAR) + len(LOGISTIC))
    groups = iter([value for value in values[k : k + each] if value is not None] for k in range(0, len(values), each))

    def add(group: list[Any], quantity: str, key: str) -> None:
        ours = float(np.mean([value[key] for value in group])) if group else None
        runs = len(group) * min(_PER_TASK, SIMULATIONS[size])
        rows.append(Row(KEY, "coverage", quantity, None, ours, repeats=runs))

    for records, sigma in LINEAR:
        group, prefix = next(groups), f"linear regression, {records} records, noise multiplier {sigma:g}: share in"
        add(group, f"{prefix} noise-aware 90 % intervals", "aware")
        add(group, f"{prefix} naive 90 % intervals", "naive")
    for sigma in LOGISTIC:
        name = "without privacy" if sigma is None else f"DPVI, noise multiplier {sigma:g}"
        group, prefix = next(groups), f"logistic regression, {name}: "
        add(group, f"{prefix}share in 90 % intervals", "share")
        add(group, f"{prefix}mean width of an interval", "width")
    return rows


COVERAGE = (
    Item("coverage", "Simulations: coverage of 90 % credible intervals", _coverage_tasks, _coverage_rows, partial=True),
)
