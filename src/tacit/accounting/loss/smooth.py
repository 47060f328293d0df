"""Steps whose loss has a density, on the saddle line: log E_P e^{zL} with its error, and how fast it decays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accounting.loss.complex_log import log1p
from tacit.accounting.loss.decay import log_decay
from tacit.accounting.loss.gaussian import SampledGaussian, choose_line, on_line, reach, slope
from tacit.mechanisms.pairs import GaussianPair, GaussianReplacePair, Pair, SampledGaussianPair

_UNIT = 2.0**-53
_WIDEST = 2000.0
_MOST_NODES = 20_000


class Unsuitable(Exception):
    """The saddle line cannot answer this question at a reasonable cost; the lattice can."""


class Smooth(ABC):
    """One kind of step, run `steps` times, tilted by `theta`."""

    steps: int
    theta: float

    largest: float
    """The largest tilt that `log_moment` may be asked for."""

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
    largest: float = np.inf

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

    def __init__(
        self,
        pair: SampledGaussian,
        steps: int,
        theta: float,
        largest: float,
        ends: tuple[float, float],
        *,
        step: float = 0.0,
    ):
        self.pair, self.steps, self.theta, self.largest, self.ends = pair, steps, theta, largest, ends
        self.log_tolerance = -36.0 - np.log(steps)
        step = step or choose_line(pair, theta, 0.0, self.ends, 0.0, self.log_tolerance)[0]
        if step <= 0 or (ends[1] - ends[0]) / step > _MOST_NODES:
            raise Unsuitable
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
        if step <= 0 or (self.ends[1] - self.ends[0]) / step > _MOST_NODES:
            raise Unsuitable
        keep = np.flatnonzero(self.weights > np.exp(self.log_tolerance - 12.0))
        low, high = float(self.real.u[keep[0]]), float(self.real.u[keep[-1]])
        line = on_line(self.pair, np.arange(low - step, high + 2 * step, step), step, height)
        weights = np.exp(line.log_mass + self.theta * line.loss - self.moment)
        change, size = shifted_sum(weights, line.loss - self.mean, t)
        error = 2 * np.exp(self.log_tolerance) + 16 * _UNIT * size
        modulus = np.maximum(np.abs(1 + change) - error, 1e-300)
        relative = error / modulus + 4 * _UNIT
        return self.steps * log1p(change), -self.steps * np.log1p(-np.minimum(relative, 0.5))


class SmoothCumulant:
    """K of smooth views on the real line, for tilts around `theta` that their nodes reach."""

    def __init__(self, views: Sequence[Smooth], theta: float):
        self._views = views
        self.low, self.high = 0.4 * theta, min(2.5 * theta, min(view.largest for view in views))

    def __call__(self, theta: float) -> float:
        return sum(view.steps * view.log_moment(theta) for view in self._views)

    def jet(self, theta: float) -> tuple[float, float, float]:
        """K, K' and K'' at theta."""
        jets = [(view.steps, view.jet(theta)) for view in self._views]
        value, first, second = (sum(steps * jet[k] for steps, jet in jets) for k in range(3))
        return value, first, second


def shifted_sum(weights: np.ndarray, offset: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def smooth(pair: Pair, steps: int, theta: float, log_delta: float) -> Smooth | None:
    """The smooth view of a pair at one tilt, or None where its loss has atoms or its tilted mass spreads too far."""
    if isinstance(pair, GaussianPair):
        return SmoothGaussian(pair.mu * steps**0.5, theta)
    if not isinstance(pair, SampledGaussianPair | GaussianReplacePair):
        return None
    log_cut = -38.0 - np.log(steps)
    log_ignored = min(log_delta, 0.0) + log_cut
    own = reach(pair, theta, log_cut, log_ignored)
    if own is None or own[1] - own[0] > _WIDEST * min(1.0, pair.sigma):
        return None
    for largest in (3 * theta + 5, 2 * theta + 3, 1.5 * theta, 1.2 * theta, 1.05 * theta):
        ends = reach(pair, largest, log_cut, log_ignored)
        if ends is not None and ends[1] - ends[0] < min(20 + 2 * (own[1] - own[0]), _WIDEST * min(1.0, pair.sigma)):
            return SmoothSampled(pair, steps, theta, largest, (min(own[0], ends[0]), max(own[1], ends[1])))
    return SmoothSampled(pair, steps, theta, theta, own)
