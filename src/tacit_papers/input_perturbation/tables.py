"""The data sets of the paper's figures, small ones first, their titles above a panel, and what is declared of them."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np

from tacit import check
from tacit.data import Dataset, load, split
from tacit.data.dataset import rows_fact, split_note
from tacit.erm.linear_model import ConvexModel
from tacit.erm.solver import minimise

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
    best = minimise(problem, tolerance=tolerance).theta
    return (problem.value(model.release_.theta) - problem.value(best)) / problem.records
