"""One direction of a relation: picks the engine for a question, inverts it, and adds the rounding allowance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from typing import TypeVar

import numpy as np

from tacit.accounting.pld.discrete_cumulants import cumulants_of
from tacit.accounting.pld.fft import Convolution
from tacit.accounting.pld.intervals import (
    ALLOWANCE,
    Bounds,
    LocalBounds,
    intersection,
    inverted,
    looseness,
    valid_bounds,
)
from tacit.accounting.pld.inversion import SaddleLine, saddle_line
from tacit.accounting.pld.saddle_point import SMALLEST, saddle_for_delta, saddle_for_epsilon
from tacit.accounting.pld.simple_bounds import SimpleBounds, Single
from tacit.accounting.pld.step_cumulants import IndependentSum, Unsuitable
from tacit.accounting.pld.truncation import TruncatedSum, Truncation
from tacit.mechanisms.pairs.base import Pair

_POINTS = 20_000  # Points of one saddle line: about 10 ms.
_ROUGH = 1 << 12  # Lattice points of the cross-check, whose bounds are wide but independent of the line's.
_ROUGH_GROUPS = 6  # Its unlike noises at most.
_UNLIKE = 32  # Unlike parts of a truncated lattice at most.
_LEAST_TOP = 1e-6  # Largest loss below which lattices alone answer: frequencies of lines leave their grid.
_AGREED = 1e-6  # Relative distance of delta within which two answers need no closer look.
_UNDECIDED = 3  # Epsilons of a search about which no engine says enough, before it ends.
_LOOSE = 1e-3  # Relative width from which another engine is worth trying.
_NARROW = 2e-6  # Relative width of an answer up to which no other engine is asked.
_SHARP = 1e-8  # The same of delta where a truncated lattice may know more than a smoothed line.
_CLOSE = 1e-5  # The same of a truncated lattice, which others hardly ever exceed by much.
_SCATTERED = 8.0  # Standard deviation of the tilted loss in units of 1 / theta from which on few losses decide.
_NEXT_TO_NONE = 1e-9  # A delta above the mass of infinite losses, relative to it, that is next to none.
_IGNORE_OVERFLOW = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # `valid_bounds` drops such results.
# Saddles of a profile; between two of them bounds stay narrow.
_PROFILE_DELTAS = (0.3, 0.1, 1e-2, 1e-3, 1e-5, 1e-7, 1e-10, 1e-14)

Checked = TypeVar("Checked", bound=LocalBounds)


class Question:
    """One delta or epsilon asked of a composition, with the bounds of each engine around it, made once at need.

    Args:
        engines: of the composition.
        delta: above the mass of infinite losses; None for a question at `epsilon`.
        epsilon: >= 0.
    """

    def __init__(self, engines: Dispatch, *, delta: float | None = None, epsilon: float = 0.0):
        self._of, self._delta, self._epsilon = engines, delta, epsilon
        general = engines.general
        self._log_delta = None if delta is None else float(np.log(delta - general.infinity_mass))
        self.saddle = general.saddle_for_epsilon(epsilon) if delta is None else general.saddle_for_delta(delta)

    @cached_property
    def near(self) -> LocalBounds:
        """The first engine that settles the question, else the narrowest of them."""
        if self._of.single:
            return self._of.single
        best: LocalBounds | None = None
        for engine in self._engines():
            found = engine()
            if found is None:
                continue
            if best is not None:
                self._compare(best, found)
            best = found if best is None or self._width(found) < self._width(best) else best
            at_zero = self._delta is not None and valid_bounds(best, 0.0)[1] <= self._delta
            if at_zero or self._width(best) <= self._enough(best):
                break
        assert best is not None
        return best

    def _enough(self, local: LocalBounds) -> float:
        """The width up to which an engine settles the question; bounds on delta serve kinks of other curves as well."""
        if isinstance(local, TruncatedSum):
            return _NARROW if self._delta is None else _CLOSE
        return _NARROW if self._of.truncation is None or self._delta is not None else _SHARP

    def _engines(self) -> list[Callable[[], LocalBounds | None]]:
        """In the order in which they are asked: those that cost least, and most likely settle the question, first."""
        line, truncated = lambda: self.line, lambda: self._truncated
        # A coarse lattice is narrow at its own epsilon at best.
        bounded = self._of.top < np.inf and self._delta is not None
        coarse = [lambda: self._of.coarse.bracket(self.saddle)] if bounded else []
        general = lambda: self._of.general.bracket(self.saddle)  # noqa: E731
        if self.is_rare:
            return [lambda: self._line(smoothed=False), *coarse, truncated, line, general]
        return [*coarse, line, truncated, general]

    @property
    def is_rare(self) -> bool:
        """Whether a few large losses decide: no tilt makes epsilon typical, and at the saddle's losses scatter widely.

        Sums of light tails have a standard deviation of 2 to 7 units of 1 / theta there, few rare losses 10 to 30.
        """
        return self.saddle.theta * self.saddle.spread > _SCATTERED

    @cached_property
    def rough(self) -> LocalBounds:
        """The line or a small lattice, which reach far from the question."""
        line = self._of.single or self.line
        if line is not None and (line is self._of.single or self._width(line) <= _LOOSE):
            return line
        bracket = self._of.coarse.bracket(self.saddle)
        if line is None:
            return bracket
        self._compare(line, bracket)
        return min(line, bracket, key=lambda each: looseness(each, self.saddle.epsilon))

    @cached_property
    def line(self) -> SaddleLine | None:
        """The saddle line, smoothed at need; None where it costs too much."""
        return self._line(smoothed=True)

    @cached_property
    def unsettled(self) -> SaddleLine | None:
        """The line where its saddle does not settle, at a tilt of another question: it may be wide at this one."""
        return self._line(smoothed=True, settled=False)

    @property
    def _truncated(self) -> TruncatedSum | None:
        truncation = self._of.truncation
        if truncation is None:
            return None
        if self._delta is None:
            found = truncation.near_epsilon(self._epsilon)
        else:
            found = truncation.near_delta(self._delta, self.saddle.epsilon)
        return self._agreed(found) if found else None

    def _line(self, *, smoothed: bool, settled: bool = True) -> SaddleLine | None:
        if self._of.general.exact or 0 < self._of.top < _LEAST_TOP:
            return None
        discrete = any(pair.gaussian_limit()[1] < np.inf for pair, _ in self._of.parts)
        ways = ((True, 4e-7), (False, 1e-5), (True, 1.0), (False, 1.0)) if discrete else ((False, 1.0),)
        for limited, widest in ways if smoothed else ((discrete, 0.0),):
            try:
                line = self._refined_line(widest, limited=limited, settled=settled)
            except Unsuitable:
                continue
            if line:
                return self._agreed(line)
        return None

    def _refined_line(self, widest: float, *, limited: bool, settled: bool) -> SaddleLine | None:
        parts, saddle = self._of.parts, self.saddle
        for _ in range(4):
            around = IndependentSum(cumulants_of(parts, saddle.theta, saddle.log_delta, limited=limited), saddle.theta)
            if self._log_delta is None:
                refined = saddle_for_epsilon(around, self._epsilon)
            else:
                refined = saddle_for_delta(around, self._log_delta)
            close = abs(np.log(refined.theta / saddle.theta)) < 0.3
            saddle = refined
            if close:
                break
        else:
            if settled:
                return None
        cumulants = cumulants_of(parts, saddle.theta, saddle.log_delta, limited=limited)
        return saddle_line(
            IndependentSum(cumulants, saddle.theta),
            saddle,
            _POINTS,
            self._of.general.infinity_mass,
            smoothing_range=(self._of.smoothing, widest),
        )

    def _agreed(self, found: Checked) -> Checked:
        """The bounds, once a coarse lattice of the same composition has some that overlap with them."""
        self._compare(found, self._of.cross_check.bracket(self.saddle))
        return found

    def _width(self, local: LocalBounds) -> float:
        """Relative width of delta; of a question for epsilon that of epsilon, which is log delta's over its slope."""
        slope = 1.0 if self._delta is None else max(local.theta * local.epsilon, 1.0)
        return looseness(local, local.epsilon) / slope

    def _compare(self, found: LocalBounds, bracket: LocalBounds) -> None:
        """Raise `Contradiction` where an engine and a lattice exclude each other at the engine's epsilon."""
        at = found.epsilon
        intersection(valid_bounds(found, at), valid_bounds(bracket, at), self._of.parts, f"delta({at!r})")


