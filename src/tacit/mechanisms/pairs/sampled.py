"""Poisson subsampling of any pair."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit.mechanisms.pairs.pair import Pair, log_mixture, unmixed


@dataclass(frozen=True)
class SampledPair(Pair):
    """A pair run on a Poisson sample under add/remove (Zhu, Dong & Wang 2022, Theorem 11).

    remove: ((1-p) Q + p P, Q) from a pair (P, Q) for (with, without) the record; add: (P, (1-p) P + p Q) from a
    pair for (without, with). Losses move monotonely: log(1-p + p e^L) and -log(1-p + p e^{-L}).
    """

    base: Pair
    rate: float
    remove: bool

    @property
    def attained(self) -> Pair:
        return replace(self, base=self.base.attained)

    @property
    def atoms(self) -> tuple[float, ...]:
        sign = 1.0 if self.remove else -1.0
        found = [float(sign * log_mixture(self.rate, np.array(sign * loss))) for loss in self.base.atoms]
        if self.remove and self.base.unseen:
            found.append(float(np.log1p(-self.rate)))
        if not self.remove and self.base.infinite:
            found.append(float(-np.log1p(-self.rate)))
        return tuple(found)

    @property
    def discrete(self) -> bool:
        return self.base.discrete

    @property
    def infinite(self) -> float:
        return self.rate * self.base.infinite if self.remove else 0.0

    @property
    def unseen(self) -> float:
        return 0.0 if self.remove else self.rate * self.base.unseen

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        loss = np.asarray(edges, dtype=float)
        if self.remove:
            p, q = self.base.cells(unmixed(self.rate, loss))
            if self.base.unseen:
                q[np.searchsorted(loss, np.log1p(-self.rate))] += self.base.unseen
            return (1 - self.rate) * q + self.rate * p, q
        p, q = self.base.cells(-unmixed(self.rate, -loss))
        if self.base.infinite:
            p[np.searchsorted(loss, -np.log1p(-self.rate))] += self.base.infinite
        return p, (1 - self.rate) * p + self.rate * q


@dataclass(frozen=True)
class RevealedPair(Pair):
    """Whether the record was sampled is revealed: loss 0 with probability 1 - rate, else that of `base`.

    By joint convexity it dominates a Poisson sample under any relation in which both data sets have a record in
    the place that differs; nothing smaller is known for a mechanism of which only the pair is known.
    """

    base: Pair
    rate: float

    @property
    def attained(self) -> Pair:
        return replace(self, base=self.base.attained)

    @property
    def atoms(self) -> tuple[float, ...]:
        return (0.0, *self.base.atoms)

    @property
    def discrete(self) -> bool:
        return self.base.discrete

    @property
    def infinite(self) -> float:
        return self.rate * self.base.infinite

    @property
    def unseen(self) -> float:
        return self.rate * self.base.unseen

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p, q = self.base.cells(edges)
        still = np.zeros(len(edges) + 1)
        still[np.searchsorted(edges, 0.0, side="left")] = 1 - self.rate
        return still + self.rate * p, still + self.rate * q


def sampled_pairs(directions: tuple[Pair, ...], rate: float, *, both: bool) -> tuple[Pair, ...]:
    """The pairs of a Poisson sample from the (remove, add) pairs of a mechanism known by nothing else."""
    if rate == 1.0:
        return directions
    if both:
        return tuple(RevealedPair(pair, rate) for pair in directions)
    return SampledPair(directions[0], rate, True), SampledPair(directions[-1], rate, False)
