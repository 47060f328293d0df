"""Random allocation: every record in one step of each epoch, drawn anew for every epoch.

Balanced iteration sampling: every record in exactly k of the T steps of a run, a uniform subset of its own.

Balls and bins: every record in the same one of a run's steps in every epoch, chosen uniformly and independently.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tacit import check
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms.base import Compose, Mechanism, OnBatches
from tacit.mechanisms.pairs.allocation import AllocationPair, SubsetSumPair
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.discrete import NOTHING, EnclosedPair
from tacit.mechanisms.pairs.gaussian import GaussianPair
from tacit.relation import Relation

LEAST_NOISE = 0.06
"""Smallest noise multiplier of an exact account: below it e^{1 / sigma^2} and its like leave the range of doubles."""


def check_series(mechanism: Any) -> None:
    """The checks of every mechanism of steps of a Gaussian mechanism in series."""
    if mechanism.base.type != "gaussian":
        raise InvalidInput(f"{mechanism.type} must be applied to a Gaussian mechanism; got {mechanism.base}.")
    check.count("series", mechanism.series, minimum=0)


@dataclass(frozen=True)
class AllocatedSteps(OnBatches):
    """Steps of a Gaussian mechanism in series, each record in one of `steps_per_epoch`; base of such mechanisms."""

    base: Mechanism
    steps_per_epoch: int

    def __post_init__(self) -> None:
        check_series(self)
        check.count("steps_per_epoch", self.steps_per_epoch)


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
    series: int = 0

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(one epoch, epochs begun): what an epoch leaves out is post-processing of the whole."""
        return AllocationEpoch(self.base, self.steps_per_epoch), -(-steps // self.steps_per_epoch)

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
    epochs: int
    series: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.count("epochs", self.epochs)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(one epoch with the noise of the whole run, runs begun)."""
        sigma = getattr(self.base, "noise_multiplier", 0.0)
        of_run = replace(self.base, noise_multiplier=sigma / self.epochs**0.5)
        return AllocationEpoch(of_run, self.steps_per_epoch), -(-steps // (self.steps_per_epoch * self.epochs))

    def __str__(self) -> str:
        return f"{self.base}.balls_and_bins({self.steps_per_epoch}, {self.epochs} epochs)"


_MOST_SUMMED = 1 << 20
"""Steps up to which a run has a `SubsetSumPair`: rounding takes 5e-4 of its masses there."""


@dataclass(frozen=True)
class BalancedIteration(OnBatches):
    """One step of a run in which each record takes part in exactly k of the T steps, a uniform k-subset of its own.

    The run is dominated by k epochs of random allocation, of floor(T / k) steps or one more, T in all (THEORY.md,
    Theorem 1.11); with k = 1 it is one such epoch. A run that was begun costs the whole of it.

    Args:
        base: a Gaussian mechanism.
        iterations: T >= 1, steps of the run.
        participations: k in [1, T], steps that each record takes part in.
        series: >= 0, number of the run that the step belongs to.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> print(*BalancedIteration(Gaussian(1.0), iterations=5, participations=2).accounted(4))
        Gaussian(1).balanced(5, 2), first part of 3 steps + Gaussian(1).balanced(5, 2), part of 2 steps 1
    """

    type: ClassVar[str] = "balanced_iteration"
    base: Mechanism
    iterations: int
    participations: int
    series: int = 0

    def __post_init__(self) -> None:
        check_series(self)
        check.count("iterations", self.iterations)
        if check.count("participations", self.participations) > self.iterations:
            raise check.fail("participations", f"at most iterations = {self.iterations}", self.participations)

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(the k parts that bound a run, runs begun)."""
        short, longer = divmod(self.iterations, self.participations)
        sizes = [short + 1] * longer + [short] * (self.participations - longer)
        parts = [
            BalancedPart(self.base, self.iterations, self.participations, size, first=place == 0)
            for place, size in enumerate(sizes)
        ]
        return Compose.of(*((part, 1) for part in parts)), -(-steps // self.iterations)

    def __str__(self) -> str:
        named = f", series {self.series}" if self.series else ""
        return f"{self.base}.balanced({self.iterations}, {self.participations}{named})"


@dataclass(frozen=True)
class BalancedPart(MixedSteps):
    """One of the k parts whose composition encloses a run of balanced iteration sampling.

    From above an epoch of some steps of random allocation, and under replace-one `base` alone, as if it were known
    which steps a record is in. From below the first part stands for the whole run, others for nothing: `SubsetSumPair`,
    and the sum of all releases, Gaussian with mu = s k / (sigma sqrt(T)).

    Args:
        base: a Gaussian mechanism.
        iterations: T.
        participations: k.
        steps: of the epoch.
        first: whether it is the first part of its run.
    """

    type: ClassVar[str] = "balanced_part"
    iterations: int
    participations: int
    steps: int
    first: bool

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of a part, (with, without) the record first; those of `base` where all steps are taken or bare."""
        sigma = getattr(self.base, "noise_multiplier", 0.0)
        if self.iterations == self.participations or not sigma:
            return self.base.dominating_pairs(relation)
        mean = self.participations / (sigma * math.sqrt(self.iterations))
        if relation is Relation.REPLACE_ONE or sigma < LEAST_NOISE:
            below = GaussianPair(relation.sensitivity * mean) if self.first else NOTHING
            return tuple(EnclosedPair(pair, below) for pair in self.base.dominating_pairs(relation))
        above = [AllocationPair(sigma, self.steps, remove) for remove in (True, False)]
        if self.participations == 1:
            return tuple(above)
        if self.steps == 1:
            above = [*self.base.dominating_pairs(relation)] * 2
        if not self.first:
            return tuple(EnclosedPair(pair, NOTHING) for pair in above[:2])
        if self.iterations > _MOST_SUMMED:
            return tuple(EnclosedPair(pair, GaussianPair(mean)) for pair in above[:2])
        run = [SubsetSumPair(sigma, self.iterations, self.participations, remove) for remove in (True, False)]
        return tuple(EnclosedPair(*pairs, GaussianPair(mean)) for pairs in zip(above[:2], run, strict=True))

    def spec(self) -> dict[str, Any]:
        """Return the JSON form: of the run's first step."""
        return BalancedIteration(self.base, self.iterations, self.participations).spec()

    def __str__(self) -> str:
        name = "first part" if self.first else "part"
        return f"{self.base}.balanced({self.iterations}, {self.participations}), {name} of {self.steps} steps"
