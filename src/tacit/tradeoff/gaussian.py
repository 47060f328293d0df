"""Gaussian differential privacy in closed form (Dong, Roth & Su 2019), accurate far into the tails.

Trade-off functions from tangents: the lines that points of a privacy profile bound errors and powers of tests by.
"""

import numpy as np
from scipy.special import erf, erfcx, log_ndtr, ndtr, ndtri

from tacit.root_finding import bracketed_root

_SQRT2 = np.sqrt(2.0)
_CLOSE = 1e-2  # up to this mu three points of Gauss and Legendre miss 1e-18 of the integral
_POINTS, _WEIGHTS = 0.5 + np.sqrt(0.15) * np.array([-1.0, 0.0, 1.0]), np.array([5.0, 8.0, 5.0]) / 18
_LARGE = 1e3  # from this mu on the digits of epsilon are those of mu^2 / 2


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Profile delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) of a mu-GDP mechanism.

    `epsilon` >= 0. Far in the tail it is written as phi(t) (R(t) - R(t + mu)), t = eps/mu - mu/2, R the Mills ratio, so
    that it keeps its digits down to the smallest double.
    """
    if mu == 0.0:
        return 0.0
    if np.isinf(mu):
        return 1.0
    if epsilon == 0.0:
        return float(erf(mu / (2 * _SQRT2)))
    return _delta_at(epsilon / mu - mu / 2, mu)


def _delta_at(t: float, mu: float) -> float:
    """The delta at epsilon = mu t + mu^2 / 2."""
    density = np.exp(-t * t / 2) / np.sqrt(2 * np.pi)
    if t < -5.0:  # the Mills ratio overflows far on this side
        return float(ndtr(-t) - density * _mills(t + mu))
    return float(max(density * _mills_fall(t, mu), 0.0))


def _mills(t: np.ndarray | float) -> np.ndarray:
    return np.sqrt(np.pi / 2) * erfcx(t / _SQRT2)


def _mills_fall(t: float, mu: float) -> float:
    """R(t) - R(t + mu); of close points, whose difference has no digits, the integral of -R'(s) = 1 - s R(s)."""
    if mu > _CLOSE or np.isinf(t):
        return float(_mills(t) - _mills(t + mu))
    return mu * float(_WEIGHTS @ [1 - s * _mills(s) for s in t + mu * _POINTS])


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """The log of `gaussian_delta`, also where that underflows."""
    if epsilon == 0.0:
        return float(np.log(gaussian_delta(0.0, mu)))
    return _log_delta_at(epsilon / mu - mu / 2, mu)


def _log_delta_at(t: float, mu: float) -> float:
    """The log of `_delta_at`."""
    if t < 30.0:  # from about 38 on delta underflows
        return float(np.log(_delta_at(t, mu)))
    return float(-t * t / 2 - 0.5 * np.log(2 * np.pi) + np.log(_mills_fall(t, mu)))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """The epsilon >= 0 with `gaussian_delta(epsilon, mu) == delta`; 0 where even epsilon 0 meets delta."""
    if mu == 0.0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    if delta == 0.0 or np.isinf(mu):
        return float("inf")
    target = np.log(delta)
    if mu > _LARGE:
        # Epsilon is mu^2 / 2 plus a small term; the search is for the small term.
        t = bracketed_root(lambda t: _log_delta_at(t, mu) - target, -mu / 2, float(np.sqrt(-2 * target)) + 1)
        return mu * t + mu * mu / 2
    high = mu * mu / 2 + mu * (np.sqrt(-2 * target) + 1)
    return bracketed_root(lambda epsilon: gaussian_log_delta(epsilon, mu) - target, 0.0, high)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu with `gaussian_delta(epsilon, mu) == delta`, for delta in [0, 1)."""
    if delta <= 0.0:
        return 0.0
    high = 1.0
    while gaussian_delta(epsilon, high) < delta:
        high *= 2
        if high > 1e150:  # mu^2 leaves the doubles next; a smaller end would make floors of mu infinite
            return float("inf")
    return bracketed_root(lambda mu: gaussian_delta(epsilon, mu) - delta, 1e-12, high)


def gaussian_beta(alpha: np.ndarray, mu: float) -> np.ndarray:
    """G_mu(alpha) = Phi(Phi^{-1}(1 - alpha) - mu)."""
    return ndtr(-ndtri(np.asarray(alpha, dtype=float)) - mu)


_ROUNDING = 1e-12  # Relative: at most 700 in the exponents, whose last digit is 1e-13.

LEVELS = np.geomspace(1e-30, 1.0, 6000)
"""Levels of the tests of a group: neighbouring ones differ by 1.2 %, which moves epsilon by less than .012."""


@np.errstate(over="ignore", invalid="ignore")
def gaussian_deltas(epsilons: np.ndarray | float, mus: np.ndarray | float) -> np.ndarray:
    """`gaussian_delta` at many epsilons or finite mu."""
    safe = np.maximum(mus, 1e-300)
    t = epsilons / safe - safe / 2
    near = np.maximum(t, -5.0)
    places = [near + safe * point for point in _POINTS]
    close = safe * sum(weight * (1 - s * _mills(s)) for weight, s in zip(_WEIGHTS, places, strict=True))
    density = np.exp(-t * t / 2) / np.sqrt(2 * np.pi)
    fall = density * np.where(safe > _CLOSE, _mills(near) - _mills(near + safe), close)
    value = np.where(t < -5.0, ndtr(-t) - density * _mills(t + safe), np.maximum(fall, 0.0))
    return np.where(mus > 0, value, 0.0)


def covers(mu: float, epsilons: np.ndarray, needed: np.ndarray) -> bool:
    """Whether delta_mu >= the chords of `needed` over e^eps on every interval of the grid."""
    left, right = epsilons[:-1], epsilons[1:]
    covered = (needed[:-1] <= 0.0) | (needed[:-1] <= gaussian_deltas(right, mu))
    for point in ((left + right) / 2, left):
        value = gaussian_deltas(point, mu)
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
