"""Clipping granularity: privacy units (records or users) and parameter groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.gradients.rounding import single_slack


@dataclass(frozen=True)
class PrivacyUnits:
    """A unit is `size` records in a row; each parameter group of each unit is clipped by itself.

    Attributes:
        groups: group of every parameter, from 0; a parameter left out is in group 0.
        size: records in a unit, >= 1.
        weights: factor of every record's loss, shape (records,); None for 1.
        drawn: units of the logical batch, which the precision of its sum depends on; None for those at hand.
        additions: of parts of a logical batch in single precision, which round beside the sums of the parts.
        single_slack: public bound on the rounding of single-precision sums, see `tacit.gradients.rounding`.
    """

    groups: dict[str, int] = field(default_factory=dict)
    size: int = 1
    weights: Tensor | None = None
    drawn: int | None = None
    additions: int = 0
    single_slack: float = single_slack()

    @cached_property
    def group_count(self) -> int:
        """Number of parameter groups."""
        return max(self.groups.values(), default=0) + 1

    def group(self, name: str) -> int:
        """Group of the parameter `name`."""
        return self.groups.get(name, 0)

    def select(self, index: slice | Tensor) -> PrivacyUnits:
        """The units of the records in `index`, which splits none."""
        return self if self.weights is None else replace(self, weights=self.weights[index])


RECORD_UNITS = PrivacyUnits()


class UnitIds:
    """The privacy unit that every record of a batch belongs to, such as the user who made it.

    Args:
        owners: unit of every record of the batch, integers 0..count - 1, each at least once.
        average: whether the gradient of a unit is the mean of its records' instead of their sum.

    Example:
        >>> import numpy as np
        >>> UnitIds(np.array([0, 1, 1, 2])).count
        3
    """

    def __init__(self, owners: NDArray[np.int64], *, average: bool = False):
        self._order = np.argsort(owners, kind="stable")
        self._sizes = np.bincount(owners)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._average = average

    @property
    def count(self) -> int:
        """Number of units."""
        return len(self._sizes)

    def blocks(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Units of about equal size: (units, their records (units, size), weights (units, size)).

        Sizes are powers of two; a smaller unit is filled up with its own first record at weight 0.
        """
        widths = 2 ** np.ceil(np.log2(np.maximum(self._sizes, 1))).astype(np.int64)
        for width in np.unique(widths):
            units = np.flatnonzero(widths == width)
            place, size = np.arange(width)[None, :], self._sizes[units][:, None]
            real = place < size
            index = self._order[self._starts[units][:, None] + np.where(real, place, 0)]
            weights = real / size if self._average else real.astype(np.float64)
            yield (
                torch.from_numpy(units).to(device),
                torch.from_numpy(index).to(device),
                torch.from_numpy(weights).to(device),
            )
