"""Quadrature over the noise of Poisson-subsampled Gaussian steps, on lines of the complex plane.

A characteristic function is a weighted sum of exponentials over the nodes of a line (`on_line`), evaluated at many
equally spaced frequencies (`node_sums.shifted_sum`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from tacit.mechanisms.pairs import SampledGaussian
from tacit.root_finding import bisect

_LONGEST = 20_000  # More nodes than this are not worth a search for the ends.


def log_mix(rate: float, y: np.ndarray) -> np.ndarray:
    """log(1 - rate + rate e^y) for complex y with |Im y| < pi, keeping the digits of small results."""
    real, imag = np.real(y), np.imag(y)
    growth = np.expm1(np.minimum(real, 30.0))
    moved = rate * (growth * np.cos(imag) - 2 * np.sin(imag / 2) ** 2 + 1j * (growth + 1) * np.sin(imag))
    value = log1p(moved)
    deep = moved.real < -0.5
    if deep.any():
        mixed = (1 - rate) + rate * (growth[deep] + 1) * np.exp(1j * imag[deep])
        with np.errstate(divide="ignore"):
            value[deep] = np.log(np.abs(mixed)) + 1j * np.angle(mixed)
    big = real > 30.0
    if big.any():
        value[big] = y[big] + np.log(rate) + (1 - rate) / rate * np.exp(-y[big])
    return value


@dataclass(frozen=True)
class TailWeight:
    """Of each outcome u the share Phi((place - u) / softness), or of the rest the share Phi((end - u) / softness)."""

    place: float
    softness: float
    end: float | None = None

    def log_weight(self, z: np.ndarray) -> np.ndarray:
        """Return log of the share at complex u, an entire function."""
        if self.end is None:
            return log_ndtr((self.place - z) / self.softness)
        return log_ndtr((z - self.place) / self.softness) + log_ndtr((self.end - z) / self.softness)

    def log_most(self, u: np.ndarray, half: float) -> np.ndarray:
        """Return log of the largest share within `half` of each real u."""
        if self.end is None:
            return log_ndtr((self.place - u + half) / self.softness)
        return log_ndtr((u + half - self.place) / self.softness) + log_ndtr((self.end - u + half) / self.softness)

    def log_least(self, edges: np.ndarray) -> np.ndarray:
        """Return log of the least share between neighbouring edges: it is at one of them, as shares are log-concave."""
        at = np.real(self.log_weight(edges))
        return np.minimum(at[:-1], at[1:])

    def growth(self, height: np.ndarray) -> np.ndarray:
        """Return log of how much larger the share may be at u + i height: |Phi(x + iy)| <= e^(y^2 / 2) Phi(x)."""
        return (1 if self.end is None else 2) * (height / self.softness) ** 2 / 2

    @property
    def last(self) -> float:
        """Beyond it nothing is taken of the first share, which is below e^-120 there."""
        return self.place + 15 * self.softness

    def beyond(self, shift: float) -> float:
        """Return log of a bound on what neither share takes, for u normal around `shift`."""
        beyond = float(log_ndtr((shift - (self.end or np.inf)) / np.hypot(1.0, self.softness)))
        return float(np.logaddexp(beyond, log_ndtr(-15.0) + log_ndtr(shift - self.last)))


@dataclass(frozen=True)
class Line:
    """Nodes on Im u = height (u is the noise in standard deviations): log of P-mass times step, and the loss."""

    step: float
    height: float
    u: np.ndarray
    log_mass: np.ndarray
    loss: np.ndarray


def on_line(
    pair: SampledGaussian,
    u: np.ndarray,
    step: float,
    height: float,
    *,
    tail_weight: TailWeight | None = None,
) -> Line:
    """The pair at u + i height; the standard normal law of u is that of N_0.

    Of every outcome the share of `tail_weight` is taken.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        u: real parts of the points, in standard deviations of the noise.
        step: distance of the points, > 0.
        height: imaginary part of the points.
        tail_weight: share of every outcome that is taken; all by default.
    """
    z = u + 1j * height if height else u.astype(complex)
    half = 0.5 / pair.sigma**2
    up = log_mix(pair.rate, z / pair.sigma - half)
    if pair.symmetric:
        loss = up - log_mix(pair.rate, -z / pair.sigma - half)
        log_ratio = up
    else:
        loss, log_ratio = (up, up) if pair.loss_sign > 0 else (-up, 0.0)
    log_mass = -(z**2) / 2 + log_ratio + (np.log(step) - 0.5 * np.log(2 * np.pi))
    if tail_weight:
        log_mass = log_mass + tail_weight.log_weight(z)
    return Line(step, height, u, log_mass, loss) if height else Line(step, 0.0, u, np.real(log_mass), np.real(loss))


def reach(pair: SampledGaussian, theta: float, log_cut: float, log_ignored: float) -> tuple[float, float] | None:
    """An interval of u outside of which P- and tilted P-masses are below e^log_cut of their largest; None if too long.

    The log density of the tilted mass falls like a normal law's beyond the largest root of u = F(u) / sigma, F the tilt
    times the posterior weight of the shifted component; the iteration comes down to that root from above.

    A far mode is left out where it is negligible under the tilt, or where its P-mass is below e^log_ignored and a
    valley of negligible tilted mass lies before it: the caller adds that P-mass to its error.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        theta: tilt, >= 0.
        log_cut: log of the relative mass that is negligible, < 0.
        log_ignored: log of the P-mass that a far mode may have to be left out.
    """
    margin = float(np.sqrt(-2 * log_ignored))
    low, high = _roots(pair, theta)
    low, high = low - margin, high + margin
    if pair.loss_sign > 0:
        for more in (0.0, 15.0, 30.0, 60.0, 120.0):
            capped = 1 / pair.sigma + float(np.sqrt(2 * (more - log_ignored)))
            if capped < high and _ends_light(pair, theta, capped, log_cut):
                high = capped
                break
    coarse = min(0.25, pair.sigma / 2)
    if (high - low) / coarse > _LONGEST:
        return None
    u = np.arange(low, high + coarse, coarse)
    line = on_line(pair, u, coarse, 0.0)
    tilted = line.log_mass + theta * line.loss
    heavy = (tilted > tilted.max() + log_cut) | (line.log_mass > log_ignored) | (line.log_mass - line.loss > log_cut)
    kept = np.flatnonzero(heavy)
    return float(u[kept[0]]) - coarse, float(u[kept[-1]]) + coarse


def weighted_reach(
    pair: SampledGaussian, thetas: tuple[float, float], tail_weight: TailWeight, log_cut: float, log_ignored: float
) -> tuple[tuple[float, float], float] | None:
    """An interval of u outside of which the weighted masses, tilted or not, are relatively below e^log_cut.

    P-masses there are also below e^log_ignored, since the caller adds them to its error. With it, log of the weighted
    mass under the first tilt, roughly. Outcomes far beyond the threshold of the weight are left out
    (`TailWeight.beyond`); None where a tilt makes them matter.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        thetas: the tilts, the one of the moment first.
        tail_weight: share of every outcome that is taken.
        log_cut: log of the relative mass that is negligible, < 0.
        log_ignored: log of the P-mass that may be left out, < 0.
    """
    low, high = _roots(pair, max(thetas))
    margin = float(np.sqrt(-2 * min(log_cut, log_ignored)))
    end = tail_weight.last if tail_weight.end is None else max(high + margin, tail_weight.end + margin)
    u = np.linspace(low - margin, max(end, tail_weight.place + 1.0), 4000)
    line = on_line(pair, u, float(u[1] - u[0]), 0.0, tail_weight=tail_weight)
    kept = line.log_mass > log_ignored
    log_moment = 0.0
    for theta in (-1.0, 0.0, *thetas[::-1]):
        tilted = line.log_mass + theta * line.loss
        kept |= tilted > tilted.max() + log_cut
        log_moment = float(tilted.max() + np.log(np.exp(tilted - tilted.max()).sum()))
    if kept[-1]:
        return None
    place = np.flatnonzero(kept)
    if not len(place):
        return None  # Weights that vanish, or moments beyond the doubles, tell of no place.
    return (float(u[max(place[0] - 1, 0)]), float(u[min(place[-1] + 1, len(u) - 1)])), log_moment


def _ends_light(pair: SampledGaussian, theta: float, end: float, log_cut: float) -> bool:
    """Whether the tilted density on the last two units before `end` is negligible against its largest before them."""
    line = on_line(pair, np.linspace(-12.0, end, 400), 1.0, 0.0)
    tilted = line.log_mass + theta * line.loss
    return bool(tilted[line.u > end - 2.0].max() < tilted.max() + log_cut)


def _roots(pair: SampledGaussian, theta: float) -> tuple[float, float]:
    half, p = 0.5 / pair.sigma**2, pair.rate

    def weight(u: float) -> float:
        y = u / pair.sigma - half
        return p / (p + (1 - p) * math.exp(min(-y, 700.0)))

    if pair.loss_sign < 0:
        low, _ = bisect(lambda u: u + theta * weight(u) / pair.sigma < 0, -theta / pair.sigma, 0.0, width=0.05)
        return low, 1 / pair.sigma
    power = theta + 1
    other = theta * weight(0.0) if pair.symmetric else 0.0
    top = (power + other) / pair.sigma
    for _ in range(100):
        lower = (power * weight(top) + other) / pair.sigma
        if top - lower < 0.05:
            break
        top = lower
    left = -1 / pair.sigma if pair.symmetric else 0.0
    return left, max(top, 1 / pair.sigma)


def mixes(pair: SampledGaussian, z: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Y and log(1 - rate + rate e^y) of each mixture at noise z."""
    places = [sign * z / pair.sigma - 0.5 / pair.sigma**2 for sign in (1.0, -1.0)[: 2 if pair.symmetric else 1]]
    return [(y, log_mix(pair.rate, y)) for y in places]


def posterior(pair: SampledGaussian, z: np.ndarray) -> list[np.ndarray]:
    """Posterior weights of the shifted components at noise z, one for each mixture."""
    return [np.exp(np.log(pair.rate) + y - mix) for y, mix in mixes(pair, z)]


def log1p(z: np.ndarray) -> np.ndarray:
    """log(1 + z), keeping the relative digits of small z, which numpy's own loses for complex arguments."""
    x, y = np.real(z), np.imag(z)
    value = 0.5 * np.log1p(np.maximum(2 * x + x * x + y * y, -0.75)) + 1j * np.arctan2(y, 1 + x)
    large = np.abs(x) + np.abs(y) > 0.5
    if large.any():
        with np.errstate(divide="ignore"):
            value.real[large] = np.log(np.abs(1 + z[large]))
    return value
