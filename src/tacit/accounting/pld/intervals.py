"""Intervals of proven bounds: rounding allowance, intersection, inversion, and the error where two are disjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from tacit.errors import Refused
from tacit.mechanisms.pairs import Pair
from tacit.root_finding import bracketed_root

ALLOWANCE = 1e-9
"""Relative widening of every delta and epsilon, for what no engine counts by itself (THEORY.md, Section 2.3).

That is less than 1e-12: the last sums of an answer, the inversion of delta and its own widening.
"""

TINY = 1e-33  # Below it a line may leave out outcomes that matter (THEORY.md, Section 12.1), and the hull is answered.
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
    if low <= TINY:
        return min(one[0], other[0]), max(one[1], other[1])
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


def invert(local: LocalBounds, delta: float, side: int) -> float:
    """The epsilon where one side of the bounds crosses delta, searched outwards from the saddle."""

    def excess(epsilon: float) -> float:
        return float(np.log(max(valid_bounds(local, epsilon)[side], 2.3e-308) / delta)) + ALLOWANCE * (
            1 if side else -1
        )

    guess = _secant(excess, local.epsilon, local.theta)
    root = _bracketed(excess, local) if guess is None else guess
    return max(root * (1 + 2 * ALLOWANCE * (1 if side else -1)), 0.0)


def _secant(excess: Callable[[float], float], start: float, slope: float) -> float | None:
    """A root to within a tenth of the allowance in log delta; 0 if it lies below; None when the search wanders."""
    x, value = start, excess(start)
    step = value / slope
    for _ in range(8):
        if abs(value) <= 0.1 * ALLOWANCE:
            return x
        if abs(step) * slope > 20:
            return None
        new = max(x + step, 0.0)
        before, value = value, excess(new)
        if new == 0.0 and (x == 0.0 or value <= 0):
            return 0.0 if value <= 0 else None
        if value == before:
            return None
        step, x = -value * (new - x) / (value - before), new
    return None


def _bracketed(excess: Callable[[float], float], local: LocalBounds) -> float:
    step = 0.5 / local.theta
    low = high = local.epsilon
    while excess(high) > 0:
        low, high, step = high, high + step, 2 * step
        if high > 1e15:
            return float("inf")
    step = 0.5 / local.theta
    while excess(low) <= 0:
        if low == 0.0:
            return 0.0
        high, low, step = low, max(low - step, 0.0), 2 * step
    return bracketed_root(excess, low, high, relative=1e-11)
