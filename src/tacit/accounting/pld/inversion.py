"""Saddle-line Fourier inversion: delta of a composition at a cost that does not depend on its steps.

delta(epsilon) = (1 / 2 pi) int e^{K(z) - z epsilon} / (z (z + 1)) dt over z = theta + i t, theta > 0, by the trapezoid
rule of step 2 pi / R. Its only errors are the aliases delta(epsilon + k R) (`Aliases`), the terms left out
(`IndependentSum.log_decay`), the quadrature of each moment and rounding (`IndependentSum.transform`).

Where the characteristic function does not decay, as with atoms, a plain Gaussian step of small variance v is composed
with the rest. Its delta D(v) is an upper bound, as one can always leave a result out. With b_w(x) the derivative of
the Gaussian profile delta_w(x) with respect to its variance w, b_w <= sqrt(v / w) e^{(v - w) / 8} b_v for w <= v, so
that D(v) - D(0) = E int_0^v b_w(epsilon - L) dw <= 2 v e^{v / 8} D'(v). Here D'(v) is
(1 / 4 pi) int e^{K(z) - z epsilon} dt, as its own z (z + 1) cancels.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.accounting.pld.rounding import UNIT, pairwise_units
from tacit.accounting.pld.saddle_point import Aliases, Saddle, period_for
from tacit.accounting.pld.step_cumulants import IndependentSum, Unsuitable

_ANGLE = 8.0  # Units of t (|epsilon| + |mean|) that an angle loses: its factors, their difference and the product.
_TERM = 64.0  # Units of a term: a complex exp, a kernel of six operations, cosine and sine, and two products.
_TOLERANCE = -25.0  # log of the relative error of the sum: e^-25 = 1.4e-11, far below the rounding allowance.
_SMOOTHED = -18.0  # The same where smoothing costs more than e^-18 = 1.5e-8 anyway.
_RATIO = 1.15  # Ratio of neighbouring frequencies where the decay is bounded.
# Relative moves of epsilon by smoothing, the smallest that is affordable counts.
_GAPS = (1e-7, 4e-7, 9e-7, 3e-6, 1e-5, 1e-4)
_MOST_SMOOTHING = 0.1  # Largest variance, so that e^{v / 8} stays near 1.
_SMOOTHED_POINTS = 600_000  # Points of a smoothed line, which decays slowly.
_SMOOTHED_COST = 1.5e8  # Points times nodes that a smoothed line may cost: less than a second.
_SMALL = 1e-20  # Relative size below which a term goes into the error.


class _Terms:
    """The sum of Re(w_j e^{-i t_j x}) over the frequencies t_j, those above zero counted twice, and its error.

    Its error counts the angles, the functions and the pairwise sum (Lemma 7.3).
    """

    def __init__(self, phi: np.ndarray, error: np.ndarray, kernel: np.ndarray, t: np.ndarray):
        """Terms phi_j kernel_j, of which phi_j is known to `error`_j."""
        twice = np.where(t > 0, 2.0, 1.0)
        weights, sizes = twice * phi * kernel, twice * np.abs(phi) * np.abs(kernel)
        self._real, self._imaginary = np.real(weights).copy(), np.imag(weights).copy()
        self._size, self._slope = float(sizes.sum()), float((sizes * t).sum())
        self._unsure = float((twice * error * np.abs(kernel)).sum())

    def value(self, cosine: np.ndarray, sine: np.ndarray) -> float:
        """The sum at the angles whose cosine and sine are given."""
        return float((self._real * cosine + self._imaginary * sine).sum())

    def error(self, epsilon: float, mean: float) -> float:
        """Bound on the error of `value`."""
        units = _TERM + pairwise_units(len(self._real))
        angles = _ANGLE * (abs(epsilon) + abs(mean)) * self._slope
        return UNIT * (angles + units * self._size) + self._unsure * (1 + UNIT * units)


@dataclass(frozen=True)
class SaddleLine:
    """delta(epsilon) near the epsilon whose saddle is `theta`, with its certificate."""

    theta: float
    epsilon: float
    period: float
    moment: tuple[float, float]
    """K(theta) and the bound on its error."""
    mean: float
    t: np.ndarray
    phi: np.ndarray
    error: np.ndarray
    tails: tuple[float, float]
    aliases: Aliases
    infinity_mass: float
    smoothing: float
    left_out: float

    @cached_property
    def _terms(self) -> _Terms:
        """Terms of delta."""
        z = self.theta + 1j * self.t
        return _Terms(self.phi, self.error, 1 / (z * (z + 1)), self.t)

    @cached_property
    def _slopes(self) -> _Terms:
        """Terms of D'."""
        return _Terms(self.phi, self.error, np.ones_like(self.phi), self.t)

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon)."""
        turn = self.t * (epsilon - self.mean)
        cosine, sine = np.cos(turn), np.sin(turn)
        smoothed = 0.0
        if self.smoothing:
            rise = self._slopes.value(cosine, sine) + self._slopes.error(epsilon, self.mean)
            rise = rise / (2 * self.period) + self.tails[1]
            smoothed = 2 * self.smoothing * np.exp(self.smoothing / 8) * max(rise, 0.0) * (1 + UNIT * _TERM)
        value = self._terms.value(cosine, sine) / self.period
        error = self._terms.error(epsilon, self.mean) / self.period + self.tails[0]
        low, high = self.aliases.bounds(epsilon, self.period, self.moment, value, error, smoothed)
        # The copies below lack the mass that was left out as well.
        high += self.left_out / -float(np.expm1(-self.theta * self.period))
        finite = 1 - self.infinity_mass
        return self.infinity_mass + min(low, finite), self.infinity_mass + min(high, finite)


def saddle_line(
    loss_sum: IndependentSum,
    saddle: Saddle,
    budget: int,
    infinity_mass: float,
    *,
    smoothing_range: tuple[float, float] = (0.0, 1.0),
) -> SaddleLine | None:
    """The line through a saddle, smoothed if need be; None when its points would cost more than `budget`.

    `infinity_mass` is the P-mass of runs with an infinite loss. Smoothing moves epsilon by about a share of itself
    within `smoothing_range`.

    Args:
        loss_sum: the composition's losses as cumulants.
        saddle: the saddle point, which gives the tilt of the line.
        budget: evaluations of characteristic functions at most.
        infinity_mass: P-mass of an infinite loss, in [0, 1].
        smoothing_range: least and most smoothing allowed, as a share of epsilon.
    """
    if loss_sum.largest < 1.02 * saddle.theta:
        return None
    for gap in (0.0, *(gap for gap in _GAPS if smoothing_range[0] <= gap <= smoothing_range[1])):
        smoothing = min(gap * max(saddle.epsilon, 0.03 / saddle.theta) / (1 + saddle.theta), _MOST_SMOOTHING)
        try:
            line = _line(
                loss_sum.smoothed(smoothing) if smoothing else loss_sum, saddle, budget, smoothing, infinity_mass
            )
        except Unsuitable:
            continue
        if line is not None:
            return line
    return None


def _line(
    loss_sum: IndependentSum, saddle: Saddle, budget: int, smoothing: float, infinity_mass: float
) -> SaddleLine | None:
    theta = saddle.theta
    log_moment = loss_sum(theta)
    log_value = saddle.log_delta - (log_moment - theta * saddle.epsilon)
    aliases = Aliases.of(loss_sum.log_moment_bound, theta, largest=loss_sum.largest)
    period = period_for(aliases, saddle.epsilon, saddle.log_delta + _TOLERANCE, 4 * saddle.spread)
    tolerance, most = (_SMOOTHED, _SMOOTHED_POINTS) if smoothing else (_TOLERANCE, budget)
    found = _points(loss_sum, 2 * np.pi / period, log_value + tolerance, most)
    if found is None or (smoothing and len(found[0]) * loss_sum.nodes(float(found[0][-1])) > _SMOOTHED_COST):
        return None
    t, tails = found
    phi, error = loss_sum.transform(t)
    tails = (tails[0] + float(np.exp(log_value - 40.0)), tails[1])
    size = np.abs(phi) + error
    light = (size < _SMALL * np.exp(min(log_value, 0.0))) & (t > 0)
    tails = (
        tails[0] + float((size[light] / t[light] ** 2).sum()) * 2 / period,
        tails[1] + float(size[light].sum()) / period,
    )
    t, phi, error = t[~light], phi[~light], error[~light]
    moment = log_moment, loss_sum.rounding
    return SaddleLine(
        theta, saddle.epsilon, period, moment, loss_sum.mean, t, phi, error, tails, aliases, infinity_mass, smoothing,
        loss_sum.left_out,
    )  # fmt: skip


def _points(
    loss_sum: IndependentSum, spacing: float, log_tolerance: float, budget: int
) -> tuple[np.ndarray, tuple[float, float]] | None:
    """The multiples of `spacing` that matter, and bounds on what all others add to delta and to D'; None if too many.

    All cells between frequencies of a geometric series are kept but those whose bounds are negligible together.
    """
    if not loss_sum.variance > 0:
        raise Unsuitable
    # The grid begins at a power of its ratio, so that a little smoothing leaves it as it is.
    t = _RATIO ** (np.floor(-0.5 * np.log(loss_sum.variance) / np.log(_RATIO)) + np.arange(161))
    log_phi = loss_sum.log_decay(t)
    low, high = t, np.append(t[1:], np.inf)
    with np.errstate(under="ignore"):
        phi = np.exp(np.append(log_phi, log_phi[-1]))
        cells = phi * (1 / low - 1 / high + spacing / low**2) / np.pi
        slopes = np.append(phi[:-1] * (np.diff(t) + spacing) / (2 * np.pi), 0.0)
    order = np.argsort(cells)
    dropped = order[np.cumsum(cells[order]) <= np.exp(log_tolerance)]
    kept = np.setdiff1d(np.arange(len(cells)), dropped)
    if len(kept) and kept[-1] == len(t) - 1:
        return None
    ranges = [(0.0, float(t[0])), *((float(low[j]), float(high[j])) for j in kept)]
    if sum(b - a for a, b in ranges) / spacing > budget:
        return None
    index = [np.arange(np.floor(a / spacing), np.ceil(b / spacing) + 2) for a, b in ranges]
    return spacing * np.unique(np.concatenate(index)), (float(cells[dropped].sum()), float(slopes[dropped].sum()))
