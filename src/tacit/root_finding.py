"""One-dimensional root search, with the tolerances that privacy numbers need."""

import math
from collections.abc import Callable

_STEPS = 1000  # A pair of numbers of unlike size takes some hundred.
_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_ROOT_OF_UNIT = math.sqrt(2.2e-16)
TO_ZERO = 1100
"""Halvings after which any double has become 0: for a relative accuracy where the point itself may be 0."""


def bracketed_root(function: Callable[[float], float], low: float, high: float, *, relative: float = 1e-13) -> float:
    """Return the root of a monotone `function` in [low, high] to `relative` accuracy.

    Inverse interpolation, or halves of what is left where that leads out of it or converges slowly. It is
    `scipy.optimize.brentq` to the last bit, without that package, which takes longer to load than an account.

    Source: Brent 1973, Algorithms for Minimization Without Derivatives, Chapter 4.

    Args:
        function: continuous, of opposite signs at `low` and `high`.
        low: lower end.
        high: upper end.
        relative: > 0, accuracy relative to the root.

    Raises:
        ValueError: `function` has the same sign at both ends, or is NaN.

    Example:
        >>> round(bracketed_root(lambda x: x**2 - 2, 0.0, 2.0), 6)
        1.414214
    """
    before, x = float(low), float(high)
    value_before, value = _value(function, before), _value(function, x)
    if value_before == 0 or value == 0:
        return before if value_before == 0 else x
    if (value_before < 0) == (value < 0):
        raise ValueError("function must have unlike signs at low and high")
    other, value_other, last, step = before, value_before, x - before, x - before
    for _ in range(_STEPS):
        if value != 0 and (value_before < 0) != (value < 0):
            other, value_other, last, step = before, value_before, x - before, x - before
        if abs(value_other) < abs(value):
            before, x, other = x, other, x
            value_before, value, value_other = value, value_other, value
        tolerance, half = (1e-300 + relative * abs(x)) / 2, (other - x) / 2
        if value == 0 or abs(half) < tolerance:
            return x
        new = math.inf
        if abs(last) > tolerance and abs(value) < abs(value_before):
            new = _interpolated((before, value_before), (x, value), (other, value_other))
        shorter = 2 * abs(new) < min(abs(last), 3 * abs(half) - tolerance)
        last, step = (step, new) if shorter else (half, half)
        before, value_before = x, value
        x += step if abs(step) > tolerance else math.copysign(tolerance, half)
        value = _value(function, x)
    return x


def _value(function: Callable[[float], float], x: float) -> float:
    found = float(function(x))
    if math.isnan(found):
        raise ValueError(f"function must be a number; it is NaN at {x!r}")
    return found


def _interpolated(before: tuple[float, float], here: tuple[float, float], other: tuple[float, float]) -> float:
    """The step from `here` to the root of the line, or of the inverse parabola, through the points; inf without one."""
    (a, fa), (b, fb), (c, fc) = before, here, other
    try:
        if a == c:
            return -fb * (b - a) / (fb - fa)
        left, right = (fa - fb) / (a - b), (fc - fb) / (c - b)
        return -fb * (fc * right - fa * left) / (right * left * (fc - fa))
    except ZeroDivisionError:
        return math.inf


def minimum(function: Callable[[float], float], low: float, high: float, *, accuracy: float) -> float:
    """Return the place in (low, high) where a unimodal `function` is least, to `accuracy` and half of its digits.

    Parabolas through three points, or golden sections of what is left: `scipy.optimize.fminbound` to the last bit.

    Source: Brent 1973, Algorithms for Minimization Without Derivatives, Chapter 5.

    Args:
        function: falling up to some place, and rising from there on.
        low: lower end, not evaluated.
        high: upper end, not evaluated.
        accuracy: > 0, absolute.

    Example:
        >>> round(minimum(lambda x: (x - 0.3) ** 2, 0.0, 2.0, accuracy=1e-9), 6)
        0.3
    """
    x = second = third = low + _GOLDEN * (high - low)
    value = value_second = value_third = function(x)
    move = before = 0.0
    for _ in range(_STEPS // 2 - 1):
        middle, shortest = 0.5 * (low + high), _ROOT_OF_UNIT * abs(x) + accuracy / 3.0
        if abs(x - middle) <= 2.0 * shortest - 0.5 * (high - low):
            break
        parabola = None
        if abs(before) > shortest:
            r, q = (x - second) * (value - value_third), (x - third) * (value - value_second)
            p, q = (x - third) * q - (x - second) * r, 2.0 * (q - r)
            p, q, r, before = -p if q > 0.0 else p, abs(q), before, move
            if abs(p) < abs(0.5 * q * r) and q * (low - x) < p < q * (high - x):
                parabola = p / q
                if min(x + parabola - low, high - x - parabola) < 2.0 * shortest:
                    parabola = shortest if middle >= x else -shortest
        if parabola is None:
            before = (low if x >= middle else high) - x
        move = _GOLDEN * before if parabola is None else parabola
        new = x + (1.0 if move >= 0.0 else -1.0) * max(abs(move), shortest)
        value_new = function(new)
        if value_new <= value:
            low, high = (x, high) if new >= x else (low, x)
            third, value_third, second, value_second, x, value = second, value_second, x, value, new, value_new
        else:
            low, high = (new, high) if new < x else (low, new)
            if value_new <= value_second or second == x:
                third, value_third, second, value_second = second, value_second, new, value_new
            elif value_new <= value_third or third in (x, second):
                third, value_third = new, value_new
    return x


def bisect(
    below: Callable[[float], bool],
    low: float,
    high: float,
    *,
    halvings: int = 60,
    width: float = 0.0,
    relative: float = 0.0,
    geometric: bool = False,
) -> tuple[float, float]:
    """Return an interval (low, high) around the point where a monotone predicate turns from true to false.

    Unlike `bracketed_root` it needs no continuous function, and each end stays on its own side of the point: an upper
    bound is read off `high`, a lower bound off `low`.

    Args:
        below: true to the left of the point, false to the right; not evaluated at the two ends.
        low: lower end, where `below` is true.
        high: upper end, where `below` is false.
        halvings: how often the interval is halved at most; 60 reach the last digit of a double.
        width: >= 0, stop once the interval is no wider.
        relative: >= 0, the same as a share of `high`.
        geometric: halve the logarithm; `low` must be > 0.

    Example:
        >>> bisect(lambda x: x**2 < 2, 0.0, 2.0, halvings=3)
        (1.25, 1.5)
    """
    for _ in range(halvings):
        if high - low <= max(width, relative * high):
            break
        middle = (low * high) ** 0.5 if geometric else (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def bisect_integers(met: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest integer in [low, high) at which a monotone predicate is true.

    Args:
        met: true up to some integer, false beyond; not evaluated at the two ends.
        low: an integer where `met` is true.
        high: a larger integer where `met` is false.

    Example:
        >>> bisect_integers(lambda n: n**2 <= 50, 0, 50)
        7
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if met(middle) else (low, middle)
    return low
