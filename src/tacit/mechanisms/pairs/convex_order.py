"""Discrete laws above and below a sum of independent lognormal likelihood ratios in the convex order.

S = W_1 + ... + W_n with independent W = exp(Z / sigma - 1 / (2 sigma^2)), Z ~ N(0, 1), so that E W = 1. X <=cx Y means
E f(X) <= E f(Y) for every convex f. The order survives independent sums and every split that keeps a mean, so a law
that is above W in it stays above S when it is summed, and so below (Shaked & Shanthikumar 2007, Theorem 3.A.12). Both
live on a grid of points x_i = e^{i pitch}, where the sum of two points is x_i + x_{i-d} = x_i (1 + e^{-d pitch}):
its place depends on d alone, so that one sum takes one product of vectors for each d.

- From above, mass between two points moves to both with its mean; below the lowest point to it and to 0; above the
  highest to that point, and the mean that this loses is kept: (S - c)_+ <= (S' - c)_+ + what S lost.
- From below, all mass of a cell moves to its mean (Jensen).

Every mass is a sum of products of positive numbers. `error` bounds its relative rounding error, that of its place
included, by first-order worst-case arithmetic: n additions lose n units, and errors of independent summands add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from scipy.special import ndtr

_UNIT = 2.0**-53
_REACH = 10.0  # Standard deviations of Z under either law that the grid covers: P(Z > 10) < 8e-24.
_NEGLIGIBLE = 1e-22  # Mass and mean that one sum may move to the ends of the grid: far below any delta.
_MOST_POINTS = 8000  # Points of a grid at most; finer ones are not worth their time.
_WIDEST_PITCH = 0.04  # Second-order errors stay below pitch^2 / 4 = 4e-4 of one ratio's variance scale.
_SHARE = 1.5e-4  # Share of the variance of S that all roundings together may add, where the grid allows it.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True)
class UpperLaw:
    """A law above the sum of `count` ratios, once the mean that it lost is counted at infinity.

    Attributes:
        count: number of ratios in the sum, >= 1.
        pitch: of the grid, in log x.
        first: index of the lowest point, x = e^{first pitch}.
        mass: probability of each point.
        zero: probability of 0.
        lost: mean above the highest point that is in none of them.
        error: bound on the relative rounding error of each mass, `zero` and `lost` included.
    """

    count: int
    pitch: float
    first: int
    mass: np.ndarray
    zero: float
    lost: float
    error: float

    @property
    def end(self) -> int:
        """Index one past the highest point."""
        return self.first + len(self.mass)

    @property
    def log_points(self) -> np.ndarray:
        """Return log x of every point."""
        return self.pitch * np.arange(self.first, self.end)

    def plus(self, other: UpperLaw) -> UpperLaw:
        """The law of an independent sum, on the same grid."""
        sums = _Sums(self, other)
        mass, factor = np.zeros(sums.size), sums.factor
        for larger, smaller in sums.orders:
            for i, j, distance in sums.pairs(larger, smaller):
                moved = larger.mass[i] * smaller.mass[j] * (factor if distance else 1.0)
                place, share = sums.place(distance)
                at = sums.at(larger, i, place)
                mass[at.start + 1 : at.stop + 1] += share * moved
                mass[at] += (1.0 - share) * moved
            self._add_far(larger, smaller, sums, mass)
        both_zero = self.zero * other.zero + sum(
            first.zero * second.add_to(mass, first.zero, sums.start) for first, second in ((self, other), (other, self))
        )
        error = self.error + other.error + sums.error
        count, lost = self.count + other.count, self.lost + other.lost
        return UpperLaw(count, self.pitch, sums.start, mass, both_zero, lost, error).trimmed()

    def add_to(self, mass: np.ndarray, weight: float, start: int) -> float:
        """Add this law `weight` times to the masses of a grid from index `start`; return what goes to 0 instead."""
        inside = min(max(start - self.first, 0), len(self.mass))
        place = self.first + inside - start
        mass[place : place + len(self.mass) - inside] += weight * self.mass[inside:]
        below = self.mass[:inside]
        share = float(below @ np.exp(self.log_points[:inside] - self.pitch * start))
        mass[0] += weight * share
        return max(float(below.sum()) - share, 0.0)

    @staticmethod
    def _add_far(larger: UpperLaw, smaller: UpperLaw, sums: _Sums, mass: np.ndarray) -> None:
        """Add the sums with a summand so small that it moves the other by less than one point."""
        index, upto = sums.far(larger, smaller)
        weight = sums.factor * larger.mass[index - larger.first]
        below = np.cumsum(smaller.mass)[upto]
        # Means relative to the highest point of `smaller`, so that no exponential overflows.
        mean = np.cumsum(smaller.mass * np.exp(smaller.log_points - smaller.log_points[-1]))[upto]
        share = mean * np.exp(smaller.log_points[-1] - larger.pitch * index) / np.expm1(larger.pitch)
        mass[index - sums.start] += weight * np.maximum(below - share, 0.0)
        mass[index - sums.start + 1] += weight * share

    def trimmed(self) -> UpperLaw:
        """The law without negligible ends: the lower goes to the next point and 0, the upper to the next point."""
        x = np.exp(self.log_points)
        low, high = _kept(self.mass, self.mass * x / self.count)
        mass, below, above = self.mass[low:high].copy(), self.mass[:low], self.mass[high:]
        share = float(below @ x[:low]) / x[low]
        mass[0] += share
        mass[-1] += above.sum()
        return replace(
            self,
            first=self.first + low,
            mass=mass,
            zero=self.zero + max(float(below.sum()) - share, 0.0),
            lost=self.lost + float(above @ (x[high:] - x[high - 1])),
            error=self.error + len(x) * _UNIT,
        )

    def refined(self) -> UpperLaw:
        """The same law on a grid of half the pitch."""
        return replace(self, pitch=self.pitch / 2, first=2 * self.first, mass=_spread(self.mass))

    @classmethod
    def of_one(cls, noise_multiplier: float, pitch: float) -> UpperLaw:
        """A law above one ratio."""
        cells = _Cells.of(noise_multiplier, pitch)
        share = (cells.mean - cells.mass) / np.expm1(pitch)
        mass = np.append(cells.mass - share, 0.0)
        mass[1:] += share
        low = cells.mean_below * np.exp(-cells.first * pitch)
        top = float(np.exp((cells.first + len(cells.mass)) * pitch))
        mass[0] += low
        mass[-1] += cells.above
        zero, lost = max(cells.below - low, 0.0), max(cells.mean_above - top * cells.above, 0.0)
        return cls(1, pitch, cells.first, mass, zero, lost, cells.error).trimmed()


@dataclass(frozen=True)
class LowerLaw:
    """A law below the sum of `count` ratios: cells with their mass and mean.

    Attributes:
        count: number of ratios in the sum, >= 1.
        pitch: of the cells, in log x.
        first: index of the lowest cell.
        mass: probability of each cell.
        mean: E[S; cell] of each.
        error: bound on the relative rounding error of each mass and mean.
    """

    count: int
    pitch: float
    first: int
    mass: np.ndarray
    mean: np.ndarray
    error: float

    @property
    def end(self) -> int:
        """Index one past the highest cell."""
        return self.first + len(self.mass)

    def plus(self, other: LowerLaw) -> LowerLaw:
        """The law of an independent sum; a sum belongs to a cell by the distance of its summands' cells."""
        sums = _Sums(self, other)
        mass, mean, factor = np.zeros(sums.size), np.zeros(sums.size), sums.factor
        for larger, smaller in sums.orders:
            for i, j, distance in sums.pairs(larger, smaller):
                times = factor if distance else 1.0
                place, share = sums.place(distance)
                at = sums.at(larger, i, place + (share >= 0.5))
                mass[at] += times * (larger.mass[i] * smaller.mass[j])
                mean[at] += times * (larger.mean[i] * smaller.mass[j] + larger.mass[i] * smaller.mean[j])
            index, upto = sums.far(larger, smaller)
            at, place = index - sums.start, index - larger.first
            below, mean_below = np.cumsum(smaller.mass)[upto], np.cumsum(smaller.mean)[upto]
            mass[at] += factor * larger.mass[place] * below
            mean[at] += factor * (larger.mean[place] * below + larger.mass[place] * mean_below)
        error = self.error + other.error + sums.error
        return LowerLaw(self.count + other.count, self.pitch, sums.start, mass, mean, error).trimmed()

    def trimmed(self) -> LowerLaw:
        """The law with its negligible ends merged into one cell each."""
        low, high = _kept(self.mass, self.mean / self.count)
        mass, mean = (values[low:high].copy() for values in (self.mass, self.mean))
        for whole, kept in ((self.mass, mass), (self.mean, mean)):
            kept[0] += whole[:low].sum()
            kept[-1] += whole[high:].sum()
        error = self.error + len(self.mass) * _UNIT
        return replace(self, first=self.first + low, mass=mass, mean=mean, error=error)

    def refined(self) -> LowerLaw:
        """The same law on cells of half the pitch."""
        half = {"pitch": self.pitch / 2, "first": 2 * self.first}
        return replace(self, **half, mass=_spread(self.mass), mean=_spread(self.mean))

    @classmethod
    def of_one(cls, noise_multiplier: float, pitch: float) -> LowerLaw:
        """A law below one ratio."""
        cells = _Cells.of(noise_multiplier, pitch)
        mass, mean = cells.mass.copy(), cells.mean * np.exp(pitch * (cells.first + np.arange(len(cells.mass))))
        mass[[0, -1]] += cells.below, cells.above
        mean[[0, -1]] += cells.mean_below, cells.mean_above
        return cls(1, pitch, cells.first, mass, mean, cells.error).trimmed()


