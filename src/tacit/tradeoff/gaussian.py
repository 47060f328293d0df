"""Gaussian differential privacy in closed form (Dong, Roth & Su 2019), accurate far into the tails."""

import numpy as np
from scipy.special import erf, erfcx, ndtr, ndtri

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


def _mills(t: float) -> float:
    return float(np.sqrt(np.pi / 2) * erfcx(t / _SQRT2))


def _mills_fall(t: float, mu: float) -> float:
    """R(t) - R(t + mu); of close points, whose difference has no digits, the integral of -R'(s) = 1 - s R(s)."""
    if mu > _CLOSE or np.isinf(t):
        return _mills(t) - _mills(t + mu)
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
