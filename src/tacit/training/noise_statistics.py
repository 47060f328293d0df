"""`NoiseStatistics`: whether the noise of the releases of a run is independent N(0, 1) noise of the stated size."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import chdtr, chdtrc
from torch import Tensor

# Probability of an alarm in one test of a correct run; four tests at about twenty steps of a run make 1e-7 in all.
_ALARM = 1e-9
_FAR = 6.2  # standard deviations that a normal value reaches with half of that probability on either side
# Values for the normal law to hold in the tails that are read: of a sum of products, and of fourth powers, whose sum
# exceeds seven standard deviations with a probability below 1e-9 from there on.
_LEAST_PRODUCTS, _LEAST_POWERS, _FAR_POWERS = 5_000, 20_000, 7.0
_FAR_ANYWHERE = 7.9  # exceeded with a probability of 3e-15, at one of 2^17 distances below 1e-9


class NoiseStatistics:
    """Sums over z = (released sum - sum before noise) / standard deviation, step after step.

    Example:
        >>> statistics = NoiseStatistics()
        >>> for _ in range(10):
        ...     statistics.add(torch.randn(10_000))
        >>> statistics.alarm()
        ''
        >>> statistics.add(0.9 * torch.randn(200_000))
        >>> statistics.alarm()
        'of another size'
    """

    def __init__(self) -> None:
        self._count = self._products = 0
        self._squares = self._powers = self._lagged = 0.0
        self._last: Tensor | None = None

    def add(self, z: Tensor) -> None:
        """Count the noise of one step, shape (coordinates,), finite."""
        squares = z.square()
        self._count += z.numel()
        self._squares += float(squares.sum(dtype=torch.float64))
        self._powers += float(squares.square_().sum(dtype=torch.float64))
        if self._last is not None and len(self._last) == len(z):
            self._lagged += float(torch.dot(z, self._last))
            self._products += z.numel()
        self._last = z

    def alarm(self) -> str:
        """What is wrong with the noise so far; empty where every test is passed."""
        n = self._count
        if min(chdtr(n, self._squares), chdtrc(n, self._squares)) < _ALARM / 2:
            return "of another size"
        if n >= _LEAST_POWERS and abs(self._powers - 3 * n) > _FAR_POWERS * math.sqrt(96 * n):
            return "not normal"
        if self._products >= _LEAST_PRODUCTS and abs(self._lagged) > _FAR * math.sqrt(self._products):
            return "repeated at the next step"
        if self._last is not None and _repeats(self._last.double().cpu().numpy()):
            return "repeated within a step"
        return ""


def _repeats(z: np.ndarray) -> bool:
    """Whether values are correlated at any distance; products of too few are not looked at."""
    size = 1 << (2 * len(z) - 1).bit_length()
    sums = np.fft.irfft(np.abs(np.fft.rfft(z, size)) ** 2, size)[1 : len(z)]
    terms = np.arange(len(z) - 1, 0, -1)
    enough = terms >= _LEAST_PRODUCTS
    return bool((np.abs(sums[enough]) > _FAR_ANYWHERE * np.sqrt(terms[enough])).any())
