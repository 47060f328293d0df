"""Pairs of the Gaussian mechanism, plain and Poisson-subsampled, and of objective perturbation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit.mechanisms.pairs.base import LOSS_UNIT, Pair, between, unmixed
from tacit.root_finding import bracketed_root


@dataclass(frozen=True)
class GaussianPair(Pair):
    """P = N(mu, 1), Q = N(0, 1): the loss is N(mu^2/2, mu^2) under P and N(-mu^2/2, mu^2) under Q."""

    mu: float
    covering_mu = tail_mu = property(attrgetter("mu"))

    def edge_error(self, size: float) -> float:
        """Return four units of the two terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.mu**2)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        x = np.asarray(edges, dtype=float) / self.mu
        return normal_cells(x - self.mu / 2), normal_cells(x + self.mu / 2)


@dataclass(frozen=True)
class SampledGaussian(Pair):
    """A Poisson-subsampled Gaussian step of noise std `sigma` and rate `rate` in (0, 1], for a contribution of norm 1.

    A smaller sigma and a larger rate dominate: noise of a larger sigma is that of a smaller one plus more noise, and a
    sample of a sample is a sample (post-processing).

    Attributes:
        symmetric: whether P and Q are mirror images, as under replace-one.
        loss_sign: 1.0 where the loss grows with the noise, -1.0 where it falls.
    """

    sigma: float
    rate: float
    symmetric = False
    loss_sign = 1.0

    def edge_error(self, size: float) -> float:
        """Return four units of the edge, and eight of each term of its place, with the slope of the loss there.

        The place is known to units of the loss, log rate and 1 / sigma^2; the slope is the posterior weight of the
        shifted component, 1 - (1 - rate) e^-|loss| <= rate + |loss|, and twice that of two mixtures.
        """
        terms = 1 + size - float(np.log(self.rate)) + self.sigma**-2
        return LOSS_UNIT * (size + 4 * min(1.0, self.rate + size) * terms)

    @cached_property
    def kind(self) -> SampledGaussian:
        """The pair with unit parameters, the same for all steps of one kind under one relation and direction."""
        return replace(self, sigma=1.0, rate=1.0)

    @property
    def covering_mu(self) -> float:
        """Return that of the step on all records, which dominates it."""
        return (2.0 if self.symmetric else 1.0) / self.sigma

    @property
    def tail_mu(self) -> float:
        """1 / sigma where the loss is unbounded: it is log rate - 1 / (2 sigma^2) + x / sigma^2 or more for x >= 0.

        x is N(1, sigma^2) where the record is sampled. Under replace-one Q keeps its component around 0, whose density
        is the larger one for x >= 0, unless the rate is 1.
        """
        return 0.0 if self.loss_sign < 0 and self.rate < 1 else (self.covering_mu if self.rate == 1 else 1 / self.sigma)

    def noise_at(self, loss: np.ndarray) -> np.ndarray:
        """The noise, in its standard deviations, at which the loss is the one given."""
        raise NotImplementedError


@dataclass(frozen=True)
class SampledGaussianPair(SampledGaussian):
    """One direction of the Poisson-subsampled Gaussian of noise std `sigma` and rate `rate` in (0, 1].

    With N_u = N(u, sigma^2) and M = (1 - rate) N_0 + rate N_1: P = M, Q = N_0 when a record is removed;
    P = N_0, Q = M when it is added (Mironov, Talwar & Zhang 2019; Zhu, Dong & Wang 2022, Theorem 11).
    In both, log dM/dN_0 at x is log(1 - rate + rate e^{(2x - 1) / (2 sigma^2)}).
    """

    remove: bool

    @property
    def loss_sign(self) -> float:
        """Return 1.0 where the loss grows with the noise, else -1.0."""
        return 1.0 if self.remove else -1.0

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return np.inf if self.remove or self.rate == 1.0 else -float(np.log1p(-self.rate))

    def noise_at(self, loss: np.ndarray) -> np.ndarray:
        """Return the noise of the loss log dM/dN_0, or that less its sign where a record is added."""
        return unmixed(self.rate, loss if self.remove else -loss) * self.sigma + 0.5 / self.sigma

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        x = self.noise_at(loss) if self.remove else self.noise_at(loss)[::-1]
        base, shifted = normal_cells(x), normal_cells(x - 1 / self.sigma)
        mixed = (1 - self.rate) * base + self.rate * shifted
        return (mixed, base) if self.remove else (base[::-1], mixed[::-1])

    def log_q_above(self, loss: float) -> tuple[float, float]:
        """Log Phi(-x) at the noise x whose loss is the one given; x^2 doubles the relative error of x."""
        if not self.remove:
            return super().log_q_above(loss)
        x = float(self.noise_at(np.array(loss)))
        return float(log_ndtr(-x)), 16 * LOSS_UNIT * (1 + x * x + abs(loss))


