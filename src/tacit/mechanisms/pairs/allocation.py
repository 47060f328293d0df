"""Pair of one epoch in which a record is in one step of many, chosen uniformly.

Pair from below of a record in k of T steps: the laws of a sum, over all releases, of a whole number for each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms.pairs.base import Table, log_mixture
from tacit.mechanisms.pairs.convex_order import LowerLaw, UpperLaw, sum_of_ratios
from tacit.mechanisms.pairs.discrete import TabulatedPair
from tacit.mechanisms.pairs.gaussian import normal_cells

_UNIT = 2.0**-53
_REACH = 9.0  # Standard deviations of a release, with the record, that have numbers of their own.
_SPARE = 4.0  # Numbers for a standard deviation of the score of one step: coarser ones tell less.
_ODDS = (
    0.7  # Odds of a step in the score, in units of k / (T - k): outcomes that decide small deltas have large ratios.
)
_WIDTH = 8000.0  # Numbers that the law of the sum may take: finer ones are not worth their time.
_DROPPED = 1e-100  # Mass that one sum may drop at each end; it is counted for Q, and not for P.

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Law:
    """Masses of the whole numbers from `first` on.

    Attributes:
        error: bound on the relative rounding error of each mass.
        dropped: bound on the mass that is missing, wherever it belongs.
    """

    first: int
    mass: Array
    error: float
    dropped: float

    def plus(self, other: _Law) -> _Law:
        """The law of the sum of both: each mass is a sum of products of positive numbers."""
        terms = min(len(self.mass), len(other.mass))
        error = self.error + other.error + (terms + 2) * _UNIT
        dropped = self.dropped + other.dropped
        whole = _Law(self.first + other.first, np.convolve(self.mass, other.mass), error, dropped)
        return whole.trimmed()

    def times(self, count: int) -> _Law:
        """The law of the sum of so many."""
        found, power = _Law(0, np.ones(1), 0.0, 0.0), self
        while count:
            found = found.plus(power) if count % 2 else found
            count //= 2
            power = power.plus(power) if count else power
        return found

    def trimmed(self) -> _Law:
        """The same without the ends of mass `_DROPPED` at most."""
        low = int(np.searchsorted(np.cumsum(self.mass), _DROPPED))
        high = len(self.mass) - int(np.searchsorted(np.cumsum(self.mass[::-1]), _DROPPED))
        # The margin covers the rounding of these sums, and products below the smallest double.
        return replace(self, first=self.first + low, mass=self.mass[low:high], dropped=self.dropped + 3 * _DROPPED)


@dataclass(frozen=True)
class SubsetSumPair(TabulatedPair):
    """A pair that a record in k of T Gaussian steps, a uniform subset, dominates under add/remove and zero-out.

    A whole number is read off each release, a step function of log(1 - q + q e^{(x - 1/2) / sigma^2}), q near k/T, and
    all are added up, which is post-processing. With gradients that are all equal, k of the numbers have one law and
    T - k have another, whatever the subset is: so the law of the sum is a convolution (THEORY.md, Theorem 1.11).
    P-masses are rounded down and Q-masses up.

    Args:
        noise_multiplier: sigma, at least 0.06.
        iterations: T >= 2.
        participations: k in [1, T).
        remove: whether P has the record.
    """

    noise_multiplier: float
    iterations: int
    participations: int
    remove: bool

    def _edges(self) -> Array:
        """Releases where the number grows by one."""
        sigma, odds = self.noise_multiplier, _ODDS * self.participations / (self.iterations - self.participations)
        rate = odds / (1 + odds)
        places = np.linspace(-_REACH, _REACH, 4001)
        weights = np.exp(-(places**2) / 2)
        spread = []
        for shift in (0.0, 1.0):
            score = log_mixture(rate, (sigma * places + shift - 0.5) / sigma**2)
            mean = np.average(score, weights=weights)
            spread.append(math.sqrt(np.average((score - mean) ** 2, weights=weights)))
        low, high = math.log1p(-rate), float(log_mixture(rate, np.array((_REACH * sigma + 0.5) / sigma**2)))
        k, without = self.participations, self.iterations - self.participations
        width = 2 * _REACH * (math.sqrt(k) * spread[1] + math.sqrt(without) * spread[0])
        pitch = max(min(spread) / _SPARE, width / _WIDTH)
        score = low + pitch * np.arange(1, max(2, math.ceil((high - low) / pitch)))
        # Any increasing edges will do; rounding must not make them fall.
        return np.maximum.accumulate(sigma**2 * (np.log(np.expm1(score) + rate) - math.log(rate)) + 0.5)

    def _step(self, edges: Array, shift: float) -> _Law:
        """The law of one number, of a release with the mean `shift`."""
        ends = (edges - shift) / self.noise_multiplier
        mass = normal_cells(ends)
        # Lemma 2.4 and the place of an edge, relative to the smaller tail there, which is below e^{-x^2 / 2}.
        log_tail = np.minimum(-(ends**2) / 2, 0.0)
        units = np.exp(log_tail) * (32 - 8 * log_tail + 4 * ends**2)
        lost = (np.append(units, 0.0) + np.append(0.0, units)) * _UNIT
        sure = mass > 1e6 * lost
        error = float((lost[sure] / mass[sure]).max()) + 4 * _UNIT
        # Numbers whose mass is not known count as any of them: with all that they may have.
        dropped = float((mass + lost)[~sure].sum())
        return _Law(0, np.where(sure, mass, 0.0), error, dropped)

    @cached_property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        edges, k = self._edges(), self.participations
        absent, present = self._step(edges, 0.0), self._step(edges, 1.0)
        with_record = present.times(k).plus(absent.times(self.iterations - k))
        without = absent.times(self.iterations)
        p, q = (with_record, without) if self.remove else (without, with_record)
        sure = p.mass * (1 - 2 * p.error)
        places = p.first - q.first + np.arange(len(sure))
        known = (places >= 0) & (places < len(q.mass))
        most = np.where(known, q.mass[np.clip(places, 0, len(q.mass) - 1)] * (1 + 2 * q.error), 0.0) + q.dropped
        kept = sure > 1e-290
        loss = np.log(sure[kept]) - np.log(most[kept])
        order = np.argsort(loss, kind="stable")
        return loss[order], sure[kept][order], most[kept][order]


@dataclass(frozen=True)
class AllocationPair(TabulatedPair):
    """An upper bound in the convex order on the pair of random allocation, whose lower bound is `attained`.

    The pair itself is P = (1 / T) sum_t N(e_t, sigma^2 I_T) against Q = N(0, sigma^2 I_T): a gradient of full norm in
    the one step that has the record, nothing else. It dominates an epoch for adaptive queries, and is reached (Chua et
    al. 2024, arXiv:2412.16802). Under Q its likelihood ratio R is the mean of T independent ratios, and every
    hockey-stick divergence is a convex function of it, E(R - a)_+ with and E(1 - a R)_+ without the record first. A law
    above R in the convex order therefore has a pair that dominates it, and one below a pair that it dominates; either
    survives composition (Zhu, Dong & Wang 2022, Theorem 10).

    Rounding: P-masses are scaled up and Q-masses down by the error of the law, and the other way round from below.

    Args:
        noise_multiplier: sigma, at least 0.06.
        steps: T >= 2, steps of an epoch.
        remove: whether P has the record.
        upper: whether this is the bound from above.
    """

    noise_multiplier: float
    steps: int
    remove: bool
    upper: bool = True
    reached = False  # The two laws only enclose the one that is reached.

    @cached_property
    def _law(self) -> UpperLaw | LowerLaw:
        return sum_of_ratios(self.noise_multiplier, self.steps, upper=self.upper)

    def attained(self, share: float) -> AllocationPair:
        """Return the bound from below, which an epoch exceeds or meets."""
        return replace(self, upper=False)

    @cached_property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        law = self._law
        kept = law.mass > 0
        without = law.mass[kept]
        if isinstance(law, UpperLaw):
            with_record = without * np.exp(law.log_points[kept] - np.log(self.steps))
        else:
            with_record = law.mean[kept] / self.steps
        p, q = (with_record, without) if self.remove else (without, with_record)
        scale = 1 + (law.error if self.upper else -law.error)
        p, q = p * scale, q / scale
        loss = np.log(p) - np.log(q)
        order = np.argsort(loss)
        return loss[order], p[order], q[order]

    infinity_mass = property(lambda self: self._outside[0])
    negative_infinity_mass = property(lambda self: self._outside[1])

    @cached_property
    def _outside(self) -> tuple[float, float]:
        """P-mass of loss inf and Q-mass of loss -inf: the mean that the law has lost, and its mass at 0."""
        law = self._law
        if not isinstance(law, UpperLaw):
            return 0.0, 0.0
        lost, zero = (value * (1 + law.error) for value in (law.lost / self.steps, law.zero))
        return (lost, zero) if self.remove else (zero, lost)
