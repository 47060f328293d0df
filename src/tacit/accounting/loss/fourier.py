"""Composition on a lattice: an exponentially tilted Fourier transform, with a certificate for one rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from tacit.accounting.loss.cumulant import Cumulant, Discrete
from tacit.accounting.loss.lattice import Rounded
from tacit.accounting.loss.plan import Aliases

_UNIT = 2.0**-52
_NEGLIGIBLE = -46.0


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
            log_total, weights = part.tilt(theta)
            transform = np.conj(fft.rfft(np.bincount(np.arange(len(weights)) % size, weights, size)))
            with np.errstate(divide="ignore"):
                log_phi += steps * np.log(transform)
            slack += steps * 8 * _UNIT * np.log2(size) * float(np.sqrt(weights @ weights)) / np.abs(transform)
            slack += steps * 4 * _UNIT * (1 + abs(log_total))
            log_scale += steps * log_total
            origin += steps * rounded.origin
            log_finite += steps * np.log1p(-rounded.infinite) if rounded.infinite < 1 else -np.inf
        index = np.flatnonzero(log_phi.real > _NEGLIGIBLE)
        aliases = Aliases.of(Cumulant(discrete), theta)
        return cls(
            theta, epsilon, pitch, size, origin, log_scale, index, np.exp(log_phi[index]), slack[index], aliases,
            float(-np.expm1(log_finite)),
        )  # fmt: skip

    def finite(self, epsilon: float) -> tuple[float, float, float]:
        """log of the scale e^{K - theta epsilon}, and E[(1 - e^{epsilon - L})_+; L finite] / scale with its error."""
        first = int(np.ceil((epsilon - self.origin) / self.pitch))
        gap = max(self.origin + first * self.pitch - epsilon, 0.0)
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
        return self.log_scale - self.theta * epsilon, value, error

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
