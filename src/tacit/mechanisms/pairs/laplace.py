"""Pairs of the one-dimensional Laplace mechanism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.mechanisms.pairs.base import LOSS_UNIT, Pair, between, log_mixture, unmixed
from tacit.mechanisms.pairs.quadrature import Nodes, legendre, steepness


@dataclass(frozen=True)
class LaplacePair(Pair):
    """P = Lap(epsilon), Q = Lap(0) of scale 1: the loss is clipped to [-epsilon, epsilon], with atoms at both ends."""

    epsilon: float

    def edge_error(self, size: float) -> float:
        """Return four units of the terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.epsilon)

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return self.epsilon

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        return (-self.epsilon, self.epsilon)

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        ends = np.array([self.epsilon, -self.epsilon])
        y, weight = legendre(-self.epsilon, self.epsilon, theta, frequency)
        p, q = (weight / 4 * np.exp((sign * y - self.epsilon) / 2) for sign in (1, -1))
        masses = np.array([0.5, np.exp(-self.epsilon) / 2])
        return Nodes(ends, masses, masses[::-1]).joined(Nodes(y, p, q))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        x = np.where(loss < self.epsilon, (loss + self.epsilon) / 2, np.inf)
        x = np.where(loss < -self.epsilon, -np.inf, x)
        return _laplace_cells(x - self.epsilon), _laplace_cells(x)


@dataclass(frozen=True)
class LaplaceReplacePair(Pair):
    """The Poisson-subsampled Laplace mechanism under replace-one.

    P = (1-p) Lap(0) + p Lap(epsilon), Q = (1-p) Lap(0) + p Lap(-epsilon), scale 1, epsilon = sensitivity / scale
    of one contribution. The argument of `GaussianReplacePair` holds word for word: Laplace likelihood ratios of
    a larger distance garble to those of a smaller one in one dimension, and opposite signs make the two ratios
    comonotone.
    """

    epsilon: float
    rate: float

    def edge_error(self, size: float) -> float:
        """Return four units of the terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.epsilon - float(np.log(self.rate)))

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return self.atoms[1]

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        ends = log_mixture(self.rate, np.array([self.epsilon, -self.epsilon]))
        return (float(ends[1] - ends[0]), float(ends[0] - ends[1]))

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """For x > 0 the loss is log(1-p + p e^y) - log(1-p + p e^{-epsilon}), y = min(2x - epsilon, epsilon)."""
        slope = steepness(self.rate, self.epsilon)
        y, weight = legendre(-self.epsilon, self.epsilon, slope * theta, slope * frequency)
        y = np.append(y, self.epsilon)
        base = np.append(weight / 4 * np.exp(-(y[:-1] + self.epsilon) / 2), np.exp(-self.epsilon) / 2)
        up, down = (log_mixture(self.rate, z) for z in (y, np.array(-self.epsilon)))
        right = Nodes(up - down, base * np.exp(up), base * np.exp(down))
        return right.joined(Nodes(-right.loss, right.q, right.p))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        positive = self._position(np.abs(loss), attained=loss >= 0)
        x = np.where(loss >= 0, positive, -positive)
        base, up, down = (_laplace_cells(x - shift * self.epsilon) for shift in (0.0, 1.0, -1.0))
        return (1 - self.rate) * base + self.rate * up, (1 - self.rate) * base + self.rate * down

    def _position(self, loss: np.ndarray, attained: np.ndarray) -> np.ndarray:
        """The x >= 0 where the loss is `loss` >= 0: Q's ratio is constant there, P's is e^{2x - epsilon}."""
        other = np.log1p(self.rate * np.expm1(-self.epsilon))
        y = unmixed(self.rate, loss + other)
        beyond = np.where(attained, y >= self.epsilon, y > self.epsilon)
        return np.where(beyond, np.inf, (np.minimum(y, self.epsilon) + self.epsilon) / 2)


def _laplace_cells(edges: np.ndarray) -> np.ndarray:
    tail = np.exp(-np.abs(edges)) / 2
    return between(np.where(edges < 0, tail, 1 - tail), np.where(edges < 0, 1 - tail, tail))
