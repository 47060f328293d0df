"""One-dimensional root search, with the tolerances that privacy numbers need."""

from collections.abc import Callable
from typing import Any, cast

from scipy.optimize import brentq

TO_ZERO = 1100
"""Halvings after which any double has become 0: for a relative accuracy where the point itself may be 0."""


def bracketed_root(function: Callable[[float], float], low: float, high: float, *, relative: float = 1e-13) -> float:
    """Return the root of a monotone `function` in [low, high] to `relative` accuracy.

    Args:
        function: continuous, of opposite signs at `low` and `high`.
        low: lower end.
        high: upper end.
        relative: > 0, accuracy relative to the root.

    Raises:
        ValueError: `function` has the same sign at both ends.

    Example:
        >>> round(bracketed_root(lambda x: x**2 - 2, 0.0, 2.0), 6)
        1.414214
    """
    return float(cast(Any, brentq)(function, low, high, xtol=1e-300, rtol=relative, maxiter=1000))


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
