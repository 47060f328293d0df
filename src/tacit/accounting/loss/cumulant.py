"""K(theta) = log E_P[e^{theta L}; L finite] of a composition on the real line, from discretised losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Discrete:
    """Losses with the log of their P-masses, run `steps` times."""

    losses: np.ndarray
    log_masses: np.ndarray
    steps: int

    def above(self, log_floor: float) -> Discrete:
        """Without the masses below a floor, which must not be all of them."""
        keep = self.log_masses > min(log_floor, float(self.log_masses.max()) - 1.0)
        return Discrete(self.losses[keep], self.log_masses[keep], self.steps)

    def tilt(self, theta: float) -> tuple[float, np.ndarray]:
        """log sum p e^{theta loss} of one step, and the tilted probabilities."""
        exponent = self.log_masses + theta * self.losses
        top = float(exponent.max())
        weights = np.exp(exponent - top)
        total = float(weights.sum())
        return top + float(np.log(total)), weights / total


class Cumulant:
    """K and its first two derivatives for independent discrete parts."""

    low, high = 1e-9, 1e13

    def __init__(self, parts: Sequence[Discrete]):
        self.parts = parts

    def __call__(self, theta: float) -> float:
        return sum(part.steps * part.tilt(theta)[0] for part in self.parts)

    def jet(self, theta: float) -> tuple[float, float, float]:
        """K, K' and K'' at theta."""
        value = first = second = 0.0
        for part in self.parts:
            log_total, weights = part.tilt(theta)
            mean = float(weights @ part.losses)
            value += part.steps * log_total
            first += part.steps * mean
            second += part.steps * float(weights @ (part.losses - mean) ** 2)
        return value, first, second
