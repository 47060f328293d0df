"""Balanced iteration sampling: every record in exactly k of the T steps of a run, a uniform subset of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit import check
from tacit.errors import InvalidInput
from tacit.mechanisms.allocation import LEAST_NOISE, MixedSteps
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import AllocationPair, EnclosedPair, GaussianPair, Pair
from tacit.relation import Relation


@dataclass(frozen=True)
class BalancedIteration(Mechanism):
    """One step of a run in which each record takes part in exactly k of the T steps, a uniform k-subset of its own.

    The run is dominated by k epochs of random allocation of floor(T / k) steps (THEORY.md, Theorem 1.11); with k = 1 it
    is one such epoch. A run that was begun costs the whole of it.

    Args:
        base: a Gaussian mechanism.
        iterations: T >= 1, steps of the run.
        participations: k in [1, T], steps that each record takes part in.
        series: >= 0, number of the run that the step belongs to.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> print(*BalancedIteration(Gaussian(1.0), iterations=100, participations=10).accounted(60))
        Gaussian(1).balanced(100, 10), one of 10 parts 10
    """

    type: ClassVar[str] = "balanced_iteration"
    base: Mechanism
    iterations: int
    participations: int
    series: int = 0

    def __post_init__(self) -> None:
        if self.base.type != "gaussian":
            raise InvalidInput(f"{self.type} must be applied to a Gaussian mechanism; got {self.base}.")
        check.count("iterations", self.iterations)
        check.count("series", self.series, minimum=0)
        if check.count("participations", self.participations) > self.iterations:
            raise check.fail("participations", f"at most iterations = {self.iterations}", self.participations)

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the `unsafe_` switches of the mechanism inside."""
        return self.base.unsafe

    def series_taken(self) -> int:
        """Return one above the highest number of a series in the mechanism."""
        return self.series + 1

    def accounted(self, steps: int) -> tuple[Mechanism, int]:
        """(one of the k parts that bound a run, k times the runs begun)."""
        part = BalancedPart(self.base, self.iterations, self.participations)
        return part, self.participations * -(-steps // self.iterations)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form."""
        named = {"sampling": self.type, "iterations": self.iterations, "participations": self.participations}
        return self.base.spec() | named | ({"series": self.series} if self.series else {})

    def __str__(self) -> str:
        named = f", series {self.series}" if self.series else ""
        return f"{self.base}.balanced({self.iterations}, {self.participations}{named})"


@dataclass(frozen=True)
class BalancedPart(MixedSteps):
    """One of the k parts whose composition encloses a run of balanced iteration sampling.

    From above an epoch of floor(T / k) steps of random allocation, and under replace-one `base` alone, as if it were
    known which steps a record is in. From below the sum of all releases, Gaussian with mu = s k / (sigma sqrt(T)), of
    which a part has s sqrt(k / T) / sigma.

    Args:
        base: a Gaussian mechanism.
        iterations: T.
        participations: k.
    """

    type: ClassVar[str] = "balanced_part"
    iterations: int
    participations: int

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of a part, (with, without) the record first; those of `base` where all steps are taken or bare."""
        sigma = getattr(self.base, "noise_multiplier", 0.0)
        if self.iterations == self.participations or not sigma:
            return self.base.dominating_pairs(relation)
        steps = self.iterations // self.participations
        below = GaussianPair(relation.sensitivity * math.sqrt(self.participations / self.iterations) / sigma)
        known = relation is Relation.REPLACE_ONE or steps == 1 or sigma < LEAST_NOISE
        if known:
            return tuple(EnclosedPair(pair, below) for pair in self.base.dominating_pairs(relation))
        pairs = [AllocationPair(sigma, steps, remove) for remove in (True, False)]
        if self.participations == 1:
            return tuple(pairs)
        return tuple(EnclosedPair(pair, below) for pair in pairs)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form: of the run's first step."""
        return BalancedIteration(self.base, self.iterations, self.participations).spec()

    def __str__(self) -> str:
        return f"{self.base}.balanced({self.iterations}, {self.participations}), one of {self.participations} parts"
