"""One of two pairs, picked by a coin that both sides see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.mechanisms.pairs.pair import Pair


@dataclass(frozen=True)
class MixedPair(Pair):
    """`usual` with probability 1 - share, else `rare`; which one is revealed.

    H_a = (1 - share) H_a(usual) + share H_a(rare), so it dominates every mechanism whose divergence is such an average
    of divergences that the two dominate.

    Args:
        least: a pair that some mechanism of the family reaches.
    """

    usual: Pair
    rare: Pair
    share: float
    least: Pair

    @property
    def largest(self) -> float:
        return max(self.usual.largest, self.rare.largest)

    @property
    def reached(self) -> bool:
        return False

    def attained(self, share: float) -> Pair:
        return self.least.attained(share)

    @property
    def atoms(self) -> tuple[float, ...]:
        return (*self.usual.atoms, *self.rare.atoms)

    @property
    def infinite(self) -> float:
        return (1 - self.share) * self.usual.infinite + self.share * self.rare.infinite

    @property
    def unseen(self) -> float:
        return (1 - self.share) * self.usual.unseen + self.share * self.rare.unseen

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        usual, rare = self.usual.cells(edges), self.rare.cells(edges)
        p, q = ((1 - self.share) * often + self.share * seldom for often, seldom in zip(usual, rare, strict=True))
        return p, q
