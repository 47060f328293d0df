"""How well predictions fit held-out rows: one metric for each kind of task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.data import Dataset


@dataclass(frozen=True)
class Metric:
    """A metric of predictions: called with predictions and the true targets.

    Attributes:
        name: "accuracy", the fraction of rows whose label is predicted, or "rmse", the root of the mean squared error.
    """

    name: str
    _value: Callable[[np.ndarray, np.ndarray], float]

    def __call__(self, predicted: np.ndarray, answers: np.ndarray) -> float:
        """The metric of predictions (n, ...) against the true targets (n,)."""
        return self._value(predicted, answers)


def metric_of(dataset: Dataset) -> Metric:
    """Accuracy for classes. RMSE for a regression, and for ratings that of the expected rating: sum_k k p_k."""
    if dataset.task == "classification":
        return Metric("accuracy", lambda predicted, y: float(np.mean(predicted.argmax(axis=1) == y)))
    if dataset.task == "regression":
        return Metric("rmse", _rmse)
    stars = ratings_of(dataset)
    return Metric("rmse", lambda predicted, y: _rmse(predicted @ stars, stars[y]))


def constant_test(dataset: Dataset) -> float:
    """Test metric of the best constant prediction: the training mean or the commonest class."""
    if dataset.task == "classification":
        return float(np.mean(dataset.y_test == np.bincount(dataset.y_train).argmax()))
    if dataset.task == "regression":
        return _rmse(np.full(len(dataset.y_test), dataset.y_train.mean()), dataset.y_test)
    stars = ratings_of(dataset)
    return _rmse(np.full(len(dataset.y_test), stars[dataset.y_train].mean()), stars[dataset.y_test])


def ratings_of(dataset: Dataset) -> np.ndarray:
    """The number that each class of a data set of ratings stands for, float64 (classes,)."""
    return np.array([float(name) for name in dataset.classes])


def _rmse(predicted: np.ndarray, answers: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - answers) ** 2)))
