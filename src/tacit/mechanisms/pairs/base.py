"""`Pair`: two output laws P and Q, seen through the privacy loss L = log dP/dQ; `MixedPair`: one of two pairs.

`Nodes`: a pair as finitely many losses, exact or by a quadrature that keeps every moment E_P e^{zL}.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

LOG_TOLERANCE = -75.0
"""log of the relative error that a quadrature may make in any moment that it is built for."""

_COUNTS = (8, 16, 24, 32, 48, 64)  # Nodes of one piece: a few sizes, so that their rules are reused.
# Bernstein ellipses to choose from; the best counts.
_RADII = np.array([1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0, 200.0, 1e4])
_WIDEST = 45.0  # Width of one piece over slope: longer ones need more nodes than two halves.
_MOST = 5e4  # Slope times length at most, tens of thousands of nodes.


def exponential_tilt(log_mass: np.ndarray, loss: np.ndarray, theta: float) -> tuple[float, np.ndarray]:
    """Return log sum_k m_k e^{theta l_k} and the tilted probabilities, without overflow."""
    exponent = log_mass + theta * loss
    top = float(exponent.max())
    weights = np.exp(exponent - top)
    total = float(weights.sum())
    return top + float(np.log(total)), weights / total


def weighted_mean_and_variance(weights: np.ndarray, loss: np.ndarray) -> tuple[float, float]:
    """Return mean and variance of a discrete law."""
    mean = float(weights @ loss)
    return mean, float(weights @ (loss - mean) ** 2)


@dataclass(frozen=True)
class Nodes:
    """Finite losses with their masses under P and Q."""

    loss: np.ndarray
    p: np.ndarray
    q: np.ndarray

    def log_moment(self, theta: float) -> float:
        """Return log E_P[e^{theta L}; L finite]."""
        return self.tilt(theta)[0]

    def tilt(self, theta: float) -> tuple[float, np.ndarray]:
        """Return log E_P[e^{theta L}; L finite] and the tilted probabilities."""
        with np.errstate(divide="ignore"):
            return exponential_tilt(np.log(self.p), self.loss, theta)

    def joined(self, other: Nodes) -> Nodes:
        """Return both together."""
        return Nodes(*(np.concatenate(pair) for pair in zip(self.columns, other.columns, strict=True)))

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """loss, p, q."""
        return self.loss, self.p, self.q


@lru_cache(maxsize=16)
def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1], to a rounding unit each: numpy's own weights lose hundreds.

    Two Newton steps in extended precision, with P_n and its derivative by their recurrences.
    """
    x = np.polynomial.legendre.leggauss(count)[0].astype(np.longdouble)
    slope = np.ones_like(x)
    for _ in range(2):
        before, value = np.ones_like(x), x
        for k in range(2, count + 1):
            before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
        slope = count * (x * value - before) / (x * x - 1)
        x = x - value / slope
    return x.astype(float), (2 / ((1 - x * x) * slope * slope)).astype(float)


def steepness(rate: float, largest: np.ndarray | float) -> np.ndarray:
    """A bound on |d log(1 - p + p e^y) / dy|, p = `rate`, where Re y <= largest + pi / 2 and |Im y| <= pi / 2."""
    with np.errstate(divide="ignore"):
        return np.exp(np.minimum(np.log(rate) - np.log1p(-rate) + largest + np.pi / 2, 0.0))


