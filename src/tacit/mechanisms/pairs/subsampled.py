"""Poisson subsampling of any pair."""

from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np

from tacit.mechanisms.pairs.base import (
    LOSS_UNIT,
    Nodes,
    Pair,
    Table,
    log_mixture,
    log_mixture_error,
    steepness,
    unmixed,
)


@dataclass(frozen=True)
class _OnSample(Pair):
    """A pair on a Poisson sample: members of a family stay members."""

    base: Pair
    rate: float
    reached = property(attrgetter("base.reached"))
    discrete = property(attrgetter("base.discrete"))

    def attained(self, share: float) -> Pair:
        """Return a pair that a mechanism of the family reaches."""
        return replace(self, base=self.base.attained(share))

    def covering(self, count: int) -> tuple[Pair, ...]:
        """Return finite pairs that cover the family."""
        return tuple(replace(self, base=base) for base in self.base.covering(count))


@dataclass(frozen=True)
class SampledPair(_OnSample):
    """A pair run on a Poisson sample under add/remove (Zhu, Dong & Wang 2022, Theorem 11).

    remove: ((1-p) Q + p P, Q) from a pair (P, Q) for (with, without) the record; add: (P, (1-p) P + p Q) from a
    pair for (without, with). Losses move monotonely: log(1-p + p e^L) and -log(1-p + p e^{-L}).
    """

    remove: bool

    def edge_error(self, size: float) -> float:
        """Return four units of the edge, and the error at the base with the slope of the mixture there.

        The base's losses are larger by -log rate at most; the slope is 1 - (1 - rate) e^-|loss| <= rate + |loss|.
        """
        if self.table is not None:
            return super().edge_error(size)
        more = size - float(np.log(self.rate))
        return LOSS_UNIT * size + min(1.0, self.rate + size) * (LOSS_UNIT * (1 + more) + self.base.edge_error(more))

    @property
    def largest(self) -> float:
        """Losses grow with those of the base; infinite ones become -log(1 - rate) when a record is added."""
        return self._moved(np.inf if self._end_mass and not self.remove else self.base.largest)

    def _moved(self, loss: float) -> float:
        return float(self._sign * log_mixture(self.rate, np.array(self._sign * loss)))

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        if self.base.table is not None:
            return ()
        return (*(self._moved(loss) for loss in self.base.atoms), *([self._end] if self._end_mass else []))

    def gaussian_limit(self, rate: float = 1.0, *, remove: bool = True) -> tuple[Pair, float]:
        """Return the Gaussian limit of the base on this sample."""
        found, limit = self.base.gaussian_limit(self.rate, remove=self.remove)
        return (found, limit) if limit < np.inf else (self, limit)

    @cached_property
    def table(self) -> Table | None:
        """Return the losses with their masses under P and Q."""
        return None if self.base.table is None else self._on_sample(self.base.table)

    @property
    def table_error(self) -> np.ndarray:
        """Return a bound on the rounding error of each loss."""
        if self.base.table is None:
            return np.zeros(0)
        return log_mixture_error(self.rate, self.base.table[0] * self._sign, self.base.table_error)

    @property
    def infinity_mass(self) -> float:
        """Return the P-mass of infinite loss."""
        return self.rate * self.base.infinity_mass if self.remove else 0.0

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return 0.0 if self.remove else self.rate * self.base.negative_infinity_mass

    def nodes(self, theta: float, frequency: float) -> Nodes | None:
        """A base without a table has losses in [-largest, largest] of which this one's are a flatter function."""
        slope = 1.0 if self.base.table is not None else float(steepness(self.rate, self.base.largest))
        base = self.base.nodes(slope * theta, slope * frequency)
        if base is None:
            return None
        mixed, mass = Nodes(*self._on_sample(base.columns)), np.array([self._end_mass])
        p, q = ((1 - self.rate) * mass, mass) if self.remove else (mass, (1 - self.rate) * mass)
        return mixed.joined(Nodes(np.array([self._end]), p, q)) if p[0] else mixed

    def _on_sample(self, table: Table) -> Table:
        """Finite losses of the base with their masses, as they are on the sample."""
        loss, p, q = table
        if self.remove:
            return log_mixture(self.rate, loss), (1 - self.rate) * q + self.rate * p, q
        return -log_mixture(self.rate, -loss), p, (1 - self.rate) * p + self.rate * q

    @property
    def _sign(self) -> float:
        return 1.0 if self.remove else -1.0

    @property
    def _end(self) -> float:
        """The finite loss that an infinite one of the base becomes."""
        return self._sign * float(np.log1p(-self.rate))

    @property
    def _end_mass(self) -> float:
        """The mass of that loss."""
        return self.base.negative_infinity_mass if self.remove else self.base.infinity_mass

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        if self.remove:
            p, q = self.base.bin_masses(unmixed(self.rate, loss))
            if self._end_mass:
                q[np.searchsorted(loss, self._end)] += self._end_mass
            return (1 - self.rate) * q + self.rate * p, q
        p, q = self.base.bin_masses(-unmixed(self.rate, -loss))
        if self._end_mass:
            p[np.searchsorted(loss, self._end)] += self._end_mass
        return p, (1 - self.rate) * p + self.rate * q


