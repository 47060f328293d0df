"""Two-sided answers about very many unlike noises: one saddle line for all where it is enough, else two groupings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np

from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.noise_groups import Parts, grouped_by_noise


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
