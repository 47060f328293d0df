"""Scores of validation data held apart: one bounded number for each record, whose noisy sums are released."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit import check
from tacit.noise import Stream

LEVELS = 16
"""Steps of a score that is no count: its sum in steps moves by so many with one unit."""


def unit_means(scores: NDArray[np.float64], units: NDArray[np.generic] | None) -> NDArray[np.float64]:
    """The mean score of each unit, in the order of their names; `scores` where each record is a unit.

    Args:
        scores: of the records, shape (n,).
        units: whose record each is, shape (n,), or None.

    Example:
        >>> unit_means(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 9])).tolist()
        [0.5, 1.0]
    """
    if units is None:
        return scores
    _, places = np.unique(units, return_inverse=True)
    return np.bincount(places, scores) / np.bincount(places)


def rounded_sum(scores: NDArray[np.float64], levels: int, stream: Stream) -> int:
    """The sum of `levels` times each score, each rounded up or down at random; one score moves it by at most `levels`.

    Args:
        scores: those outside of [0, 1] count as its ends, shape (n,).
        levels: steps from 0 to 1, >= 1.
        stream: source of the roundings.

    Example:
        >>> from tacit.noise import SeededStream
        >>> rounded_sum(np.array([1.0, 0.0, 1.0]), 1, SeededStream(0))
        2
    """
    scaled = np.clip(scores, 0.0, 1.0) * levels
    whole = np.floor(scaled)
    up = stream.uniform(len(scores)) < scaled - whole
    return int(np.minimum(whole + up, levels).sum())


class HoldoutScore(ABC):
    """A score of each record in [0, 1], higher is better; one whose output is not finite has 0.

    Attributes:
        metric: the name in the history of the mean that is told.
        better: "higher" or "lower", of what is told.
        levels: steps from 0 to 1 in which a record counts.
        classes: whether targets are classes.
    """

    metric: ClassVar[str]
    better: ClassVar[str] = "higher"
    levels: ClassVar[int] = 1
    classes: ClassVar[bool] = False

    @abstractmethod
    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Score of each record, shape (n,), in [0, 1].

        Args:
            outputs: of the model, shape (n, ...).
            targets: shape (n,).
        """

    def told(self, mean: float) -> float:
        """What the history says of a mean score, which noise may have moved out of [0, 1]."""
        return mean


@dataclass(frozen=True)
class Accuracy(HoldoutScore):
    """1 for the right class, 0 for another one; told as `validation_accuracy`.

    Example:
        >>> Accuracy().of(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])).tolist()
        [1.0, 0.0]
    """

    metric: ClassVar[str] = "validation_accuracy"
    classes: ClassVar[bool] = True

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 where the largest output is that of the class; outputs must be of the shape (n, classes)."""
        if outputs.ndim != 2:
            raise check.fail("outputs of the model", "of the shape (batch, classes)", tuple(outputs.shape))
        return ((outputs.argmax(dim=1) == targets) & torch.isfinite(outputs).all(dim=1)).double()


@dataclass(frozen=True)
class _RegressionScore(HoldoutScore):
    bound: float
    span: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check.positive(type(self).__name__, self.bound)
        if self.span is not None and not self.span[0] < self.span[1]:
            raise check.fail("span", "a lowest and a highest value", self.span)

    def errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Prediction - target of each record, float64 (n,).

        Raises `InvalidInput` for outputs that are not one number for each record.
        """
        if outputs.numel() != len(targets):
            raise check.fail("outputs of the model", "one number for each record", tuple(outputs.shape))
        predicted = outputs.reshape(-1).double()
        if self.span is not None:
            low, high = self.span
            predicted = low + (high - low) * predicted.clamp(0.0, 1.0)
        return predicted - targets.double()


@dataclass(frozen=True)
class WithinTolerance(_RegressionScore):
    """Of a regression: 1 for a prediction at most `bound` off, else 0; told as `validation_within`, their share.

    Args:
        bound: the tolerance, > 0, in the unit of the targets; public.
        span: declared lowest and highest target, where the model gives their place in between, in [0, 1].

    Example:
        >>> WithinTolerance(0.5).of(torch.tensor([[1.2], [2.0]]), torch.tensor([1.0, 1.0])).tolist()
        [1.0, 0.0]
    """

    metric: ClassVar[str] = "validation_within"

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 where |prediction - target| <= bound."""
        return (self.errors(outputs, targets).abs() <= self.bound).double()


@dataclass(frozen=True)
class ClippedSquaredError(_RegressionScore):
    """Of a regression: 1 - min(e^2, B) / B for the error e; told as `validation_error`, the mean of min(e^2, B).

    One record moves the sum of errors by at most B. It counts in whole steps of B / 16, rounded at random without bias.

    Args:
        bound: B > 0, in the squared unit of the targets; public. Errors beyond its root count as if they were there.
        span: declared lowest and highest target, where the model gives their place in between, in [0, 1].

    Example:
        >>> score = ClippedSquaredError(4.0)
        >>> score.of(torch.tensor([1.0, 9.0]), torch.tensor([0.0, 0.0])).tolist(), score.told(0.75)
        ([0.75, 0.0], 1.0)
    """

    metric: ClassVar[str] = "validation_error"
    better: ClassVar[str] = "lower"
    levels: ClassVar[int] = LEVELS

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 - min(e^2, B) / B; 0 where the error is not a number."""
        errors = torch.nan_to_num(self.errors(outputs, targets) ** 2, nan=self.bound, posinf=self.bound)
        return 1.0 - errors.clamp(max=self.bound) / self.bound

    def told(self, mean: float) -> float:
        """The mean clipped error."""
        return self.bound * (1.0 - mean)
