"""Pair of a group of records in a Poisson-subsampled Gaussian step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from scipy.special import log_ndtr

from tacit.mechanisms.pairs.base import LOSS_UNIT, Pair
from tacit.mechanisms.pairs.gaussian import normal_cells

LARGEST_GROUP = 256
"""Records of a group whose pair is computed: its cost grows with their number."""

_BLOCK = 1 << 14  # Losses whose places are found at once: memory.
_ITERATIONS = 100  # Convergence is quadratic from the first of them.
_LARGEST_LOSS = 1e300


@dataclass(frozen=True)
class SampledGroupPair(Pair):
    """A Poisson-subsampled Gaussian step for a group of `size` records, added or removed together.

    With N_i = N(i, sigma^2) and M = sum_i w_i N_i, w_i = P(Binomial(size, rate) = i): P = M, Q = N_0 when the group is
    removed; P = N_0, Q = M when it is added. It dominates, and parallel contributions reach it (THEORY.md, Theorem
    1.13; Charles et al. 2024, arXiv 2401.10294). With t = x / sigma^2, log dM/dN_0 = log sum_i e^{c_i + i t}, where
    c_i = log w_i - i^2 / (2 sigma^2).

    Args:
        sigma: noise multiplier, > 0.
        rate: sampling rate of a record, in (0, 1).
        size: in 2..`LARGEST_GROUP`.
        remove: whether the first of the two data sets holds the group.
    """

    sigma: float
    rate: float
    size: int
    remove: bool

    @property
    def covering_mu(self) -> float:
        """Return that of the step on all records, which dominates it."""
        return self.size / self.sigma

    @property
    def tail_mu(self) -> float:
        """Return size / sigma where the loss is unbounded: it is c_size + size x / sigma^2 or more."""
        return self.covering_mu if self.remove else 0.0

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return np.inf if self.remove else -float(self._logs[0])

    def edge_error(self, size: float) -> float:
        """Return four units of the edge, and 32 of each term of its place.

        At the place t of an edge, i |t| is at most the sum of the edge, c_i and c_0 for the i that count there; others
        are weighted by their posterior e^{c_i + i t - loss}, which falls faster than i |t| grows.
        """
        terms = 1 + size + float(np.abs(self._logs).max()) + (self.size / self.sigma) ** 2
        return LOSS_UNIT * (size + 8 * terms)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        z = self._places(loss if self.remove else -loss[::-1]) * self.sigma
        base = normal_cells(z)
        mixed = self._weights[0] * base
        for i in range(1, self.size + 1):
            mixed += self._weights[i] * normal_cells(z - i / self.sigma)
        return (mixed, base) if self.remove else (base[::-1], mixed[::-1])

    def log_q_above(self, loss: float) -> tuple[float, float]:
        """Log Phi(-z) at the noise z whose loss is the one given; z^2 doubles the relative error of z."""
        if not self.remove:
            return super().log_q_above(loss)
        z = float(self._places(np.array([loss]))[0]) * self.sigma
        terms = 1 + z * z + abs(loss) + float(np.abs(self._logs).max())
        return float(log_ndtr(-z)), 64 * LOSS_UNIT * terms

    @cached_property
    def _weights(self) -> np.ndarray:
        """w_0, ..., w_size."""
        chosen = [float(comb(self.size, i)) for i in range(self.size + 1)]
        i = np.arange(self.size + 1)
        return np.array(chosen) * np.exp(i * np.log(self.rate) + (self.size - i) * np.log1p(-self.rate))

    @cached_property
    def _logs(self) -> np.ndarray:
        """c_0, ..., c_size."""
        i = np.arange(self.size + 1)
        chosen = np.log([float(comb(self.size, k)) for k in range(self.size + 1)])
        weighed = chosen + i * np.log(self.rate) + (self.size - i) * np.log1p(-self.rate)
        return weighed - (i / self.sigma) ** 2 / 2

    def _places(self, loss: np.ndarray) -> np.ndarray:
        """The t with log sum_i e^{c_i + i t} = loss; -inf where loss <= c_0.

        Newton's steps on the convex log sum_{i > 0} e^{c_i + i t} = log(e^loss - e^{c_0}), whose slope is in [1, size],
        from a point to the right of the root and at most log(size) from it: every later point lies between the two.
        """
        place = np.full(loss.shape, -np.inf)
        inside = np.flatnonzero(loss > self._logs[0])
        for start in range(0, len(inside), _BLOCK):
            block = inside[start : start + _BLOCK]
            place[block] = self._solved(_log_expm1(np.minimum(loss[block] - self._logs[0], _LARGEST_LOSS)))
        return place

    def _solved(self, target: np.ndarray) -> np.ndarray:
        i, logs = np.arange(1, self.size + 1)[:, None], (self._logs[1:] - self._logs[0])[:, None]
        place = np.min((target - logs) / i, axis=0)
        known = 4 * LOSS_UNIT * (1 + np.abs(target) + np.abs(logs).max())
        for _ in range(_ITERATIONS):
            terms = logs + place * i
            top = terms.max(axis=0)
            weights = np.exp(terms - top)
            total = weights.sum(axis=0)
            missing = top + np.log(total) - target
            if np.all(np.abs(missing) <= known):
                return place
            place = place - missing * total / (weights * i).sum(axis=0)
        raise ArithmeticError(f"no noise was found for the losses of {self}")


def _log_expm1(value: np.ndarray) -> np.ndarray:
    """log(e^value - 1) for value > 0."""
    large = value + np.log1p(-np.exp(-np.maximum(value, 1.0)))
    return np.where(value > 1.0, large, np.log(np.expm1(np.minimum(value, 1.0))))
