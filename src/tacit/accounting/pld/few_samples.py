"""Steps of so little noise that nothing is lost by telling which of them sampled the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from scipy.special import erfcx, ndtr

from tacit.mechanisms.pairs import Pair, SampledGaussianPair
from tacit.tradeoff import ProfileCurve

_LEAST_MU = 16.0  # From this mu on the two bounds differ by a few per cent (see `FewSamples`).
_MOST_COUNTS = 200_000  # Counts in the window at most.
_ALLOWANCE = 1e-9  # Relative widening for rounding (Lemma 9.2): 8 units for each count of the widest window.
_MARGINS = (0.05, 0.5, 2.0, 8.0)  # Values of m in the lower bound; the best counts.

Parts = Sequence[tuple[Pair, int]]


class FewSamples:
    """delta and epsilon, as (lower, upper), of `steps` equal Poisson-subsampled Gaussian steps in one direction.

    Let K ~ Bin(steps, rate) be how many steps sample the record. Whoever knows K's steps sees K Gaussian steps, so by
    joint convexity delta(epsilon) <= E delta_{mu sqrt(K)}(epsilon), mu = 1 / sigma. A record removed: the loss of a
    step is at least log rate + mu^2 / 2 + mu Z where it is sampled and log(1 - rate) elsewhere, which bounds
    delta >= P(loss > epsilon + m) (1 - e^-m) from below. A record added: no step loses more than -log(1 - rate). The
    two bounds on epsilon differ by about log(1 / rate) / (mu^2 / 2), a few per cent where mu is 16 or more.
    """

    def __init__(self, pair: SampledGaussianPair, steps: int):
        self._pair, self._steps, self._mu = pair, steps, 1 / pair.sigma

    @cached_property
    def _counts(self) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Counts in a window, their probabilities, and what lies below and beyond it at most (Lemma 9.2)."""
        steps, rate = self._steps, self._pair.rate
        low, high = window(steps, rate)
        counts = np.arange(low, high + 1)
        mode = int(np.clip(int((steps + 1) * rate), low, high)) - low
        ratio = (steps - counts[:-1]) / (counts[1:]) * (rate / (1 - rate))
        masses = np.concatenate([np.cumprod(1 / ratio[:mode][::-1])[::-1], [1.0], np.cumprod(ratio[mode:])])
        below, beyond = (_log_chernoff(steps, rate, count) for count in (low - 1, high + 1))
        return counts, masses / masses.sum(), float(np.exp(below)), float(np.exp(beyond))

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at this epsilon."""
        return self._lower(epsilon) * (1 - _ALLOWANCE), min(self._upper(epsilon) * (1 + _ALLOWANCE), 1.0)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon that meets `delta`."""
        low, high = (ProfileCurve(bound).epsilon(delta) for bound in (self._lower, self._upper))
        return low * (1 - _ALLOWANCE), min(high, self._steps * self._pair.largest) * (1 + _ALLOWANCE)

    def ceiling(self, delta: float) -> float:
        """Return the upper bound, which is quick."""
        return self.epsilon(delta)[1]

    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """`delta`, which is quick everywhere."""
        return self.delta

    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """The upper side of `delta`, which is quick everywhere."""
        return lambda value: self.delta(value)[1]

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on delta at many epsilons."""
        both = np.array([self.delta(float(epsilon)) for epsilon in epsilons])
        return both[:, 0], both[:, 1]

    def _upper(self, epsilon: float) -> float:
        counts, masses, below, beyond = self._counts
        deltas = _gaussian_deltas(epsilon, self._mu * np.sqrt(counts))
        total = float(masses @ deltas + below * deltas[0]) + beyond
        if self._pair.remove:
            return min(total, 1.0)
        past = self._steps * self._pair.largest - epsilon
        return min(total, -np.expm1(-past)) if past > 0 else 0.0

    def _lower(self, epsilon: float) -> float:
        if not self._pair.remove:
            return 0.0
        counts, masses, below, beyond = self._counts
        rate, mu = self._pair.rate, self._mu
        least = counts * (mu**2 / 2 + np.log(rate)) + (self._steps - counts) * np.log1p(-rate)
        spread = mu * np.sqrt(np.maximum(counts, 1))
        sampled = masses * (counts > 0) * (1 - below - beyond)
        return max(
            float(sampled @ ndtr((least - epsilon - margin) / spread)) * -np.expm1(-margin) for margin in _MARGINS
        )


def _log_chernoff(steps: int, rate: float, count: int) -> float:
    """Return log of Chernoff's bound on the probability of `count` samples or more, or of as few, past the mean."""
    if not 0 <= count <= steps:
        return -np.inf
    value = count * np.log(steps * rate / count) if count else 0.0
    missed = steps - count
    return float(value + (missed * np.log(steps * (1 - rate) / missed) if missed else 0.0))


def few_samples(parts: Parts) -> FewSamples | None:
    """The bounds for `parts` where they are equal sampled Gaussian steps of mu at least 16; None otherwise."""
    if len(parts) != 1:
        return None
    pair, steps = parts[0]
    if not isinstance(pair, SampledGaussianPair):
        return None
    low, high = window(steps, pair.rate)
    wide = high - low > _MOST_COUNTS
    return None if steps == 1 or pair.sigma * _LEAST_MU > 1 or pair.rate == 1.0 or wide else FewSamples(pair, steps)


def window(steps: int, rate: float) -> tuple[int, int]:
    """Counts around the mean that hold all but a negligible part of the probability."""
    mean = steps * rate
    reach = 14 * np.sqrt(mean * (1 - rate)) + 40
    return max(int(mean - reach), 0), min(int(mean + reach) + 1, steps)


@np.errstate(over="ignore")
def _gaussian_deltas(epsilon: float, mus: np.ndarray) -> np.ndarray:
    """`gaussian_delta` at many mu; 0 for mu 0."""
    safe = np.maximum(mus, 1e-300)
    t = epsilon / safe - safe / 2
    density = np.exp(-t * t / 2) / 2
    after = density * erfcx((t + safe) / np.sqrt(2))
    early = t < -5.0
    before = np.where(early, ndtr(-t), density * erfcx(np.where(early, 0.0, t) / np.sqrt(2)))
    return np.where(mus > 0, np.maximum(before - after, 0.0), 0.0)
