"""Two-sided answers about very many unlike noises, and about Laplace steps of very little noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np

from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.fft import Parts, grouped_by_noise
from tacit.mechanisms.pairs import LaplacePair, Pair

_ROUNDED = 1e-13  # Relative rounding of the moved loss, a sum of as many products as there are unlike steps.
_LARGE = 60.0  # Loss of a Laplace step from which on all but e^-60 of its law is that of a moved one.


class GroupedDispatch:
    """delta and epsilon of one direction, as (lower, upper)."""

    def __init__(self, parts: Parts, lower: Parts, upper: Parts):
        self._exact, self._groups = Dispatch(parts), (lower, upper)
        self._known_delta = lru_cache(maxsize=32)(self._delta)
        self._known_epsilon = lru_cache(maxsize=32)(self._epsilon)

    @classmethod
    def of(cls, parts: Parts, distinct: int) -> GroupedDispatch | None:
        """Return `parts` by groups where they are more than `distinct` and grouping makes them fewer; else None."""
        if len(parts) <= distinct:
            return None
        lower, upper = grouped_by_noise(parts, distinct)
        return cls(parts, lower, upper) if len(upper) < len(parts) else None

    @cached_property
    def _lower(self) -> Dispatch:
        return Dispatch(self._groups[0])

    @cached_property
    def _upper(self) -> Dispatch:
        return Dispatch(self._groups[1])

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at this epsilon."""
        return self._known_delta(epsilon)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon >= 0 at which delta is at most `delta`."""
        return self._known_epsilon(delta)

    def ceiling(self, delta: float) -> float:
        """Return an upper bound on that epsilon that is quick and rough."""
        return self._exact.ceiling(delta)

    def _delta(self, epsilon: float) -> tuple[float, float]:
        found = self._exact.delta_on_line(epsilon)
        return found or (self._lower.delta(epsilon)[0], self._upper.delta(epsilon)[1])

    def _epsilon(self, delta: float) -> tuple[float, float]:
        found = self._exact.epsilon_on_line(delta)
        return found or (self._lower.epsilon(delta)[0], self._upper.epsilon(delta)[1])

    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """Return bounds on delta that are quick, and narrow around `epsilon`."""
        return self._exact.near(epsilon)

    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """Return upper bounds on delta that are quick, rough, and best around `epsilon`."""
        return self._exact.ceiling_near(epsilon)

    def sketch(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return rough (epsilons, deltas) down to `delta`, for searches."""
        return self._exact.sketch(delta)

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on delta at many epsilons."""
        return self._lower.profile(epsilons)[0], self._upper.profile(epsilons)[1]


class ShiftedDispatch:
    """Laplace steps of a loss above `_LARGE`, beside others, by steps of that loss.

    Under P the loss is epsilon - min(2 B E, 2 epsilon), E exponential and B a fair coin. With a smaller epsilon' it is
    at most that loss moved by epsilon - epsilon', and differs where E > epsilon' alone, of mass e^-epsilon' / 2.
    """

    def __init__(self, parts: Parts):
        large = [(pair, steps) for pair, steps in parts if is_large(pair)]
        self._shift = sum(steps * (pair.largest - _LARGE) for pair, steps in large)
        self._missed = float(np.exp(-_LARGE)) * sum(steps for _, steps in large)
        counted: dict[Pair, int] = {LaplacePair(_LARGE): sum(steps for _, steps in large)}
        for pair, steps in parts:
            if not is_large(pair):
                counted[pair] = counted.get(pair, 0) + steps
        self._inner = Dispatch(list(counted.items()))

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at this epsilon."""
        return self._moved(epsilon, self._inner.delta)

    def _moved(self, epsilon: float, delta: Callable[[float], tuple[float, float]]) -> tuple[float, float]:
        low, high = delta(max(self._below(epsilon), 0.0))[0], 1.0
        if self._above(epsilon) >= 0:
            high = delta(self._above(epsilon))[1]
        return max(low - self._missed, 0.0), high

    def _below(self, epsilon: float) -> float:
        """What is left of epsilon at most, its rounding and that of the shift included."""
        return epsilon - self._shift + _ROUNDED * self._shift

    def _above(self, epsilon: float) -> float:
        return epsilon - self._shift - _ROUNDED * self._shift

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon >= 0 at which delta is at most `delta`."""
        low = self._inner.epsilon(min(delta + self._missed, 1.0))[0]
        return low + self._shift * (1 - _ROUNDED) if low > 0 else 0.0, self._top(self._inner.epsilon(delta)[1])

    def _top(self, epsilon: float) -> float:
        return epsilon + self._shift * (1 + _ROUNDED)

    def ceiling(self, delta: float) -> float:
        """Return an upper bound on that epsilon that is quick and rough."""
        return self._top(self._inner.ceiling(delta))

    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """Return bounds on delta that are quick, and narrow around `epsilon`."""
        bounds = self._inner.near(max(self._above(epsilon), 0.0))
        return lambda value: self._moved(value, bounds)

    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """Return upper bounds on delta that are quick, rough, and best around `epsilon`."""
        bound = self._inner.ceiling_near(max(self._above(epsilon), 0.0))
        return lambda value: bound(self._above(value)) if self._above(value) >= 0 else 1.0

    def sketch(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return rough (epsilons, deltas) down to `delta`, for searches."""
        epsilons, deltas = self._inner.sketch(delta)
        return np.append(0.0, epsilons + self._shift), np.append(1.0, deltas)

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on delta at many epsilons."""
        low = self._inner.profile(np.maximum(epsilons - self._shift * (1 - _ROUNDED), 0.0))[0]
        high = np.ones(len(epsilons))
        above = epsilons - self._shift * (1 + _ROUNDED)
        if (above >= 0).any():
            high[above >= 0] = self._inner.profile(above[above >= 0])[1]
        return np.maximum(low - self._missed, 0.0), high


def is_large(pair: Pair) -> bool:
    """Whether it is a Laplace step of a loss above `_LARGE`."""
    return type(pair) is LaplacePair and pair.largest > _LARGE
