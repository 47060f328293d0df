"""Compositions whose delta falls more slowly than exponentially around epsilon: few steps with a large loss decide.

There no tilt makes epsilon typical: it favours either runs without any large loss or runs with a very large one, and
the rounding of the transform drowns what lies between. The sum is split into runs in which every loss is below a
threshold, which are light-tailed and get a tilt of their own, and the others. With c and j the transforms of the
losses below and above it, the latter are prod c^T (e^{sum T log(1 + j / c)} - 1), which keeps its digits however
rare they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accounting.loss.complex_log import log1p
from tacit.accounting.loss.cumulant import Discrete
from tacit.accounting.loss.fourier import NEGLIGIBLE, UNIT, LatticeSum, finite_losses, infinite_mass, transform
from tacit.accounting.loss.lattice import Rounded
from tacit.accounting.loss.plan import Aliases

Parts = Sequence[tuple[Rounded, int]]


class JumpCumulant:
    """log of E_P[e^{theta L}; some loss above the threshold]."""

    def __init__(self, parts: Sequence[Discrete], threshold: float):
        self._core, self._jumps = split(parts, threshold)

    def __call__(self, theta: float) -> float:
        base = rise = 0.0
        for core, jump in zip(self._core, self._jumps, strict=True):
            log_core = core.tilt(theta)[0]
            base += core.steps * log_core
            if len(jump.losses):
                rise += core.steps * float(np.logaddexp(0.0, jump.tilt(theta)[0] - log_core))
        return base + _log_expm1(rise)

    def tilt_for(self, epsilon: float, low: float, high: float) -> float:
        """The theta in [low, high] that minimises K(theta) - theta epsilon, a convex function."""
        a, b = float(np.log(low)), float(np.log(high))
        for _ in range(40):
            left, right = a + 0.382 * (b - a), a + 0.618 * (b - a)
            values = [self(float(np.exp(x))) - float(np.exp(x)) * epsilon for x in (left, right)]
            a, b = (a, right) if values[0] < values[1] else (left, b)
        return float(np.exp((a + b) / 2))


def split(parts: Sequence[Discrete], threshold: float) -> tuple[list[Discrete], list[Discrete]]:
    """Each part's losses up to the threshold, and those above it."""
    below = [part.losses <= threshold for part in parts]
    core = [Discrete(p.losses[k], p.log_masses[k], p.steps) for p, k in zip(parts, below, strict=True)]
    jumps = [Discrete(p.losses[~k], p.log_masses[~k], p.steps) for p, k in zip(parts, below, strict=True)]
    return core, jumps


@dataclass(frozen=True)
class SplitSum:
    """The runs without and with a loss above the threshold, each on its own tilt; asked near one epsilon."""

    core: LatticeSum
    jumps: LatticeSum
    infinite: float

    @property
    def theta(self) -> float:
        """The tilt of the runs with a jump."""
        return self.jumps.theta

    @property
    def epsilon(self) -> float:
        """Where the bounds are meant to be asked."""
        return self.jumps.epsilon

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta of the lattice composition."""
        core, jumps = self.core.finite_bounds(epsilon), self.jumps.finite_bounds(epsilon)
        if not np.all(np.isfinite([core, jumps])):
            return self.infinite, 1.0
        low, high, finite = core[0] + jumps[0], core[1] + jumps[1], 1 - self.infinite
        return self.infinite + min(low, finite), self.infinite + min(high, finite)


def split_sum(parts: Parts, threshold: float, tilts: tuple[float, float], epsilon: float, size: int) -> SplitSum | None:
    """Both sums on one lattice; `tilts` are those of the runs without and with a jump."""
    if any(not np.any(rounded.masses[rounded.losses <= threshold]) for rounded, _ in parts):
        return None
    if not any(np.any(rounded.masses[rounded.losses > threshold]) for rounded, _ in parts):
        return None
    light = [(_cut(rounded, threshold), steps) for rounded, steps in parts]
    core = LatticeSum.of(light, tilts[0], epsilon, size)
    return SplitSum(core, _jump_sum(parts, threshold, tilts[1], epsilon, size), infinite_mass(parts))


def _cut(rounded: Rounded, threshold: float) -> Rounded:
    return Rounded(rounded.origin, rounded.pitch, np.where(rounded.losses <= threshold, rounded.masses, 0.0), 0.0)


def _jump_sum(parts: Parts, threshold: float, theta: float, epsilon: float, size: int) -> LatticeSum:
    discrete = [finite_losses(rounded, steps) for rounded, steps in parts]
    log_core, rise = np.zeros(size // 2 + 1, dtype=complex), np.zeros(size // 2 + 1, dtype=complex)
    slack, unsure = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
    log_scale = 0.0
    for (rounded, steps), core, jump in zip(parts, *split(discrete, threshold), strict=True):
        log_total, weights = core.tilt(theta)
        value, error = transform(rounded, core, weights, size)
        log_core += steps * np.log(value)
        slack += steps * (error / np.abs(value) + 4 * UNIT * (1 + abs(log_total)))
        log_scale += steps * log_total
        if not len(jump.losses):
            continue
        log_jump, weights = jump.tilt(theta)
        scale = np.exp(min(log_jump - log_total, 600.0))
        jumping, jump_error = transform(rounded, jump, weights, size)
        ratio = scale * jumping / value
        rise += steps * log1p(ratio)
        unsure += steps * (scale * jump_error / np.abs(value) + np.abs(ratio) * (error / np.abs(value) + 8 * UNIT))
    scale_of_jumps = _log_expm1(float(rise[0].real))
    with np.errstate(over="ignore", invalid="ignore"):
        phi = np.exp(log_core - scale_of_jumps) * np.expm1(rise)
        error = np.abs(phi) * np.expm1(np.minimum(slack, 50.0))
        error += np.abs(np.exp(log_core + rise - scale_of_jumps)) * np.expm1(np.minimum(2 * unsure, 50.0))
    kept = np.flatnonzero(~(np.abs(phi) <= np.exp(NEGLIGIBLE)))  # NaN stays, and voids the bounds
    origin = sum(steps * rounded.origin for rounded, steps in parts)
    aliases = Aliases.of(JumpCumulant(discrete, threshold), theta)
    return LatticeSum(
        theta,
        epsilon,
        parts[0][0].pitch,
        size,
        origin,
        log_scale + scale_of_jumps,
        kept,
        phi[kept],
        error[kept],
        aliases,
        0.0,
    )


def _log_expm1(x: float) -> float:
    return x + float(np.log(-np.expm1(-x))) if x > 0 else -np.inf