@dataclass(frozen=True)
class _Cells:
    """Mass of one ratio in cells [x_i, x_{i+1}), its mean there in units of x_i, and what lies outside of them."""

    first: int
    mass: np.ndarray
    mean: np.ndarray
    below: float
    mean_below: float
    above: float
    mean_above: float
    error: float

    @classmethod
    def of(cls, noise_multiplier: float, pitch: float) -> _Cells:
        """By 16-point Gauss-Legendre quadrature in z, whose terms are positive; see `quadrature_error`."""
        drift = 0.5 / noise_multiplier**2
        reach = _REACH + 1 / noise_multiplier
        first = int(np.floor((-_REACH / noise_multiplier - drift) / pitch))
        last = int(np.ceil((reach / noise_multiplier - drift) / pitch))
        index = np.arange(first, last + 1)
        z = (index * pitch + drift) * noise_multiplier
        half = np.diff(z)[:, None] / 2
        nodes = (z[1:] + z[:-1])[:, None] / 2 + half * _NODES
        density = np.exp(-nodes * nodes / 2) / np.sqrt(2 * np.pi) * (half * _WEIGHTS)
        ratio = np.exp(nodes / noise_multiplier - drift - (index[:-1] * pitch)[:, None])
        below, mean_below = (float(ndtr(value)) for value in (z[0], z[0] - 1 / noise_multiplier))
        above, mean_above = (float(ndtr(-value)) for value in (z[-1], z[-1] - 1 / noise_multiplier))
        # z^2 / 2 and its node are known to 4 z^2 units, the exponent of a ratio to 8 times the largest of its terms,
        # whose effect on the split between two points is that over the pitch's own width; 64 cover all else.
        far = float(np.abs(z).max())
        terms = far / noise_multiplier + drift + abs(first) * pitch
        error = (4 * far**2 + 8 * terms + 64) * _UNIT + quadrature_error(far, float(half.max()))
        mass, mean = density.sum(axis=1), (density * ratio).sum(axis=1)
        return cls(first, mass, mean, below, mean_below, above, mean_above, error)


