"""Mechanisms known only by a guarantee: Renyi divergences, zero-concentrated DP, or one (epsilon, delta)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Mechanism, PureMechanism
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.discrete import AtomPair
from tacit.mechanisms.renyi import pure_rdp
from tacit.relation import Relation


@dataclass(frozen=True)
class Generic(Mechanism):
    """A mechanism whose Renyi divergence of order `orders[i]` is at most `divergences[i]`, in both directions.

    A Renyi divergence does not decrease with its order, so any other order gets the bound of the next larger known
    one, and an order above all known ones gets infinity.

    Args:
        orders: increasing, each > 1.
        divergences: >= 0, as many as orders, under the relation of the ledger.

    Example:
        >>> Generic((2.0, 4.0), (0.1, 0.2)).rdp(np.array([3.0]), Relation.ADD_REMOVE)
        array([0.2])
    """

    type: ClassVar[str] = "generic"
    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("orders", "divergences"):
            values = getattr(self, name)
            check.that(isinstance(values, list | tuple) and values, name, "a list of numbers", values)
            low = 1.0 if name == "orders" else 0.0
            numbers = tuple(check.real(name, value, low=low, open_low=name == "orders") for value in values)
            object.__setattr__(self, name, numbers)
        if len(self.orders) != len(self.divergences):
            raise check.fail("divergences", f"a list of {len(self.orders)}, one for each order", len(self.divergences))
        if any(b <= a for a, b in zip(self.orders, self.orders[1:], strict=False)):
            raise check.fail("orders", "increasing", list(self.orders))

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        known = np.minimum.accumulate(np.append(self.divergences, np.inf)[::-1])[::-1]
        return known[np.searchsorted(self.orders, np.asarray(orders, dtype=float))]

    def poisson_rdp(self, sample_rate: float, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Sampling never hurts: D_a is jointly quasi-convex, so the unsampled divergence is a bound."""
        return self.rdp(orders, relation)

    def __str__(self) -> str:
        return f"Generic({len(self.orders)} orders)"


@dataclass(frozen=True)
class ZeroConcentrated(Mechanism):
    """A mechanism that satisfies (xi, rho)-zCDP, nothing else known: D_a <= xi + rho a for every order a > 1.

    Gaussian noise is one such mechanism, but not the worst: `pld` refuses, and a Poisson sample gains nothing.

    Args:
        rho: >= 0, under the relation of the ledger.
        xi: >= 0.

    Example:
        >>> ZeroConcentrated(0.5, 0.1).rdp(np.array([2.0]), Relation.ADD_REMOVE)
        array([1.1])
    """

    type: ClassVar[str] = "zero_concentrated"
    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        check.real("rho", self.rho, low=0.0)
        check.real("xi", self.xi, low=0.0)

    def zcdp(self, relation: Relation) -> float:
        """Return rho, where xi is 0."""
        return self.rho if self.xi == 0 else super().zcdp(relation)

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Return an upper bound on D_a for each order."""
        return self.xi + self.rho * np.asarray(orders, dtype=float)

    def poisson_rdp(self, sample_rate: float, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Sampling never hurts: D_a is jointly quasi-convex, so the unsampled divergence is a bound."""
        return self.rdp(orders, relation)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Return xi + rho + 2 sqrt(rho log(1 / delta)) (Bun & Steinke 2016, Lemma 3.5)."""
        if self.rho == 0:
            return self.xi
        return self.xi + self.rho + 2 * math.sqrt(self.rho * -math.log(delta)) if delta > 0 else math.inf

    def __str__(self) -> str:
        return f"ZeroConcentrated({self.rho:g}, {self.xi:g})"


@dataclass(frozen=True)
class Approximate(PureMechanism):
    """A mechanism that is (epsilon, delta)-DP under the relation of the ledger, nothing else known.

    Example:
        >>> Approximate(1.0, 1e-6).epsilon_at(1e-5, Relation.ADD_REMOVE)
        1.0
    """

    type: ClassVar[str] = "approximate"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.epsilon(self.epsilon)
        check.probability("delta", self.delta, open_high=True)

    def pure_epsilon(self, relation: Relation) -> float:
        """Return the smallest known epsilon of pure DP."""
        if self.delta > 0:
            raise self.refusal("pure epsilon", relation)
        return self.epsilon

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a of randomised response where delta is 0; no moment is bounded otherwise."""
        return pure_rdp(self.pure_epsilon(relation), orders)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Return the smallest known epsilon at delta."""
        return self.epsilon if delta >= self.delta else float("inf")

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Randomised response that with probability delta reveals all (Kairouz, Oh & Viswanath 2015)."""
        return (AtomPair.response(self.epsilon, self.delta),)

    def group_pairs(self, size: int, relation: Relation) -> tuple[tuple[Pair, ...], int]:
        """Where delta is 0: two outcomes whose log odds move by epsilon with each record reach `size` times epsilon."""
        if self.delta > 0:
            return super().group_pairs(size, relation)
        return (AtomPair.response(size * self.epsilon),), 1

    def __str__(self) -> str:
        return f"Approximate({self.epsilon:g}, {self.delta:g})"
