"""Saddle-point sketches of a profile: a few per cent from the exact one at a hundredth of its time, and no bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from tacit.errors import Refused
from tacit.tradeoff import Curve
from tacit.tradeoff.curve import PROFILE_END, profile_grid
from tacit.tradeoff.gaussian import gaussian_mu

_LEAST = 1e-300  # delta whose logarithm stands for that of 0


class Sketches(Protocol):
    """One direction that can be sketched."""

    def sketch(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return rough (epsilons, deltas) down to `delta`."""
        ...


class SketchCurve(Curve):
    """The largest of the sketches of all directions, for searches only: it may lie on either side of the truth.

    Args:
        directions: the directions of the relation.
    """

    def __init__(self, directions: Sequence[Sketches]):
        self._directions = directions

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the saddle at `delta`; raises `Refused` where there is none."""
        if not delta > 0.0:
            raise Refused("A sketch needs a delta above 0; ask the exact accountant.")
        found = [self._points(direction, delta) for direction in self._directions]
        return max(float(epsilons[-1]) for epsilons, _ in found)

    def delta(self, epsilon: float) -> float:
        """Return the delta between the saddles on both sides, on a log scale."""
        logs = [
            np.interp(epsilon, epsilons, np.log(np.maximum(deltas, _LEAST)), right=-np.inf)
            for epsilons, deltas in self._saddles
        ]
        return float(np.exp(max(logs)))

    def mu(self, slack: float) -> float:
        """Return the largest mu that the saddles ask for."""
        return self.mu_floor(slack)

    @cached_property
    def profile(self) -> tuple[np.ndarray, np.ndarray]:
        """(epsilons, deltas) on the grid of `Curve.profile`."""
        epsilons = profile_grid(max(float(each[-1]) for each, _ in self._saddles))
        return epsilons, np.array([self.delta(float(epsilon)) for epsilon in epsilons])

    def mu_floor(self, slack: float) -> float:
        """Return the same."""
        pairs = [
            pair for saddles in self._saddles for pair in zip(*(column.tolist() for column in saddles), strict=True)
        ]
        return max(gaussian_mu(epsilon, delta - slack) for epsilon, delta in pairs)

    @cached_property
    def _saddles(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [self._points(direction, PROFILE_END) for direction in self._directions]

    def _points(self, direction: Sketches, delta: float) -> tuple[np.ndarray, np.ndarray]:
        found = direction.sketch(delta)
        if not all(np.isfinite(column).all() for column in found):
            raise Refused("A sketch needs finite saddles; ask the exact accountant.")
        return found
