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
from tacit.accounting.pld.saddle_point import saddle_for_delta, saddle_for_epsilon
from tacit.accounting.pld.simple_bounds import SimpleBounds, Single
from tacit.accounting.pld.step_cumulants import CompositionCumulant, IndependentSum, Unsuitable
from tacit.accounting.pld.tail_split import TailSplitter
from tacit.accounting.pld.truncation import TruncatedLattice, Truncation
from tacit.mechanisms.pairs import Pair

_POINTS = 20_000  # Points of one saddle line: about 10 ms.
_ROUGH = 1 << 12  # Lattice points of the cross-check, whose bounds are wide but independent of the line's.
_ROUGH_GROUPS = 6  # Its unlike noises at most.
_LEAST = 1e-12  # Epsilon from which on a tail split is worth trying; tilts of smaller ones leave the doubles.
_LEAST_TOP = 1e-6  # Largest loss below which lattices alone answer: frequencies of lines leave their grid.
_WIDE = 2e-7  # Relative width of delta from which a tail split is worth trying.
_AGREED = 1e-6  # Relative distance of delta within which two answers need no closer look.
_UNDECIDED = 3  # Epsilons of a search about which no engine says enough, before it ends.
_LOOSE = 1e-3  # Relative width from which another engine is worth trying.
_CLOSE = 1e-5  # Relative width of delta up to which a truncated lattice that settles nothing saves the large one.
_NARROW = 2e-6  # Relative width of an answer up to which a truncated lattice gives it.
_IGNORE_OVERFLOW = np.errstate(
    over="ignore", invalid="ignore", divide="ignore"
)  # `valid_bounds` takes nothing from such results.
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
        """The engine that settles the question, else the narrowest of the truncated lattice, the line and a lattice."""
        if settled := self._of.single or self._quick:
            return settled
        if self._truncated and looseness(self._truncated, self._truncated.epsilon) <= _CLOSE:
            return self._truncated
        found = self._narrower(self._of.general)
        return min(found, self._truncated or found, key=lambda each: looseness(each, each.epsilon))

    @cached_property
    def rough(self) -> LocalBounds:
        """The line or a small lattice, which reach far from the question."""
        return self._of.single or self._narrower(self._of.coarse)

    @cached_property
    def line(self) -> SaddleLine | None:
        """The saddle line, smoothed at need; None where it costs too much."""
        return self._line(smoothed=True)

    @cached_property
    def is_quick(self) -> bool:
        """Whether a line without smoothing, or a truncated lattice, settles it."""
        return self._quick is not None

    @cached_property
    def _quick(self) -> SaddleLine | TruncatedLattice | None:
        """Where a record is rarely sampled, a line that needs no smoothing, or a truncated lattice that is narrow."""
        if self._of.truncation is None:
            return None
        line = self._line(smoothed=False)
        if line is not None and looseness(line, line.epsilon) <= _LOOSE:
            return line
        return self._truncated if self._truncated and self._settles(self._truncated) else None

    @cached_property
    def _truncated(self) -> TruncatedLattice | None:
        truncation = self._of.truncation
        if truncation is None:
            return None
        if self._delta is None:
            found = truncation.near_epsilon(self._epsilon)
        else:
            found = truncation.near_delta(self._delta, self.saddle.epsilon)
        return self._agreed(found) if found else None

    def splits(self, local: LocalBounds) -> bool:
        """Whether runs of a large loss may be taken apart: not where an engine settles the question by itself."""
        settled = isinstance(local, Single) or (self.is_quick and isinstance(local, TruncatedLattice))
        return not settled and not self._of.general.infinity_mass

    def _settles(self, truncated: TruncatedLattice) -> bool:
        if self._delta is None:
            return looseness(truncated, self._epsilon) <= _NARROW
        return _is_narrow(truncated, np.inf) or valid_bounds(truncated, 0.0)[1] <= self._delta

    def _narrower(self, lattice: Convolution) -> LocalBounds:
        """The line, unless there is none or the lattice knows more where the line is meant to be evaluated."""
        line = self.line
        if line is not None and _is_narrow(line, _LOOSE):
            return line
        bracket = lattice.bracket(self.saddle)
        if line is None:
            return bracket
        self._compare(line, bracket)
        return min(line, bracket, key=lambda each: looseness(each, self.saddle.epsilon))

    def _line(self, *, smoothed: bool) -> SaddleLine | None:
        if self._of.general.exact or 0 < self._of.top < _LEAST_TOP:
            return None
        discrete = any(pair.gaussian_limit()[1] < np.inf for pair, _ in self._of.parts)
        for limited, widest in (
            ((True, 4e-7), (False, 1e-5), (True, 1.0), (False, 1.0)) if discrete else ((False, float(smoothed)),)
        ):
            try:
                line = self._refined_line(widest, limited=limited)
            except Unsuitable:
                continue
            if line:
                return self._agreed(line)
        return None

    def _refined_line(self, widest: float, *, limited: bool) -> SaddleLine | None:
        parts, saddle = self._of.parts, self.saddle
        for _ in range(4):
            cumulants = cumulants_of(parts, saddle.theta, saddle.log_delta, limited=limited)
            around = CompositionCumulant.around(cumulants, saddle.theta)
            if self._log_delta is None:
                refined = saddle_for_epsilon(around, self._epsilon)
            else:
                refined = saddle_for_delta(around, self._log_delta)
            close = abs(np.log(refined.theta / saddle.theta)) < 0.3
            saddle = refined
            if close:
                break
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

    def _compare(self, found: LocalBounds, bracket: LocalBounds) -> None:
        """Raise `Contradiction` where an engine and a lattice exclude each other at the engine's epsilon."""
        at = found.epsilon
        intersection(valid_bounds(found, at), valid_bounds(bracket, at), self._of.parts, f"delta({at!r})")


