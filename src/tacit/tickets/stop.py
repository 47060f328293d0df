"""Early stopping at an accuracy, measured on public data or, by the sparse vector technique, on private records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from scipy.special import gammainc

from tacit import check
from tacit.errors import Refused
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import discrete_laplace
from tacit.training import Callback

STOP_ON = ("public", "private")


_GRID = 1024
# Thresholds that are drawn for a trial, and the probability that right ones end a run. On grids coarser than a scale of
# so many steps they follow no exponential law.
_TRIALS, _ALARM, _LEAST_SCALE = 64, 1e-9, 32


class PublicStop(Callback):
    """End the run once `metric` of the history is at least `accuracy`; it must be measured on public data.

    Args:
        metric: a name that `evaluate` gives.
        accuracy: in (0, 1].

    Example:
        >>> PublicStop("test", 0.9).on_epoch({"test": 0.95})
        'test reached 0.95'
    """

    def __init__(self, metric: str, accuracy: float):
        self._metric = metric
        self._accuracy = check.probability("accuracy", accuracy, open_low=True)

    def on_epoch(self, row: Mapping[str, float]) -> str | None:
        """The reason to end the run after this epoch, or None."""
        reached = row[check.choice("metric", self._metric, row)]
        return f"{self._metric} reached {reached:.4g}" if reached >= self._accuracy else None


class PrivateStop(Callback):
    """End the run once the accuracy on private records is about `accuracy`: epsilon-DP for all epochs together.

        stop at the first epoch with  h - accuracy n + Lap(4 / epsilon) >= Lap(2 / epsilon),

    h of the n records being classified right and the right side drawn once. One record moves h - accuracy n by at
    most 1 whether it is added, removed or replaced, and the networks it is counted on are released anyway, so this is
    AboveThreshold (Dwork & Roth 2014, Theorem 3.23) for sensitivity 1. All three numbers are multiples of 1/1024, the
    noise is discrete Laplace, drawn exactly, and its scale pays for one step of that grid more.

    Args:
        excess: h - accuracy n of the network as it is now, on private records.
        epsilon: > 0; its cost, which the caller records before training.
        stream: source of the noise.

    Raises:
        InvalidInput: epsilon is not positive.

    Example:
        >>> from tacit.noise import SeededStream
        >>> PrivateStop(lambda: 1e6, 1.0, SeededStream(0)).on_epoch({})
        'the private records are classified well enough'
    """

    def __init__(self, excess: Callable[[], float], epsilon: float, stream: Stream):
        self._excess, self._stream = excess, stream
        # Rounded up, so that the sampler's fraction stays short.
        self._scale = Fraction(math.ceil((_GRID + 1) * 2 / check.positive("epsilon", epsilon)))
        self._threshold = discrete_laplace(stream, self._scale) / _GRID

    def on_epoch(self, row: Mapping[str, float]) -> str | None:
        """The reason to end the run after this epoch, or None."""
        noisy = (round(self._excess() * _GRID) + discrete_laplace(self._stream, 2 * self._scale)) / _GRID
        return "the private records are classified well enough" if noisy >= self._threshold else None

    def state(self) -> dict[str, Any]:
        """The threshold, for a checkpoint."""
        return {"threshold": self._threshold}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up the threshold of a checkpoint."""
        self._threshold = state["threshold"]


def check_thresholds(epsilon: float) -> None:
    """Draw thresholds for a trial from streams of their own: together they must be as large as Lap(2 / epsilon) makes.

    The sum of 64 absolute values over their scale follows a gamma law; a right one is refused with probability 1e-9.

    Raises:
        Refused: they are smaller.

    Example:
        >>> check_thresholds(1.0)
    """
    if 2 * _GRID / epsilon < _LEAST_SCALE:
        return
    drawn = (PrivateStop(lambda: 0.0, epsilon, SecureStream()).state()["threshold"] for _ in range(_TRIALS))
    if gammainc(_TRIALS, sum(map(abs, drawn)) * epsilon / 2) < _ALARM:
        raise Refused("thresholds of private stopping must be as noisy as their epsilon states; they are not.")
