"""Quadrature over the noise of Poisson-subsampled Gaussian steps, on lines of the complex plane.

A characteristic function is a weighted sum of exponentials over the nodes of a line (`on_line`), evaluated at many
equally spaced frequencies (`shifted_sum`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr

from tacit.accounting.pld.rounding import UNIT
from tacit.mechanisms.pairs import SampledGaussian
from tacit.root_finding import bisect

_LONGEST = 20_000  # More nodes than this are not worth a search for the ends.
# Depths of the strip as shares of 0.98 pi sigma, where the logarithm has its cut, or of 3.
_DEPTHS = np.array([0.1, 0.2, 0.4, 0.65, 0.95])
_GROWTH = 5.0  # log of how much larger than the moment a raised integrand may be: two digits of rounding.
_RAISES = np.array([0.0, 1.0])  # Heights to try, in depths of the strip.


def log_mix(rate: complex, y: np.ndarray) -> np.ndarray:
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
    whole: bool = False,
    tail_weight: TailWeight | None = None,
) -> Line:
    """The pair at u + i height; the standard normal law of u is that of N_0. `whole` keeps complex parameters.

    Of every outcome the share of `tail_weight` is taken.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        u: real parts of the points, in standard deviations of the noise.
        step: distance of the points, > 0.
        height: imaginary part of the points.
        whole: whether to keep complex parameters at height 0.
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
    return (
        Line(step, height, u, log_mass, loss)
        if height or whole
        else Line(step, 0.0, u, np.real(log_mass), np.real(loss))
    )


def varied(pair: SampledGaussian, sigma: complex, rate: complex) -> SampledGaussian:
    """The pair with other parameters, which may be complex for `on_line` only."""
    return replace(pair, sigma=sigma, rate=rate)


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
    margin = float(np.sqrt(-2 * log_cut))
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
    heavy = (tilted > tilted.max() + log_cut) | (line.log_mass > log_cut) | (line.log_mass - line.loss > log_cut)
    kept = np.flatnonzero(heavy)
    return float(u[kept[0]]) - coarse, float(u[kept[-1]]) + coarse


def weighted_reach(
    pair: SampledGaussian, thetas: tuple[float, float], tail_weight: TailWeight, log_cut: float
) -> tuple[tuple[float, float], float] | None:
    """An interval of u outside of which the weighted masses, tilted or not, are relatively below e^log_cut.

    With it, log of the weighted mass under the first tilt, roughly. Outcomes far beyond the threshold of the weight
    are left out (`TailWeight.beyond`); None where a tilt makes them matter.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        thetas: the tilts, the one of the moment first.
        tail_weight: share of every outcome that is taken.
        log_cut: log of the relative mass that is negligible, < 0.
    """
    low, high = _roots(pair, max(thetas))
    margin = float(np.sqrt(-2 * log_cut))
    end = tail_weight.last if tail_weight.end is None else max(high + margin, tail_weight.end + margin)
    u = np.linspace(low - margin, max(end, tail_weight.place + 1.0), 4000)
    line = on_line(pair, u, float(u[1] - u[0]), 0.0, tail_weight=tail_weight)
    kept = np.zeros(len(u), dtype=bool)
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


def choose_line(
    pair: SampledGaussian, theta: float, log_moment: float, ends: tuple[float, float],
    largest_t: float, log_tolerance: float, tail_weight: TailWeight | None = None,
) -> tuple[float, float]:  # fmt: skip
    """(step, height) of the coarsest trapezoid rule whose error, relative to the moment, is below e^log_tolerance.

    For an integrand g that is analytic between the lines height -+ d the error of step h is at most
    (I_- + I_+) / (e^{2 pi d / h} - 1), I the integral of |g| on either line (Trefethen & Weideman 2014, Theorem 5.1).
    g holds e^{i t loss}, which falls on one side of the real line for every t >= 0: raising the nodes to that side
    makes the error independent of t.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        theta: tilt, >= 0.
        log_moment: log E e^{theta loss}, of the moment that the error is relative to.
        ends: interval of u outside of which the integrand is negligible.
        largest_t: largest frequency, >= 0.
        log_tolerance: log of the relative error, < 0.
        tail_weight: share of every outcome that is taken; all by default.
    """
    sign = pair.loss_sign
    coarse = max(min(0.4, 0.5 * pair.sigma), (ends[1] - ends[0]) / 2000)
    u = np.arange(ends[0], ends[1] + coarse, coarse)
    best = (0.0, 0.0)
    raises = _RAISES if largest_t > 0 else _RAISES[:1]
    for depth in np.minimum(0.98 * np.pi * pair.sigma * _DEPTHS, 3.0 * _DEPTHS):
        for height in depth * raises:
            if depth + height > 0.97 * np.pi * pair.sigma or height > 1.6:
                continue
            if height and _log_size(pair, u, sign * height, theta, 0.0, tail_weight) > log_moment + _GROWTH:
                continue
            far = _log_size(pair, u, sign * (height + depth), theta, largest_t, tail_weight)
            near = far if largest_t == 0 else _log_size(pair, u, sign * (height - depth), theta, largest_t, tail_weight)
            bound = np.logaddexp(far, near)
            need = max(bound - log_moment + np.log(2.0), 0.0) - log_tolerance
            best = max(best, (2 * np.pi * depth / need, sign * height))
    return best


