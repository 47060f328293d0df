"""Pairs of finitely many losses, and those of the discrete Gaussian mechanism.

`TabulatedPair`: a pair that is known by its finite losses, their masses, and no closed formula.

`EnclosedPair`: a bound from above on a mechanism together with a pair that the mechanism is known to reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, cast

import numpy as np
from scipy.special import expit

from tacit.mechanisms.pairs.base import (
    LOG_TOLERANCE,
    LOSS_UNIT,
    Nodes,
    Pair,
    Table,
    log_mixture,
    log_mixture_error,
    table_bin_masses,
)
from tacit.mechanisms.pairs.gaussian import GaussianPair, GaussianReplacePair, SampledGaussianPair


@dataclass(frozen=True)
class AtomPair(Pair):
    """Finite losses with their masses under P and Q; what is missing from 1 has infinite loss."""

    losses: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    disclosure_probability: float = 0.0
    discrete = True
    atoms = property(attrgetter("losses"))
    infinity_mass = property(attrgetter("disclosure_probability"))

    @classmethod
    def response(cls, epsilon: float, delta: float = 0.0) -> AtomPair:
        """Randomised response of odds e^epsilon : 1 that with probability `delta` reveals all.

        It dominates every (epsilon, delta)-DP mechanism (Kairouz, Oh & Viswanath 2015).
        """
        high, low = float(expit(epsilon)), float(expit(-epsilon))
        rest = 1 - delta
        return cls((-epsilon, epsilon), (low * rest, high * rest), (high * rest, low * rest), delta)

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return max(self.losses, default=-np.inf)

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return max(1.0 - sum(self.q), 0.0) if self.disclosure_probability else 0.0

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        return Nodes(np.array(self.losses), np.array(self.p), np.array(self.q))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        return table_bin_masses(edges, *self.nodes(0.0, 0.0).columns)


_REACH = 38.0
"""Standard deviations that a table covers: e^{-38^2 / 2} = 3e-314 is below the smallest normal double."""

_LARGE_SCALE = 20.0
"""From this scale on the relative error e^{-pi^2 scale^2} < e^-3900 of Poisson summation is below any double."""


@dataclass(frozen=True)
class DiscreteGaussianPair(Pair):
    """P = N_Z(shift, scale^2), Q = N_Z(0, scale^2): losses (2 x shift - shift^2) / (2 scale^2) at the integers x.

    For a noise law on the integers with monotone likelihood ratio H_a = sup_x P(X > x) - a Q(X > x), which grows with
    the shift. Integers beyond 38 scales, whose probability is below the smallest double, are left out.
    """

    scale: float
    shift: int

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        return tuple(float(loss) for loss in self.table[0][:2])

    @cached_property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        x = self.integers(0, self.shift)
        return self.log_ratio(x, self.shift), self.masses(x, self.shift), self.masses(x, 0)

    def integers(self, low: int, high: int) -> np.ndarray:
        """The integers where noise at any shift in [low, high] has mass."""
        return np.arange(low - np.ceil(_REACH * self.scale), high + np.ceil(_REACH * self.scale) + 1)

    def log_ratio(self, x: np.ndarray, shift: int) -> np.ndarray:
        """Log of the probability of noise moved by `shift` over that of noise at 0."""
        return (2 * x - shift) * (shift / (2 * self.scale**2))

    def most_log_ratio(self, count: int) -> float:
        """The largest of them at `count` times the pair's own shift."""
        reach = count * self.shift
        return reach * (reach + 2 * _REACH * self.scale) / self.scale**2

    def masses(self, x: np.ndarray, centre: int) -> np.ndarray:
        """Probabilities of the integers."""
        around = self.integers(0, 0)
        return np.exp(-(((x - centre) / self.scale) ** 2) / 2) / np.exp(-((around / self.scale) ** 2) / 2).sum()

    @property
    def table_error(self) -> np.ndarray:
        """Return a bound on the rounding error of each loss: a square, two quotients and a product."""
        return LOSS_UNIT * np.abs(self.table[0])

    def gaussian_limit(self, rate: float = 1.0, *, remove: bool = True) -> tuple[Pair, float]:
        """Return the Gaussian pair of the same scale, where the scale is large.

        By Poisson summation the sum over the integers misses the integral by a relative e^{-pi^2 scale^2} for
        |Im z| <= pi / 2 scale^2 / shift.
        """
        if self.scale < _LARGE_SCALE:
            return super().gaussian_limit()
        sigma, limit = self.scale / self.shift, np.pi / 2 * self.scale**2 / self.shift
        return GaussianPair(1 / sigma) if rate == 1.0 else SampledGaussianPair(sigma, rate, remove), limit

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        return _thinned(self.table, _stride(self.scale, self.shift, theta, frequency), theta)


