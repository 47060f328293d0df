"""Pairs of the discrete Gaussian mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.mechanisms.pairs.pair import Pair, log_mixture

_REACH = 38.0


@dataclass(frozen=True)
class DiscreteGaussianPair(Pair):
    """P = N_Z(shift, scale^2), Q = N_Z(0, scale^2): losses (2 x shift - shift^2) / (2 scale^2) at the integers x.

    For a noise law on the integers with monotone likelihood ratio H_a = sup_x P(X > x) - a Q(X > x), which grows with
    the shift. Integers beyond 38 scales, whose probability is below the smallest double, are left out.
    """

    scale: float
    shift: int

    @property
    def atoms(self) -> tuple[float, ...]:
        return tuple(float(loss) for loss in self.table[0][:2])

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._table

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = _integers(self.scale, self.shift)
        loss = (2 * x - self.shift) * (self.shift / (2 * self.scale**2))
        return loss, _normal(x - self.shift, self.scale), _normal(x, self.scale)

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _binned(edges, *self.table)


@dataclass(frozen=True)
class DiscreteGaussianReplacePair(Pair):
    """The Poisson-subsampled discrete Gaussian under replace-one: (1-p) N_0 + p N_d against (1-p) N_0 + p N_{-d}.

    The argument of `GaussianReplacePair` holds: the ratios are monotone, so opposite shifts make them comonotone, and
    their convex order grows with the shift.
    """

    scale: float
    shift: int
    rate: float

    @property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._table

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = _integers(self.scale, self.shift)
        x = np.union1d(x, -x)
        up, down = (
            log_mixture(self.rate, (s * 2 * x - self.shift) * (self.shift / (2 * self.scale**2))) for s in (1, -1)
        )
        base, plus, minus = (_normal(x - s, self.scale) for s in (0, self.shift, -self.shift))
        return up - down, (1 - self.rate) * base + self.rate * plus, (1 - self.rate) * base + self.rate * minus

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _binned(edges, *self.table)


def _integers(scale: float, shift: int) -> np.ndarray:
    return np.arange(-np.ceil(_REACH * scale), shift + np.ceil(_REACH * scale) + 1)


def _normal(x: np.ndarray, scale: float) -> np.ndarray:
    around = np.arange(-np.ceil(_REACH * scale), np.ceil(_REACH * scale) + 1)
    return np.exp(-((x / scale) ** 2) / 2) / np.exp(-((around / scale) ** 2) / 2).sum()


def _binned(edges: np.ndarray, loss: np.ndarray, p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    index = np.searchsorted(edges, loss, side="left")
    return np.bincount(index, p, len(edges) + 1), np.bincount(index, q, len(edges) + 1)
