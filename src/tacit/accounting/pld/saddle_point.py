"""Where to integrate: the saddle of a question, and the period that keeps its aliases below a tolerance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from tacit.accounting.pld.rounding import UNIT
from tacit.root_finding import bisect

SMALLEST = 1e-290
"""Masses below it, near the smallest double, have lost their relative precision."""
MOST_SCALE = 500.0
"""log of the scale from which on a sum says nothing: values relative to it underflow, and underflow is not counted."""


class Summand(ABC):
    """One kind of step in a sum of independent losses, which runs `steps` times."""

    steps: int

    @abstractmethod
    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step, for any real theta that the saddle needs."""

    @abstractmethod
    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""


Part = TypeVar("Part", bound=Summand, covariant=True)


class CompositionCumulant(Generic[Part]):
    """K(theta) = log E_P[e^{theta L}; L finite] of independent steps, for tilts in [low, high]."""

    def __init__(self, parts: Sequence[Part], low: float = 1e-9, high: float = 1e13):
        self.parts, self.low, self.high = parts, low, high

    def __call__(self, theta: float) -> float:
        """Return K at theta."""
        return sum(part.steps * part.log_moment(theta) for part in self.parts)

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return K, K' and K'' at theta."""
        derivatives = [(part.steps, part.cumulant_derivatives(theta)) for part in self.parts]
        value, first, second = (sum(steps * found[k] for steps, found in derivatives) for k in range(3))
        return value, first, second


@dataclass(frozen=True)
class Saddle:
    """The saddle theta of K(z) - z epsilon - log z(z+1), log delta as it approximates it, and the spread."""

    theta: float
    epsilon: float
    log_delta: float
    spread: float


def saddle_at(cumulant: CompositionCumulant[Summand], theta: float) -> Saddle:
    """The question whose saddle is `theta`."""
    value, first, second = cumulant.cumulant_derivatives(theta)
    epsilon = first - 1 / theta - 1 / (1 + theta)
    curvature = second + 1 / theta**2 + 1 / (1 + theta) ** 2
    log_delta = value - theta * epsilon - np.log(theta) - np.log1p(theta) - 0.5 * np.log(2 * np.pi * curvature)
    return Saddle(theta, epsilon, float(log_delta), float(curvature**0.5))


def saddle_for_delta(cumulant: CompositionCumulant[Summand], log_delta: float) -> Saddle:
    """The saddle where the saddle-point value of log delta is `log_delta`, or that of epsilon = 0 if it lies below."""
    found = _search(lambda saddle: saddle.log_delta > log_delta, cumulant)
    return found if found.epsilon > 0 else saddle_for_epsilon(cumulant, 0.0)


def saddle_for_epsilon(cumulant: CompositionCumulant[Summand], epsilon: float) -> Saddle:
    """The saddle of `epsilon`; its theta is capped where epsilon is at or beyond the largest loss."""
    return _search(lambda saddle: saddle.epsilon < epsilon, cumulant)


def _search(too_low: Callable[[Saddle], bool], cumulant: CompositionCumulant[Summand]) -> Saddle:
    saddle = saddle_at(cumulant, 1.0)

    def below(log_theta: float) -> bool:
        nonlocal saddle
        saddle = saddle_at(cumulant, float(np.exp(log_theta)))
        return too_low(saddle)

    # A tilt to a thousandth is enough: bounds hold at any tilt, and change to second order near the best.
    bisect(below, float(np.log(cumulant.low)), float(np.log(cumulant.high)), halvings=40, width=1e-3)
    return saddle


