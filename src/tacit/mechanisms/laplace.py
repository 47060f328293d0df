"""The Laplace mechanism, with noise on the reals or on the integers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import (
    LARGEST_GROUP,
    DiscreteLaplacePair,
    IntegerMixturePair,
    LaplaceMixturePair,
    LaplacePair,
    LaplaceReplacePair,
    Pair,
    binomial_logs,
    sampled_pairs,
)
from tacit.mechanisms.renyi import atoms_rdp
from tacit.relation import Relation

_LARGEST_CHANGE = 10_000  # Its pair has as many losses.


@dataclass(frozen=True)
class Laplace(Mechanism):
    """One number plus Laplace noise of density e^{-|x| / scale} / (2 scale).

    Args:
        scale: > 0, in the units of `sensitivity`.
        sensitivity: > 0, the change by adding, removing or zeroing one record; replace-one doubles it here.

    Example:
        >>> Laplace(2.0).pure_epsilon(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "laplace"
    scale: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check.positive("scale", self.scale)
        check.positive("sensitivity", self.sensitivity)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return sensitivity / scale (Dwork, McSherry, Nissim & Smith 2006)."""
        return relation.sensitivity * self.sensitivity / self.scale

    def zcdp(self, relation: Relation) -> float:
        """Return rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4)."""
        return self.pure_epsilon(relation) ** 2 / 2

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a = log(a/(2a-1) e^{(a-1) t} + (a-1)/(2a-1) e^{-a t}) / (a-1), t = epsilon (Mironov 2017, Table II)."""
        a = np.asarray(orders, dtype=float)
        t = self.pure_epsilon(relation)
        log_moment = np.logaddexp(np.log(a / (2 * a - 1)) + (a - 1) * t, np.log((a - 1) / (2 * a - 1)) - a * t)
        return np.clip(log_moment, 0.0, None) / (a - 1)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Lap(epsilon) against Lap(0); smaller shifts are garblings."""
        return (LaplacePair(self.pure_epsilon(relation)),)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """A group shifts the number by `size` times as much."""
        return (LaplacePair(size * self.pure_epsilon(relation)),), 1

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Mixtures over how many of the group are sampled; see `LaplaceMixturePair`."""
        if relation is Relation.REPLACE_ONE or size > LARGEST_GROUP:
            return super().poisson_group_pairs(sample_rate, size, relation)
        logs = binomial_logs(sample_rate, size)
        return tuple(LaplaceMixturePair(self.sensitivity / self.scale, logs, way) for way in (True, False)), 1

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if relation is Relation.REPLACE_ONE:
            return (LaplaceReplacePair(self.sensitivity / self.scale, sample_rate),)
        return sampled_pairs(self.dominating_pairs(relation), sample_rate, both=False)

    def __str__(self) -> str:
        return f"Laplace({self.scale:g})" if self.sensitivity == 1 else f"Laplace({self.scale:g}, {self.sensitivity:g})"


@dataclass(frozen=True)
class DiscreteLaplace(Mechanism):
    """Integers plus independent integer noise x of probability tanh(parameter / 2) e^{-parameter |x|} each.

    Also called the geometric mechanism (Ghosh, Roughgarden & Sundararajan 2009).

    Args:
        parameter: in [1e-9, 700].
        sensitivity: an integer in [1, 10000], the largest change in L1 norm by adding, removing or zeroing one record;
            replace-one doubles it here.

    Example:
        >>> DiscreteLaplace(0.5, 2).pure_epsilon(Relation.ADD_REMOVE)
        1.0
    """

    type: ClassVar[str] = "discrete_laplace"
    parameter: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check.real("parameter", self.parameter, low=1e-9, high=700.0)
        if check.count("sensitivity", self.sensitivity) > _LARGEST_CHANGE:
            raise check.fail("sensitivity", f"at most {_LARGEST_CHANGE}", self.sensitivity, "Use laplace noise beyond.")

    def _shift(self, relation: Relation) -> int:
        return int(relation.sensitivity) * self.sensitivity

    def pure_epsilon(self, relation: Relation) -> float:
        """Return parameter * sensitivity."""
        return self.parameter * self._shift(relation)

    def zcdp(self, relation: Relation) -> float:
        """Return rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4)."""
        return self.pure_epsilon(relation) ** 2 / 2

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a of the dominating pair, rounded up; its few losses are summed."""
        return atoms_rdp(self.dominating_pairs(relation), orders)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """The largest shift."""
        return (DiscreteLaplacePair(self.parameter, self._shift(relation)),)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """A group shifts the integers by `size` times as much."""
        if size * self._shift(relation) > 2 * _LARGEST_CHANGE:
            return super().group_pairs(size, relation)
        return (DiscreteLaplacePair(self.parameter, size * self._shift(relation)),), 1

    def poisson_group_pairs(self, sample_rate: float, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Mixtures over how many of the group are sampled; see `IntegerMixturePair`."""
        if size > LARGEST_GROUP or size * self.sensitivity > 2 * _LARGEST_CHANGE:
            return super().poisson_group_pairs(sample_rate, size, relation)
        pair = DiscreteLaplacePair(self.parameter, self.sensitivity)
        return IntegerMixturePair.both_ways(pair, binomial_logs(sample_rate, size), relation), 1

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Pairs of the Poisson-subsampled step; under zero-out a zeroed record adds what an absent one does."""
        if relation is Relation.REPLACE_ONE:
            return (DiscreteLaplacePair(self.parameter, self.sensitivity, sample_rate),)
        return sampled_pairs(self.dominating_pairs(relation), sample_rate, both=False)

    def __str__(self) -> str:
        return f"DiscreteLaplace({self.parameter:g}, {self.sensitivity})"
