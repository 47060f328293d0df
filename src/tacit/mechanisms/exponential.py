"""The exponential mechanism, any mechanism of bounded range, and randomised response."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import AtomPair, Pair, RangePair
from tacit.mechanisms.renyi import pure_rdp
from tacit.relation import Relation


@dataclass(frozen=True)
class BoundedRange(Mechanism):
    """Any mechanism whose privacy loss lies in an interval of length epsilon that contains 0.

    Hence epsilon-DP (Durfee & Rogers 2019); `epsilon` is stated for the relation of the ledger.

    Example:
        >>> BoundedRange(1.0).zcdp(Relation.ADD_REMOVE)
        0.125
    """

    type: ClassVar[str] = "bounded_range"
    epsilon: float

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        return self.epsilon

    def zcdp(self, relation: Relation) -> float:
        """Return rho = epsilon^2 / 8 (Cesar & Rogers 2021, Lemma 3.2)."""
        return self.epsilon**2 / 8

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        return np.minimum(self.zcdp(relation) * np.asarray(orders, dtype=float), self.epsilon)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """The smallest pair that covers every place of the interval, also when it is picked adaptively."""
        return (RangePair(self.epsilon),)

    def __str__(self) -> str:
        return f"{self.__class__.__name__}({self.epsilon:g})"


@dataclass(frozen=True)
class Exponential(BoundedRange):
    """Picks an outcome with probability proportional to e^{epsilon * score / (2 * sensitivity)}.

    Example:
        >>> Exponential(0.5).pure_epsilon(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "exponential"


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Tells the truth with odds e^epsilon : 1 about one bit: the least private epsilon-DP mechanism.

    Example:
        >>> RandomizedResponse(1.0).zcdp(Relation.ADD_REMOVE)
        0.5
    """

    type: ClassVar[str] = "randomized_response"
    epsilon: float

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        return self.epsilon

    def zcdp(self, relation: Relation) -> float:
        """Return rho of zero-concentrated DP."""
        return self.epsilon**2 / 2

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        return pure_rdp(self.epsilon, orders)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Return the dominating pairs, (with, without) the record first."""
        return (AtomPair.response(self.epsilon),)

    def __str__(self) -> str:
        return f"RandomizedResponse({self.epsilon:g})"
