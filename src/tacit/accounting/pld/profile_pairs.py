"""Privacy profiles on a grid of losses, and the finite pairs just above and just below them.

A profile H(x) = delta(log x), x > 0, of a pair is convex with H(x) >= (1 - x)_+, and each such function is the profile
of one pair: Q has mass H'(x+) - H'(x-) at the loss log x, and P has x times that. So the largest convex function below
upper bounds at grid points is at least H between them (connect-the-dots, Doroshenko et al. 2022), and values lowered
by as much as H may lie below its chords give a pair that H dominates.

The exact cost of a menu: the worst adaptive choice by a recursion over the stages, on a grid, from both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tacit.accounting.pld.dispatch import Dispatch
from tacit.mechanisms.pairs.adaptive import GridPair
from tacit.mechanisms.pairs.base import Pair, Table
from tacit.mechanisms.pairs.gaussian import GaussianPair, SampledGaussianPair
from tacit.tradeoff import Curve

Parts = list[tuple[Pair, int]]


@dataclass(frozen=True)
class Profile:
    """Bounds on one direction's H at x = e^loss on a symmetric grid of losses.

    Args:
        pitch: distance of the losses, > 0.
        low: lower bounds on H, or on H - (1 - x) where x < 1; shape (2 n + 1,), losses -n pitch, ..., n pitch.
        high: upper bounds, likewise.
    """

    pitch: float
    low: np.ndarray
    high: np.ndarray

    @property
    def losses(self) -> np.ndarray:
        """Return the grid."""
        reach = len(self.low) // 2
        return self.pitch * np.arange(-reach, reach + 1)

    @cached_property
    def above(self) -> ProfilePair:
        """The smallest pair on the grid that is known to dominate; what lies beyond the grid is infinite."""
        return ProfilePair(_masses(self.losses, self.high), infinity_mass=float(self.high[-1]))

    @cached_property
    def below(self) -> ProfilePair:
        """A pair on the grid that is dominated."""
        return ProfilePair(_masses(self.losses, _lowered(self.losses, self.low, self.high)))


def profiles_of(directions: list[Parts], pitch: float, points: int) -> list[Profile]:
    """The profile of every direction of a composition, where losses beyond the grid count as infinite.

    delta at a negative epsilon is that of the other direction: H_{P,Q}(x) = 1 - x + x H_{Q,P}(1 / x). From below it is
    known only where the second pair is the first one reversed.

    Args:
        directions: the pairs of each direction with their numbers of steps; one alone stands for both.
        pitch: distance of the losses, > 0.
        points: number of positive losses, >= 1.
    """
    epsilons = pitch * np.arange(points + 1)
    sides = [np.clip(Dispatch(parts).profile(epsilons), 0.0, 1.0) for parts in directions]
    sides = [(np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)) for low, high in sides]
    shrunk = np.exp(-epsilons[:0:-1])
    found = []
    for (low, high), (other_low, other_high) in zip(sides, sides[::-1], strict=True):
        before = other_low[:0:-1] * shrunk if _are_reversed(directions) else _extended(epsilons, low, high)
        found.append(Profile(pitch, np.concatenate([before, low]), np.concatenate([other_high[:0:-1] * shrunk, high])))
    return found


def reach_of(directions: list[Parts], delta: float) -> float:
    """The largest epsilon of any direction at `delta`, an upper bound."""
    return max(Dispatch(parts).epsilon(delta)[1] for parts in directions)


@dataclass(frozen=True, eq=False)
class ProfilePair(GridPair):
    """The pair of a table, for which no other is the same: tables are large, and are made once.

    Args:
        columns: increasing losses with their masses under P and Q; what is missing of Q has loss -inf.
        infinity_mass: P-mass of infinite loss.
        lower: pairs that are attained, of which `attained` picks one; none where the pair itself is.
    """

    columns: Table
    infinity_mass: float = 0.0  # type: ignore[override]
    lower: tuple[ProfilePair, ...] = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def table(self) -> Table:  # type: ignore[override]
        """Return the losses with their masses under P and Q."""
        return self.columns

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return max(1.0 - float(self.columns[2].sum()), 0.0)

    @property
    def reached(self) -> bool:
        """Return whether one step alone reaches this pair at each epsilon."""
        return not self.lower

    def attained(self, share: float) -> Pair:
        """Return a pair that a mechanism of the family reaches."""
        return self.lower[min(int(max(share, 0.0) * len(self.lower)), len(self.lower) - 1)] if self.lower else self


def _masses(losses: np.ndarray, values: np.ndarray) -> Table:
    """The pair whose profile is the largest convex function below `values`, H from loss 0 on, H - (1 - x) before."""
    from scipy.optimize import isotonic_regression  # Takes a while to load, and few ask for it.

    x = np.exp(losses)
    zero = len(losses) // 2
    slopes = np.diff(values) / np.diff(x)
    # Before 0 the slope of H is that of H - (1 - x), less 1; the value at 0 is the same for both.
    slopes[:zero] -= 1.0
    first = values[0] / x[0] - 1.0  # From H(0) = 1, where H - (1 - x) is 0.
    widths = np.concatenate([[x[0]], np.diff(x)])
    fitted = isotonic_regression(np.concatenate([[first], slopes]), weights=widths).x
    q = np.diff(np.minimum(np.append(fitted, 0.0), 0.0))
    keep = q > 0
    return losses[keep], (q * x)[keep], q[keep]


def _extended(epsilons: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Lower bounds on H - (1 - x) where x < 1, along a line below H at x = 1: its slope grows with x."""
    x = np.exp(epsilons[:3])
    slope = 1.0 + (high[2] - low[1]) / (x[2] - x[1]) if len(epsilons) > 2 else 1.0
    return np.maximum(low[0] + slope * np.expm1(-epsilons[:0:-1]), 0.0)


