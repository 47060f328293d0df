"""Scores of a white-box attacker from one canary's coordinate of every release.

A Dirac canary has a coordinate of its own. Where it is sampled, the release moves by the clipping bound there; apart
from noise nothing else moves that coordinate. Its gradient is far longer than the bound, so the clip always acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tacit import check

_LARGEST_GAIN = 600.0  # e^709.8 is the largest double; no sound trainer comes near


@dataclass
class LikelihoodRatio:
    """Log likelihood ratio of a canary, the sum over releases of log(1 - q + q exp((x - 1/2) / s^2)).

    x is the release on the canary's direction in units of the clipping bound, N(0, s^2) without the canary and
    N(1, s^2) where it was sampled. The sum is > 0 where "in" is likelier; by Neyman and Pearson it is the best test.

    Args:
        noise_multiplier: the claimed s, > 0.
        sample_rate: the claimed q, in (0, 1].

    Attributes:
        total: the sum so far, shape (canaries,).

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> ratio = LikelihoodRatio(noise_multiplier=1.0, sample_rate=1.0)
        >>> ratio.add(np.array([0.0, 1.0]))
        >>> ratio.total
        array([-0.5, 0.5])
    """

    noise_multiplier: float
    sample_rate: float
    total: np.ndarray | float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        check.positive("noise_multiplier", self.noise_multiplier)
        check.probability("sample_rate", self.sample_rate, open_low=True)

    def add(self, release: np.ndarray) -> None:
        """Count one release, shape (canaries,)."""
        gain = (np.asarray(release, dtype=float) - 0.5) / self.noise_multiplier**2
        if self.sample_rate < 1.0:
            gain = np.log1p(self.sample_rate * np.expm1(np.minimum(gain, _LARGEST_GAIN)))
        self.total = self.total + gain


@dataclass
class ReleaseDifferences:
    """Sum over consecutive releases of (x_t - x_{t-1})^2 / (2 s^2) - 1.

    Fresh noise gives it mean 0 without the canary and a slightly larger mean with it. Reused noise cancels, which
    leaves the steps at which the canary was sampled.

    Args:
        noise_multiplier: the claimed s, > 0.

    Attributes:
        total: the sum so far, shape (canaries,).

    Example:
        >>> differences = ReleaseDifferences(noise_multiplier=1.0)
        >>> for release in ([0.0, 0.0], [2.0, 0.0]):
        ...     differences.add(np.array(release))
        >>> differences.total
        array([ 1., -1.])
    """

    noise_multiplier: float
    total: np.ndarray | float = field(default=0.0, init=False, repr=False)
    _last: np.ndarray | None = field(default=None, init=False, repr=False)

    def add(self, release: np.ndarray) -> None:
        """Count one release, shape (canaries,)."""
        release = np.asarray(release, dtype=float)
        if self._last is not None:
            self.total = self.total + (release - self._last) ** 2 / (2 * self.noise_multiplier**2) - 1
        self._last = release
