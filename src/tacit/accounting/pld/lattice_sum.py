"""`LatticeSum`: the certified delta of a sum of lattice losses, by FFT of the tilted masses."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tacit.accounting.pld.discrete_cumulants import DiscreteLoss
from tacit.accounting.pld.lattice import RoundedLoss
from tacit.accounting.pld.rounding import COMPLEX_LOGARITHM, LOG_LEAST_TAIL, UNIT, mass_units, pairwise_units
from tacit.accounting.pld.saddle_point import Aliases, CompositionCumulant
from tacit.accounting.pld.step_cumulants import grown
from tacit.mechanisms.pairs.base import Pair

_PASS = 16 * UNIT
"""What one pass of a transform of 5-smooth length loses at most, relative to the sum of its inputs' sizes.

An output of a pass is a sum of at most five inputs times a twiddle factor and a root of unity, both at most 1: 2.3 + 1
rounding units for the complex product and its table, 2.2 for the constant and its product, at most 5 for the additions;
in sum fewer than 16 (Higham 2002, Section 24.1, with the 1-norm in place of the 2-norm, which bounds every output).
"""
_KERNEL = 256.0
"""Units of a term of the sum over frequencies: a phase, four complex expm1, an exp and six operations (Lemma 5.5)."""
NEGLIGIBLE = -46.0  # log of |phi| below which frequencies are dropped: e^-46 = 1e-20.
_REACH = 46.0  # log of the share of the sum over points that is left to a geometric series: e^-46.
_MOST_POINTS = 2.0**53  # Further from the origin the number of a lattice point is no longer exact.
_MANY = 4096  # From so many frequencies on, the sum over lattice points is cheaper.


class LatticeSum:
    """delta(epsilon) of a sum of lattice losses, to be evaluated near the epsilon that `theta` was chosen for.

    With z = theta + i t, delta(epsilon) = e^{K(theta) - theta epsilon} / N sum_j phi(t_j) k(z_j) e^{-i t_j n h}, where
    phi is the transform of the tilted masses, n the first lattice point above epsilon and k(z) = sum over the points
    x from there on of e^{-z (x - epsilon)} (1 - e^{-(x - epsilon)}), a difference of two geometric series. `loss_error`
    bounds the error of the summed loss, `moment` holds K and the bound on its error; all grow with the number of steps.
    """

    def __init__(self, parts: Sequence[tuple[RoundedLoss, int]], theta: float, size: int):
        """The sum of `steps` independent copies of each rounded loss, on a lattice of `size` points.

        Args:
            parts: rounded losses with the number of steps of each; one pitch for all.
            theta: tilt under which the sum is transformed, > 0.
            size: points of the lattice, a power of two.
        """
        index = np.arange(size // 2 + 1)
        log_phi, slack = np.zeros(len(index), dtype=complex), np.zeros(len(index))
        log_scale = rounding = 0.0
        discrete = [finite_losses(rounded, steps) for rounded, steps in parts]
        for part, (rounded, steps) in zip(discrete, parts, strict=True):
            log_total, weights = part.tilt(theta)
            value, error = transform(rounded, part, weights, size)
            units = mass_units(np.exp(part.log_masses)) + 4 * theta * np.abs(part.losses)
            tilting = UNIT * (float(weights @ units) + 2 * pairwise_units(len(weights)))
            log_scale += steps * log_total
            rounding += steps * (tilting + rounded.mass_error)
            value = value[index]
            logarithm = np.log(np.abs(value))
            own = steps * np.log1p((error + tilting) / np.abs(value))
            own += steps * UNIT * COMPLEX_LOGARITHM * (1 + np.pi + np.abs(logarithm))
            # No other step makes it larger. What may be larger is kept, and so is NaN, which voids the bounds.
            alive = np.flatnonzero(~(np.real(log_phi) + slack + steps * logarithm + own <= NEGLIGIBLE))
            index, log_phi, slack = index[alive], log_phi[alive] + steps * np.log(value[alive]), (slack + own)[alive]
        self.theta, self.pitch, self.size = theta, parts[0][0].pitch, size
        self.index, self.phi, self.error = index, np.exp(log_phi), grown(np.real(log_phi), slack)
        self.moment, self.aliases = (log_scale, rounding), Aliases.of(CompositionCumulant(discrete), theta)
        self.infinity_mass = infinity_mass(parts)
        self.origin = sum(steps * rounded.origin for rounded, steps in parts)
        masses = sum(steps * rounded.mass_error for rounded, steps in parts)
        places = sum(steps * (rounded.loss_error + 2 * UNIT * abs(rounded.origin)) for rounded, steps in parts)
        self.loss_error = masses + places
        # What the rounding of tail masses below e^`LOG_LEAST_TAIL` may add to delta or take from it.
        self.light = masses * float(np.exp(LOG_LEAST_TAIL))

    @cached_property
    def _tilted(self) -> tuple[np.ndarray, float]:
        """Tilted probabilities of the lattice points over two periods, and what the transform loses of each."""
        spectrum = np.zeros(self.size // 2 + 1, dtype=complex)
        spectrum[self.index] = self.phi
        error = transform_error(self.size) * 2 * float(np.abs(self.phi).sum()) / self.size
        return np.tile(np.fft.irfft(np.conj(spectrum), self.size), 2), error

    @cached_property
    def _unsure(self) -> float:
        """What the errors of phi add to a sum over all points at most, whatever the gap (Lemma 5.5)."""
        # |e^{-z h} - 1| at z = theta + i t and at z + 1.
        sine = 4 * np.sin(np.pi * self.index / self.size) ** 2
        falls = np.exp(-self.theta * self.pitch), np.exp(-(self.theta + 1) * self.pitch)
        series = np.sqrt(((1 - falls[0]) ** 2 + falls[0] * sine) * ((1 - falls[1]) ** 2 + falls[1] * sine))
        size = -np.expm1(-self.pitch) * (1 + falls[0]) * (1 + UNIT * _KERNEL) / series
        return 2 * float((size * self.error).sum()) / self.size + float(size.max() * np.exp(NEGLIGIBLE))

    def _by_points(self, first: int, gap: float) -> tuple[float, float]:
        """The sum over lattice points; copies of the period form a geometric series."""
        probabilities, error = self._tilted
        kernel = _kernel(self.theta, self.pitch, self.size)
        count = kernel.shape[1]
        probabilities = probabilities[first % self.size :][:count]
        # 1 - e^{-x - g} and 1 - e^{x + g - R} in sums of terms at x, so that one gap costs no exponential.
        fall, more = float(np.exp(-self.theta * gap)), float(np.exp(-gap))
        shares = fall * np.array([1.0, -np.expm1(-gap), more, -np.expm1(gap) * more])
        # Inner products of terms that are not negative, but for what the transform loses, in any order (Lemma 2.1).
        units, most = UNIT * (_KERNEL + count), float(np.abs(shares) @ kernel.sum(axis=1))
        size = float(np.abs(shares) @ (kernel @ np.abs(probabilities)))
        rest = np.exp(-_REACH) / -np.expm1(-self.theta * self.size * self.pitch)
        return float(shares @ (kernel @ probabilities)), float(
            self._unsure + error * most * (1 + units) + units * size + rest
        )

    def _by_frequencies(self, first: int, gap: float) -> tuple[float, float]:
        """The same sum by Parseval, over the few frequencies that have not decayed."""
        z = self.theta + 2j * np.pi * self.index / (self.size * self.pitch)
        phase = np.exp(-2j * np.pi * ((self.index * (first % self.size)) % self.size) / self.size)
        one, other = _difference(z, min(gap, self.pitch), self.pitch)
        weight = np.where((self.index == 0) | (2 * self.index == self.size), 1.0, 2.0) * np.exp(-self.theta * gap)
        terms = weight * self.phi * (one + other) * phase
        value = float(terms.real.sum()) / self.size
        size = weight * (np.abs(one) + np.abs(other))
        units = _KERNEL + pairwise_units(len(terms))
        error = float((size * (self.error + UNIT * units * (np.abs(self.phi) + self.error))).sum()) / self.size
        error += float(size.max()) * np.exp(NEGLIGIBLE)
        return value, error

    def bound(self, epsilon: float, side: int) -> float:
        """Certified lower (side 0) or upper bound (side 1) on delta of the lattice composition itself.

        delta falls with epsilon, and losses that are all off by at most d act as an epsilon that is.
        """
        moved = self.loss_error + 4 * UNIT * (abs(self.origin) + abs(epsilon))
        finite = self._finite_at(epsilon - moved if side else epsilon + moved)[side]
        return self.infinity_mass + min(finite, 1 - self.infinity_mass)

    def _finite_at(self, epsilon: float) -> tuple[float, float]:
        """Bounds on E[(1 - e^{epsilon - L})_+; L finite] for losses that lie on the lattice without error."""
        place = (epsilon - self.origin) / self.pitch
        if not abs(place) < _MOST_POINTS:
            return 0.0, 1.0
        first = int(np.ceil(place))
        gap = max(self.origin + first * self.pitch - epsilon, 0.0)
        value, error = (self._by_points if len(self.index) > _MANY else self._by_frequencies)(first, gap)
        low, high = self.aliases.bounds(epsilon, self.size * self.pitch, self.moment, value, error)
        return max(low - self.light, 0.0), high + self.light


def _difference(z: Any, start: Any, period: float) -> tuple[Any, Any]:
    """sum_k e^{-z k period} (1 - e^{-start - k period}) for 0 <= start <= period, as two terms to be added.

    It is a difference of two geometric series that nearly cancel where z is large; written so, nothing is lost.
    """
    series = np.expm1(-z * period) * np.expm1(-(z + 1) * period)
    return -np.expm1(-start) / series, -np.exp(-z * period - start) * np.expm1(start - period) / series


@lru_cache(maxsize=2)
def _kernel(theta: float, pitch: float, size: int) -> np.ndarray:
    """The two terms of `_difference` at the lattice points x and what a unit of e^-gap or e^gap adds, shape (4, x)."""
    x, period = pitch * np.arange(min(size, int(_REACH / (theta * pitch)) + 2)), size * pitch
    kernel = np.empty((4, len(x)))
    weight = np.exp(-theta * x) / (np.expm1(-theta * period) * np.expm1(-(theta + 1) * period))
    np.multiply(weight, -np.expm1(-x), out=kernel[0])
    np.multiply(weight, np.exp(-x), out=kernel[1])
    np.multiply(kernel[1], -np.exp(-theta * period) * np.expm1(x - period), out=kernel[2])
    np.multiply(weight, np.exp(-(theta + 1) * period), out=kernel[3])
    return kernel


def finite_losses(rounded: RoundedLoss, steps: int) -> DiscreteLoss:
    """The lattice points that have mass."""
    keep = rounded.masses > 0
    return DiscreteLoss(rounded.losses[keep], np.log(rounded.masses[keep]), steps)


def transform(rounded: RoundedLoss, part: DiscreteLoss, weights: np.ndarray, size: int) -> tuple[np.ndarray, float]:
    """sum_k w_k e^{i t_j k h} for the weights of `part` on the lattice, and a bound on its rounding error.

    Args:
        rounded: the rounded loss, for its origin and pitch.
        part: its finite losses.
        weights: their masses under a tilt, shape (losses,).
        size: points of the lattice, even.
    """
    place = np.round((part.losses - rounded.origin) / rounded.pitch).astype(int) % size
    value = np.conj(np.fft.rfft(np.bincount(place, weights, size)))
    error = transform_error(size) * float(weights.sum())
    return np.where(np.abs(value) < 1e-300, 1e-300, value), error


def transform_error(size: int) -> float:
    """A bound on the error of each output of a transform of `size` points, relative to the 1-norm of its input.

    Each pass divides the length by at least 2, so there are at most log2(size) of them, and one more for real input.
    """
    return float(np.expm1((np.log2(size) + 1) * _PASS))


def infinity_mass(parts: Sequence[tuple[RoundedLoss | Pair, int]]) -> float:
    """P-mass of runs in which some step has infinite loss."""
    if any(part.infinity_mass >= 1 for part, _ in parts):
        return 1.0
    return float(-np.expm1(sum(steps * np.log1p(-part.infinity_mass) for part, steps in parts))) + 0.0
