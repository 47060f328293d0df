"""Steps whose loss has a density, on the saddle line: log E_P e^{zL} with its error, and how fast it decays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accounting.loss.decay import log_decay
from tacit.accounting.loss.gaussian import SampledGaussian, choose_line, on_line, reach, slope

_UNIT = 2.0**-53


class Smooth(ABC):
    """One kind of step, run `steps` times, tilted by `theta`."""

    steps: int
    theta: float

    @abstractmethod
    def log_moment(self, theta: float) -> float:
        """log E_P e^{theta L} of one step, for any real theta that the saddle needs."""

    @abstractmethod
    def jet(self, theta: float) -> tuple[float, float, float]:
        """`log_moment` with its first two derivatives."""

    def mean_and_variance(self) -> tuple[float, float]:
        """Of the tilted loss of one step."""
        _, mean, variance = self.jet(self.theta)
        return mean, variance

    @abstractmethod
    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Upper bound on log |phi| of one step over each [t_j, t_{j+1}]."""

    @abstractmethod
    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log E_theta e^{it(L - mean)} of all steps, and a bound on the error of that logarithm."""


@dataclass(frozen=True)
class SmoothGaussian(Smooth):
    """A plain Gaussian step: everything in closed form."""

    mu: float
    theta: float
    steps: int = 1

    def log_moment(self, theta: float) -> float:
        return theta * (theta + 1) * self.mu**2 / 2

    def jet(self, theta: float) -> tuple[float, float, float]:
        return self.log_moment(theta), (theta + 0.5) * self.mu**2, self.mu**2

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        return -((self.mu * t[:-1]) ** 2) / 2

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = -((self.mu * t) ** 2) / 2
        return self.steps * value.astype(complex), self.steps * 4 * _UNIT * np.abs(value)


class SmoothSampled(Smooth):
    """A Poisson-subsampled Gaussian step by the trapezoid rule over its noise."""

    def __init__(self, pair: SampledGaussian, steps: int, theta: float, largest_theta: float):
        self.pair, self.steps, self.theta = pair, steps, theta
        self.log_tolerance = -30.0 - np.log(steps) - 6.0
        margin = float(np.sqrt(2 * (46.0 + np.log(steps))))
        low, high = reach(pair, max(largest_theta, 1.0), margin)
        rest, _ = reach(pair, 0.0, margin)
        self.ends = (min(low, rest), high)
        step, _ = choose_line(pair, theta, 0.0, self.ends, 0.0, self.log_tolerance)
        u = np.arange(self.ends[0], self.ends[1] + step, step)
        self.real = on_line(pair, u, step, 0.0)
        self.moment = self.log_moment(theta)
        exponent = self.real.log_mass + theta * self.real.loss
        self.weights = np.exp(exponent - exponent.max())
        self.weights /= self.weights.sum()
        self.mean = float(self.weights @ self.real.loss)

    def log_moment(self, theta: float) -> float:
        """E_P[e^{theta L} - 1 + theta (e^{-L} - 1)] keeps the digits of small moments, as E_P e^{-L} = 1."""
        loss = self.real.loss
        exponent = self.real.log_mass + theta * loss
        top = float(exponent.max())
        direct = top + float(np.log(np.exp(exponent - top).sum()))
        if abs(direct) > 0.5 or top > 0 or float(np.max(self.real.log_mass - loss)) > 0:
            return direct
        with np.errstate(over="ignore", invalid="ignore"):
            small = np.exp(self.real.log_mass) * (np.expm1(theta * loss) + theta * np.expm1(-loss))
        total = float(small.sum())
        return float(np.log1p(total)) if np.isfinite(total) else direct

    def jet(self, theta: float) -> tuple[float, float, float]:
        loss = self.real.loss
        exponent = self.real.log_mass + theta * loss
        weights = np.exp(exponent - exponent.max())
        weights /= weights.sum()
        mean = float(weights @ loss)
        return self.log_moment(theta), mean, float(weights @ (loss - mean) ** 2)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        density = self.weights / self.real.step / slope(self.pair, self.real.u)
        order = slice(None, None, -1) if self.real.loss[0] > self.real.loss[-1] else slice(None)
        return log_decay(self.real.loss[order], self.weights[order], density[order], t)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        step, height = choose_line(self.pair, self.theta, self.moment, self.ends, float(t[-1]), self.log_tolerance)
        keep = np.flatnonzero(self.weights > np.exp(self.log_tolerance - 12.0))
        low, high = self.real.u[keep[0]], self.real.u[keep[-1]]
        line = on_line(self.pair, np.arange(low - step, high + 2 * step, step), step, height)
        weights = np.exp(line.log_mass + self.theta * line.loss - self.moment)
        change, size = _shifted_sum(weights, line.loss - self.mean, t)
        error = 2 * np.exp(self.log_tolerance) + 16 * _UNIT * size
        modulus = np.maximum(np.abs(1 + change) - error, 1e-300)
        relative = error / modulus + 4 * _UNIT
        return self.steps * np.log1p(change), -self.steps * np.log1p(-np.minimum(relative, 0.5))


class SmoothCumulant:
    """K of smooth views on the real line, for tilts between `low` and `high`, where their nodes reach."""

    def __init__(self, views: Sequence[Smooth], low: float, high: float):
        self._views = views
        self.low, self.high = low, high

    def __call__(self, theta: float) -> float:
        return sum(view.steps * view.log_moment(theta) for view in self._views)

    def jet(self, theta: float) -> tuple[float, float, float]:
        """K, K' and K'' at theta."""
        jets = [(view.steps, view.jet(theta)) for view in self._views]
        value, first, second = (sum(steps * jet[k] for steps, jet in jets) for k in range(3))
        return value, first, second


def _shifted_sum(weights: np.ndarray, offset: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sum_k w_k (e^{i t l_k} - 1) for complex w and l, and the sum of sizes that its rounding error scales with."""
    value = np.empty(len(t), dtype=complex)
    size = np.empty(len(t))
    block = max(1, 400_000 // len(weights))
    real, imag = np.real(offset), np.imag(offset)
    for start in range(0, len(t), block):
        s = t[start : start + block, None]
        growth = np.expm1(-s * imag)
        half = 0.5 * s * real
        sine = np.sin(half)
        factor = (growth + 1) * 2 * sine
        value[start : start + block] = (growth - factor * sine) @ weights + 1j * ((factor * np.cos(half)) @ weights)
        size[start : start + block] = (np.abs(half) * (1 + np.abs(growth)) + np.abs(growth)) @ np.abs(weights)
    return value, size


def smooth(pair: object, steps: int, theta: float, largest_theta: float) -> Smooth | None:
    """The smooth view of a pair, or None where its loss has atoms."""
    from tacit.mechanisms.pairs import GaussianPair, GaussianReplacePair, SampledGaussianPair

    if isinstance(pair, GaussianPair):
        return SmoothGaussian(pair.mu * steps**0.5, theta)
    if isinstance(pair, SampledGaussianPair | GaussianReplacePair):
        return SmoothSampled(pair, steps, theta, largest_theta)
    return None
