"""What a white-box attacker makes of one canary's coordinate of every release.

A Dirac canary has a coordinate to itself: where it is sampled the release moves by the clipping bound there, and
nothing else but noise ever does. Its gradient is far longer than the bound, so what is seen is what the clip let
through.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tacit import check

_FAR = 600.0  # gains beyond this, which no sound trainer shows, are as good as this


@dataclass
class LikelihoodRatio:
    """Sum over releases of log(1 - q + q exp((x - 1/2) / s^2)): the best test, and the attacker's loss at each step.

    x is the release on the canary's direction in units of the clipping bound, N(0, s^2) without the canary and
    N(1, s^2) where it was sampled. The sum is > 0 where "in" is likelier.

    Args:
        noise_multiplier: the claimed s, > 0.
        sample_rate: the claimed q, in (0, 1].
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
            gain = np.log1p(self.sample_rate * np.expm1(np.minimum(gain, _FAR)))
        self.total = self.total + gain


@dataclass
class Jumps:
    """The energy of the differences between releases that follow each other, relative to 2 s^2 each, minus the count.

    Fresh noise makes it N(0, O(steps)) whether the canary is in or not, with a little more if it is. Noise that is
    drawn again and again cancels, and what is left are the steps at which the canary was sampled.
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
