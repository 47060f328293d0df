"""Trade-off functions of f-DP and their calculus (Bu, Dong, Long & Su 2020).

A trade-off function f = T(P, Q) is represented by the most powerful tests of P against Q: segments of its graph, each
with a mass under P (its width) and under Q (its drop), sorted by falling likelihood ratio |f'| = q / p. Every operation
of the calculus is then one line on the masses. Continuous functions are cut into `SEGMENTS` pieces by tests, which can
only raise f (by about 1e-6); composition rounds losses to a grid so that it can only lower f.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import log_ndtr, ndtr

from tacit import check
from tacit.tradeoff.curve import lower_hull

SEGMENTS = 20001
"""Segments of a continuous function: the error is about 1e-6."""
_MOST_POINTS = 2**21  # of the FFT grid: 16 MiB a spectrum


@dataclass(frozen=True, eq=False)
class Function:
    """A trade-off function: convex, decreasing, f(alpha) <= 1 - alpha on [0, 1].

    Attributes:
        p: mass of each segment under P, >= 0, sum 1; zero outside the support of P (f(0) < 1).
        q: mass of each segment under Q, >= 0, sum 1, with q / p non-increasing.

    Example:
        >>> composed = gaussian(0.3).compose(gaussian(0.4))
        >>> bool(abs(composed(0.1) - gaussian(0.5)(0.1)) < 1e-3)
        True
    """

    p: np.ndarray
    q: np.ndarray

    def __call__(self, alpha: np.ndarray | float) -> np.ndarray:
        """f(alpha): the smallest type II error of a test of level alpha in [0, 1]."""
        at = np.concatenate([[0.0], np.cumsum(self.p)])
        missed = np.concatenate([[1.0], 1.0 - np.cumsum(self.q)])
        first = int(np.searchsorted(at, 0.0, side="right")) - 1
        return np.clip(np.interp(np.asarray(alpha, dtype=float), at[first:], missed[first:]), 0.0, 1.0)

    def inverse(self) -> Function:
        """Inverse f^{-1}(alpha) = inf{t : f(t) <= alpha} = T(Q, P)."""
        return Function(self.q[::-1].copy(), self.p[::-1].copy())

    def subsample(self, sample_rate: float) -> Function:
        """Subsampled function f_p = p f + (1 - p) Id, one direction of a Poisson sample (Bu et al., Section 3)."""
        rate = check.probability("sample_rate", sample_rate, open_low=True)
        return Function(self.p, rate * self.q + (1 - rate) * self.p)

    def symmetrized(self) -> Function:
        """min{f, f^{-1}}**: the greatest convex function below both directions."""
        x, y = np.cumsum(self.p), 1 - np.cumsum(self.q)
        hull = lower_hull(np.concatenate([[0.0, 0.0, 1.0], x, y]), np.concatenate([[1.0, 1.0, 0.0], y, x]))
        return Function(np.append(hull[0, 0], np.diff(hull[:, 0])), np.append(1 - hull[0, 1], -np.diff(hull[:, 1])))

    def compose(self, other: Function, *, step: float = 1e-4) -> Function:
        """Composition f (x) g, that of the product measures; losses are rounded to multiples of `step`."""
        return _from_losses([_losses(self, step), _losses(other, step)], [1, 1], step)

    def power(self, steps: int, *, step: float | None = None) -> Function:
        """Composition f^{(x) steps}; the grid defaults to 1e-3 / sqrt(steps)."""
        steps = check.count("steps", steps)
        grid = 1e-3 / np.sqrt(steps) if step is None else check.positive("step", step)
        return _from_losses([_losses(self, grid)], [steps], grid)

    def delta(self, epsilon: float) -> float:
        """The privacy profile 1 + f*(-e^eps) = sum (q - e^eps p)_+ of this direction."""
        return float(np.sum(np.maximum(self.q - np.exp(epsilon) * self.p, 0.0)))

    def renyi(self, order: float) -> float:
        """D_order(Q || P) = log(sum q^a p^{1 - a}) / (a - 1), order > 1 (Bu et al., equation 11)."""
        order = check.real("order", order, low=1.0, open_low=True)
        if np.any((self.p == 0) & (self.q > 0)):
            return float("inf")
        both = (self.p > 0) & (self.q > 0)
        terms = order * np.log(self.q[both]) + (1 - order) * np.log(self.p[both])
        return float(np.logaddexp.reduce(terms) / (order - 1))

    def kl(self) -> float:
        """-int_0^1 log|f'(x)| dx = E_P log(p / q)."""
        return float(-self._moment(1))

    def kappa2(self) -> float:
        """int_0^1 log^2 |f'(x)| dx."""
        return float(self._moment(2))

    def kappa3(self) -> float:
        """int_0^1 |log |f'(x)||^3 dx."""
        return float(self._moment(3))

    def chi2(self) -> float:
        """int_0^1 (|f'(x)| - 1)^2 dx."""
        if np.any((self.p == 0) & (self.q > 0)):
            return float("inf")
        inside = self.p > 0
        return float(np.sum((self.q[inside] - self.p[inside]) ** 2 / self.p[inside]))

    def _moment(self, power: int) -> float:
        if np.any((self.q == 0) & (self.p > 0)):
            return float("inf") if power > 1 else float("-inf")
        both = (self.p > 0) & (self.q > 0)
        logs = np.log(self.q[both]) - np.log(self.p[both])
        return float(np.sum(self.p[both] * (np.abs(logs) ** power if power == 3 else logs**power)))


