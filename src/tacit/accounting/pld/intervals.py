"""Intervals of proven bounds: rounding allowance, intersection, inversion, and the error where two are disjoint."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

import numpy as np

from tacit.errors import Refused
from tacit.mechanisms.pairs.base import Pair

ALLOWANCE = 1e-9
"""Relative widening of every delta and epsilon, for what no engine counts by itself (THEORY.md, Section 2.3).

That is less than 1e-12: the last sums of an answer, the inversion of delta and its own widening.
"""

_LEAST = 2.3e-308  # The smallest normal double stands for a bound of 0, whose logarithm would be infinite.
_UNKNOWN = -500.0  # log of a bound relative to delta below which it says nothing, and its slope leads nowhere.
_REACHES = (20.0, 0.5)  # log of how much delta may change in the first step of a search, the second where that fails.
_SECANTS, _HALVINGS = 16, 90  # Evaluations from which on intervals are halved, and at most.
_CLOSEST = 1e-11  # Relative distance of two epsilons, far below the allowance.
_FARTHEST = 1e15  # Epsilon from which on an answer counts as infinite.
_SHOWN = 4  # Parts that the report of a contradiction names.


class LocalBounds(Protocol):
    """Certified bounds on delta around one question."""

    @property
    def theta(self) -> float:
        """The tilt around which the bounds are narrow."""
        ...

    @property
    def epsilon(self) -> float:
        """Where the bounds are meant to be evaluated."""
        ...

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Return certified bounds on delta(epsilon)."""
        ...


def valid_bounds(local: LocalBounds, epsilon: float) -> tuple[float, float]:
    """The bounds of `local`; all that is certain, [0, 1], where its arithmetic left the range of doubles."""
    low, high = local.bounds(epsilon)
    return (low, high) if 0.0 <= low <= high else (0.0, 1.0)


def looseness(local: LocalBounds, epsilon: float) -> float:
    """Relative width of the bounds on delta."""
    low, high = valid_bounds(local, max(epsilon, 0.0))
    return (high - low) / high if high > 0 else 1.0


def intersection(
    one: tuple[float, float], other: tuple[float, float], parts: Sequence[tuple[Pair, int]] = (), question: str = ""
) -> tuple[float, float]:
    """Intersection of two intervals.

    Args:
        one: proven bounds (lower, upper).
        other: the same of another engine.
        parts: the composition, named in the report.
        question: what was asked of it, named in the report.

    Raises:
        Contradiction: they are disjoint by more than the rounding allowance.
    """
    low, high = max(one[0], other[0]), min(one[1], other[1])
    if low <= high:
        return low, high
    if low * (1 - ALLOWANCE) <= high * (1 + ALLOWANCE):
        return high, low  # Both hold what was asked up to rounding, and so do these two ends.
    raise Contradiction(question, parts, one, other)


class Contradiction(Refused):
    """Two engines with proven bounds exclude each other, so one of them has a fault; nothing is answered.

    `report` states the composition, the question and both intervals, none of which is private, to be sent to the
    maintainers.
    """

    def __init__(
        self,
        question: str,
        parts: Sequence[tuple[Pair, int]],
        one: tuple[float, float],
        other: tuple[float, float],
    ):
        shown = ", ".join(f"{steps} x {pair}" for pair, steps in parts[:_SHOWN])
        self.report = {
            "question": question,
            "parts": shown + (f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""),
            "one": list(one),
            "other": list(other),
        }
        super().__init__(
            f"two engines disagree about {question or 'one value'}: [{one[0]!r}, {one[1]!r}] against "
            f"[{other[0]!r}, {other[1]!r}] for {self.report['parts'] or 'this composition'}. "
            "Please report this sentence; no answer is given."
        )


def inverted(local: LocalBounds, delta: float) -> tuple[float, float]:
    """The epsilons where the lower and the upper bound cross delta, searched outwards from the saddle."""
    bounds = cache(lambda epsilon: valid_bounds(local, epsilon))

    def excess(epsilon: float, side: int) -> float:
        return float(np.log(max(bounds(epsilon)[side], _LEAST) / delta)) + ALLOWANCE * (1 if side else -1)

    # Far from the saddle an upper bound may rise again, so that long steps miss where it is below delta.
    ends = (_root(lambda epsilon: excess(epsilon, 1), local.epsilon, local.theta, reach)[1] for reach in _REACHES)
    high = next((end for end in ends if end < np.inf), np.inf)
    # Where the bounds are narrow, the other one crosses next to it.
    start = high if high < np.inf else local.epsilon
    low = _root(lambda epsilon: excess(epsilon, 0), start, local.theta, _REACHES[0])[0]
    return max(low * (1 - 2 * ALLOWANCE), 0.0), high * (1 + 2 * ALLOWANCE)


def _root(excess: Callable[[float], float], x: float, slope: float, reach: float) -> tuple[float, float]:
    """An interval, or a point to a tenth of the allowance, where a falling function vanishes; (0, 0) if below 0.

    Secants, or halves of what is left where they lead out of it or converge slowly.

    Args:
        excess: the function.
        x: where the search starts, >= 0.
        slope: the first guess at its fall, > 0.
        reach: by how much the function may change in the first step, > 0; twice as much in each further one.
    """
    low, high, value, reach = -1.0, np.inf, excess(x), reach / slope
    for count in range(_HALVINGS):
        if abs(value) <= 0.1 * ALLOWANCE:
            return x, x
        low, high = (x, high) if value > 0 else (low, x)
        if x > _FARTHEST or high <= 0.0 or (high < np.inf and high - max(low, 0.0) <= _CLOSEST * high):
            break
        new, reach = x + max(min(value / slope, reach), -reach), 2 * reach
        if low < 0.0 and (new <= 0.0 or value <= _UNKNOWN):
            new = 0.0
        elif not low < new < high or value <= _UNKNOWN or (count > _SECANTS and high < np.inf):
            new = (max(low, 0.0) + high) / 2
        if new == x:
            break
        before, x, value = (x, value), new, excess(new)
        steep = (before[1] - value) / (x - before[0])
        if value > _UNKNOWN:
            slope = steep if 0 < steep < np.inf else slope / 4  # Steps grow where all is lost, and bounds are flat.
    return max(low, 0.0), max(high, 0.0)


class Bounds(ABC):
    """Two-sided answers about one direction of a relation, quick everywhere unless an engine says more."""

    @abstractmethod
    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at this epsilon."""

    @abstractmethod
    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon that meets `delta`."""

    def ceiling(self, delta: float) -> float:
        """Return the upper bound on epsilon."""
        return self.epsilon(delta)[1]

    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """Return `delta`."""
        return self.delta

    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """Return the upper side of `delta`."""
        return lambda value: self.delta(value)[1]

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on delta at many epsilons."""
        both = np.array([self.delta(float(epsilon)) for epsilon in epsilons])
        return both[:, 0], both[:, 1]
