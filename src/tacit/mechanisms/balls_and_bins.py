"""Balls and bins: every record in the same one of a run's steps in every epoch, chosen uniformly and independently."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tacit import check
from tacit.mechanisms.allocation import AllocatedSteps, AllocationEpoch
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.gaussian import Gaussian


@dataclass(frozen=True)
class BallsAndBins(AllocatedSteps):
    """One step of a run in which each record is in the same one of `steps_per_epoch` steps of every epoch.

    The releases of a record's steps have a sufficient statistic: their mean, one epoch of random allocation with noise
    sigma / sqrt(epochs). A gradient may follow earlier releases: the loss of a bin is then one of the same law. Random
    allocation, which draws anew every epoch, costs far less. A run that was begun costs the whole of it.

    Args:
        base: a Gaussian mechanism.
        steps_per_epoch: T >= 1, steps among which a record's is drawn uniformly, once for the run.
        epochs: >= 1, epochs of the run, an unfinished one included.
        series: >= 0, number of the run that the step belongs to.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> print(*BallsAndBins(Gaussian(2.0), steps_per_epoch=100, epochs=4).accounted(250))
        Gaussian(1).allocated(100) for an epoch 1
    """

    type: ClassVar[str] = "balls_and_bins"
    base: Mechanism
    steps_per_epoch: int
    epochs: int
    series: int = 0

    def __post_init__(self) -> None:
        self._check()
        check.count("epochs", self.epochs)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(one epoch with the noise of the whole run, runs begun)."""
        assert isinstance(self.base, Gaussian)
        of_run = replace(self.base, noise_multiplier=self.base.noise_multiplier / self.epochs**0.5)
        return AllocationEpoch(of_run, self.steps_per_epoch), -(-steps // (self.steps_per_epoch * self.epochs))

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        named = {"sampling": self.type, "steps_per_epoch": self.steps_per_epoch, "epochs": self.epochs}
        return self.base.spec() | named | ({"series": self.series} if self.series else {})

    def __str__(self) -> str:
        return f"{self.base}.balls_and_bins({self.steps_per_epoch}, {self.epochs} epochs)"
