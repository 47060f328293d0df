"""The pair of objective perturbation: a Gaussian loss that never falls below 0, raised by a constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tacit.mechanisms.pairs.gaussian import GaussianPair
from tacit.mechanisms.pairs.pair import Pair, between


@dataclass(frozen=True)
class FlooredGaussianPair(Pair):
    """The law of the loss `shift` + max(0, mu^2 / 2 + mu Z), Z ~ N(0, 1), under P; Q has density e^{-loss} P.

    Q's missing mass, 1 - 2 Phi(-mu / 2) e^{-shift}, lies where P never is. For epsilon >= shift the profile is
    delta_mu(epsilon - shift), that of the Gaussian mechanism moved by `shift`.
    """

    mu: float
    shift: float

    @property
    def atoms(self) -> tuple[float, ...]:
        return (self.shift,)

    @property
    def unseen(self) -> float:
        return float(max(1 - 2 * ndtr(-self.mu / 2) * np.exp(-self.shift), 0.0))

    def attained(self, share: float) -> GaussianPair:
        """That of a linear loss, whose gradient is a corner everywhere and whose Hessian is zero."""
        return GaussianPair(self.mu)

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        loss = np.asarray(edges, dtype=float) - self.shift
        z = np.where(loss >= 0, np.maximum(loss, 0.0) / self.mu - self.mu / 2, -np.inf)
        p = between(ndtr(z), ndtr(-z))
        scale = np.exp(-self.shift)
        # Q at the atom: P's mass there; above it a normal law moved by mu.
        atom = ndtr(-self.mu / 2)
        moved = z + self.mu
        lower = np.where(loss >= 0, ndtr(moved) - ndtr(self.mu / 2) + atom, 0.0)
        upper = np.where(loss >= 0, ndtr(-moved), 2 * atom)
        below = np.concatenate([[0.0], lower, [2 * atom]])
        above = np.concatenate([[2 * atom], upper, [0.0]])
        q = np.where(above[:-1] < atom / 2, above[:-1] - above[1:], np.diff(below))
        return p, np.maximum(q, 0.0) * scale
