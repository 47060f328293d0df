"""Pairs of Gaussian noise whose mean is drawn: any mixture, and a group of records in a Poisson-subsampled step."""

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
class GaussianMixturePair(Pair):
    """N_0 against the mixture M = sum_i w_i N(s_i, sigma^2), 0 = s_0 < s_1 < ...

    P = M, Q = N_0 where `remove`; P = N_0, Q = M otherwise. With t = x / sigma^2, log dM/dN_0 = log sum_i
    e^{c_i + s_i t}, where c_i = log w_i - s_i^2 / (2 sigma^2).

    Args:
        sigma: standard deviation of the noise, > 0.
        shifts: s_0 = 0 and one or more larger ones, increasing.
        log_weights: log w_i; that of s_0 may be -inf.
        remove: whether P is the mixture.
    """

    sigma: float
    shifts: tuple[float, ...]
    log_weights: tuple[float, ...]
    remove: bool

    @classmethod
    def of_group(cls, sigma: float, rate: float, size: int, *, remove: bool) -> GaussianMixturePair:
        """A Poisson-subsampled Gaussian step for a group of records, added or removed together.

        s_i = i and w_i = P(Binomial(size, rate) = i). It dominates, and parallel contributions reach it (THEORY.md,
        Theorem 1.13; Charles et al. 2024, arXiv 2401.10294).

        Args:
            sigma: noise multiplier, > 0.
            rate: sampling rate of a record, in (0, 1).
            size: in 2..`LARGEST_GROUP`.
            remove: whether the first of the two data sets holds the group.
        """
        i = np.arange(size + 1)
        chosen = np.log([float(comb(size, k)) for k in range(size + 1)])
        logs = chosen + i * np.log(rate) + (size - i) * np.log1p(-rate)
        return cls(sigma, tuple(i.astype(float).tolist()), tuple(logs.tolist()), remove)

    @property
    def covering_mu(self) -> float:
        """Return that of the largest shift alone, which dominates it."""
        return self.shifts[-1] / self.sigma

    @property
    def tail_mu(self) -> float:
        """Return the same where the loss is unbounded: it is c_i + s_i x / sigma^2 or more for the largest shift."""
        return self.covering_mu if self.remove or self.log_weights[0] == -np.inf else 0.0

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return np.inf if self.remove else -float(self._logs[0])

    def edge_error(self, size: float) -> float:
        """Return four units of the edge, and 32 of each term of its place.

        At the place t of an edge, s_i |t| is at most the sum of the edge, c_i and c_0 for the i that count there;
        others are weighted by their posterior e^{c_i + s_i t - loss}, which falls faster than s_i |t| grows.
        """
        terms = 1 + size + self._log_size + (self.shifts[-1] / self.sigma) ** 2
        return LOSS_UNIT * (size + 8 * terms)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        z = self._places(loss if self.remove else -loss[::-1]) * self.sigma
        base = normal_cells(z)
        weights = np.exp(self.log_weights)
        mixed = weights[0] * base
        for shift, weight in zip(self.shifts[1:], weights[1:], strict=True):
            mixed += weight * normal_cells(z - shift / self.sigma)
        return (mixed, base) if self.remove else (base[::-1], mixed[::-1])

    def log_q_above(self, loss: float) -> tuple[float, float]:
        """Log Phi(-z) at the noise z whose loss is the one given; z^2 doubles the relative error of z."""
        if not self.remove:
            return super().log_q_above(loss)
        z = float(self._places(np.array([loss]))[0]) * self.sigma
        return float(log_ndtr(-z)), 64 * LOSS_UNIT * (1 + z * z + abs(loss) + self._log_size)

    @cached_property
    def _logs(self) -> np.ndarray:
        """c_0, c_1, ..."""
        return np.array(self.log_weights) - (np.array(self.shifts) / self.sigma) ** 2 / 2

    @cached_property
    def _log_size(self) -> float:
        return float(np.abs(self._logs[np.isfinite(self._logs)]).max())

    def _places(self, loss: np.ndarray) -> np.ndarray:
        """The t with log sum_i e^{c_i + s_i t} = loss; -inf where loss <= c_0.

        Newton's steps on the convex log sum_{i > 0} e^{c_i + s_i t} = log(e^loss - e^{c_0}), whose slope is between the
        least and the largest shift, from a point to the right of the root, at most log(shifts) / s_1 from it: every
        later point lies between the two.
        """
        place = np.full(loss.shape, -np.inf)
        inside = np.flatnonzero(loss > self._logs[0])
        still = float(self._logs[0]) if np.isfinite(self._logs[0]) else None
        for start in range(0, len(inside), _BLOCK):
            block = inside[start : start + _BLOCK]
            value = np.clip(loss[block], -_LARGEST_LOSS, _LARGEST_LOSS)
            # Relative to c_0, which keeps the digits of losses next to it.
            target = value if still is None else _log_expm1(np.minimum(value - still, _LARGEST_LOSS))
            place[block] = self._solved(target, still or 0.0)
        return place

    def _solved(self, target: np.ndarray, less: float) -> np.ndarray:
        shifts, logs = np.array(self.shifts[1:])[:, None], (self._logs[1:] - less)[:, None]
        place = np.min((target - logs) / shifts, axis=0)
        known = 4 * LOSS_UNIT * (1 + np.abs(target) + np.abs(logs).max())
        for _ in range(_ITERATIONS):
            terms = logs + place * shifts
            top = terms.max(axis=0)
            weights = np.exp(terms - top)
            total = weights.sum(axis=0)
            missing = top + np.log(total) - target
            if np.all(np.abs(missing) <= known):
                return place
            place = place - missing * total / (weights * shifts).sum(axis=0)
        raise ArithmeticError(f"no noise was found for the losses of {self}")


def _log_expm1(value: np.ndarray) -> np.ndarray:
    """log(e^value - 1) for value > 0."""
    large = value + np.log1p(-np.exp(-np.maximum(value, 1.0)))
    return np.where(value > 1.0, large, np.log(np.expm1(np.minimum(value, 1.0))))
