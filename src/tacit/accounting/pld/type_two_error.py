"""Bounds on the least type II error at one type I error: one concave maximisation over exact values of delta.

With delta(-e) = 1 - e^-e (1 - delta(e)) the symmetric trade-off function is beta(alpha) = max_s phi(s) over s > 0,
phi(s) = 1 - delta(log s) - alpha s, and phi is concave, since delta is convex in e^epsilon. Every phi(s) is a lower
bound. The maximum lies between two points that are lower than two points between them, where secants bound phi.

Source: Dong, Roth & Su 2022, Proposition 2.13, for the maximum; secants of a concave function for its bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.accounting.pld.rounding import UNIT

Interval = tuple[float, float]
Delta = Callable[[float], Interval]
"""Lower and upper bound on delta at an epsilon >= 0."""

_UNITS = (
    16.0  # Units that phi loses, of its largest term: three terms, and the logarithm of s with its slope (Lemma 10.1).
)
# Distances of the points around the maximum in log s, also relative to its place; the closest at which their order is
# certain counts.
_DISTANCES = (3e-6, 3e-5, 3e-4, 1e-3, 3e-3, 1e-2)
_MOVES, _EDGE = 6, 0.02  # Intervals to look in, and the share of one at whose ends the next one begins.
_CLOSE, _FARTHEST = 1e-7, 700.0  # Accuracy of the place, relative to it below 1, and the largest log of s.


def type_two_error(alpha: float, epsilons: np.ndarray, deltas: np.ndarray, near: Callable[[float], Delta]) -> Interval:
    """Lower and upper bound on beta(alpha); the upper one is 1 - alpha where the maximum cannot be enclosed.

    Args:
        alpha: type I error, in (0, 1).
        epsilons: increasing, from 0, shape (points,).
        deltas: rough values of delta there.
        near: `near(epsilon)` gives bounds on delta that are narrow around that epsilon.
    """
    place = _maximum(alpha, epsilons, deltas, near)
    high, delta = 1.0 - alpha, near(abs(place))
    low = max(_phi(alpha, math.exp(place), delta)[0], 0.0)
    for distance in sorted({*_DISTANCES, *(min(abs(place), 1.0) * each for each in _DISTANCES)} - {0.0}):
        points = np.exp(place) * (1 + distance * np.array([-1.5, -0.5, 0.5, 1.5]))
        values = [_phi(alpha, float(s), delta) for s in points]
        low = max(low, *(value[0] for value in values))
        if values[0][1] < values[1][0] and values[3][1] < values[2][0]:
            return low, max(min(high, _above(points, values)), low)
    return low, high


def _maximum(alpha: float, epsilons: np.ndarray, deltas: np.ndarray, near: Callable[[float], Delta]) -> float:
    """Log s at about the maximum of phi."""
    from scipy.optimize import minimize_scalar  # Takes a while to load, and few ask for it.

    reached = epsilons <= _FARTHEST
    epsilons, deltas = epsilons[reached], deltas[reached]
    logs = np.concatenate([-epsilons[:0:-1], epsilons])
    rough = np.concatenate([deltas[:0:-1], deltas])
    at = int(np.argmax([_value(alpha, math.exp(e), d) for e, d in zip(logs.tolist(), rough.tolist(), strict=True)]))
    place, left, right = (float(logs[min(max(at + k, 0), len(logs) - 1)]) for k in (0, -1, 1))
    for _ in range(_MOVES):
        quick = near(abs(place))

        def loss(log_s: float, quick: Delta = quick) -> float:
            return -_value(alpha, math.exp(log_s), sum(quick(abs(log_s))) / 2)

        accuracy = _CLOSE * min(max(abs(left), abs(right)), 1.0)
        found: Any = minimize_scalar(loss, bounds=(left, right), method="bounded", options={"xatol": accuracy})
        place, width = float(found.x), right - left
        if left + _EDGE * width < place < right - _EDGE * width:
            break
        left, right = max(place - width, -_FARTHEST), min(place + width, _FARTHEST)
    return place


def _value(alpha: float, s: float, delta: float) -> float:
    """phi(s), with `delta` that at |log s|."""
    return 1 - delta - alpha * s if s >= 1 else s * (1 - alpha - delta)


def _phi(alpha: float, s: float, delta: Delta) -> Interval:
    low, high = delta(abs(math.log(s)))
    unsure = (_UNITS + abs(math.log(s))) * UNIT * (1 + alpha * s if s >= 1 else s)
    return _value(alpha, s, high) - unsure, _value(alpha, s, low) + unsure


def _above(points: np.ndarray, values: list[Interval]) -> float:
    """The largest value of a concave function between the outer points, from intervals of it at four points.

    Left of the second point it lies below the secant of the second and the third, between these below that of the
    first and the second, and right of the third below that of the second and the third again.
    """
    gaps = np.diff(points)
    rising = max((values[1][1] - values[0][0]) / gaps[0], 0.0)
    steepest = (values[2][1] - values[1][0]) / gaps[1], (values[2][0] - values[1][1]) / gaps[1]
    return max(
        values[1][1] + max(-steepest[1], 0.0) * gaps[0],
        values[1][1] + rising * gaps[1],
        values[2][1] + max(steepest[0], 0.0) * gaps[2],
    )
