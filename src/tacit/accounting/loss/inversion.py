"""Saddle-line Fourier inversion: delta of a smooth composition at a cost that does not depend on its steps.

delta(epsilon) = (1 / 2 pi) int e^{K(z) - z epsilon} / (z (z + 1)) dt over z = theta + i t, theta > 0, by the trapezoid
rule of step 2 pi / R. Its only errors are the aliases delta(epsilon + k R) (`Aliases`), the terms left out beyond
the last t (`Smooth.log_decay`), the quadrature of each moment and rounding (`Smooth.log_phi`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accounting.loss.plan import Aliases, Saddle, period_for
from tacit.accounting.loss.smooth import Smooth

_UNIT = 2.0**-53
_TOLERANCE = -25.0
_RATIO = 1.15


@dataclass(frozen=True)
class SaddleLine:
    """delta(epsilon) near the epsilon whose saddle is `theta`, with its certificate."""

    theta: float
    epsilon: float
    period: float
    log_moment: float
    mean: float
    t: np.ndarray
    phi: np.ndarray
    slack: np.ndarray
    tail: float
    aliases: Aliases

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon)."""
        z = self.theta + 1j * self.t
        terms = self.phi * np.exp(-1j * self.t * (epsilon - self.mean)) / (z * (z + 1))
        terms[1:] *= 2
        size = np.abs(terms)
        phase = 4 * _UNIT * self.t * (abs(epsilon) + abs(self.mean))
        value = float(terms.real.sum()) / self.period
        error = float(size @ (np.expm1(np.minimum(self.slack, 50.0)) + phase + 16 * _UNIT)) / self.period + self.tail
        log_scale = self.log_moment - self.theta * epsilon
        exponent = 8 * _UNIT * (abs(self.log_moment) + abs(self.theta * epsilon))
        above = _exp(self.aliases.above(epsilon, self.period) - log_scale)
        below, unsure = (_exp(log - log_scale) for log in self.aliases.below(epsilon, self.period))
        low = _exp(log_scale - exponent) * max(value - error - above - below, 0.0)
        high = _exp(log_scale + exponent) * max(value + error - below + unsure, 0.0)
        return min(low, 1.0), min(high, 1.0)


def saddle_line(parts: Sequence[Smooth], saddle: Saddle, budget: int) -> SaddleLine | None:
    """The line through a saddle; None when more than `budget` points would be needed to certify it."""
    theta = saddle.theta

    def cumulant(rate: float) -> float:
        return sum(part.steps * part.log_moment(rate) for part in parts)

    if min(part.largest for part in parts) < 1.02 * theta:
        return None
    log_moment = cumulant(theta)
    log_value = saddle.log_delta - (log_moment - theta * saddle.epsilon)
    aliases = Aliases.of(cumulant, theta, largest=min(part.largest for part in parts))
    period = period_for(aliases, saddle.epsilon, saddle.log_delta + _TOLERANCE, 4 * saddle.spread)
    found = _last(parts, theta, period, log_value)
    if found is None or found[0] * period / (2 * np.pi) > budget:
        return None
    last, tail = found
    t = 2 * np.pi / period * np.arange(int(np.ceil(last * period / (2 * np.pi))) + 1)
    log_phi, slack = np.zeros(len(t), dtype=complex), np.zeros(len(t))
    mean = 0.0
    for part in parts:
        value, error = part.log_phi(t)
        log_phi += value
        slack += error
        mean += part.steps * part.mean_and_variance()[0]
    return SaddleLine(
        theta,
        saddle.epsilon,
        period,
        log_moment,
        mean,
        t,
        np.exp(log_phi),
        slack,
        tail + np.exp(log_value - 40.0),
        aliases,
    )


def _last(parts: Sequence[Smooth], theta: float, period: float, log_value: float) -> tuple[float, float] | None:
    """(last t, bound on the terms beyond it) such that these stay below the tolerance; None if that is out of reach."""
    variance = sum(part.steps * part.mean_and_variance()[1] for part in parts)
    t = variance**-0.5 * _RATIO ** np.arange(160)
    log_phi = sum((part.steps * part.log_decay(t) for part in parts), np.zeros(len(t) - 1))
    spacing = 2 * np.pi / period
    with np.errstate(under="ignore"):
        cells = np.exp(log_phi) * (1 / t[:-1] - 1 / t[1:] + spacing / t[:-1] ** 2) / np.pi
        beyond = np.exp(log_phi[-1]) * (1 / t[-1] + spacing / t[-1] ** 2) / np.pi
    tails = np.cumsum(np.append(cells, beyond)[::-1])[::-1]
    small = np.flatnonzero(tails <= np.exp(log_value + _TOLERANCE))
    return (float(t[small[0]]), float(tails[small[0]])) if len(small) else None


def _exp(x: float) -> float:
    return float(np.exp(min(x, 700.0)))
