"""Cumulants of single steps, and the law of the summed loss that the saddle line integrates.

A step gives log E_P e^{zL} with its error and a bound on |phi(t)| for every t; `IndependentSum` adds steps up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from tacit.accounting.pld.decay import log_decay
from tacit.accounting.pld.quadrature import TailWeight, choose_line, log1p, moment_rounding, on_line, shifted_sum, slope
from tacit.accounting.pld.rounding import UNIT
from tacit.mechanisms.pairs import SampledGaussian
from tacit.mechanisms.pairs.quadrature import exponential_tilt, weighted_mean_and_variance


class LossSum(ABC):
    """A (sub-probability) law of the summed loss, tilted by `theta`."""

    theta: float
    mean: float
    variance: float

    largest: float
    """The largest tilt that `log_moment` accepts."""

    left_out: float = 0.0
    """P-mass of the runs that this law leaves out, to be added to upper bounds."""

    rounding: float = 0.0
    """A bound on the rounding error of `log_moment` at `theta`."""

    @abstractmethod
    def log_moment(self, theta: float) -> float:
        """Return log E e^{theta L}."""

    @abstractmethod
    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Upper bound on log |phi| over each [t_j, t_{j+1}]."""

    @abstractmethod
    def transform(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi = E e^{(theta + it) L - it mean} / E e^{theta L} at multiples of t[1] > 0, with its error."""

    @abstractmethod
    def nodes(self, frequency: float) -> int:
        """How many terms `transform` sums for each t up to `frequency`."""

    @abstractmethod
    def smoothed(self, variance: float) -> LossSum:
        """Composed with a plain Gaussian step of this variance."""


class IndependentSum(LossSum):
    """Independent steps."""

    def __init__(self, parts: Sequence[StepCumulant], theta: float):
        self.parts, self.theta = parts, theta
        self.largest = min(part.largest for part in parts)
        self.left_out = sum(part.left_out for part in parts)
        self.rounding = sum(part.steps * part.rounding() for part in parts)
        moments = [(part.steps, part.mean_and_variance()) for part in parts]
        self.mean, self.variance = (sum(steps * moment[k] for steps, moment in moments) for k in (0, 1))

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        return sum(part.steps * part.log_moment(theta) for part in self.parts)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        return sum((part.steps * part.log_decay(t) for part in self.parts), np.zeros(len(t) - 1))

    def transform(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi at each t, and a bound on its error."""
        log_phi, slack = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        for part in self.parts:
            value, error = part.log_phi(t)
            log_phi += value
            slack += error
        phi = np.exp(log_phi)
        return phi, np.abs(phi) * np.expm1(np.minimum(slack, 50.0))

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return sum(part.nodes(frequency) for part in self.parts)

    def smoothed(self, variance: float) -> LossSum:
        """Return the sum with a Gaussian step of this variance."""
        return IndependentSum([*self.parts, GaussianCumulant(variance**0.5, self.theta)], self.theta)


_MOST_NODES = 20_000  # More nodes cost more than a lattice.
_HEIGHTS = np.array([0.3, 0.7, 1.2, 1.8])  # Heights of the raised lines; any choice gives a bound.
_MARGIN = 1.01  # Safe side of the trapezoid sum of a positive smooth function.


class Unsuitable(Exception):
    """The saddle line cannot answer this question at a reasonable cost; the lattice can."""


class StepCumulant(ABC):
    """One kind of step, run `steps` times, tilted by `theta`."""

    steps: int
    theta: float

    largest: float
    """The largest tilt that `log_moment` accepts."""

    left_out: float = 0.0
    """P-mass of the runs with an outcome that this cumulant leaves out."""

    @abstractmethod
    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step, for any real theta that the saddle needs."""

    @abstractmethod
    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """`log_moment` with its first two derivatives."""

    @abstractmethod
    def rounding(self) -> float:
        """Return a bound on the rounding error of `log_moment` at `theta`, of one step."""

    def mean_and_variance(self) -> tuple[float, float]:
        """Of the tilted loss of one step."""
        _, mean, variance = self.cumulant_derivatives(self.theta)
        return mean, variance

    @abstractmethod
    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Upper bound on log |phi| of one step over each [t_j, t_{j+1}]."""

    def nodes(self, frequency: float) -> int:
        """How many terms `log_phi` sums for each t up to `frequency`."""
        return 1

    @abstractmethod
    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log E_theta e^{it(L - mean)} of all steps at multiples t of t[1] > 0, and a bound on its error."""


@dataclass(frozen=True)
class GaussianCumulant(StepCumulant):
    """A plain Gaussian step: everything in closed form."""

    mu: float
    theta: float
    steps: int = 1
    largest: float = np.inf

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        return theta * (theta + 1) * self.mu**2 / 2

    def rounding(self) -> float:
        """Return four rounding units of the value, for as many products."""
        return 4 * UNIT * abs(self.log_moment(self.theta))

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        return self.log_moment(theta), (theta + 0.5) * self.mu**2, self.mu**2

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        return -((self.mu * t[:-1]) ** 2) / 2

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        value = -((self.mu * t) ** 2) / 2
        return self.steps * value.astype(complex), self.steps * 4 * UNIT * np.abs(value)


class BandLimitedCumulant(StepCumulant):
    """A cumulant that is right up to some frequency, and claims nothing beyond."""

    def __init__(self, cumulant: StepCumulant, limit: float):
        self._cumulant, self.limit = cumulant, limit
        self.steps, self.theta, self.largest, self.left_out = (
            cumulant.steps,
            cumulant.theta,
            cumulant.largest,
            cumulant.left_out,
        )

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        return self._cumulant.log_moment(theta)

    def rounding(self) -> float:
        """Return that of the continuous step."""
        return self._cumulant.rounding()

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        return self._cumulant.cumulant_derivatives(theta)

    def mean_and_variance(self) -> tuple[float, float]:
        """Return mean and variance of the tilted loss."""
        return self._cumulant.mean_and_variance()

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        return np.where(t[1:] <= self.limit, self._cumulant.log_decay(t), 0.0)

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return self._cumulant.nodes(frequency)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        if t[-1] > self.limit:
            raise Unsuitable
        return self._cumulant.log_phi(t)


class SampledGaussianCumulant(StepCumulant):
    """A Poisson-subsampled Gaussian step by the trapezoid rule over its noise."""

    def __init__(
        self,
        pair: SampledGaussian,
        steps: int,
        theta: float,
        largest: float,
        ends: tuple[float, float],
        *,
        step: float = 0.0,
        tail_weight: TailWeight | None = None,
        log_moment: float = 0.0,
    ):
        self.pair, self.steps, self.theta, self.largest, self.ends, self.tail_weight = (
            pair,
            steps,
            theta,
            largest,
            ends,
            tail_weight,
        )
        self.log_tolerance = -36.0 - np.log(steps)
        step = step or choose_line(pair, theta, log_moment, self.ends, 0.0, self.log_tolerance, tail_weight)[0]
        if step <= 0 or (ends[1] - ends[0]) / step > _MOST_NODES:
            raise Unsuitable
        u = np.arange(self.ends[0], self.ends[1] + step, step)
        self.real = on_line(pair, u, step, 0.0, tail_weight=tail_weight)
        self.moment = self.log_moment(theta)
        _, self.weights = exponential_tilt(self.real.log_mass, self.real.loss, theta)
        self.mean = float(self.weights @ self.real.loss)

    def log_moment(self, theta: float) -> float:
        """E_P[e^{theta L} - 1 + theta (e^{-L} - 1)] keeps the digits of small moments, as E_P e^{-L} = 1."""
        loss = self.real.loss
        direct, _ = exponential_tilt(self.real.log_mass, loss, theta)
        top = float((self.real.log_mass + theta * loss).max())
        if self.tail_weight or abs(direct) > 0.5 or top > 0 or float(np.max(self.real.log_mass - loss)) > 0:
            return direct
        with np.errstate(over="ignore", invalid="ignore"):
            small = np.exp(self.real.log_mass) * (np.expm1(theta * loss) + theta * np.expm1(-loss))
        total = float(small.sum())
        return float(np.log1p(total)) if np.isfinite(total) else direct

    def rounding(self) -> float:
        """Return `moment_rounding` of the nodes."""
        return moment_rounding(self.real.log_mass, self.real.loss, self.theta, self.moment)

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        _, weights = exponential_tilt(self.real.log_mass, self.real.loss, theta)
        return self.log_moment(theta), *weighted_mean_and_variance(weights, self.real.loss)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        density = self.weights / self.real.step / slope(self.pair, self.real.u)
        order = slice(None, None, -1) if self.real.loss[0] > self.real.loss[-1] else slice(None)
        decay = log_decay(self.real.loss[order], self.weights[order], density[order], t)
        return np.minimum(decay, self._raised_decay(t[:-1]))

    def _raised_decay(self, t: np.ndarray) -> np.ndarray:
        """Return log int |e^{(theta + it) L}| dP on lines with Im L >= 0: it bounds log |phi| and falls with t."""
        bound = np.zeros(len(t))
        for height in np.minimum(_HEIGHTS, 0.9 * np.pi * self.pair.sigma * _HEIGHTS / _HEIGHTS[-1]):
            line = on_line(
                self.pair, self.real.u, self.real.step, self.pair.loss_sign * height, tail_weight=self.tail_weight
            )
            exponent = np.real(line.log_mass) + self.theta * np.real(line.loss) - self.moment
            size = np.exp(np.minimum(exponent - np.multiply.outer(t, np.imag(line.loss)), 700.0)).sum(axis=1)
            bound = np.minimum(bound, np.log(_MARGIN * size + 1e-300))
        return bound

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return 2 * len(self.real.u)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        change, error = self.change(t, self.mean)
        modulus = np.maximum(np.abs(1 + change) - error, 1e-300)
        value = log1p(change)
        relative = error / modulus + 4 * UNIT * np.abs(value)
        return self.steps * value, -self.steps * np.log1p(-np.minimum(relative, 0.5))

    def change(self, t: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
        """E_theta e^{it(L - mean)} - 1 of one step, and a bound on its error."""
        step, height = choose_line(
            self.pair, self.theta, self.moment, self.ends, float(t[-1]), self.log_tolerance, self.tail_weight
        )
        if step <= 0 or (self.ends[1] - self.ends[0]) / step > _MOST_NODES:
            raise Unsuitable
        keep = np.flatnonzero(self.weights > np.exp(self.log_tolerance - 12.0))
        low, high = float(self.real.u[keep[0]]), float(self.real.u[keep[-1]])
        line = on_line(
            self.pair, np.arange(low - step, high + 2 * step, step), step, height, tail_weight=self.tail_weight
        )
        weights = np.exp(line.log_mass + self.theta * line.loss - self.moment)
        change, size = shifted_sum(weights, line.loss - mean, t, float(t[1]))
        return change, 2 * np.exp(self.log_tolerance) + 16 * UNIT * size


class Summand(Protocol):
    """One kind of step in a sum of independent losses."""

    @property
    def steps(self) -> int:
        """The number of times that the step runs."""
        ...

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        ...

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        ...


Part = TypeVar("Part", bound=Summand, covariant=True)


class CompositionCumulant(Generic[Part]):
    """K(theta) = log E_P[e^{theta L}; L finite] of independent steps, for tilts in [low, high]."""

    def __init__(self, parts: Sequence[Part], low: float = 1e-9, high: float = 1e13):
        self.parts, self.low, self.high = parts, low, high

    @staticmethod
    def around(parts: Sequence[StepCumulant], theta: float) -> CompositionCumulant[StepCumulant]:
        """Return K for tilts around `theta` that the nodes of the steps reach."""
        return CompositionCumulant(parts, 0.4 * theta, min(2.5 * theta, min(part.largest for part in parts)))

    def __call__(self, theta: float) -> float:
        """Return K at theta."""
        return sum(part.steps * part.log_moment(theta) for part in self.parts)

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return K, K' and K'' at theta."""
        derivatives = [(part.steps, part.cumulant_derivatives(theta)) for part in self.parts]
        value, first, second = (sum(steps * found[k] for steps, found in derivatives) for k in range(3))
        return value, first, second