def _lowered(losses: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Values at grid points whose chords lie below H and H - (1 - x), 0 at both ends of the grid."""
    zero, last = len(losses) // 2, len(losses) - 1
    values = low - _dips(np.exp(losses), low, high)
    # H falls and H - (1 - x) grows: beside a point without a positive bound each is at least its bound there.
    start = int(np.max(np.flatnonzero(values[:zero] <= 0), initial=0))
    end = zero + int(np.min(np.flatnonzero(values[zero:] <= 0), initial=last - zero))
    values[start + 1] = min(values[start + 1], low[start])
    values[end - 1] = min(values[end - 1], low[end])
    values[: start + 1] = values[end:] = 0.0
    return np.maximum(values, 0.0)


def _dips(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """By how much H may lie below its chords beside each point, from the chords of the cells around (H is convex)."""
    width, zero = np.diff(x), len(x) // 2
    # Cells before x = 1 hold H - (1 - x), whose slope is larger by 1.
    less = (np.arange(len(width)) < zero).astype(float)
    chord = np.diff(low) / width - less
    left = np.concatenate([[low[0] / x[0] - 1], (low[1:-1] - high[:-2]) / width[:-1] - less[:-1]])
    right = np.concatenate([(high[2:] - low[1:-1]) / width[1:] - less[1:], [0.0]])
    # Lines from both ends of the cell, with a slope that H has no less to the left, no more to the right, meet here.
    share = np.clip((right - chord) / np.maximum(right - left, 1e-300), 0.0, 1.0)
    dip = np.maximum((chord - left) * share * width, 0.0)
    return np.maximum(np.concatenate([[0.0], dip]), np.concatenate([dip, [0.0]]))


def _are_reversed(directions: list[Parts]) -> bool:
    """Whether one direction's pairs are those of the other with P and Q swapped."""
    if len(directions) == 1:
        return all(isinstance(pair, GaussianPair) for pair, _ in directions[0])
    first, second = ({_reversible(pair): steps for pair, steps in parts} for parts in directions)
    return None not in first and first == second


def _reversible(pair: Pair) -> object:
    if isinstance(pair, SampledGaussianPair):
        return pair.sigma, pair.rate
    return pair if isinstance(pair, GaussianPair) else None


_POINTS = 1500  # Of the grid on either side: both sides of epsilon then differ by less than 1e-3.
_TAIL = 1e-12  # delta at which the losses of an option end.
_SUM = 1e-12  # Error of a sum of at most 3001 products of numbers in [0, 1] with masses: below 3010 units.

Directions = list[Parts]


class MenuCurve(Curve):
    """One side of the profile V_K, convex in e^epsilon: chords above, lines of neighbouring points below.

    Args:
        pitch: distance of the grid.
        values: V_K at 0, pitch, 2 pitch, ..., the larger of both directions.
        side: 0 below, 1 above.
    """

    def __init__(self, pitch: float, values: np.ndarray, side: int):
        self._pitch, self._side = pitch, side
        self._values = np.minimum.accumulate(np.clip(values, 0.0, 1.0))
        self._x = np.exp(pitch * np.arange(len(values)))

    def delta(self, epsilon: float) -> float:
        """The value at epsilon."""
        if epsilon >= self._pitch * (len(self._values) - 1):
            return float(self._values[-1]) if self._side else 0.0
        if self._side:
            return float(np.interp(np.exp(epsilon), self._x, self._values))
        at = int(epsilon / self._pitch)
        lines = [self._line(first, np.exp(epsilon)) for first in (at - 1, at + 1) if 0 <= first < len(self._x) - 1]
        return float(max(*lines, self._values[at + 1]))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon; at delta 0 the last loss of the grid, unless options have more beyond it."""
        if delta > 0.0:
            return super().epsilon(delta)
        if self._side and self._values[-1] > 0.0:
            return float("inf")
        return self._pitch * max(int(np.count_nonzero(self._values)) - (0 if self._side else 1), 0)

    def _line(self, first: int, x: float) -> float:
        """The line through two neighbouring points: beside them a convex function is above it."""
        (x0, x1), (y0, y1) = self._x[first : first + 2], self._values[first : first + 2]
        return float(y0 + (y1 - y0) / (x1 - x0) * (x - x0))


class MenuCost:
    """Both sides of the cost of a menu, and its pairs for compositions.

    Args:
        stages: for each stage the directions of its options, all with as many directions.
    """

    def __init__(self, stages: Sequence[Sequence[Directions]]):
        reach = sum(max(reach_of(option, _TAIL) for option in stage) for stage in stages)
        self._pitch = max(reach, 1e-6) / _POINTS
        profiles = [[profiles_of(option, self._pitch, _POINTS) for option in stage] for stage in stages]
        sides = range(len(stages[0][0]))
        self._above = [self._values([[option[d].above for option in stage] for stage in profiles], 1) for d in sides]
        self._below = [self._values([[option[d].below for option in stage] for stage in profiles], 0) for d in sides]

    @cached_property
    def upper(self) -> Curve:
        """Upper bound."""
        return MenuCurve(self._pitch, np.max(self._above, axis=0)[_POINTS:], 1)

    @cached_property
    def lower(self) -> Curve:
        """Lower bound, reached by the choice that attains each maximum."""
        return MenuCurve(self._pitch, np.max(self._below, axis=0)[_POINTS:], 0)

    @cached_property
    def pairs(self) -> tuple[ProfilePair, ...]:
        """A dominating pair for each direction; nothing is known from below for its composition with others."""
        x = np.exp(self._pitch * np.arange(-_POINTS, _POINTS + 1))
        found = []
        for values in self._above:
            mixed = np.where(x < 1, values - (1 - x), values)
            above = Profile(self._pitch, mixed, mixed).above
            nothing = ProfilePair((np.zeros(1), np.ones(1), np.ones(1)))
            found.append(replace(above, lower=(nothing,)))
        return tuple(found)

    def _values(self, stages: list[list[ProfilePair]], side: int) -> np.ndarray:
        """V_K on the grid of losses, from above (side 1) or below (side 0).

        Beyond the grid V is at most its last value above and 1 below, at least 0 and 1 - e^x.
        """
        x = self._pitch * np.arange(-_POINTS, _POINTS + 1)
        far = self._pitch * np.arange(-2 * _POINTS, -_POINTS)
        value = np.maximum(-np.expm1(x), 0.0)
        for stage in reversed(stages):
            before = np.ones(_POINTS) if side else -np.expm1(far)
            after = np.full(_POINTS, value[-1] if side else 0.0)
            padded = np.concatenate([before, value, after])
            best = np.zeros(len(x))
            for option in stage:
                loss, p, _ = option.columns
                masses = np.zeros(2 * _POINTS + 1)
                np.add.at(masses, np.rint(loss / self._pitch).astype(int) + _POINTS, p)
                moved = np.convolve(padded, masses, mode="valid") + option.infinity_mass * side
                best = np.maximum(best, moved + (_SUM if side else -_SUM))
            value = np.maximum(np.minimum(best, 1.0), np.maximum(-np.expm1(x), 0.0))
        return value
