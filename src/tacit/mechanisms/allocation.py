"""Random allocation: every record in one step of each epoch, drawn anew for every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import AllocationPair, Pair
from tacit.relation import Relation

LEAST_NOISE = 0.06
"""Smallest noise multiplier of an exact account: below it e^{1 / sigma^2} and its like leave the range of doubles."""


class AllocatedSteps(Mechanism):
    """Steps of a Gaussian mechanism in series, each record in one of `steps_per_epoch`; base of such mechanisms."""

    base: Mechanism
    steps_per_epoch: int
    series: int

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of the mechanism inside."""
        return self.base.unsafe

    def series_taken(self) -> int:
        """Return one above the highest number of a series in the mechanism."""
        return self.series + 1

    def _check(self) -> None:
        if self.base.type != "gaussian":
            raise InvalidInput(f"{self.type} must be applied to a Gaussian mechanism; got {self.base}.")
        check.count("steps_per_epoch", self.steps_per_epoch)
        check.count("series", self.series, minimum=0)


@dataclass(frozen=True)
class RandomAllocation(AllocatedSteps):
    """One step of an epoch of `steps_per_epoch` steps; each record is in one of them, drawn anew for every epoch.

    Steps of one series are consecutive and start at an epoch's beginning; the epochs begun are what counts. Two series,
    such as those of two runs, may each leave an epoch unfinished, so each is rounded up.

    Args:
        base: a Gaussian mechanism.
        steps_per_epoch: T >= 1, steps among which a record's is drawn uniformly, independently of all other records.
        series: >= 0, number of the uninterrupted series of epochs that the step belongs to.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> RandomAllocation(Gaussian(1.0), steps_per_epoch=100).accounted(250)[1]
        3
    """

    type: ClassVar[str] = "random_allocation"
    base: Mechanism
    steps_per_epoch: int
    series: int = 0

    def __post_init__(self) -> None:
        self._check()

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(one epoch, epochs begun): what an epoch leaves out is post-processing of the whole."""
        return AllocationEpoch(self.base, self.steps_per_epoch), -(-steps // self.steps_per_epoch)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        named = {"series": self.series} if self.series else {}
        return self.base.spec() | {"sampling": self.type, "steps_per_epoch": self.steps_per_epoch} | named

    def __str__(self) -> str:
        named = f", series {self.series}" if self.series else ""
        return f"{self.base}.allocated({self.steps_per_epoch}{named})"


@dataclass(frozen=True)
class MixedSteps(Mechanism):
    """A part of a run in which a record takes `base` in steps chosen at random, unknown to the attacker.

    Divergences that are jointly quasi-convex are at most those of `base`: the part is a mixture over the choice.

    Args:
        base: the mechanism of one step.
    """

    base: Mechanism

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of the mechanism inside."""
        return self.base.unsafe

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return that of `base`: divergences of a mixture are at most the largest of its parts."""
        return self.base.rdp(orders, relation)

    def zcdp(self, relation: Relation) -> float:
        """Return rho of `base`."""
        return self.base.zcdp(relation)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Return that of `base`."""
        return self.base.epsilon_at(delta, relation)


@dataclass(frozen=True)
class AllocationEpoch(MixedSteps):
    """A whole epoch of random allocation.

    P is a mixture of runs that use the record in one known step, so that every jointly quasi-convex divergence is at
    most that of `base` alone: this answers Renyi, zCDP and epsilon under every relation. The exact pair is
    `AllocationPair`, under add/remove and zero-out; under replace-one no exact pair is known, and that of `base` bounds
    it from above alone.

    Args:
        base: a Gaussian mechanism.
        steps: T >= 1, steps of the epoch.
    """

    type: ClassVar[str] = "allocation_epoch"
    steps: int

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of an epoch, (with, without) the record first; that of `base` where it has one step or no noise."""
        sigma = getattr(self.base, "noise_multiplier", 0.0)
        if self.steps == 1 or not sigma:
            return self.base.dominating_pairs(relation)
        if relation is Relation.REPLACE_ONE:
            raise Refused(f"no exact pair is known for {self} under replace_one. State add_remove or zero_out.")
        if sigma < LEAST_NOISE:
            raise Refused(f"{self} has an exact pair from noise_multiplier {LEAST_NOISE:g} up. Use more noise.")
        return tuple(AllocationPair(sigma, self.steps, remove) for remove in (True, False))

    def spec(self) -> dict[str, Any]:
        """Return the JSON form: of an epoch's first step, which costs as much."""
        return RandomAllocation(self.base, self.steps).spec()

    def __str__(self) -> str:
        return f"{self.base}.allocated({self.steps}) for an epoch"