@dataclass(frozen=True)
class Aliases:
    """Chernoff bounds on the copies delta(epsilon + k R), k != 0, that a trapezoid rule of step 2 pi / R adds.

    For every u > theta, delta(x) <= e^{K(u) - u x} u^u / (1 + u)^(1 + u), which bounds the copies above; for
    -1 <= u <= 0, 1 - delta(x) <= e^{K(u) - u x} with total mass in place of 1, so that the copies below are
    e^{K(0)} e^{-theta R} / (1 - e^{-theta R}) up to a small error.
    """

    theta: float
    rates: np.ndarray
    values: np.ndarray
    mass: float

    @classmethod
    def of(cls, cumulant: Callable[[float], float], theta: float, *, largest: float = np.inf) -> Aliases:
        """The bounds of tilts up to `largest`, up to which `cumulant` must be exact or an upper bound."""
        above = theta * np.array([1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0, 30.0, 100.0])
        above = np.append(above, [theta + 1, theta + 5])
        above = above[above <= largest]
        rates = np.concatenate([[-1.0, -0.9, -0.75, -0.5, -0.35, -0.2, -0.1, -0.03, -0.01, -0.003], above])
        return cls(theta, rates, np.array([cumulant(float(rate)) for rate in rates]), float(cumulant(0.0)))

    def above(self, epsilon: float, period: float) -> float:
        """Return log of a bound on sum_{k >= 1} e^{theta k R} delta(epsilon + k R)."""
        u, value = self.rates[self.rates > self.theta], self.values[self.rates > self.theta]
        with np.errstate(divide="ignore"):
            ratio = np.log(-np.expm1((self.theta - u) * period))
        bound = value - u * epsilon + u * np.log(u) - (1 + u) * np.log1p(u) + (self.theta - u) * period - ratio
        return float(bound.min())

    def below(self, epsilon: float, period: float) -> tuple[float, float]:
        """sum_{k >= 1} e^{-theta k R} delta(epsilon - k R) as (log of its largest value, log of its uncertainty)."""
        scale = -self.theta * period
        largest = self.mass + scale - np.log(-np.expm1(scale))
        u, value = self.rates[self.rates < 0], self.values[self.rates < 0]
        gap = (u - self.theta) * period
        bound = value - u * epsilon + gap - np.log(-np.expm1(gap))
        return float(largest), float(min(bound.min(), largest))

    def log_error(self, epsilon: float, period: float) -> float:
        """Return log of everything that is not known about the copies."""
        return float(np.logaddexp(self.above(epsilon, period), self.below(epsilon, period)[1]))

    def bounds(
        self, epsilon: float, period: float, moment: tuple[float, float], value: float, error: float, moved: float = 0.0
    ) -> tuple[float, float]:
        """Bounds on delta(epsilon) less infinite losses, from the sum that holds the copies as well.

        Args:
            epsilon: where delta is asked.
            period: distance R of the copies.
            moment: K(theta) and the bound on its error.
            value: the sum in units of e^{K - theta epsilon}.
            error: bound on its error.
            moved: what the sum may exceed delta by besides.
        """
        log_moment, rounding = moment
        log_scale = log_moment - self.theta * epsilon
        if not log_scale <= MOST_SCALE:
            return 0.0, 1.0
        above = _exp(self.above(epsilon, period) - log_scale)
        below, unsure = (_exp(log - log_scale) for log in self.below(epsilon, period))
        exponent = rounding + 8 * UNIT * (2 + abs(log_moment) + abs(self.theta * epsilon))
        error += 2 * exponent * below
        above, unsure = 2 * above, 2 * unsure  # Twice, for the rounding of the moments in Chernoff's bounds.
        low = _exp(log_scale - exponent) * max(value - error - above - below - moved, 0.0)
        high = _exp(log_scale + exponent) * max(value + error - below + unsure, 0.0)
        return low, high


def _exp(x: float) -> float:
    return float(np.exp(min(x, 700.0)))


def log_chernoff(rate: float, value: float, epsilon: float) -> float:
    """Return log of the Chernoff bound on delta(epsilon), from K(rate) = value."""
    return value - rate * epsilon + rate * np.log(rate) - (1 + rate) * np.log1p(rate)


def period_for(aliases: Aliases, epsilon: float, log_tolerance: float, smallest: float) -> float:
    """The smallest period, to a few percent, whose unknown aliases stay below e^log_tolerance.

    Args:
        aliases: bounds on the aliases of a period.
        epsilon: where delta is asked.
        log_tolerance: log of the largest error allowed.
        smallest: period to begin with, > 0.
    """
    low, high = smallest, smallest
    while aliases.log_error(epsilon, high) > log_tolerance and high < 1e12 * smallest:
        low, high = high, high * 2
    # Five halvings in log of a factor of 2 leave the period 2 % too long at most.
    return bisect(
        lambda period: not aliases.log_error(epsilon, period) <= log_tolerance, low, high, halvings=5, geometric=True
    )[1]
