"""`BatchStatistics`: whether the batches of a run are those that its ledger states."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import bdtr, bdtrc, chdtr

from tacit.mechanisms import FixedSize, Mechanism, Poisson, TruncatedPoisson
from tacit.sampling import Batch

# Probability of an alarm in one test of a correct run; three tests at about twenty steps of a run make 1e-7 in all.
_ALARM = 1e-9
_FAR = 6.2  # standard deviations that a normal value reaches with that probability
# Variance of a batch size and number of batches from which the sum of its squared deviations is a chi-square.
_LEAST_VARIANCE, _LEAST_BATCHES = 20.0, 32
_LEAST_RECORDS = 1000  # drawn ones, for their mean number to be normal


class BatchStatistics:
    """Sizes and places of the batches that are charged.

    Args:
        records: n >= 1.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> statistics, draw = BatchStatistics(1000), np.random.default_rng(0)
        >>> for _ in range(50):
        ...     batch = Batch(np.flatnonzero(draw.random(1000) < 0.2))
        ...     found = statistics.add(batch, Gaussian(1.0).poisson(0.2))
        >>> found, statistics.alarm(), BatchStatistics(9).add(Batch(np.array([1, 1])), Gaussian(1.0).poisson(0.2))
        ('', '', 'hold a record twice')
    """

    def __init__(self, records: int):
        self._records = records
        self._drawn, self._places = 0, 0.0
        self._sizes: dict[float, list[int]] = {}

    def add(self, batch: Batch, mechanism: Mechanism) -> str:
        """Count a batch that is charged as `mechanism`; what is wrong with it alone, empty for nothing."""
        indices = batch.indices
        if len(indices) > 1 and not (np.diff(indices) > 0).all() and len(np.unique(indices)) < len(indices):
            return "hold a record twice"
        if batch.owners is not None:
            return ""
        self._drawn += len(indices)
        self._places += float(indices.sum())
        if isinstance(mechanism, Poisson):
            self._sizes.setdefault(mechanism.sample_rate, []).append(len(indices))
        if isinstance(mechanism, FixedSize) and len(indices) != mechanism.batch_size:
            return "are of another size"
        if isinstance(mechanism, TruncatedPoisson) and len(indices) > mechanism.cap:
            return "are of another size"
        return ""

    def alarm(self) -> str:
        """What is wrong with the batches so far; empty where every test is passed."""
        for rate, sizes in self._sizes.items():
            if said := self._sizes_alarm(rate, np.array(sizes)):
                return said
        # Drawn without preference, the numbers of records have mean (n - 1) / 2 and variance at most n^2 / 12.
        middle = self._drawn * (self._records - 1) / 2
        spread = self._records * math.sqrt(self._drawn / 12)
        if self._drawn >= _LEAST_RECORDS and abs(self._places - middle) > _FAR * spread:
            return "prefer some records"
        return ""

    def _sizes_alarm(self, rate: float, sizes: np.ndarray) -> str:
        trials, seen = self._records * len(sizes), int(sizes.sum())
        if rate == 1:
            return "" if seen == trials else "are drawn at another rate"
        low, high = bdtr(seen, trials, rate), bdtrc(seen - 1, trials, rate) if seen else 1.0
        if min(low, high) < _ALARM / 2:
            return "are drawn at another rate"
        variance = self._records * rate * (1 - rate)
        if len(sizes) < _LEAST_BATCHES or variance < _LEAST_VARIANCE:
            return ""
        deviations = float(np.square(sizes - self._records * rate).sum()) / variance
        return "vary too little in size" if chdtr(len(sizes), deviations) < _ALARM else ""