def legendre(low: float, high: float, theta: float, frequency: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights for int f(y) e^{zL(y)} dy, |Re z| <= theta, |Im z| <= frequency.

    It is assumed that f > 0 and e^L change by at most a factor e^{|dy|} over a distance |dy| and that L is analytic
    with |L'| <= 1 where |Im y| <= pi / 2; so it is for log(1 - p + p e^y), where |1 - p + p e^y| >= |p e^y|. On the
    Bernstein ellipse of parameter r around a piece of half width a no point is farther than a (r - 1/r) / 2 from the
    piece, so that n nodes miss it by at most (32 / 15) e^{2 a (theta + 1) + (theta + 1 + frequency) a (r - 1/r) / 2}
    r^{-2n} / (1 - r^{-2}) of its integral at Im z = 0 (Trefethen 2008, Theorem 4.5).

    Raises `OverflowError` where tens of thousands of nodes would be needed.

    Args:
        low: lower end of the integral.
        high: upper end, > low.
        theta: largest |Re z|, >= 0.
        frequency: largest |Im z|, >= 0.

    Raises:
        OverflowError: tens of thousands of nodes would be needed.
    """
    slope = frequency + 2.5 * (theta + 1)
    if slope * (high - low) > _MOST:
        raise OverflowError(f"a quadrature of slope {slope:.3g} over {high - low:.3g} needs too many nodes")
    pieces = max(int(np.ceil((high - low) * max(slope / (2 * _WIDEST), 0.5))), 1)
    half = (high - low) / (2 * pieces)
    rise = (_RADII - 1 / _RADII) / 2
    radius, rise = _RADII[half * rise <= np.pi / 2], rise[half * rise <= np.pi / 2]
    needed = (half * slope * (0.8 + rise) + 2.0 - LOG_TOLERANCE) / (2 * np.log(radius))
    count = next((n for n in _COUNTS if n >= needed.min()), int(np.ceil(needed.min())))
    x, weight = gauss_legendre(count)
    centres = low + half * (2 * np.arange(pieces) + 1)
    return (centres[:, None] + half * x).ravel(), np.tile(half * weight, pieces)


Table = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Losses with their masses under P and Q."""

LOSS_UNIT = 2.0**-51
"""Four rounding units: no loss of a table takes more than four operations from numbers that are given."""


@dataclass(frozen=True)
class Pair:
    """A dominating pair: H_a(M(D), M(D')) <= H_a(P, Q) for every a >= 0 and every neighbours D, D'.

    H_a is the hockey-stick divergence, delta(epsilon) = H_{e^epsilon}. Dominating pairs compose, also
    adaptively, by taking products (Zhu, Dong & Wang 2022, Theorem 10), so that the delta of a composition is
    E_P[(1 - e^{epsilon - L})_+] with L the sum of independent losses.

    Attributes:
        atoms: losses that have positive mass of their own, where there are only a few.
        table: increasing losses with their masses under P and Q, for a pair that has only such atoms, but many.
        table_error: a bound on the rounding error of each loss of `table`.
        infinity_mass: P-mass of outcomes that Q never gives (loss +inf).
        negative_infinity_mass: Q-mass of outcomes that P never gives (loss -inf).
        largest: the supremum of the finite losses.
        discrete: whether `atoms` are all finite losses.
        covering_mu: a mu such that N(mu, 1) against N(0, 1) dominates this pair; inf where none is known.
        tail_mu: the mu of a Gaussian upper tail of the loss under P, so that no smaller one covers it; 0 where none is
            known. P(L > x) >= c P(mu Z > x + b) for all large x, with some b and c > 0, where a Gaussian profile of m
            is at most P(m Z > x - m^2 / 2). Of independent losses the squares add up.
        reached: whether at each epsilon, also below 0, one mechanism or another of the family reaches this pair's
            delta.
    """

    atoms = cast("tuple[float, ...]", ())
    table = cast("Table | None", None)
    table_error = np.zeros(0)
    infinity_mass = 0.0
    negative_infinity_mass = 0.0
    largest = np.inf
    discrete = False
    covering_mu = np.inf
    tail_mu = 0.0
    reached = True

    def edge_error(self, size: float) -> float:
        """A bound on how far, in loss, `bin_masses` may move an edge of at most this absolute value.

        Both masses of a bin belong to the same moved edges. Here: four units of the edge, or the error of a table.
        """
        own = LOSS_UNIT * (1 + size)
        if self.table is None:
            return own
        near = np.abs(self.table[0]) <= size + 1
        return own + float(np.max(self.table_error[near], initial=0.0))

    def attained(self, share: float) -> Pair:
        """A pair of some mechanism of the family: the pair itself, unless it is an envelope that none reaches.

        Of several such mechanisms, `share` in [0, 1) picks one that is bad at that share of the largest loss.
        """
        return self

    def covering(self, count: int) -> tuple[Pair, ...]:
        """Return finite pairs such that, for every convex f, one has an f-divergence at least that of any member.

        More precisely: for every convex f, E f of each member is at most the largest E f of these, which are closer to
        members the higher `count` is. Empty where the pair is no envelope, or none of a known family.
        """
        return ()

    def gaussian_limit(self, rate: float = 1.0, *, remove: bool = True) -> tuple[Pair, float]:
        """Return a continuous pair with the E_P e^{zL} of this one on a Poisson sample for |Im z| <= limit, and limit.

        The pair itself and infinity where no other pair is known; `rate` and `remove` then have no effect.
        """
        return self, np.inf

    def nodes(self, theta: float, frequency: float) -> Nodes | None:
        """Finite losses with the E_P e^{zL} of this pair for |Re z| <= theta, |Im z| <= frequency; None if unknown.

        Each moment is met up to e^`LOG_TOLERANCE` of its value at Im z = 0. Infinite losses are left out.
        """
        return None

    def log_q_above(self, loss: float) -> tuple[float, float]:
        """Log of the Q-mass above `loss`, also where that is below the smallest double, and a bound on its error.

        (-inf, inf) where only `bin_masses` knows it.
        """
        return -np.inf, np.inf

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P- and Q-masses of the finite losses in (-inf, e_0], (e_0, e_1], ..., (e_n, inf), each accurate on its own.

        `edges` is increasing; the two arrays have one entry more. The mass of infinite losses is left out. A pair
        without a table overrides this.
        """
        assert self.table is not None
        return table_bin_masses(edges, *self.table)


def table_bin_masses(
    edges: np.ndarray, loss: np.ndarray, p: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `Pair.bin_masses` of finitely many losses, in any order.

    Args:
        edges: increasing, shape (edges,).
        loss: losses, shape (outcomes,).
        p: their P-masses, shape (outcomes,).
        q: their Q-masses, shape (outcomes,).
    """
    index = np.searchsorted(edges, loss, side="left")
    return np.bincount(index, p, len(edges) + 1), np.bincount(index, q, len(edges) + 1)


def log_mixture(rate: float, log_ratio: np.ndarray) -> np.ndarray:
    """log(1 - rate + rate e^y), without overflow and with its relative digits near y = 0."""
    y = np.maximum(np.asarray(log_ratio, dtype=float), -1e300)
    with np.errstate(over="ignore"):
        capped = np.minimum(y, 30.0)
        small = np.log1p(np.maximum(rate * np.expm1(capped), -0.5))
        small = np.where(rate * np.expm1(capped) < -0.5, np.log((1 - rate) + rate * np.exp(capped)), small)
        return np.where(y > 30.0, y + np.log(rate) + np.log1p((1 - rate) / rate * np.exp(-y)), small)


def log_mixture_error(rate: float, log_ratio: np.ndarray, error: np.ndarray) -> np.ndarray:
    """A bound on the rounding error of `log_mixture` at y known up to `error`.

    The result v has slope w = rate e^{y - v} <= 1 in y. Its own arithmetic loses a few units of its size, of w (the
    relative error of rate (e^y - 1)) and, where y > 30, of the y and log(rate) that it adds up.
    """
    y = np.asarray(log_ratio, dtype=float)
    value = log_mixture(rate, y)
    with np.errstate(under="ignore"):
        slope = np.minimum(np.exp(np.minimum(np.log(rate) + y - value, 0.0)), 1.0)
    added = np.where(y > 30.0, np.abs(y) - np.log(rate), 0.0)
    return 1.01 * slope * error + LOSS_UNIT * (np.abs(value) + slope + added + (value < -0.5))


def unmixed(rate: float, loss: np.ndarray) -> np.ndarray:
    """The y with log(1 - rate + rate e^y) = loss; -inf where loss <= log(1 - rate)."""
    loss = np.asarray(loss, dtype=float)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        small = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / rate, -1.0))
        large = loss - np.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.maximum(loss, 1.0)))
        return np.where(loss > 30.0, large, small)