@dataclass(frozen=True)
class GaussianReplacePair(SampledGaussian):
    """The Poisson-subsampled Gaussian under replace-one: P = (1-p) N_0 + p N_1, Q = (1-p) N_0 + p N_{-1}.

    It dominates: let g be the output law without the record, and u, v (norms <= 1) what the record and its
    replacement add, so that P' = (1-p) N_0 + p N_u and Q' = (1-p) N_0 + p N_v. For a >= 1,
    H_a(P', Q') = E_{N_u}[(p - (a-1)(1-p) e^Y - a p e^Z)_+], where Y = log N_0/N_u and Z = log N_v/N_u are
    likelihood ratios of Gaussians at distances |u| <= 1 and |u - v| <= 2. The bracket is convex in the sum; a sum
    of positive multiples of variables with given laws is largest in convex order when they are comonotone, and
    grows with each law; e^Y and e^Z grow in convex order with the distance, because a nearer pair of Gaussians is
    a garbling of a farther one. u = 1, v = -1 has both the largest distances and comonotone ratios (both decrease
    in x). For a < 1 use H_a(P, Q) = 1 - a + a H_{1/a}(Q, P) and the symmetry of the claim in u and v.
    """

    symmetric = True

    def noise_at(self, loss: np.ndarray) -> np.ndarray:
        """Return the noise of the loss."""
        log_factor = np.log1p(-self.rate) - np.log(self.rate) + 0.5 / self.sigma**2 if self.rate < 1 else -np.inf
        return self.sigma * (loss / 2 + _asinh_scaled(log_factor, loss / 2))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        x = self.noise_at(np.asarray(edges, dtype=float))
        base, up, down = (normal_cells(x + shift / self.sigma) for shift in (0.0, -1.0, 1.0))
        return (1 - self.rate) * base + self.rate * up, (1 - self.rate) * base + self.rate * down


def _asinh_scaled(log_factor: float, half_loss: np.ndarray) -> np.ndarray:
    """asinh(e^{log_factor} sinh(half_loss)) without overflow."""
    size = np.abs(half_loss)
    with np.errstate(divide="ignore", over="ignore"):
        log_sinh = size + np.log(-np.expm1(-2 * size) / 2) + log_factor
        value = np.where(log_sinh > 30.0, log_sinh + np.log(2.0), np.arcsinh(np.exp(np.minimum(log_sinh, 30.0))))
    return np.sign(half_loss) * value


def normal_cells(edges: np.ndarray) -> np.ndarray:
    """Normal masses between increasing edges, from the smaller tail at each: 1 less that one is the other to a unit."""
    tail, above = ndtr(-np.abs(edges)), edges > 0
    masses = np.diff(np.where(above, -tail, tail), prepend=0.0, append=0.0)
    masses[np.count_nonzero(~above)] += 1.0  # The cell around 0, between two tails.
    return np.maximum(masses, 0.0)


@dataclass(frozen=True)
class RectifiedGaussianPair(Pair):
    """The law of the loss `shift` + max(0, mu^2 / 2 + mu Z), Z ~ N(0, 1), under P; Q has density e^{-loss} P.

    Q's missing mass, 1 - 2 Phi(-mu / 2) e^{-shift}, lies where P never is. For epsilon >= shift the profile is
    delta_mu(epsilon - shift), that of the Gaussian mechanism moved by `shift`.
    """

    mu: float
    shift: float
    atoms = property(lambda self: (self.shift,))
    reached = False  # No loss bends and slopes most in the same place, and below `shift` the gradient need not be 0.

    def edge_error(self, size: float) -> float:
        """Return four units of the three terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.shift + self.mu**2)

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return float(max(1 - 2 * ndtr(-self.mu / 2) * np.exp(-self.shift), 0.0))

    def attained(self, share: float) -> GaussianPair:
        """That of a linear loss, whose gradient is a corner everywhere and whose Hessian is zero."""
        return GaussianPair(self.mu)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
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


@dataclass(frozen=True)
class CornersPair(Pair):
    """The law of the loss `shift` + X under P, X >= 0 with P(X > t) = min(1, sum_j n_j P(mu_j^2 / 2 + mu_j Z > t)).

    It dominates `shift` + max(0, max_j(mu_j^2 / 2 + mu_j Z_j)) for n_j copies of each j, however the Z_j ~ N(0, 1)
    depend on each other: by the union bound it is stochastically larger, and every hockey-stick divergence
    E_P (1 - a e^{-L})_+ grows with the loss. Q has density e^{-loss} P; its missing mass lies where P never is. Above
    its least loss the profile is sum_j n_j delta_{mu_j}(epsilon - shift).

    Args:
        corners: (mu_j, n_j), each > 0, sum_j n_j >= 2.
        shift: >= 0.
    """

    corners: tuple[tuple[float, int], ...]
    shift: float
    reached = False  # A union bound is not.

    def edge_error(self, size: float) -> float:
        """Return four units of the three terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.shift + max(mu for mu, _ in self.corners) ** 2)

    @cached_property
    def least(self) -> float:
        """The X at which the union bound reaches 1, rounded down."""
        high = max(mu * mu / 2 + mu * (4 + np.sqrt(2 * np.log(times))) for mu, times in self.corners)
        root = bracketed_root(lambda value: float(self._above(np.array([value]), 0.0)[0]) - 1.0, 0.0, high)
        return max(root * (1 - 1e-12) - 1e-15, 0.0)

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        finite = float(self._above(np.array([self.least]), 1.0)[0]) * np.exp(-self.shift)
        return max(1 - finite, 0.0)

    def attained(self, share: float) -> GaussianPair:
        """That of linear losses, whose gradients are corners everywhere and whose Hessian is zero."""
        return GaussianPair(max(mu for mu, _ in self.corners))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.maximum(np.asarray(edges, dtype=float) - self.shift, self.least)
        p, q = (self._above(loss, moved) for moved in (0.0, 1.0))
        first = self._above(np.array([self.least]), 1.0)
        p, q = np.concatenate([[1.0], np.minimum(p, 1.0), [0.0]]), np.concatenate([first, q, [0.0]])
        return np.maximum(-np.diff(p), 0.0), np.maximum(-np.diff(q), 0.0) * np.exp(-self.shift)

    def _above(self, loss: np.ndarray, moved: float) -> np.ndarray:
        """sum_j n_j P(mu_j^2 / 2 + mu_j (Z - moved mu_j) > loss): tails of X under P, moved = 0, and Q, moved = 1."""
        tails = [times * ndtr((0.5 - moved) * mu - loss / mu) for mu, times in self.corners]
        return np.sum(tails, axis=0)
