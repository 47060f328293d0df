"""Poisson-subsampled Gaussian steps of unlike noises on the same nodes: densities, masses and a trapezoid rule.

With y the exponent of a mixture 1 - p + p e^y, the loss of an add/remove step depends on y alone, and its noise enters
by the normal density of y only. So all steps of a schedule share nodes, losses and the bound on the rule's error, which
is a closed form (THEORY.md, Lemma 6.8). Under replace-one y is the noise over its variance, and losses differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tacit.accounting.pld.decay import nearer_tails
from tacit.accounting.pld.quadrature import log_mix
from tacit.accounting.pld.rounding import COMPLEX_LOGARITHM, MASS
from tacit.mechanisms.pairs import SampledGaussian

_DEPTHS = np.geomspace(0.05, 0.95, 12)  # Depths of strips to try, as shares of the deepest; any depth gives a bound.
_GROWTH = 5.0  # log of how much larger than the moment a raised integrand may be: two digits of rounding.


@dataclass(frozen=True)
class Schedule:
    """Steps of one kind: noise, rate and count of each, with arrays of shape (steps,)."""

    kind: SampledGaussian
    sigma: np.ndarray
    rate: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, members: Sequence[tuple[SampledGaussian, int]]) -> Schedule:
        """The schedule of pairs of one kind with the number of times that they run."""
        sigma, rate = (np.array([getattr(pair, name) for pair, _ in members]) for name in ("sigma", "rate"))
        return cls(members[0][0].kind, sigma, rate, np.array([float(count) for _, count in members]))

    @property
    def shared(self) -> bool:
        """Whether all steps have the same losses at the nodes."""
        return not self.kind.symmetric and bool(np.ptp(self.rate) == 0)

    @property
    def divides(self) -> bool:
        """Whether the tilted mass divides by a mixture, which falls on a raised line."""
        return self.kind.symmetric or self.kind.loss_sign < 0

    @property
    def variance(self) -> np.ndarray:
        """Variance of y of each step, shape (steps, 1)."""
        return self.sigma[:, None] ** -2.0

    @property
    def shift(self) -> np.ndarray:
        """Minus the mean of y where the record is left out."""
        return np.zeros_like(self.variance) if self.kind.symmetric else self.variance / 2

    def places(self, step: int, ends: tuple[float, float]) -> tuple[float, float]:
        """The y of an interval of noise, in standard deviations, of one step."""
        sigma = float(self.sigma[step])
        low, high = (end / sigma - float(self.shift[step, 0]) for end in ends)
        return low, high

    def on_line(self, y: np.ndarray, step: float, height: float) -> tuple[np.ndarray, np.ndarray]:
        """Return log of P-density times step, shape (steps, nodes), and losses, shape (1 or steps, nodes)."""
        z = y + 1j * height
        log_mass = -((z + self.shift) ** 2) / (2 * self.variance) - 0.5 * np.log(2 * np.pi * self.variance / step**2)
        mixed = self._mixes(z)
        loss = mixed[0] - mixed[1] if self.kind.symmetric else self.kind.loss_sign * mixed[0]
        log_mass = log_mass + mixed[0] if self.kind.symmetric or self.kind.loss_sign > 0 else log_mass
        return (log_mass, loss) if height else (np.real(log_mass), np.real(loss))

    def units(self, y: np.ndarray, step: float, height: float) -> tuple[np.ndarray, np.ndarray]:
        """Units of log masses and of losses at the nodes (Lemma 6.4), shapes of `on_line`.

        Nodes are known to four units and the variance to eight. Under replace-one it moves the mixtures as well.
        """
        z, far = y + 1j * height, float(np.abs(y).max()) + abs(height)
        place = 4 * far + (8 * self.variance if self.kind.symmetric else 0.0)
        loss: np.ndarray = np.zeros((1, len(y)))
        for sign, mixed in zip((1.0, -1.0), self._mixes(z), strict=False):
            exponent = sign * z - self.variance / 2 if self.kind.symmetric else z
            weight = np.exp(np.real(np.log(self._column) + exponent - mixed))
            loss = loss + weight * place + 64 * np.abs(np.expm1(-mixed)) + COMPLEX_LOGARITHM * np.abs(mixed)
        away = np.abs(z + self.shift)
        square = away**2 / (2 * self.variance)
        scale = 8 * np.abs(np.log(2 * np.pi * self.variance / step**2)) + 16
        return MASS + 16 * square + (6 + 4 * far / self.variance) * away + scale + loss, loss

    def masses_outside(self, ends: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
        """P- and Q-masses of each step at places outside of the ends."""
        places = np.array(ends)
        found = [ndtr((places[0] - mean) * self.sigma) + ndtr((mean - places[1]) * self.sigma) for mean in self._means]
        return self._mixed(found)

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and Q of each step between neighbouring places: masses and nearer tails, shape (steps, 2, cells)."""
        found: list[np.ndarray] = []
        for mean in self._means:
            at = (edges - mean[:, None]) * self.sigma[:, None]
            below, above = ndtr(at), ndtr(-at)
            masses = np.where(above[:, :-1] < 0.5, above[:, :-1] - above[:, 1:], below[:, 1:] - below[:, :-1])
            found.append(np.stack([masses, nearer_tails(below, above)], axis=1))
        return self._mixed(found)

    @property
    def _column(self) -> np.ndarray:
        return self.rate[:1, None] if self.shared else self.rate[:, None]

    @property
    def _means(self) -> list[np.ndarray]:
        """Means of y without the record, with it and, under replace-one, with its replacement."""
        base, variance = -self.shift[:, 0], self.variance[:, 0]
        return [base, base + variance, base - variance] if self.kind.symmetric else [base, base + variance]

    def _mixed(self, found: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        rate = self.rate.reshape(-1, *[1] * (found[0].ndim - 1))
        base, *moved = found
        mixed = [np.maximum((1 - rate) * base + rate * one, 0.0) for one in moved]
        if self.kind.symmetric:
            return mixed[0], mixed[1]
        base = np.maximum(base, 0.0)
        return (mixed[0], base) if self.kind.loss_sign > 0 else (base, mixed[0])

    def _mixes(self, z: np.ndarray) -> list[np.ndarray]:
        """Log of each mixture at places z, shape (1 or steps, nodes)."""
        if self.kind.symmetric:
            return [self._log_mix(sign * z - self.variance / 2) for sign in (1.0, -1.0)]
        return [self._log_mix(np.broadcast_to(z, (len(self._column), len(z))))]

    def _log_mix(self, y: np.ndarray) -> np.ndarray:
        if np.ptp(self.rate) == 0:
            return log_mix(float(self.rate[0]), y + 0j)
        return np.stack([log_mix(float(rate), row + 0j) for rate, row in zip(self.rate, y, strict=True)])


@dataclass(frozen=True)
class SharedRule:
    """Nodes on Im y = height, and how far the rule misses a moment: relative to it, and for each unit at its ends.

    The strip reaches from height - depth to height + depth; height is 0, or depth with the sign of the loss (6.8).
    """

    step: float
    depth: float
    height: float

    def growth(self, schedule: Schedule, theta: float) -> np.ndarray:
        """Return log of how much larger the integrand may be in the strip than on the real line, shape (steps,)."""
        top = self.depth + abs(self.height)
        falls = -max(theta, 0.0) * float(np.log(np.cos(top / 2))) if schedule.divides else 0.0
        return top**2 / (2 * schedule.variance[:, 0]) + falls

    def relative(self, schedule: Schedule, theta: float) -> np.ndarray:
        """Return bounds on the error relative to the moment, the ends left out, shape (steps,)."""
        exponent = 2 * np.pi * self.depth / self.step
        return 2 * np.exp(np.minimum(self.growth(schedule, theta) - exponent, 700.0)) / -np.expm1(-exponent)

    def at_ends(self, schedule: Schedule, theta: float) -> np.ndarray:
        """Return factors of the two densities at the ends, per unit of y, that add to the error, shape (steps,)."""
        return (self.step + abs(self.height)) * np.exp(np.minimum(self.growth(schedule, theta), 700.0))


def real_rule(schedule: Schedule, theta: float, log_tolerance: float) -> SharedRule:
    """The coarsest rule on the real line that misses about e^log_tolerance of each moment at theta."""
    return _coarsest(schedule, theta, log_tolerance, [(depth * np.pi, 0.0) for depth in _DEPTHS.tolist()])


def raised_rule(schedule: Schedule, theta: float, log_tolerance: float) -> SharedRule:
    """The coarsest rule on a raised line, whose error does not depend on the frequency."""
    most = float(np.sqrt(2 * _GROWTH * schedule.variance.min()))
    depths = np.minimum(_DEPTHS * np.pi / 2, most).tolist()
    return _coarsest(schedule, theta, log_tolerance, [(depth, schedule.kind.loss_sign * depth) for depth in depths])


def _coarsest(
    schedule: Schedule, theta: float, log_tolerance: float, shapes: Sequence[tuple[float, float]]
) -> SharedRule:
    rules = [SharedRule(1.0, depth, height) for depth, height in shapes]
    needs = [float(rule.growth(schedule, theta).max()) + float(np.log(2.0)) - log_tolerance for rule in rules]
    steps = [2 * np.pi * rule.depth / max(need, 1.0) for rule, need in zip(rules, needs, strict=True)]
    best = int(np.argmax(steps))
    return SharedRule(steps[best], *shapes[best])
