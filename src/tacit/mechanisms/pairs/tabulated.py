"""`TabulatedPair`: a pair that is known by its finite losses, their masses, and no closed formula."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from tacit.mechanisms.pairs.base import LOSS_UNIT, Pair, Table, table_bin_masses
from tacit.mechanisms.pairs.quadrature import Nodes


class TabulatedPair(Pair):
    """A pair whose `table` holds all finite losses, each the difference of the logarithms of its two masses."""

    @property
    @abstractmethod
    def table(self) -> Table:
        """The finite losses, ascending, with their masses under P and Q."""

    @property
    def table_error(self) -> np.ndarray:
        """Return a bound on the rounding error of each loss: two logarithms and their difference."""
        loss, p, q = self.table
        return LOSS_UNIT * (np.abs(loss) + np.abs(np.log(p)) + np.abs(np.log(q)))

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return float(self.table[0][-1])

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        return Nodes(*self.table)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        return table_bin_masses(edges, *self.table)
