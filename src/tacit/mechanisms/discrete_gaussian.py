"""The discrete Gaussian mechanism: integer noise for an integer query."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import (
    LARGEST_GROUP,
    DiscreteGaussianPair,
    DiscreteGaussianReplacePair,
    IntegerMixturePair,
    Pair,
    binomial_logs,
    sampled_pairs,
)
from tacit.relation import Relation


@dataclass(frozen=True)
class DiscreteGaussian(Mechanism):
    """One integer plus integer noise z of probability proportional to e^{-z^2 / (2 s^2)}.

    s = noise_multiplier * sensitivity (Canonne, Kamath & Steinke 2020).

    Args:
        noise_multiplier: > 0, s in units of `sensitivity`; s is at most 100,000.
        sensitivity: an integer >= 1, the largest change of the query by adding, removing or zeroing one record;
            replace-one doubles it here.

    Example:
        >>> DiscreteGaussian(2.0).zcdp(Relation.ADD_REMOVE)
        0.125
    """

    type: ClassVar[str] = "discrete_gaussian"
    noise_multiplier: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check.count("sensitivity", self.sensitivity)
        check.real(
            "noise_multiplier * sensitivity",
            check.positive("noise_multiplier", self.noise_multiplier) * self.sensitivity,
            high=1e5,
            hint="Use the continuous gaussian mechanism beyond.",
        )

    @property
    def scale(self) -> float:
        """s, the scale of the noise in units of the query."""
        return self.noise_multiplier * self.sensitivity

    def zcdp(self, relation: Relation) -> float:
        """Return rho = (change / s)^2 / 2 (Canonne, Kamath & Steinke 2020, Proposition 5)."""
        return (relation.sensitivity / self.noise_multiplier) ** 2 / 2

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        return self.zcdp(relation) * np.asarray(orders, dtype=float)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """The largest shift; its ratio is monotone, so smaller shifts have smaller threshold tests."""
        return (DiscreteGaussianPair(self.scale, int(relation.sensitivity) * self.sensitivity),)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """A group shifts the integer by `size` times as much."""
        return (DiscreteGaussianPair(self.scale, size * int(relation.sensitivity) * self.sensitivity),), 1

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Mixtures over how many of the group are sampled; see `IntegerMixturePair`."""
        if size > LARGEST_GROUP:
            return super().poisson_group_pairs(sample_rate, size, relation)
        pair = DiscreteGaussianPair(self.scale, self.sensitivity)
        return IntegerMixturePair.both_ways(pair, binomial_logs(sample_rate, size), relation), 1

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if relation is Relation.REPLACE_ONE:
            return (DiscreteGaussianReplacePair(self.scale, self.sensitivity, sample_rate),)
        return sampled_pairs(self.dominating_pairs(relation), sample_rate, both=False)

    def __str__(self) -> str:
        unit = "" if self.sensitivity == 1 else f", {self.sensitivity}"
        return f"DiscreteGaussian({self.noise_multiplier:g}{unit})"
