"""Trade-off functions from tangents: the lines that points of a privacy profile bound errors and powers of tests by."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from tacit.tradeoff.gaussian import gaussian_delta

_ROUNDING = 1e-12  # Relative: at most 700 in the exponents, whose last digit is 1e-13.

LEVELS = np.geomspace(1e-30, 1.0, 6000)
"""Levels of the tests of a group: neighbouring ones differ by 1.2 %, which moves epsilon by less than .012."""


def covers(mu: float, epsilons: np.ndarray, needed: np.ndarray) -> bool:
    """Whether delta_mu >= the chords of `needed` over e^eps on every interval of the grid."""
    left, right = epsilons[:-1], epsilons[1:]
    at_right = np.array([gaussian_delta(float(e), mu) for e in right])
    covered = (needed[:-1] <= 0.0) | (needed[:-1] <= at_right)
    for point in ((left + right) / 2, left):
        value = np.array([gaussian_delta(float(e), mu) for e in point])
        fall = np.exp(point + log_ndtr(-point / mu - mu / 2))
        below_left = needed[:-1] <= value - fall * np.expm1(left - point)
        covered |= below_left & (needed[1:] <= value - fall * np.expm1(np.minimum(right - point, 700.0)))
    return bool(np.all(covered))


def tangents(alpha: np.ndarray, epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """The largest type II error that the tangents at these points ask of tests of type I error `alpha`."""
    a = alpha[..., None]
    with np.errstate(over="ignore", invalid="ignore"):
        one = 1 - deltas - np.exp(np.minimum(epsilons, 700.0)) * a
        other = np.exp(-epsilons) * (1 - deltas - a)
    return np.clip(np.maximum(one, other).max(axis=-1), 0.0, 1 - alpha)


def powers_at(levels: np.ndarray, epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Upper bounds on the power of tests at these levels, from tangents; small powers keep their digits."""
    best = np.ones(len(levels))
    for epsilon, delta in zip(epsilons.tolist(), deltas.tolist(), strict=True):
        with np.errstate(over="ignore", divide="ignore"):
            rare = delta + np.exp(np.minimum(epsilon + np.log(levels), 700.0))
        best = np.minimum(best, np.minimum(rare, 1 - np.exp(-epsilon) * (1 - delta - levels)))
    return best * (1 + _ROUNDING)


def repeated(powers: np.ndarray, times: int) -> np.ndarray:
    """Upper bounds at `LEVELS` on the `times`-fold composition of an increasing function with these values there.

    Each of at most 2 log2(times) compositions takes the inner value at the next higher level.

    Example:
        >>> bool(np.all(repeated(np.minimum(2 * LEVELS, 1.0), 3) >= np.minimum(8 * LEVELS, 1.0)))
        True
    """
    found, factor = LEVELS, powers
    while times:
        if times % 2:
            found = _after(factor, found)
        factor, times = _after(factor, factor), times // 2
    return found


def _after(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
    return outer[np.minimum(np.searchsorted(LEVELS, inner), len(LEVELS) - 1)]


def delta_of_powers(epsilon: float, powers: np.ndarray) -> float:
    """max(power - e^epsilon level) for powers that hold at `LEVELS`, between two of which the next higher one does."""
    with np.errstate(over="ignore"):
        false_alarms = np.exp(np.minimum(epsilon + np.log(LEVELS[:-1]), 700.0))
    return max(float(np.max(powers - np.append(0.0, false_alarms))), 0.0)
