"""Composition on a lattice: an exponentially tilted Fourier transform, with a certificate for one rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.accounting.loss.cumulant import Cumulant, Discrete
from tacit.accounting.loss.lattice import Rounded
from tacit.accounting.loss.plan import Aliases

_UNIT = 2.0**-52
_NEGLIGIBLE = -46.0
_MANY = 4096


@dataclass(frozen=True)
class LatticeSum:
    """delta(epsilon) of a sum of lattice losses, to be asked near the epsilon that `theta` was chosen for.

    With z = theta + i t, delta(epsilon) = e^{K(theta) - theta epsilon} / N sum_j phi(t_j) k(z_j) e^{-i t_j n h}, where
    phi is the transform of the tilted masses, n the first lattice point above epsilon and k(z) = sum over the points
    x from there on of e^{-z (x - epsilon)} (1 - e^{-(x - epsilon)}), a difference of two geometric series.
    """

    theta: float
    epsilon: float
    pitch: float
    size: int
    origin: float
    log_scale: float
    index: np.ndarray
    phi: np.ndarray
    log_slack: np.ndarray
    aliases: Aliases
    infinite: float

    @classmethod
    def of(cls, parts: Sequence[tuple[Rounded, int]], theta: float, epsilon: float, size: int) -> LatticeSum:
        """The sum of `steps` independent copies of each rounded loss, on a lattice of `size` points."""
        pitch = parts[0][0].pitch
        log_phi = np.zeros(size // 2 + 1, dtype=complex)
        log_scale = origin = log_finite = 0.0
        slack = np.zeros(size // 2 + 1)
        discrete = []
        for rounded, steps in parts:
            with np.errstate(divide="ignore"):
                part = Discrete(rounded.losses, np.log(rounded.masses), steps)
            keep = np.isfinite(part.log_masses)
            discrete.append(Discrete(part.losses[keep], part.log_masses[keep], steps))
            log_total, weights = discrete[-1].tilt(theta)
            weights = np.bincount(np.flatnonzero(keep) % size, weights, size)
            transform = np.conj(np.fft.rfft(weights))
            with np.errstate(divide="ignore"):
                log_phi += steps * np.log(transform)
            slack += steps * 8 * _UNIT * np.log2(size) * float(np.sqrt(weights @ weights)) / np.abs(transform)
            slack += steps * 4 * _UNIT * (1 + abs(log_total))
            log_scale += steps * log_total
            origin += steps * rounded.origin
            log_finite += steps * np.log1p(-rounded.infinite) if rounded.infinite < 1 else -np.inf
        index = np.flatnonzero(np.real(log_phi) > _NEGLIGIBLE)
        aliases = Aliases.of(Cumulant(discrete), theta)
        return cls(
            theta, epsilon, pitch, size, origin, log_scale, index, np.exp(log_phi[index]), slack[index], aliases,
            float(-np.expm1(log_finite)),
        )  # fmt: skip

    @cached_property
    def _tilted(self) -> tuple[np.ndarray, float]:
        """Tilted probabilities of the lattice points modulo the period, and a bound on the error of each."""
        spectrum = np.zeros(self.size // 2 + 1, dtype=complex)
        spectrum[self.index] = self.phi
        error = 2 * float(np.abs(self.phi) @ np.expm1(np.minimum(self.log_slack, 50.0))) / self.size
        error += 8 * _UNIT * np.log2(self.size) * float(np.linalg.norm(self.phi)) * (2 / self.size) ** 0.5
        return np.asarray(np.fft.irfft(np.conj(spectrum), self.size)), error

    def finite(self, epsilon: float) -> tuple[float, float, float]:
        """log of the scale e^{K - theta epsilon}, and E[(1 - e^{epsilon - L})_+; L finite] / scale with its error."""
        first = int(np.ceil((epsilon - self.origin) / self.pitch))
        gap = max(self.origin + first * self.pitch - epsilon, 0.0)
        value, error = (self._by_points if len(self.index) > _MANY else self._by_frequencies)(first, gap)
        return self.log_scale - self.theta * epsilon, value, error

    def _by_points(self, first: int, gap: float) -> tuple[float, float]:
        """The sum over lattice points; copies of the period form a geometric series."""
        probabilities, error = self._tilted
        count = min(self.size, int(60 / (self.theta * self.pitch)) + 2)
        above = gap + self.pitch * np.arange(count)
        period = self.size * self.pitch
        kernel = np.exp(-self.theta * above) * (
            -1 / np.expm1(-self.theta * period) + np.exp(-above) / np.expm1(-(self.theta + 1) * period)
        )
        value = float(np.take(probabilities, np.arange(first, first + count), mode="wrap") @ kernel)
        rest = np.exp(-60.0) / -np.expm1(-self.theta * period)
        return value, error * float(np.abs(kernel).sum()) + 64 * _UNIT * abs(value) + float(rest)

    def _by_frequencies(self, first: int, gap: float) -> tuple[float, float]:
        """The same sum by Parseval, over the few frequencies that have not decayed."""
        z = self.theta + 2j * np.pi * self.index / (self.size * self.pitch)
        phase = np.exp(-2j * np.pi * ((self.index * (first % self.size)) % self.size) / self.size)
        kernel = np.exp(-self.theta * gap) * (
            -1 / np.expm1(-z * self.pitch) + np.exp(-gap) / np.expm1(-(z + 1) * self.pitch)
        )
        weight = np.where((self.index == 0) | (2 * self.index == self.size), 1.0, 2.0)
        terms = weight * self.phi * kernel * phase
        value = float(terms.real.sum()) / self.size
        size = np.abs(terms)
        largest = float(np.abs(kernel).max())
        error = float(size @ np.expm1(np.minimum(self.log_slack, 50.0))) / self.size
        error += float(size.sum()) / self.size * 64 * _UNIT + largest * np.exp(_NEGLIGIBLE)
        return value, error

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta of the lattice composition itself."""
        log_scale, value, error = self.finite(epsilon)
        period = self.size * self.pitch
        above = _exp(self.aliases.above(epsilon, period) - log_scale)
        below, unsure = (_exp(log - log_scale) for log in self.aliases.below(epsilon, period))
        low = _exp(log_scale) * max(value - error - above - below, 0.0)
        high = _exp(log_scale) * max(value + error - below + unsure, 0.0)
        finite = 1 - self.infinite
        return self.infinite + min(low, finite), self.infinite + min(high, finite)


def _exp(x: float) -> float:
    return float(np.exp(min(x, 700.0)))
