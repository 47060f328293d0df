"""The data sets of the paper's figures, small ones first, their titles above a panel, and what is declared of them.

The paper's theory table as numbers: what each method's noise and excess risk are at the data sets' n, p, epsilon.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit import check
from tacit.data import Dataset, load, split
from tacit.data.dataset import rows_fact, split_note
from tacit.erm.linear_model import ConvexModel
from tacit.erm.solver import minimise
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit.tradeoff.gaussian import gaussian_mu
from tacit_papers.base import Item, Row, published, unpublished_rows
from tacit_papers.input_perturbation.counter_examples import KEY, published_std
from tacit_papers.input_perturbation.descent_methods import published_variance
from tacit_papers.input_perturbation.objective_methods import kifer_variance

# The paper's Iris is binary, in a way that it does not say.
IRIS = {"iris_setosa": ("setosa", ()), "iris_virginica": ("virginica", ("setosa",))}
LARGE = ("bank_marketing", "adult_complete", "kddcup99")
SMALL = ("breast_cancer_wisconsin", "creditcard", *IRIS)
TITLES = {
    "breast_cancer_wisconsin": "Breast Cancer",
    "creditcard": "Credit Card Fraud",
    "iris_setosa": "Iris: setosa or not",
    "iris_virginica": "Iris: virginica or versicolor",
    "bank_marketing": "Bank",
    "adult_complete": "Adult",
    "kddcup99": "KDDCup99",
}


def load_table(name: str, data_dir: str | os.PathLike[str] | None) -> Dataset:
    """A data set of `tacit.data`, or one of the two binary readings of Iris.

    Args:
        name: a key of `TITLES`.
        data_dir: folder of the data files.
    """
    if name not in IRIS:
        return load(name, data_dir=data_dir)
    whole, (positive, left_out) = load("iris"), IRIS[name]
    kept = [index for index, label in enumerate(whole.classes) if label not in left_out]
    train, test = np.isin(whole.y_train, kept), np.isin(whole.y_test, kept)
    one = whole.classes.index(positive)
    return replace(
        whole,
        name=name,
        x_train=whole.x_train[train],
        y_train=(whole.y_train[train] == one).astype(np.int64),
        x_test=whole.x_test[test],
        y_test=(whole.y_test[test] == one).astype(np.int64),
        classes=("rest", positive),
    )


def public_norm(dataset: Dataset) -> float:
    """The largest row norm that the declared encoding allows: a one-hot group (`column=value` names) counts once."""
    low, high = (np.broadcast_to(end, dataset.x_train.shape[1:]) for end in dataset.bounds)
    ends = np.maximum(np.abs(low), np.abs(high)).astype(float) ** 2
    groups: dict[str, float] = {}
    for place, name in enumerate(dataset.feature_names or map(str, range(len(ends)))):
        group = name.partition("=")[0]
        groups[group] = max(groups.get(group, 0.0), ends[place])
    return math.sqrt(sum(groups.values()))


def declared(dataset: Dataset) -> dict[str, Any]:
    """What an estimator is told of a data set: its bounds, the public row norm and its classes."""
    return {
        "data_bounds": dataset.bounds,
        "norm_bound": public_norm(dataset),
        "classes": range(len(dataset.classes)),
    }


def resplit(dataset: Dataset, *, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """The same rows, pooled and split anew by `tacit.data.split`; for repeated runs over random splits.

    Args:
        dataset: whose rows are pooled.
        test_fraction: share of the rows held out, in (0, 1).
        seed: of the split.

    Raises:
        InvalidInput: an argument breaks its rule, or the data set has weights or users.
    """
    if dataset.weights is not None or dataset.units is not None:
        raise check.fail("a data set that is split anew", "one without weights and users", dataset.name)
    x = np.concatenate([dataset.x_train, dataset.x_test])
    y = np.concatenate([dataset.y_train, dataset.y_test])
    train, test = split(len(y), test_fraction=test_fraction, seed=seed)
    return replace(
        dataset,
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        notes=(*dataset.notes, split_note(test_fraction, seed)),
        public_facts=(rows_fact(len(train), len(test)), *dataset.public_facts[1:]),
    )


def optimality_gap(model: ConvexModel, x: Any, y: Any) -> float:
    """(F(theta) - min F) / n of a fitted model on its training records: for whoever holds the data.

    Short by at most 1e-9: a gradient norm g is within g^2 / (2 strength) of the minimum.

    Args:
        model: fitted.
        x: the records, (n, columns).
        y: their labels, (n,).
    """
    rows, targets = model._records(x, y, reset=False)
    problem = model._problem(rows, targets).with_strength(model.regularization_ * len(rows))
    # Below a gradient norm of 1e-6 the solver would only work on rounding errors of large sums.
    tolerance = max(math.sqrt(2e-9 * problem.strength * problem.records), 1e-6)
    best = minimise(problem, tolerance=tolerance)
    return (problem.value(model.release_.theta) - problem.value(best)) / problem.records


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


def _theory_tasks(size: str) -> list[Task]:
    sizes = NUMBERS["sizes"]
    return [
        Task(f"{__name__}:noise", {"records": sizes[name], "columns": COLUMNS[name], "epsilon": epsilon}, 0.05)
        for name, epsilon in _cells()
    ]


def _theory_rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        row
        for (dataset, epsilon), value in zip(_cells(), values, strict=True)
        for row in unpublished_rows(KEY, "theory", f"{dataset}, epsilon {epsilon:g}: ", value, WORDS)
    ]


THEORY = Item(
    "theory", "noise variance and excess risk of every method at the data sets' sizes", _theory_tasks, _theory_rows
)
