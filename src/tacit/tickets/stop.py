"""Ending the training at an accuracy: one measured on public data, or one that private records are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tacit import check
from tacit.noise import Stream
from tacit.noise.draw import laplace
from tacit.training import Callback

STOP_ON = ("public", "private")


class PublicStop(Callback):
    """End the run once `metric` of the history is at least `accuracy`; it must be measured on public data.

    Args:
        metric: a name that `evaluate` gives.
        accuracy: in (0, 1].
    """

    def __init__(self, metric: str, accuracy: float):
        self._metric = metric
        self._accuracy = check.probability("accuracy", accuracy, open_low=True)

    def on_epoch(self, row: Mapping[str, float]) -> str | None:
        reached = row[check.choice("metric", self._metric, row)]
        return f"{self._metric} reached {reached:.4g}" if reached >= self._accuracy else None


class PrivateStop(Callback):
    """End the run once the accuracy on private records is about `accuracy`: epsilon-DP for all looks together.

        stop at the first epoch with  h - accuracy n + Lap(4 / epsilon) >= Lap(2 / epsilon),

    h of the n records being classified right and the right side drawn once. One record moves h - accuracy n by at
    most 1 whether it is added, removed or replaced, and the networks it is counted on are released anyway, so this is
    AboveThreshold (Dwork & Roth 2014, Theorem 3.23) for sensitivity 1. Drawn in double precision.

    Args:
        excess: h - accuracy n of the network as it is now, on private records.
        epsilon: > 0; its cost, which the caller records before training.
    """

    def __init__(self, excess: Callable[[], float], epsilon: float, stream: Stream):
        self._excess, self._stream = excess, stream
        self._scale = 2.0 / check.positive("epsilon", epsilon)
        self._threshold = float(laplace(stream, 1, scale=self._scale)[0])

    def on_epoch(self, row: Mapping[str, float]) -> str | None:
        noisy = self._excess() + float(laplace(self._stream, 1, scale=2 * self._scale)[0])
        return "the private records are classified well enough" if noisy >= self._threshold else None

    def state(self) -> dict[str, Any]:
        return {"threshold": self._threshold}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._threshold = state["threshold"]