@dataclass(frozen=True)
class RevealedPair(_OnSample):
    """Whether the record was sampled is revealed: loss 0 with probability 1 - rate, else that of `base`.

    By joint convexity it dominates a Poisson sample under any relation in which both data sets have a record in
    the place that differs; nothing smaller is known for a mechanism of which only the pair is known.
    """

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return max(self.base.largest, 0.0)

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        return (0.0, *self.base.atoms)

    @property
    def infinity_mass(self) -> float:
        """Return the P-mass of infinite loss."""
        return self.rate * self.base.infinity_mass

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return self.rate * self.base.negative_infinity_mass

    def nodes(self, theta: float, frequency: float) -> Nodes | None:
        """Return the finite losses with their masses."""
        base = self.base.nodes(theta, frequency)
        if base is None:
            return None
        still = np.array([1 - self.rate])
        return Nodes(np.zeros(1), still, still).joined(Nodes(base.loss, self.rate * base.p, self.rate * base.q))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        p, q = self.base.bin_masses(edges)
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


@dataclass(frozen=True)
class SubstitutedPair(Pair):
    """A fixed-size batch under replace-one from a pair symmetric in its two sides.

    With R the output law when the batch misses the place that differs, and A, B those when it holds one record or
    the other, the two laws are (1-g) R + g A and (1-g) R + g B, and any two of R, A, B are neighbours. Then
    H_{1 + g(a-1)} <= g H_a(base) for a >= 1 (Balle, Barthe & Gaboardi 2018, Theorem 2), in both directions. The pair
    whose profile is that bound has the losses log(1-g + g e^L) > 0 of ((1-g) Q + g P, Q), their mirror images below 0,
    and loss 0 for all remaining mass; the profile is convex because 2 Q(L > 0) + H_1 <= 1 for a symmetric base.
    """

    base: Pair
    fraction: float
    # R may be either side, whichever meets the bound at that epsilon.
    reached = property(attrgetter("base.reached"))
    # ((1-g) Q + g P, Q) is a mixture of (P, Q) with (Q, Q), and the rest its image.
    covering_mu = property(attrgetter("base.covering_mu"))
    largest = property(attrgetter("_positive.largest"))

    @property
    def _positive(self) -> SampledPair:
        """((1-g) Q + g P, Q), whose losses above 0 are those of this pair."""
        return SampledPair(self.base, self.fraction, True)

    def edge_error(self, size: float) -> float:
        """Return that of the base on a Poisson sample."""
        return self._positive.edge_error(size)

    def attained(self, share: float) -> Pair:
        """R = B when all other records equal the second one, and then one side of the bound is met."""
        return SampledPair(self.base.attained(share), self.fraction, True)

    @property
    def infinity_mass(self) -> float:
        """Return the P-mass of infinite loss."""
        return self.fraction * self.base.infinity_mass

    negative_infinity_mass = infinity_mass

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        above = np.maximum(loss[loss >= 0], 0.0)
        below = -loss[loss < 0][::-1]
        p_up, q_up = self._masses_above(above)
        q_down, p_down = self._masses_above(below)
        p_all, q_all = self._masses_above(np.array([]))
        still = 1 - (float(p_all.sum()) + self.infinity_mass) - float(q_all.sum())
        p = np.concatenate([p_down[:0:-1], [p_down[0] + still + p_up[0]], p_up[1:]])
        q = np.concatenate([q_down[:0:-1], [q_down[0] + still + q_up[0]], q_up[1:]])
        return p, q

    def _masses_above(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masses of (0, e_0], (e_0, e_1], ..., (e_n, inf) under (1-g) Q + g P and under Q."""
        p, q = self._positive.bin_masses(np.concatenate([[0.0], edges]))
        return p[1:], q[1:]
