"""The exact cost of a menu: the worst adaptive choice by a recursion over the stages, on a grid, from both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from tacit.accounting.pld.profile_pairs import Parts, Profile, ProfilePair, profiles_of, reach_of
from tacit.tradeoff import Curve

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
        points = _POINTS
        self._pitch = max(reach, 1e-6) / points
        known: dict[int, list[Profile]] = {}
        for stage in stages:
            for option in stage:
                known.setdefault(id(option), profiles_of(option, self._pitch, points))
        sides = range(len(stages[0][0]))
        self._above = [
            _values([[known[id(o)][d].above for o in s] for s in stages], self._pitch, points, 1) for d in sides
        ]
        self._below = [
            _values([[known[id(o)][d].below for o in s] for s in stages], self._pitch, points, 0) for d in sides
        ]
        self._points = points

    @cached_property
    def upper(self) -> Curve:
        """Upper bound."""
        return MenuCurve(self._pitch, np.max(self._above, axis=0)[self._points :], 1)

    @cached_property
    def lower(self) -> Curve:
        """Lower bound, reached by the choice that attains each maximum."""
        return MenuCurve(self._pitch, np.max(self._below, axis=0)[self._points :], 0)

    @cached_property
    def pairs(self) -> tuple[ProfilePair, ...]:
        """A dominating pair for each direction; nothing is known from below for its composition with others."""
        x = np.exp(self._pitch * np.arange(-self._points, self._points + 1))
        found = []
        for values in self._above:
            mixed = np.where(x < 1, values - (1 - x), values)
            above = Profile(self._pitch, mixed, mixed).above
            nothing = ProfilePair((np.zeros(1), np.ones(1), np.ones(1)))
            found.append(replace(above, lower=(nothing,)))
        return tuple(found)


def _values(stages: list[list[ProfilePair]], pitch: float, points: int, side: int) -> np.ndarray:
    """V_K on the grid -points pitch, ..., points pitch, from above (side 1) or below (side 0).

    Beyond the grid V is at most its last value above and 1 below, at least 0 and 1 - e^x.
    """
    x = pitch * np.arange(-points, points + 1)
    far = pitch * np.arange(-2 * points, -points)
    value = np.maximum(-np.expm1(x), 0.0)
    for stage in reversed(stages):
        before = np.ones(points) if side else -np.expm1(far)
        after = np.full(points, value[-1] if side else 0.0)
        padded = np.concatenate([before, value, after])
        best = np.zeros(len(x))
        for option in stage:
            loss, p, _ = option.columns
            masses = np.zeros(2 * points + 1)
            np.add.at(masses, np.rint(loss / pitch).astype(int) + points, p)
            moved = np.convolve(padded, masses, mode="valid") + option.infinity_mass * side
            best = np.maximum(best, moved + (_SUM if side else -_SUM))
        value = np.maximum(np.minimum(best, 1.0), np.maximum(-np.expm1(x), 0.0))
    return value
