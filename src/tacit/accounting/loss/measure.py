"""What the saddle line integrates: a law of the summed loss, seen at one tilt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from tacit.accounting.loss.smooth import Smooth, SmoothGaussian


class Measure(ABC):
    """A (sub-probability) law of the summed loss, tilted by `theta`."""

    theta: float
    mean: float
    variance: float

    largest: float
    """The largest tilt that `log_moment` may be asked for."""

    left_out: float = 0.0
    """P-mass of the runs that this law leaves out, to be added to upper bounds."""

    @abstractmethod
    def log_moment(self, theta: float) -> float:
        """log E e^{theta L}."""

    @abstractmethod
    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Upper bound on log |phi| over each [t_j, t_{j+1}]."""

    @abstractmethod
    def transform(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """phi = E e^{(theta + it) L - it mean} / E e^{theta L} at multiples of t[1] > 0, with a bound on its error."""

    @abstractmethod
    def nodes(self, frequency: float) -> int:
        """How many terms `transform` sums for each t up to `frequency`."""

    @abstractmethod
    def blurred(self, variance: float) -> Measure:
        """Composed with a plain Gaussian step of this variance."""


class Product(Measure):
    """Independent steps."""

    def __init__(self, parts: Sequence[Smooth], theta: float):
        self.parts, self.theta = parts, theta
        self.largest = min(part.largest for part in parts)
        self.left_out = sum(part.left_out for part in parts)
        moments = [(part.steps, part.mean_and_variance()) for part in parts]
        self.mean, self.variance = (sum(steps * moment[k] for steps, moment in moments) for k in (0, 1))

    def log_moment(self, theta: float) -> float:
        return sum(part.steps * part.log_moment(theta) for part in self.parts)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        return sum((part.steps * part.log_decay(t) for part in self.parts), np.zeros(len(t) - 1))

    def transform(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_phi, slack = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        for part in self.parts:
            value, error = part.log_phi(t)
            log_phi += value
            slack += error
        phi = np.exp(log_phi)
        return phi, np.abs(phi) * np.expm1(np.minimum(slack, 50.0))

    def nodes(self, frequency: float) -> int:
        return sum(part.nodes(frequency) for part in self.parts)

    def blurred(self, variance: float) -> Measure:
        return Product([*self.parts, SmoothGaussian(variance**0.5, self.theta)], self.theta)