def _log_size(
    pair: SampledGaussian, u: np.ndarray, height: float, theta: float, largest_t: float, tail_weight: TailWeight | None
) -> float:
    line = on_line(pair, u, float(u[1] - u[0]), height, tail_weight=tail_weight)
    exponent = np.real(line.log_mass) + theta * np.real(line.loss) + largest_t * np.maximum(-np.imag(line.loss), 0.0)
    top = float(exponent.max())
    return top + float(np.log(np.exp(exponent - top).sum()))


def slope(pair: SampledGaussian, u: np.ndarray) -> np.ndarray:
    """|d loss / du| on the real line: the posterior weight of the shifted component, over sigma."""
    half = 0.5 / pair.sigma**2

    def weight(x: np.ndarray) -> np.ndarray:
        y = x / pair.sigma - half
        return np.exp(np.log(pair.rate) + y - np.real(log_mix(pair.rate, y)))

    total = weight(u) + (weight(-u) if pair.symmetric else 0.0)
    return total / pair.sigma


def log1p(z: np.ndarray) -> np.ndarray:
    """log(1 + z), keeping the relative digits of small z, which numpy's own loses for complex arguments."""
    x, y = np.real(z), np.imag(z)
    value = 0.5 * np.log1p(np.maximum(2 * x + x * x + y * y, -0.75)) + 1j * np.arctan2(y, 1 + x)
    large = np.abs(x) + np.abs(y) > 0.5
    if large.any():
        with np.errstate(divide="ignore"):
            value.real[large] = np.log(np.abs(1 + z[large]))
    return value


def moment_rounding(log_mass: np.ndarray, loss: np.ndarray, theta: float, log_moment: float) -> float:
    """A bound on the rounding error of log sum e^{log_mass + theta loss}.

    Each term has a relative error of at most a few units of its exponent, and their average under the tilt counts. A
    small moment is sum e^{log_mass} (e^{theta loss} - 1 + theta (e^{-loss} - 1)): its terms have relative errors of
    that kind too, and lose units of theta |loss|, the size of what cancels.

    Args:
        log_mass: log of the P-mass of each node.
        loss: loss of each node.
        theta: tilt.
        log_moment: the log of the sum.
    """
    weights = np.exp(log_mass + theta * loss - log_moment)
    change = np.minimum(np.abs(theta * loss), 1.0)
    size = weights @ (change * (4 + np.abs(log_mass) + theta * np.abs(loss)))
    if abs(log_moment) > 0.5:
        size = weights @ (4 + np.abs(log_mass) + theta * np.abs(loss))
    return 4 * UNIT * float(size)


_CHUNK = 1024  # Nodes of one matrix product, which bounds the memory.


def shifted_sum(
    weights: np.ndarray, offset: np.ndarray, t: np.ndarray, spacing: float
) -> tuple[np.ndarray, np.ndarray]:
    """sum_k w_k (e^{i t l_k} - 1) for complex w and l, and the sum of sizes that its rounding error scales with.

    The t are multiples of `spacing`. With t = (row a + b) spacing the sum is a product of two matrices: of
    e^x - 1 = A at the multiples of row and e^y - 1 = B below row, e^{x + y} - 1 = A B + A + B keeps its digits.

    Args:
        weights: w, complex, shape (nodes,).
        offset: l, complex, shape (nodes,).
        t: frequencies, multiples of `spacing`, shape (frequencies,).
        spacing: distance of the frequencies, > 0.
    """
    index = np.rint(t / spacing).astype(int)
    row = 1 << int(np.ceil(np.log2(len(t) + 1) / 2))
    heads, place = np.unique(index // row, return_inverse=True)
    value = np.zeros((len(heads), row), dtype=complex)
    size = np.zeros((len(heads), row))
    for start in range(0, len(weights), _CHUNK):
        part = slice(start, start + _CHUNK)
        w, mass, step = weights[part], np.abs(weights[part]), 1j * spacing * offset[part]
        a, b = (np.expm1(np.multiply.outer(count, step)) for count in (heads * row, np.arange(row)))
        value += (a * w) @ b.T + (a @ w)[:, None] + b @ w
        a, b = np.abs(a), np.abs(b)
        size += (a * mass) @ b.T + (a @ mass)[:, None] + b @ mass
    drift = t * float(np.abs(weights) @ np.abs(offset))
    return value[place, index % row], size[place, index % row] + drift
