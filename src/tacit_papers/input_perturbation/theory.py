"""The paper's theory table as numbers: what each method's noise and excess risk are at the data sets' n, p, epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff.gaussian import gaussian_mu
from tacit_papers.base import Item, Row, published, unpublished_rows
from tacit_papers.input_perturbation.counter_examples import KEY
from tacit_papers.input_perturbation.descent_methods import published_variance
from tacit_papers.input_perturbation.input_methods import published_std
from tacit_papers.input_perturbation.objective_methods import kifer_variance

NUMBERS = published("tacit_papers.input_perturbation")
EPSILONS = (0.1, 0.25)
# Columns after encoding, which the paper does not state.
COLUMNS = {
    "kddcup99": 123,
    "adult_complete": 105,
    "bank_marketing": 65,
    "creditcard": 30,
    "breast_cancer_wisconsin": 9,
    "iris": 4,
}
_STRENGTH, _SMOOTHNESS, _STEPS = 0.01, 0.25, 50

_CLAIMED, _PROVEN = Standing.CLAIMED, Standing.PROVEN
WORDS = {
    "paper": ("input perturbation, equation (9): variance on every feature", _CLAIMED),
    "paper_repaired": ("its repair for losses norm(theta - x)^2 / 2: variance on every feature", _PROVEN),
    "kifer": ("Kifer et al., objective: variance on the linear term of the sum", _PROVEN),
    "fukuchi": ("Fukuchi et al., input: each record's share of it", _PROVEN),
    "zhang": ("Zhang et al., output: variance on the parameter, published sensitivity", _PROVEN),
    "zhang_derived": ("the same, derived sensitivity", _PROVEN),
    "bassily": ("Bassily et al., noisy SGD: variance on n times a gradient", _PROVEN),
    "wang": ("Wang et al., gradient descent: variance on the mean gradient, exact", _PROVEN),
    "aggregate": ("noisy sums of statistics: variance on the sum", _PROVEN),
    "central_risk": ("excess risk, central, p log(1/delta) / (lambda n^2 epsilon^2), no constant", _CLAIMED),
    "local_risk": ("excess risk, local (Duchi et al.), sqrt(p / n) / epsilon, no constant", _CLAIMED),
}


def noise(records: int, columns: int, epsilon: float) -> dict[str, float]:
    """Every entry of `WORDS` for logistic regression under replace-one, delta = min(1e-5, n^-1.1).

    Rows of norm at most 1 (Lipschitz 1, smoothness 1/4), lambda = .01, 50 steps of 1 / (smoothness + lambda). Methods
    whose source leaves a constant open or is printed for add/remove get the sound value for replace-one.
    """
    delta = min(1e-5, records**-1.1)
    mu = gaussian_mu(epsilon, delta)
    kifer = kifer_variance(2.0, epsilon, delta)
    eta = 1 / (_SMOOTHNESS + _STRENGTH)
    shrunk = -math.expm1(_STEPS * math.log1p(-eta * _STRENGTH))
    sensitivities = {
        "zhang": 5 * (_SMOOTHNESS + _STRENGTH) / (records * _STRENGTH * _SMOOTHNESS),
        "zhang_derived": 2 / (records * _STRENGTH) * shrunk,
        "wang": 2 * math.sqrt(_STEPS) / records,
        "aggregate": 2 * math.sqrt(2),
    }
    return {
        "paper": published_std(
            lipschitz=1.0, steps=_STEPS, records=records, convexity=_STRENGTH, epsilon=epsilon, delta=delta
        )
        ** 2,
        "paper_repaired": 4 / (records * mu**2),
        "kifer": kifer,
        "fukuchi": kifer / records,
        "bassily": published_variance(1.0, records, epsilon, delta),
        **{name: (size / mu) ** 2 for name, size in sensitivities.items()},
        "central_risk": columns * math.log(1 / delta) / (_STRENGTH * records**2 * epsilon**2),
        "local_risk": math.sqrt(columns / records) / epsilon,
    }


def _cells() -> list[tuple[str, float]]:
    return [(dataset, epsilon) for dataset in NUMBERS["sizes"] for epsilon in EPSILONS]


def _tasks(size: str) -> list[Task]:
    sizes = NUMBERS["sizes"]
    return [
        Task(f"{__name__}:noise", {"records": sizes[name], "columns": COLUMNS[name], "epsilon": epsilon}, 0.05)
        for name, epsilon in _cells()
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        row
        for (dataset, epsilon), value in zip(_cells(), values, strict=True)
        for row in unpublished_rows(KEY, "theory", f"{dataset}, epsilon {epsilon:g}: ", value, WORDS)
    ]


ITEM = Item("theory", "noise variance and excess risk of every method at the data sets' sizes", _tasks, _rows)
