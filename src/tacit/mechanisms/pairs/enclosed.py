"""`EnclosedPair`: a bound from above on a mechanism together with a pair that the mechanism is known to reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.mechanisms.pairs.base import Pair, Table
from tacit.mechanisms.pairs.discrete import AtomPair
from tacit.mechanisms.pairs.quadrature import Nodes

NOTHING = AtomPair((0.0,), (1.0,), (1.0,))
"""Two equal laws: what every mechanism dominates."""


@dataclass(frozen=True)
class EnclosedPair(Pair):
    """`above` dominates a mechanism for which no exact pair is in use; the mechanism dominates `below`.

    Args:
        above: a dominating pair, which answers from above.
        below: a pair of post-processing of the mechanism's outputs, which answers from below.
        also: another one, where it is not known which of the two says more.
    """

    above: Pair
    below: Pair
    also: Pair | None = None

    @property
    def infinity_mass(self) -> float:
        """Return that of `above`."""
        return self.above.infinity_mass

    @property
    def negative_infinity_mass(self) -> float:
        """Return that of `above`."""
        return self.above.negative_infinity_mass

    @property
    def largest(self) -> float:
        """Return that of `above`."""
        return self.above.largest

    @property
    def table(self) -> Table | None:
        """Return that of `above`."""
        return self.above.table

    @property
    def table_error(self) -> np.ndarray:
        """Return that of `above`."""
        return self.above.table_error

    def edge_error(self, size: float) -> float:
        """Return that of `above`."""
        return self.above.edge_error(size)

    @property
    def covering_mu(self) -> float:
        """Return that of `above`."""
        return self.above.covering_mu

    @property
    def reached(self) -> bool:
        """Return False: the two pairs only enclose the one that is reached."""
        return False

    def attained(self, share: float) -> Pair:
        """Return `below`, and `also`, if there is one, for a share above 0."""
        return self.also if self.also is not None and share > 0 else self.below

    def nodes(self, theta: float, frequency: float) -> Nodes | None:
        """Return those of `above`."""
        return self.above.nodes(theta, frequency)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those of `above`."""
        return self.above.bin_masses(edges)