def between(lower_tail: np.ndarray, upper_tail: np.ndarray) -> np.ndarray:
    """Masses of cells from F and 1 - F at their edges, each difference taken on the side that keeps its digits."""
    below = np.concatenate([[0.0], lower_tail, [1.0]])
    above = np.concatenate([[1.0], upper_tail, [0.0]])
    return np.maximum(np.where(above[:-1] < 0.5, above[:-1] - above[1:], below[1:] - below[:-1]), 0.0)


@dataclass(frozen=True)
class MixedPair(Pair):
    """`usual` with probability 1 - share, else `rare`; which one is revealed.

    H_a = (1 - share) H_a(usual) + share H_a(rare), so it dominates every mechanism whose divergence is such an average
    of divergences that the two dominate.

    Args:
        least: a pair that some mechanism of the family reaches.
    """

    usual: Pair
    rare: Pair
    share: float
    least: Pair
    reached = False

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return max(self.usual.largest, self.rare.largest)

    def edge_error(self, size: float) -> float:
        """Return the larger of the two."""
        return max(self.usual.edge_error(size), self.rare.edge_error(size))

    @property
    def covering_mu(self) -> float:
        """The larger of both: an average of divergences is at most the larger one."""
        return max(self.usual.covering_mu, self.rare.covering_mu)

    def attained(self, share: float) -> Pair:
        """Return a pair that a mechanism of the family reaches."""
        return self.least.attained(share)

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        return (*self.usual.atoms, *self.rare.atoms)

    @property
    def infinity_mass(self) -> float:
        """Return the P-mass of infinite loss."""
        return (1 - self.share) * self.usual.infinity_mass + self.share * self.rare.infinity_mass

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return (1 - self.share) * self.usual.negative_infinity_mass + self.share * self.rare.negative_infinity_mass

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        usual, rare = self.usual.bin_masses(edges), self.rare.bin_masses(edges)
        p, q = ((1 - self.share) * often + self.share * seldom for often, seldom in zip(usual, rare, strict=True))
        return p, q
