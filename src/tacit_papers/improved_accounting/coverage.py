"""Coverage of 90 % credible intervals over 1,000 simulations with parameters from the prior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.improved_accounting.counterexamples import KEY

if TYPE_CHECKING:
    from tacit.variational.linear import LinearPosterior, NoisyStatistics

_LEVEL, _FEATURES = 0.9, 3
_PER_TASK = 100
SIMULATIONS = {"quick": 20, "full": 1000}
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


def _tasks(size: str) -> list[Task]:
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


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
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


ITEMS = (Item("coverage", "Simulations: coverage of 90 % credible intervals", _tasks, _rows, partial=True),)
