"""`GroupMonitor`: whether the batches of groups in turn are those of the sampling that is accounted for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.audit.allocation_monitor import AllocationMonitor, binomial_p_values
from tacit.audit.noise_monitor import ALARM
from tacit.audit.sampler_monitor import SamplerMonitor


class GroupMonitor:
    """Tests of batches that are drawn from one group of records after another.

    Every record has a uniform group of its own: sizes of groups against Binomial(n, 1 / groups). A batch holds records
    of its group alone. Within a group: Poisson sampling at `rate` by `SamplerMonitor`; or each record once in every
    `block` turns, at a uniform turn, by `AllocationMonitor`. The alarm is raised where the smallest p-value times the
    number of tests is below 1e-6.

    Args:
        groups: >= 1.
        rate: of a record at its group's turn, in (0, 1]; of no use with a `block`.
        block: turns of a group of which a record has one; None for Poisson sampling.

    Example:
        >>> monitor, group_of = GroupMonitor(2, rate=1.0), np.array([0, 1, 0, 1])
        >>> for turn in range(4):
        ...     monitor.add(np.flatnonzero(group_of == turn % 2), group_of)
        >>> monitor.passed
        True
    """

    def __init__(self, groups: int, *, rate: float, block: int | None = None):
        self.groups, self.rate, self.block = groups, rate, block
        self._wrong = False
        self._p_values: list[float] = []
        self._turn = 0
        self._members: list[NDArray[np.int64]] = []

    def add(self, batch: NDArray[np.int64], group_of: NDArray[np.int64]) -> None:
        """Count one batch, the numbers of its records, where record i is in group group_of[i]."""
        if not self._members:
            self._members = [np.flatnonzero(group_of == group) for group in range(self.groups)]
            sizes = np.array([len(members) for members in self._members])
            self._p_values += binomial_p_values(sizes, len(group_of), 1 / self.groups)
            self._inner = [self._monitor(max(1, len(members))) for members in self._members]
        group = self._turn % self.groups
        members = self._members[group]
        places = np.searchsorted(members, batch)
        self._wrong |= bool((group_of[batch] != group).any()) or len(np.unique(batch)) != len(batch)
        if not self._wrong and len(members):
            self._inner[group].add(places)
        self._turn += 1

    def _monitor(self, members: int) -> SamplerMonitor | AllocationMonitor:
        """That of the batches of one group, whose records are numbered anew."""
        return SamplerMonitor(members, self.rate) if self.block is None else AllocationMonitor(members, self.block)

    @property
    def passed(self) -> bool:
        """Whether no test raises the alarm; the only thing to print."""
        return self.p_value >= ALARM

    @property
    def p_value(self) -> float:
        """The smallest p-value times the number of tests, at most 1; a secret of the run."""
        if self._wrong:
            return 0.0
        seen = zip(self._inner, self._members, range(self._turn), strict=False)
        found = [*self._p_values, *(monitor.p_value for monitor, members, _ in seen if len(members))]
        return min(1.0, min(found, default=1.0) * len(found))