def identity() -> Function:
    """Id(alpha) = 1 - alpha: perfect privacy."""
    return Function(np.array([1.0]), np.array([1.0]))


def gaussian(mu: float) -> Function:
    """G_mu = T(N(0, 1), N(mu, 1)), mu in (0, 30]."""
    mu = check.real("mu", mu, low=0.0, high=30.0, open_low=True)
    cuts = np.linspace(37.0, mu - 37.0, SEGMENTS)
    return Function(_between(cuts), _between(cuts - mu))


def epsilon_delta(epsilon: float, delta: float) -> Function:
    """f_{eps,delta}(alpha) = max{0, 1 - delta - e^eps alpha, e^{-eps} (1 - delta - alpha)} (Bu et al., equation 1)."""
    epsilon, delta = check.epsilon(epsilon), check.delta(delta)
    likely, rare = (1 - delta) / (1 + np.exp(-epsilon)), (1 - delta) / (1 + np.exp(epsilon))
    return Function(np.array([0.0, rare, likely, delta]), np.array([delta, likely, rare, 0.0]))


def from_profile(epsilons: np.ndarray, deltas: np.ndarray) -> Function:
    """The largest symmetric trade-off function whose profile is at most deltas[i] at epsilons[i] >= 0 (tangents)."""
    slopes = np.concatenate([-np.exp(epsilons), -np.exp(-epsilons), [0.0, -1.0]])
    heights = np.concatenate([1 - deltas, np.exp(-epsilons) * (1 - deltas), [0.0, 0.0]])
    alpha = np.concatenate([[0.0], np.geomspace(1e-16, 1e-3, 4000), np.linspace(1e-3, 1.0, 4001)[1:]])
    beta = np.max(slopes[:, None] * alpha + heights[:, None], axis=0)
    hull = lower_hull(alpha, np.clip(beta, 0.0, 1 - alpha))
    return Function(np.append(0.0, np.diff(hull[:, 0])), np.append(1 - hull[0, 1], -np.diff(hull[:, 1])))


def _between(cuts: np.ndarray) -> np.ndarray:
    """Standard normal mass between falling cuts, the outer two included, without cancellation in either tail."""
    upper = np.where(cuts > 0, ndtr(-cuts), np.nan)
    lower = np.where(cuts <= 0, ndtr(cuts), np.nan)
    inner = np.where(cuts[1:] > 0, upper[1:] - upper[:-1], np.where(cuts[:-1] <= 0, lower[:-1] - lower[1:], np.nan))
    crossing = np.isnan(inner)
    inner[crossing] = 1 - upper[:-1][crossing] - lower[1:][crossing]
    return np.concatenate([[np.exp(log_ndtr(-cuts[0]))], inner, [np.exp(log_ndtr(cuts[-1]))]])


@dataclass(frozen=True)
class _Losses:
    """Mass under Q on the loss grid (first + k) * step, and the Q mass of infinite loss."""

    first: int
    mass: np.ndarray
    infinity: float


def _losses(function: Function, step: float) -> _Losses:
    """log(q / p) under Q, each split over its two grid neighbours so that both masses are kept (f can only fall)."""
    both = (function.p > 0) & (function.q > 0)
    q, p = function.q[both], function.p[both]
    loss = np.log(q) - np.log(p)
    keep = q > 1e-280
    q, loss = q[keep], loss[keep]
    grid_point = np.floor(loss / step).astype(int)
    # w e^{-g} + (1 - w) e^{-g - step} = e^{-loss} keeps the mass under P.
    weight = np.expm1(-(loss - (grid_point + 1) * step)) / np.expm1(step)
    first = int(grid_point.min())
    mass = np.zeros(int(grid_point.max()) - first + 2)
    np.add.at(mass, grid_point - first, q * weight)
    np.add.at(mass, grid_point - first + 1, q * (1 - weight))
    return _Losses(first, mass, float(np.sum(function.q[~both])))


def _from_losses(parts: list[_Losses], powers: list[int], step: float) -> Function:
    first = sum(part.first * times for part, times in zip(parts, powers, strict=True))
    size = sum((len(part.mass) - 1) * times for part, times in zip(parts, powers, strict=True)) + 1
    window = min(size, _MOST_POINTS)
    mean = sum(
        times * float(np.dot(part.mass, np.arange(len(part.mass)))) for part, times in zip(parts, powers, strict=True)
    )
    start = 0 if window == size else int(np.clip(mean - window / 2, 0, size - window))
    length = int(next_fast_len(window, real=True) or window)
    transform = np.ones(length // 2 + 1, dtype=complex)
    for part, times in zip(parts, powers, strict=True):
        folded = np.zeros(length)
        np.add.at(folded, np.arange(len(part.mass)) % length, part.mass)
        transform *= np.fft.rfft(folded) ** times
    mass = np.roll(np.maximum(np.fft.irfft(transform, length), 0.0), -(start % length))[:window]
    finite = float(np.prod([(1 - part.infinity) ** times for part, times in zip(parts, powers, strict=True)]))
    loss = (first + start + np.arange(window)) * step
    mass[mass < 1e-17] = 0.0
    q = mass * finite / mass.sum()
    p = q * np.exp(-loss)
    order = slice(None, None, -1)
    left = max(1.0 - float(p.sum()), 0.0)
    return Function(
        np.concatenate([[0.0], p[order], [left]]) / (p.sum() + left), np.concatenate([[1 - finite], q[order], [0.0]])
    )
