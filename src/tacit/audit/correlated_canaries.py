"""`GroupedLikelihoodRatio`: the score of a canary that takes part in the steps of one group alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from tacit import check
from tacit.audit.allocation_canaries import SubsetMean
from tacit.mechanisms import BallsAndBins, CyclicAllocation, CyclicPoisson, Mechanism, MinSeparation, ToeplitzStrategy
from tacit.mechanisms.matrix import Strategy
from tacit.noise.correlated import Whitening

Separated = BallsAndBins | CyclicAllocation | CyclicPoisson | MinSeparation
"""Mechanisms whose records take part in the steps of one group alone."""

Array = NDArray[np.float64]


class GroupedLikelihoodRatio:
    """Log likelihood ratio of a canary whose group is known, as it is to the adversary of the proof.

    With y_t the inner product of the rows with what a participation in step t adds to them, c_t its squared norm and
    g_t = (y_t - c_t / 2) / s^2:

    - `CyclicPoisson`: the sum over the group's turns of log(1 - q + q exp(g_t)); columns of C are orthogonal there.
    - `CyclicAllocation`: the sum over blocks of T turns of log mean exp(g_t); a turn that is to come has g_t = 0.
    - `MinSeparation`: g of the pattern of all turns of the group.
    - `BallsAndBins`: log mean over the bins of exp(sum of g_t); a bin is secret.

    Args:
        mechanism: as claimed.
        strategy: C of the run.
        noise_multiplier: the claimed s, > 0.
        groups: gives the group of every canary after the run, shape (canaries,); of one that was left out, a random
            one.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> from tacit.mechanisms import MatrixGaussian
        >>> strategy = ToeplitzStrategy(2, (1.0,))
        >>> known = MinSeparation(MatrixGaussian(1.0, strategy), participations=1, separation=2)
        >>> ratio = GroupedLikelihoodRatio(known, strategy, 1.0, groups=lambda: np.array([0, 0]))
        >>> for release in ([0.0, 1.0], [5.0, 5.0]):
        ...     ratio.add(np.array(release))
        >>> ratio.total
        array([-0.5,  0.5])
    """

    def __init__(
        self, mechanism: Separated, strategy: Strategy, noise_multiplier: float, groups: Callable[[], NDArray[np.int64]]
    ):
        check.positive("noise_multiplier", noise_multiplier)
        self._mechanism, self._variance, self._groups = mechanism, noise_multiplier**2, groups
        self._whitening = Whitening(strategy)
        self._rows: list[Array] = []

    def add(self, release: Array) -> None:
        """Count one estimate, shape (canaries,), in units of the clipping bound."""
        self._rows.append(self._whitening.add(release))

    @property
    def total(self) -> Array:
        """The score of each canary, shape (canaries,)."""
        products = self._whitening.pulled_back(np.stack(self._rows))
        mechanism, steps = self._mechanism, len(products)
        if isinstance(mechanism, MinSeparation | BallsAndBins):
            apart = mechanism.separation if isinstance(mechanism, MinSeparation) else mechanism.steps_per_epoch
            # A pattern for each group, one step at a time: all of them are as many values as steps times groups.
            patterns = (np.equal(np.arange(apart), turn % apart).astype(float) for turn in range(steps))
            squares = self._whitening.squared_norms(patterns)
            along = np.stack([products[group::apart].sum(0) for group in range(apart)])
            gains = (along - squares[:, None] / 2) / self._variance
            if isinstance(mechanism, BallsAndBins):
                return np.asarray(logsumexp(gains, axis=0) - np.log(apart))
            return gains[self._groups(), np.arange(gains.shape[1])]
        assert isinstance(self._whitening.strategy, ToeplitzStrategy)
        squares = np.square(self._whitening.strategy.column_norms)
        gains = (products - squares[:, None] / 2) / self._variance
        groups = self._groups()
        total = np.zeros(products.shape[1])
        for group in range(mechanism.groups):
            own = groups == group
            total[own] = _of_turns(mechanism, gains[group :: mechanism.groups, own])
        return total


def _of_turns(mechanism: CyclicPoisson | CyclicAllocation, gains: Array) -> Array:
    """Log likelihood ratio from the gains of one group's turns, shape (turns, canaries)."""
    if isinstance(mechanism, CyclicPoisson):
        rate = mechanism.sample_rate
        return gains.sum(0) if rate == 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + gains).sum(0)
    mean = SubsetMean(mechanism.steps_per_block)
    for of_turn in gains:
        mean.add(of_turn)
    return mean.total


def separated(mechanism: Mechanism) -> Separated | None:
    """`mechanism` if its records take part in the steps of one group alone."""
    return mechanism if isinstance(mechanism, Separated) else None
