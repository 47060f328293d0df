"""Score of a canary that takes part in exactly k of T steps: random allocation and balanced iteration sampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from tacit import check

Array = NDArray[np.float64]


class SubsetMean:
    """log of the mean over all k-subsets S of T steps of exp(sum of g_t, t in S), from one step after another.

    With E_j(t) the mean over the j-subsets of the first t steps, E_j(t) = (1 - j / t) E_j(t - 1) + (j / t) e^(g_t)
    E_(j-1)(t - 1), since step t is in a uniform j-subset with probability j / t. A pass ends after T steps; passes are
    independent, so that their logarithms add up. Steps that are to come have g_t = 0. A step costs k operations.

    Args:
        steps: T >= 1.
        participations: k in [1, T].

    Example:
        >>> mean = SubsetMean(steps=2)
        >>> for gains in ([np.log(3.0)], [0.0]):
        ...     mean.add(np.array(gains))
        >>> bool(np.isclose(mean.total[0], np.log(2.0)))
        True
    """

    def __init__(self, steps: int, participations: int = 1):
        self.steps, self.participations = check.count("steps", steps), check.count("participations", participations)
        if participations > steps:
            raise check.fail("participations", f"at most steps = {steps}", participations)
        self._done: Array | float = 0.0
        self._step = 0

    def add(self, gains: Array) -> None:
        """Count g_t of the next step, shape (canaries,)."""
        if self._step == 0:
            self._means = np.full((self.participations + 1, len(gains)), -np.inf)
            self._means[0] = 0.0
        self._step += 1
        # Smaller subsets of the first steps cannot grow to k any more.
        low = max(1, self.participations - (self.steps - self._step))
        size = np.arange(low, min(self._step, self.participations) + 1)[:, None]
        with np.errstate(divide="ignore"):
            without, with_it = np.log1p(-size / self._step), np.log(size / self._step)
        before = self._means
        self._means = before.copy()
        self._means[size[:, 0]] = np.logaddexp(without + before[size[:, 0]], with_it + gains + before[size[:, 0] - 1])
        if self._step == self.steps:
            self._done, self._step = self._done + self._means[self.participations], 0

    @property
    def total(self) -> Array:
        """The logarithm so far, shape (canaries,)."""
        if self._step == 0:
            return np.asarray(self._done)
        left = self.steps - self._step
        size = np.arange(max(0, self.participations - left), min(self._step, self.participations) + 1)
        ways = _choose(self._step, size) + _choose(left, self.participations - size)
        ways -= _choose(self.steps, np.array(self.participations))
        return self._done + np.asarray(logsumexp(ways[:, None] + self._means[size], axis=0))


class AllocationLikelihoodRatio:
    """Log likelihood ratio of a canary that takes part in k of every T steps, a uniform subset of its own.

    With x_t the release on the canary's direction in units of the clipping bound and g_t = (x_t - 1/2) / s^2, a pass
    has the ratio mean of exp(sum of g_t, t in S) over the k-subsets S: `RandomAllocation` with k = 1, an epoch being a
    pass, and `BalancedIteration`, whose pass is the run (Theorems 1.9 and 1.11 of the theory of the accountant).

    Args:
        noise_multiplier: the claimed s, > 0.
        steps: T >= 1.
        participations: k in [1, T].

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> ratio = AllocationLikelihoodRatio(1.0, steps=1)
        >>> ratio.add(np.array([0.0, 1.0]))
        >>> ratio.total
        array([-0.5,  0.5])
    """

    def __init__(self, noise_multiplier: float, steps: int, participations: int = 1):
        self._variance = check.positive("noise_multiplier", noise_multiplier) ** 2
        self._mean = SubsetMean(steps, participations)

    def add(self, release: Array) -> None:
        """Count one release, shape (canaries,)."""
        self._mean.add((np.asarray(release, dtype=float) - 0.5) / self._variance)

    @property
    def total(self) -> Array:
        """The score of each canary, shape (canaries,)."""
        return self._mean.total


def _choose(among: int, chosen: Array | NDArray[np.int64]) -> Array:
    """Log of the binomial coefficient."""
    return gammaln(among + 1) - gammaln(chosen + 1) - gammaln(among - chosen + 1)
