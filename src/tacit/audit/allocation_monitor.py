"""`AllocationMonitor`: whether every record takes part in exactly k of T steps, in a uniform subset of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc

from tacit import check
from tacit.audit.noise_monitor import ALARM


class AllocationMonitor:
    """Tests of batches against allocation: each of n records in k of every T steps, a uniform subset drawn by itself.

    Without tolerance: no record twice in a batch, more than k times in a pass of T steps, or fewer when it ends. By
    exact binomial p-values: the size of every batch, Binomial(n, k / T); with k > 1 the records in a batch and the one
    before, Binomial(n, k (k - 1) / (T (T - 1))); with k = 1 the records that are in the same step as in the pass
    before, Binomial(n, 1 / T), which allocation that is not drawn anew fails. The alarm is raised where the smallest
    p-value times the number of tests is below 1e-6, which correct batches do with that probability at most.

    Args:
        records: n >= 1.
        steps: T >= 1.
        participations: k in [1, T].

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> monitor, draw = AllocationMonitor(1000, steps=4), np.random.default_rng(0)
        >>> for _ in range(3):
        ...     place = draw.integers(4, size=1000)
        ...     for step in range(4):
        ...         monitor.add(np.flatnonzero(place == step))
        >>> monitor.passed
        True
    """

    def __init__(self, records: int, steps: int, participations: int = 1):
        self.records, self.steps = check.count("records", records), check.count("steps", steps)
        if check.count("participations", participations) > steps:
            raise check.fail("participations", f"at most steps = {steps}", participations)
        self.participations = participations
        self._wrong = False
        self._p_values: list[float] = []
        self._turn = 0
        self._left = np.full(records, participations)
        self._last = np.zeros(records, bool)
        self._place = np.full(records, -1)
        self._again = 0

    def add(self, batch: NDArray[np.integer]) -> None:
        """Count one batch: the numbers of its records, below n."""
        inside = np.zeros(self.records, bool)
        inside[batch] = True
        self._wrong |= int(inside.sum()) != len(batch)
        step, k = self._turn % self.steps, self.participations
        self._left -= inside
        self._test(int(inside.sum()), k / self.steps)
        if step and k > 1:
            self._test(int((inside & self._last).sum()), k * (k - 1) / (self.steps * (self.steps - 1)))
        if k == 1:
            self._again += int((self._place[inside] == step).sum())
            self._place[inside] = step
        self._last = inside
        self._turn += 1
        if step == self.steps - 1:
            self._end_pass()

    def _end_pass(self) -> None:
        self._wrong |= bool(self._left.any())
        self._left[:] = self.participations
        if self.participations == 1 and self._turn > self.steps:
            self._test(self._again, 1 / self.steps)
        self._again = 0

    def _test(self, seen: int, rate: float) -> None:
        self._p_values += binomial_p_values(np.array([seen]), self.records, rate)

    @property
    def passed(self) -> bool:
        """Whether no test raises the alarm; the only thing to print."""
        return self.p_value >= ALARM

    @property
    def p_value(self) -> float:
        """The smallest p-value times the number of tests, at most 1; a secret of the run."""
        if self._wrong or (self._left < 0).any():
            return 0.0
        return min(1.0, min(self._p_values, default=1.0) * len(self._p_values))


def binomial_p_values(seen: NDArray[np.int64], trials: int, rate: float) -> list[float]:
    """Two-sided exact p-values of numbers of events, shape (tests,)."""
    below = bdtr(seen, trials, rate)
    above = np.where(seen > 0, bdtrc(seen - 1, trials, rate), 1.0)
    return np.minimum(1.0, 2 * np.minimum(below, above)).tolist()
