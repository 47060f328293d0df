"""Two steps: delta(epsilon) = E_{L1} H_2(epsilon - L1), H_2 the exact delta of the second step alone.

The outcomes of the first step are put into cells of its loss. Merging each cell into one outcome gives a lower bound
(data processing). Moving its P- and Q-masses to the two ends of the cell, which keeps both, gives an upper one. Both
meet the truth to second order in the width of the cells, which are halved where the two differ most.
"""

from __future__ import annotations

import numpy as np

from tacit.accounting.loss.cumulant import Discrete
from tacit.mechanisms.pairs import Pair

_UNIT = 2.0**-50
_CLOSE = 3e-8
_SLACK = 5
_PASSES = 60
_MOST = 20_000


class Double:
    """The composition of two steps, to be asked anywhere."""

    def __init__(self, first: Pair, second: Pair, outline: Discrete, theta: float, epsilon: float):
        """`outline` has losses of `first` from which the cells start; `theta` and `epsilon` say where a search may."""
        self.theta, self.epsilon = theta, epsilon
        self._first, self._second = first, second
        atoms = np.array([atom for atom in first.atoms if np.isfinite(atom)])
        self._edges = np.unique(np.concatenate([outline.losses, atoms, atoms - 1e-12 * np.abs(atoms)]))

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon)."""
        low, high = 0.0, 1.0
        # Cells that are good enough are left alone, so that a search sees one smooth function.
        wanted = _CLOSE * _SLACK
        for _ in range(_PASSES):
            lower, upper, error = self._cells(epsilon)
            low, high = float(lower.sum()) - error, float(upper.sum()) + error
            gap = upper - lower
            if gap.sum() <= wanted * high or len(gap) > _MOST:
                break
            wanted = _CLOSE
            self._halve(gap > 0.5 * _CLOSE * high / len(gap))
        infinite = self._first.infinite
        return infinite + max(low, 0.0), min(infinite + high, 1.0)

    def towards(self, delta: float) -> Double:
        """The same, with the place where its first few cells put `delta` as the one to search from."""
        low, high = 0.0, max(2 * float(self._edges[-1]), 1e-12)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if self._cells(middle)[0].sum() > delta else (low, middle)
        self.epsilon = high
        near, far = (float(self._cells(high * factor)[0].sum()) for factor in (1.0, 1.01))
        if near > far > 0:
            self.theta = float(np.log(near / far)) / (0.01 * high)
        return self

    def _halve(self, wide: np.ndarray) -> None:
        """Cut cells in two, where the first and the last, which have no end, are cut at twice their only one."""
        edges = self._edges
        ends = np.array([min(2 * edges[0], -1e-12), max(2 * edges[-1], 1e-12)])
        middles = np.concatenate([ends[:1], (edges[1:] + edges[:-1]) / 2, ends[1:]])
        self._edges = np.union1d(edges, middles[wide])

    def _cells(self, epsilon: float) -> tuple[np.ndarray, np.ndarray, float]:
        """What each cell adds to the lower and to the upper bound, and the rounding error of the sum."""
        edges = self._edges
        p, q = self._first.cells(edges)
        with np.errstate(divide="ignore", invalid="ignore"):
            centre = np.where((p > 0) & (q > 0), np.log(p) - np.log(q), -np.inf)
        left, right = np.append(edges[0], edges), np.append(edges, edges[-1])
        centre = np.clip(centre, np.append(-np.inf, edges), np.append(edges, np.inf))
        ask = np.concatenate([centre, edges])
        value, error = self._alone(epsilon - ask)
        merged, at_edge = value[: len(centre)], value[len(centre) :]
        width = np.maximum(right - left, 1e-300)
        share = np.clip(np.expm1(left - centre) / np.expm1(-width), 0.0, 1.0)
        high = share * np.append(at_edge, 1.0) + (1 - share) * np.append(at_edge[0], at_edge)
        high[0], high[-1] = at_edge[0], 1.0
        return p * merged, np.maximum(p * high, p * merged), float(p @ error[: len(centre)])

    def _alone(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """H_2 at any real epsilons, with its error."""
        points, place = np.unique(epsilons, return_inverse=True)
        finite = np.isfinite(points)
        p, q = self._second.cells(points[finite])
        above_p, above_q = np.zeros(len(points)), np.zeros(len(points))
        above_p[finite], above_q[finite] = (np.cumsum(mass[::-1])[::-1][1:] for mass in (p, q))
        above_p[points == -np.inf] = 1.0 - self._second.infinite
        with np.errstate(divide="ignore", over="ignore"):
            given = np.exp(np.minimum(points, 1e9) + np.log(above_q))
        value = np.clip(above_p - given, 0.0, None) + self._second.infinite
        return value[place], (_UNIT * (above_p + given))[place]
