"""Pairs with finitely many losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from tacit.mechanisms.pairs.nodes import Nodes
from tacit.mechanisms.pairs.pair import Pair


@dataclass(frozen=True)
class AtomPair(Pair):
    """Finite losses with their masses under P and Q; what is missing from 1 has infinite loss."""

    losses: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    certain: float = 0.0

    @classmethod
    def response(cls, epsilon: float, delta: float = 0.0) -> AtomPair:
        """Randomised response of odds e^epsilon : 1 that with probability `delta` reveals all.

        It dominates every (epsilon, delta)-DP mechanism (Kairouz, Oh & Viswanath 2015).
        """
        high, low = float(expit(epsilon)), float(expit(-epsilon))
        rest = 1 - delta
        return cls((-epsilon, epsilon), (low * rest, high * rest), (high * rest, low * rest), delta)

    @property
    def atoms(self) -> tuple[float, ...]:
        return self.losses

    @property
    def largest(self) -> float:
        return max(self.losses, default=-np.inf)

    @property
    def discrete(self) -> bool:
        return True

    @property
    def infinite(self) -> float:
        return self.certain

    @property
    def unseen(self) -> float:
        return max(1.0 - sum(self.q), 0.0) if self.certain else 0.0

    def nodes(self, theta: float, frequency: float) -> Nodes:
        return Nodes(np.array(self.losses), np.array(self.p), np.array(self.q))

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = np.searchsorted(edges, np.array(self.losses), side="left")
        size = len(edges) + 1
        return np.bincount(index, self.p, size), np.bincount(index, self.q, size)