@dataclass(frozen=True)
class DiscreteGaussianReplacePair(Pair):
    """The Poisson-subsampled discrete Gaussian under replace-one: (1-p) N_0 + p N_d against (1-p) N_0 + p N_{-d}.

    The argument of `GaussianReplacePair` holds: the ratios are monotone, so opposite shifts make them comonotone, and
    their convex order grows with the shift.
    """

    scale: float
    shift: int
    rate: float

    @property
    def _noise(self) -> DiscreteGaussianPair:
        return DiscreteGaussianPair(self.scale, self.shift)

    @cached_property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        return replaced_table(self._noise, self._noise.integers(-self.shift, self.shift), self.rate)

    @property
    def table_error(self) -> np.ndarray:
        """Return a bound on the rounding error of each loss, a difference of two mixtures."""
        found, x = LOSS_UNIT * np.abs(self.table[0]), self._noise.integers(-self.shift, self.shift)
        for shift in (self.shift, -self.shift):
            y = self._noise.log_ratio(x, shift)
            found += log_mixture_error(self.rate, y, LOSS_UNIT * np.abs(y))
        return found

    def gaussian_limit(self, rate: float = 1.0, *, remove: bool = True) -> tuple[Pair, float]:
        """Return the Gaussian pair under replace-one; see `DiscreteGaussianPair.gaussian_limit`."""
        if self.scale < _LARGE_SCALE:
            return super().gaussian_limit()
        sigma, limit = self.scale / self.shift, np.pi / 2 * self.scale**2 / self.shift
        return GaussianReplacePair(sigma, self.rate), limit

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        return _thinned(self.table, _stride(self.scale, 2 * self.shift, theta, frequency), theta)


def _stride(scale: float, shift: float, theta: float, frequency: float) -> int:
    """The largest m for which m times a sum over every m-th integer is as good as the sum over all.

    For g(x) = e^{-x^2 / 2 s^2} e^{zL(x)}, |dL/dx| <= shift / s^2 where |Im x| <= pi s^2 / 2 shift, a sum of step m
    meets the integral up to 2 e^{d^2 / 2 s^2 + (theta + 1 + frequency) d shift / s^2} / (e^{2 pi d / m} - 1) of its
    value at Im z = 0 (Trefethen & Weideman 2014, Theorem 5.1), for every such d.
    """
    d = min(scale * (-2 * LOG_TOLERANCE) ** 0.5, np.pi / 2 * scale**2 / shift)
    growth = d**2 / (2 * scale**2) + (theta + 1 + frequency) * d * shift / scale**2
    return max(int(2 * np.pi * d / (growth + 3.0 - LOG_TOLERANCE)), 1)


def _thinned(table: Table, stride: int, theta: float) -> Nodes:
    """Every `stride`-th atom, without those that are negligible at every tilt in [-1, theta]."""
    loss, p, q = (column[::stride] for column in table)
    with np.errstate(divide="ignore"):
        tilted = np.log(p) + theta * loss
        heavy = (tilted > tilted.max() + LOG_TOLERANCE) | (np.log(np.maximum(p, q)) > LOG_TOLERANCE)
    place = np.flatnonzero(heavy)
    kept = slice(place[0], place[-1] + 1)
    return Nodes(loss[kept], stride * p[kept], stride * q[kept])


def replaced_table(noise: Any, x: np.ndarray, rate: float) -> Table:
    """Losses and masses of (1-p) N_0 + p N_d against (1-p) N_0 + p N_{-d}, N the integer noise of a pair, d its shift.

    Args:
        noise: a `DiscreteGaussianPair` or `DiscreteLaplacePair`.
        x: the integers that count.
        rate: p in (0, 1].
    """
    shift = noise.shift
    up, down = (log_mixture(rate, noise.log_ratio(x, each)) for each in (shift, -shift))
    base, plus, minus = (noise.masses(x, each) for each in (0, shift, -shift))
    return up - down, (1 - rate) * base + rate * plus, (1 - rate) * base + rate * minus


class TabulatedPair(Pair):
    """A pair whose `table` holds all finite losses, each the difference of the logarithms of its two masses."""

    table = cast("Table", None)  # Each has its own.

    @property
    def table_error(self) -> np.ndarray:
        """Return a bound on the rounding error of each loss: two logarithms and their difference."""
        loss, p, q = self.table
        return LOSS_UNIT * (np.abs(loss) + np.abs(np.log(p)) + np.abs(np.log(q)))

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return float(self.table[0][-1])

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        return Nodes(*self.table)


NOTHING = AtomPair((0.0,), (1.0,), (1.0,))
"""Two equal laws: what every mechanism dominates."""


@dataclass(frozen=True)
class EnclosedPair(Pair):
    """`above` dominates a mechanism for which no exact pair is in use; the mechanism dominates `below`.

    Args:
        above: a dominating pair, which answers from above.
        below: a pair of post-processing of the mechanism's outputs, which answers from below.
        also: another one, where it is not known which of the two says more.
    """

    above: Pair
    below: Pair
    also: Pair | None = None
    reached = False  # The two pairs only enclose the one that is reached.
    infinity_mass = property(attrgetter("above.infinity_mass"))
    negative_infinity_mass = property(attrgetter("above.negative_infinity_mass"))
    largest = property(attrgetter("above.largest"))
    covering_mu = property(attrgetter("above.covering_mu"))
    table = property(attrgetter("above.table"))
    table_error = property(attrgetter("above.table_error"))

    def edge_error(self, size: float) -> float:
        """Return that of `above`."""
        return self.above.edge_error(size)

    def attained(self, share: float) -> Pair:
        """Return `below`, and `also`, if there is one, for a share above 0."""
        return self.also if self.also is not None and share > 0 else self.below

    def nodes(self, theta: float, frequency: float) -> Nodes | None:
        """Return those of `above`."""
        return self.above.nodes(theta, frequency)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those of `above`."""
        return self.above.bin_masses(edges)