def quadrature_error(far: float, half: float) -> float:
    """Relative error of 16-point Gauss-Legendre quadrature of e^{-z^2 / 2} over a cell of half-width h, |z| <= far.

    With rho = max(4, 2 / h) the ellipse has semi-axes of at most s = h (rho + 1 / rho) / 2, on which the integrand is
    at most e^{far s + s^2 / 2} times its value at the centre, and in the cell at least e^{-far h - h^2 / 2} times it.
    The error of n points on [-1, 1] is at most 64 / 15 M / ((1 - rho^-2) rho^{2n}) (Trefethen 2008, Theorem 4.5).

    Args:
        far: largest |z|, > 0.
        half: half-width of a cell in z, > 0.
    """
    rho = max(4.0, 2.0 / half)
    reach = half * (rho + 1 / rho) / 2
    log_growth = far * (reach + half) + (reach**2 + half**2) / 2
    return float(64 / 15 / 2 / (1 - rho**-2) * np.exp(log_growth - 2 * len(_NODES) * np.log(rho)))


_Law = TypeVar("_Law", UpperLaw, LowerLaw)


class _Sums(Generic[_Law]):
    """Where the sums of the points of two laws on one grid lie.

    Attributes:
        orders: both laws as the larger and the smaller summand; once where they are one law, whose sums of unlike
            points then count `factor` times.
    """

    def __init__(self, one: _Law, other: _Law):
        self.orders = [(one, other)] if one is other else [(one, other), (other, one)]
        self.factor = 2.0 if one is other else 1.0
        self._pitch = pitch = one.pitch
        lowest, highest = (
            float(np.logaddexp(pitch * a, pitch * b)) / pitch
            for a, b in ((one.first, other.first), (one.end - 1, other.end - 1))
        )
        # One point further out on both sides, for the rounding of the logarithms.
        self.start = int(np.floor(lowest)) - 1
        self.size = int(np.ceil(highest)) + 2 - self.start
        # From this distance on the smaller summand is less than the way from one point to the next.
        self._distance = int(np.ceil(-np.log(np.expm1(pitch)) / pitch)) if pitch < np.log(2) else 0
        longest = max(len(one.mass), len(other.mass))
        # Additions into one mass: each distance twice for both orders, two cumulative sums, and eight units for the
        # place and share of a sum.
        self.error = (4 * min(self._distance, longest) + 2 * longest + 16) * _UNIT

    def place(self, distance: int) -> tuple[int, float]:
        """Points that the sum lies above the larger summand, and the share of its mass that goes one point higher."""
        way = float(np.log1p(np.exp(-distance * self._pitch))) / self._pitch
        place = int(np.floor(way))
        return place, float(np.expm1((way - place) * self._pitch) / np.expm1(self._pitch))

    def pairs(self, larger: _Law, smaller: _Law) -> Iterator[tuple[slice, slice, int]]:
        """Slices of the masses of both whose points are 0 (in the first order), 1, ... apart, and that distance."""
        nearest = max(larger.first - smaller.end + 1, 0 if larger is self.orders[0][0] else 1)
        for distance in range(nearest, min(self._distance, larger.end - 1 - smaller.first) + 1):
            low, high = max(larger.first, smaller.first + distance), min(larger.end, smaller.end + distance)
            own = slice(low - larger.first, high - larger.first)
            yield own, slice(low - distance - smaller.first, high - distance - smaller.first), distance

    def at(self, larger: _Law, own: slice, place: int) -> slice:
        """Places of the sums in the result."""
        shift = larger.first + place - self.start
        return slice(own.start + shift, own.stop + shift)

    def far(self, larger: _Law, smaller: _Law) -> tuple[np.ndarray, np.ndarray]:
        """Indices of points of `larger`, and the last point of `smaller` that is far below each."""
        index = np.arange(max(larger.first, smaller.first + self._distance + 1), larger.end)
        return index, np.minimum(index - self._distance - 1, smaller.end - 1) - smaller.first