class Dispatch(Bounds):
    """delta and epsilon of one composition of pairs, each as (lower, upper).

    A single step and the largest loss answer in closed form, all else the engines of `Question` in their order.
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]], *, gap: float = 2e-7, largest: int = 1 << 20):
        self.parts = parts
        self.smoothing = gap / 10
        self.general = Convolution(parts, gap=gap, largest=largest)
        self.coarse = Convolution(parts, gap=1e-3, largest=1 << 13)
        self._tables = bool(parts) and all(pair.table is not None for pair, _ in parts)
        self._simple = SimpleBounds(parts, self.general.infinity_mass)
        self.top = self._simple.top
        self.single = Single(parts[0][0]) if [steps for _, steps in parts] == [1] else None
        atoms = any(pair.discrete or pair.table is not None or pair.infinity_mass for pair, _ in parts)
        atoms = atoms or (self.top < np.inf and any(pair.atoms for pair, _ in parts))
        suits = 0 < len(parts) <= _UNLIKE and not self.single and not atoms
        self.truncation = Truncation(parts, gap) if suits else None
        self.at_delta = lru_cache(maxsize=32)(lambda delta: Question(self, delta=delta))
        self.at_epsilon = lru_cache(maxsize=8)(lambda epsilon: Question(self, epsilon=epsilon))
        self._known_delta = lru_cache(maxsize=32)(self._delta_within_bounds)
        self._known_epsilon = lru_cache(maxsize=32)(self._epsilon_within_bounds)
        self._ceiling = lru_cache(maxsize=4)(self._rough_ceiling)

    @_IGNORE_OVERFLOW
    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at `epsilon`."""
        return self._known_delta(epsilon)

    @_IGNORE_OVERFLOW
    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon >= 0 at which delta is at most `delta`."""
        return self._known_epsilon(delta)

    @_IGNORE_OVERFLOW
    def ceiling(self, delta: float) -> float:
        """Return an upper bound on that epsilon, by the largest loss or the lattice of the cross-check."""
        if delta <= self.general.infinity_mass:
            return np.inf
        if self._tables or not self.top > 0:
            return self.top * (1 + ALLOWANCE)
        return min(self._ceiling(delta), self.top * (1 + ALLOWANCE))

    def _rough_ceiling(self, delta: float) -> float:
        return inverted(self.cross_check.bracket(self.general.saddle_for_delta(delta)), delta)[1]

    @cached_property
    def cross_check(self) -> Convolution:
        """A small lattice of the same composition, many unlike noises in groups."""
        return Convolution(self.parts, largest=_ROUGH, groups=_ROUGH_GROUPS)

    @_IGNORE_OVERFLOW
    def delta_on_line(self, epsilon: float) -> tuple[float, float] | None:
        """`delta` where the saddle line alone settles it, which costs little however many steps differ; else None."""
        line = self.at_epsilon(epsilon).line
        return None if line is None or looseness(line, epsilon) > _LOOSE else _allowed(valid_bounds(line, epsilon))

    @_IGNORE_OVERFLOW
    def epsilon_on_line(self, delta: float) -> tuple[float, float] | None:
        """`epsilon` where the saddle line alone settles it, which costs little however many steps differ; else None."""
        if delta <= self.general.infinity_mass:
            return None
        line = self.at_delta(delta).line
        if line is None or looseness(line, line.epsilon) > _LOOSE:
            return None
        low, high = inverted(line, delta)
        return (low, high) if high - low <= _LOOSE * high else None

    def _delta_within_bounds(self, epsilon: float) -> tuple[float, float]:
        found = self._delta(epsilon)
        if not self._tables:
            return found
        return intersection(found, self._simple.delta(epsilon), self.parts, f"delta({epsilon!r})")

    def _delta(self, epsilon: float) -> tuple[float, float]:
        if epsilon >= self.top * (1 + ALLOWANCE):
            return self._simple.beyond_the_top()
        least, end = self._end
        if self.at_epsilon(epsilon).saddle.log_delta < np.log(least - self.general.infinity_mass) and epsilon >= end():
            return self._simple.beyond_the_top()[0], least
        return _allowed(valid_bounds(self.at_epsilon(epsilon).near, epsilon))

    @cached_property
    def _end(self) -> tuple[float, Callable[[], float]]:
        """A delta that is next to none beyond infinite losses, and an epsilon from which on delta is below it."""
        mass = self.general.infinity_mass
        least = mass * (1 + _NEXT_TO_NONE) if mass else SMALLEST
        return least, cache(lambda: inverted(self.at_delta(least).near, least)[1])

    def _epsilon_within_bounds(self, delta: float) -> tuple[float, float]:
        low, high = self._epsilon(delta)
        if not self._tables or not np.isfinite(high):
            return low, high
        agrees = self._simple.delta(low)[1] >= delta * (1 - _AGREED) and self._simple.delta(high)[0] <= delta * (
            1 + _AGREED
        )
        if agrees:
            return low, high
        return intersection((low, high), self._simple.epsilon(delta), self.parts, f"epsilon({delta!r})")

    def _epsilon(self, delta: float) -> tuple[float, float]:
        if delta < self.general.infinity_mass * (1 + ALLOWANCE) or delta == 0.0:
            return self._simple.at_the_end(delta)
        floor, top = self._simple.near_the_top(delta)
        if floor >= top * (1 - ALLOWANCE) < np.inf:
            return floor, top
        local = self.at_delta(delta).near
        low, high = intersection(inverted(local, delta), (floor, top), self.parts, f"epsilon({delta!r})")
        if high - low > _LOOSE * high and (line := self.at_delta(delta).unsettled):
            low, high = intersection((low, high), inverted(line, delta), self.parts, f"epsilon({delta!r})")
        if high - low > _LOOSE * high:
            low, high = self._searched(delta, low, high)
        middle = (low + high) / 2
        if self.truncation is None or high - low <= _NARROW * high or not 0 < middle < np.inf:
            return low, high
        line = self.at_epsilon(middle).line  # A saddle of rare losses is far from epsilon; one there may know more.
        other = inverted(line, delta) if line else (0.0, np.inf)
        return intersection((low, high), other, self.parts, f"epsilon({delta!r})")

    def _searched(self, delta: float, low: float, high: float) -> tuple[float, float]:
        """Bounds from single epsilons, each by the engine that suits it, where none that suits delta is narrow."""
        guess, undecided = high, 0
        for _ in range(24):
            if guess <= 1.1 * low or guess <= 0 or not np.isfinite(guess) or undecided > _UNDECIDED:
                break
            middle = float((max(low, 1e-4 * guess) * guess) ** 0.5)
            floor, ceiling = self.delta(middle)
            if floor > delta:
                low = middle
            else:
                guess, high = middle, middle if ceiling <= delta else high
                undecided += ceiling > delta
        if not 0 < low < guess < np.inf:
            return low, high
        found = inverted(self.at_epsilon(float((low * guess) ** 0.5)).near, delta)
        return intersection((low, high), found, self.parts, f"epsilon({delta!r})")

    @_IGNORE_OVERFLOW
    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """Return bounds on delta that are quick, and narrow around `epsilon`."""
        # From the largest loss on delta is known, and bounds around it would be of no use elsewhere.
        local = cache(lambda: self.at_epsilon(epsilon if epsilon < self.top else self.top / 2).near)
        return _IGNORE_OVERFLOW(lambda value: self._by(local, value))

    @_IGNORE_OVERFLOW
    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """Return upper bounds on delta by the lattice of the cross-check: quick, rough, best around `epsilon`."""
        bracket = cache(lambda: self.cross_check.bracket(self.general.saddle_for_epsilon(min(epsilon, self.top / 2))))
        return _IGNORE_OVERFLOW(lambda value: self._by(bracket, value)[1])

    def _by(self, local: Callable[[], LocalBounds], epsilon: float) -> tuple[float, float]:
        """Bounds on delta by `local`, which is not made beyond the largest loss."""
        if epsilon >= self.top * (1 + ALLOWANCE):
            return self._simple.beyond_the_top()
        return _allowed(valid_bounds(local(), epsilon))

    @_IGNORE_OVERFLOW
    def sketch(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return rough (epsilons, deltas) down to `delta`, for searches."""
        return self.general.sketch(max(delta, 2 * self.general.infinity_mass))

    @_IGNORE_OVERFLOW
    def outline(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the same closer to the truth where a record is rarely sampled, at some ten times the cost."""
        rare = self.truncation is not None and delta > 0 and self.at_delta(delta).is_rare
        outline = self.truncation.outline(delta) if self.truncation and rare else None
        return self.sketch(delta) if outline is None else outline

    @_IGNORE_OVERFLOW
    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on delta at many epsilons, from a few questions that lie near all of them; wider than `delta`."""
        deltas = [delta for delta in _PROFILE_DELTAS if delta > self.general.infinity_mass]
        locals_ = [self.at_epsilon(0.0).rough, *(self.at_delta(delta).rough for delta in deltas)]
        centres = np.array([local.epsilon for local in locals_])
        nearest = np.argmin(np.abs(epsilons[:, None] - centres), axis=1)
        bounds = [_allowed(valid_bounds(locals_[k], float(e))) for k, e in zip(nearest, epsilons, strict=True)]
        low, high = np.array(bounds).T
        return low, high


def _allowed(bounds: tuple[float, float]) -> tuple[float, float]:
    """Bounds on a delta with the allowance for rounding."""
    return bounds[0] * (1 - ALLOWANCE), min(bounds[1] * (1 + ALLOWANCE), 1.0)