def _is_narrow(local: LocalBounds, most: float) -> bool:
    """Whether its epsilon is: the width of epsilon is that of log delta over its slope."""
    return looseness(local, local.epsilon) <= min(_NARROW * max(local.theta * local.epsilon, 1.0), most)


class Dispatch(Bounds):
    """delta and epsilon of one composition of pairs, each as (lower, upper).

    Engines in the order in which they are asked: a single step, the largest loss, a line or a truncated lattice that
    settles the question, the tail split from a small lattice, the line or the lattice, the tail split again.
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]], *, gap: float = 2e-7, largest: int = 1 << 20):
        self.parts = parts
        self._wide, self.smoothing = max(_WIDE, 2 * gap), gap / 10
        self.general = Convolution(parts, gap=gap, largest=largest)
        self.coarse = Convolution(parts, gap=1e-3, largest=1 << 13)
        self._tables = bool(parts) and all(pair.table is not None for pair, _ in parts)
        self._simple = SimpleBounds(parts, self.general.infinity_mass)
        self.top = self._simple.top
        self.single = Single(parts[0][0]) if [steps for _, steps in parts] == [1] else None
        self.truncation = Truncation.of(parts, gap)
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
        question = self.at_epsilon(epsilon)
        local = question.near
        low, high = valid_bounds(local, epsilon)
        if question.splits(local) and epsilon > _LEAST and high - low > self._wide * high > 1e-300:
            middle = float(np.log(max(high * low, high**2 * 1e-10)) / 2)
            split = self._splitter(middle).at(epsilon, middle)
            other = valid_bounds(split, epsilon) if split else (0.0, 1.0)
            low, high = intersection((low, high), other, self.parts, f"delta({epsilon!r})")
        return _allowed((low, high))

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
        narrow = self._by_coarse_lattice(delta)
        if narrow is not None:
            return max(narrow[0], floor), min(narrow[1], top)
        local = self.at_delta(delta).near
        low, high = intersection(inverted(local, delta), (floor, top), self.parts, f"epsilon({delta!r})")
        low, high = self._apart(local, delta, low, high)
        if high - low <= _LOOSE * high:
            return low, high
        return self._apart(local, delta, *self._searched(delta, low, high))

    def _apart(self, local: LocalBounds, delta: float, low: float, high: float) -> tuple[float, float]:
        """The bounds, or those with the runs of a large loss apart where they are wide."""
        wide = self.at_delta(delta).splits(local) and high - low > self._wide * high > 1e-6 * self._wide
        return self._between(delta, low, high) if wide else (low, high)

    def _by_coarse_lattice(self, delta: float) -> tuple[float, float] | None:
        """Bounds with the runs of a large loss apart, from the rough ones of a small lattice where no line is narrow.

        They save the large lattice where they are narrow; None where they are not.
        """
        question = self.at_delta(delta)
        if question.is_quick or self.general.exact or not question.splits(local := question.rough):
            return None
        if isinstance(local, SaddleLine) and looseness(local, local.epsilon) <= _LOOSE:
            return None
        low, high = inverted(local, delta)
        if not 0 <= low < high < np.inf:
            return None
        low, high = self._between(delta, low, high)
        return (low, high) if high - low <= self._wide * high else None

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

    def _splitter(self, log_delta: float) -> TailSplitter:
        return TailSplitter(self.parts, self.general.coarse_losses_for(log_delta), _POINTS)

    def _between(self, delta: float, low: float, high: float) -> tuple[float, float]:
        """Bounds on epsilon with the runs of a large loss apart, searched for between two known bounds."""
        log_delta = float(np.log(delta))
        splitter = self._splitter(log_delta)
        epsilon = splitter.epsilon_for(log_delta, max(low, 1e-3 * high), high)
        for _ in range(4):
            local = splitter.at(epsilon, log_delta)
            if local is None:
                break
            other = inverted(local, delta)
            found = intersection((low, high), other, self.parts, f"epsilon({delta!r})")
            if found[1] < 1.03 * epsilon and epsilon < 1.03 * found[1]:
                return found
            low, high = found
            epsilon = high
        return low, high

    @_IGNORE_OVERFLOW
    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """Return bounds on delta that are quick, and narrow around `epsilon`."""
        # From the largest loss on delta is known, and bounds around it would be of no use elsewhere.
        local = cache(lambda: self.at_epsilon(epsilon if epsilon < self.top else self.top / 2).near)

        def delta(value: float) -> tuple[float, float]:
            beyond = value >= self.top * (1 + ALLOWANCE)
            return self._simple.beyond_the_top() if beyond else _allowed(valid_bounds(local(), value))

        return delta

    @_IGNORE_OVERFLOW
    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """Return upper bounds on delta by the lattice of the cross-check: quick, rough, best around `epsilon`."""
        bracket = cache(lambda: self.cross_check.bracket(self.general.saddle_for_epsilon(min(epsilon, self.top / 2))))

        @_IGNORE_OVERFLOW
        def ceiling(value: float) -> float:
            beyond = value >= self.top * (1 + ALLOWANCE)
            return _allowed(self._simple.beyond_the_top() if beyond else valid_bounds(bracket(), value))[1]

        return ceiling

    @_IGNORE_OVERFLOW
    def sketch(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return rough (epsilons, deltas) down to `delta`, for searches."""
        return self.general.sketch(max(delta, 2 * self.general.infinity_mass))

    @_IGNORE_OVERFLOW
    def outline(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the same closer to the truth where a record is rarely sampled, at some ten times the cost."""
        outline = self.truncation.outline(delta) if self.truncation else None
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