def _kept(mass: np.ndarray, mean: np.ndarray) -> tuple[int, int]:
    """The part of a law outside of which mass and mean are negligible."""
    low = int(np.searchsorted(np.cumsum(mass), _NEGLIGIBLE))
    high = len(mass) - int(np.searchsorted(np.cumsum(mean[::-1]), _NEGLIGIBLE))
    low = min(low, len(mass) - 2)
    return low, max(high, low + 2)


def _spread(values: np.ndarray) -> np.ndarray:
    """`values` at every second place."""
    spread = np.zeros(2 * len(values) - 1)
    spread[::2] = values
    return spread


def _first_pitch(noise_multiplier: float, count: int) -> float:
    """Pitch of one ratio, so that roundings add `_SHARE` of the variance (e^{1 / sigma^2} - 1) count of the sum.

    The pitch halves at every second doubling, so that each adds pitch^2 / 4 of one ratio's scale.
    """
    variance = float(np.expm1(min(noise_multiplier**-2, 50.0)))
    wished = min((4 * variance * _SHARE / (np.log2(count) + 1)) ** 0.5, _WIDEST_PITCH)
    span = (2 * _REACH + 1 / noise_multiplier) / noise_multiplier
    return max(wished, span / _MOST_POINTS)


@lru_cache(maxsize=16)
def sum_of_ratios(noise_multiplier: float, count: int, *, upper: bool) -> UpperLaw | LowerLaw:
    """The law above (`upper`) or below the sum of `count` ratios, by doubling.

    Args:
        noise_multiplier: sigma, from 0.06 up: e^{x} of the largest ratio overflows below.
        count: number of ratios, >= 1.
        upper: which side.

    Example:
        >>> law = sum_of_ratios(1.0, 10, upper=True)
        >>> round(float(law.mass.sum()), 9)
        1.0
    """
    one = (UpperLaw if upper else LowerLaw).of_one(noise_multiplier, _first_pitch(noise_multiplier, count))
    total = one
    for doublings, bit in enumerate(bin(count)[3:], start=1):
        total = total.plus(total)  # type: ignore[arg-type]
        if doublings % 2 == 0 and 2 * len(total.mass) <= _MOST_POINTS:
            total, one = total.refined(), one.refined()
        if bit == "1":
            total = total.plus(one)  # type: ignore[arg-type]
    return total
