"""`TreeStrategy`: the matrix of tree aggregation, whose rows are the sums over the nodes of a binary tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import check


@dataclass(frozen=True)
class TreeStrategy:
    """C with one row of ones over each block of 2^h steps that begins at a multiple of 2^h and ends within the run.

    Prefix sums are estimated from the noisy nodes by Honaker's estimator from below (Honaker 2015; Kairouz et al. 2021,
    arXiv:2103.00039). Entries are 0 and 1, so that the largest ||C (x - x')|| is that of equal contributions.

    Args:
        iterations: n >= 1, steps of the run.

    Example:
        >>> round(TreeStrategy(1000).sensitivity() ** 2, 6)
        10.0
    """

    iterations: int

    def __post_init__(self) -> None:
        check.count("iterations", self.iterations)

    @property
    def bands(self) -> int:
        """Steps that one contribution reaches: all."""
        return self.iterations

    @property
    def levels(self) -> int:
        """Heights of nodes: floor(log2 n) + 1."""
        return self.iterations.bit_length()

    def sensitivity(self, *, participations: int = 1, separation: int | None = None) -> float:
        """A bound on ||C (x - x')|| for records of norm 1 that take part so often, so many steps apart.

        A node of length L holds at most m = min(k, ceil(L / s)) of a record's steps, and the floor(n / L) nodes of a
        level k in sum, so a level adds at most what as many nodes of m as there can be, and one of the rest, add to the
        square (THEORY.md, Theorem 1.7). It is reached by a single participation, and by one in every s steps where s is
        a power of 2 and k s <= n.

        Args:
            participations: k >= 1, steps that use one record; counted as at most ceil(n / separation).
            separation: s >= 1, steps between the starts of two of them; n by default.
        """
        apart = self.iterations if separation is None else check.count("separation", separation)
        often = min(check.count("participations", participations), -(-self.iterations // apart))
        return float(sum(self._of_level(2**height, often, apart) for height in range(self.levels))) ** 0.5

    def _of_level(self, length: int, often: int, apart: int) -> int:
        """The largest sum of squares of participations in the nodes of one length."""
        most, nodes = min(often, -(-length // apart)), self.iterations // length
        full = min(often // most, nodes)
        return full * most**2 + (often - full * most) ** 2 * (full < nodes)

    def row_norms(self) -> np.ndarray:
        """Standard deviation of the noise on every step at sigma 1: that of the difference of two prefix estimates.

        Nodes in both estimates cancel. Left are the node of height h that the step completes, and the nodes of heights
        below h inside of it, whose covariance with it obeys K_h = (v_{h-1} + K_{h-1}) / (1 + 2 v_{h-1}), K_0 = 0.
        """
        variance = honaker_variances(self.levels)
        shared = np.zeros(self.levels)
        for height in range(1, self.levels):
            below = variance[height - 1]
            shared[height] = (below + shared[height - 1]) / (1 + 2 * below)
        inside = np.concatenate([[0.0], np.cumsum(variance)[:-1]])
        steps = np.arange(1, self.iterations + 1)
        completed = np.log2(steps & -steps).astype(int)
        return np.sqrt(variance + inside - 2 * shared)[completed]

    def over(self, iterations: int) -> TreeStrategy:
        """The strategy of a run of so many steps."""
        return TreeStrategy(iterations)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form, without the number of iterations."""
        return {"kind": "tree"}


def honaker_variances(levels: int) -> np.ndarray:
    """v_h = 2^h / (2^{h+1} - 1), h < levels: variance of the estimate of a node from noisy sums in its subtree."""
    height = np.arange(levels)
    return 2.0**height / (2.0 ** (height + 1) - 1)
