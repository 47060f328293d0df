"""Objective perturbation of a linear model by Gaussian noise, with the exact law of its privacy loss as a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import CornersPair, Pair, RectifiedGaussianPair
from tacit.relation import Relation
from tacit.root_finding import bracketed_root
from tacit.tradeoff.gaussian import gaussian_delta


@dataclass(frozen=True)
class ObjectivePerturbation(Mechanism):
    """The exact minimiser of sum_i l_i(theta) + (strength / 2) ||theta||^2 + <b, theta>, b ~ N(0, s^2 I).

    Every record's gradient lies, whatever theta, in conv{0, v_1, .., v_m}, ||v_j|| <= G (the v_j may depend on the
    record). theta and b determine each other, b = -grad F(theta), so with g the gradient of an added record

        log f'(theta) / f(theta) = (||b' + g||^2 - ||b'||^2) / (2 s^2) + log det(H') / det(H),

    b' ~ N(0, s^2 I) the noise in the larger data set. The first term is convex in g, hence largest at a corner 0 or
    v_j, where it is mu^2 / 2 + mu Z with mu <= G / s; the second lies in [0, log_volume]. The loss is therefore at
    most log_volume + max(0, max_j(mu^2 / 2 + mu Z_j)) in one direction and max(0, ...) in the other, and a sum over
    corners gives delta(epsilon) <= sum_j delta_{mu_j}(epsilon - log_volume) for epsilon >= log_volume. Replacing a
    record has the corners v_j - v'_i (at most 2 G, m^2 of them) and v_j, -v'_i (G, 2 m of them).

    Args:
        noise_multiplier: s / G, > 0.
        log_volume: >= 0, bound on what one record adds to log det of the Hessian.
        corners: m >= 1.

    Source: the change of variables is Chaudhuri, Monteleoni & Sarwate 2011 (Theorem 9) and Kifer, Smith & Thakurta
    2012; Redberg, Koskela & Wang 2023 keep the Gaussian tail exact with |Z|; the corners are derived here.

    Example:
        >>> step = ObjectivePerturbation(2.0, log_volume=0.1)
        >>> 1.0 < step.epsilon_at(1e-5, Relation.ADD_REMOVE) < 3.0
        True
    """

    type: ClassVar[str] = "objective_perturbation"
    noise_multiplier: float
    log_volume: float
    corners: int = 1

    def __post_init__(self) -> None:
        check.positive("noise_multiplier", self.noise_multiplier)
        check.real("log_volume", self.log_volume, low=0.0)
        check.count("corners", self.corners)

    def delta_at(self, epsilon: float, relation: Relation) -> float:
        """Bound on delta at epsilon >= 0; below log_volume the profile goes on as 1 - e^{epsilon - log_volume} (..)."""
        past = max(epsilon - self.log_volume, 0.0)
        total = sum(times * gaussian_delta(past, mu) for mu, times in self._corners(relation))
        if epsilon >= self.log_volume:
            return min(total, 1.0)
        return 1 - math.exp(epsilon - self.log_volume) * (1 - min(total, 1.0))

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """The smallest epsilon with `delta_at(epsilon) <= delta`."""
        if delta <= 0.0:
            return math.inf
        if self.delta_at(0.0, relation) <= delta:
            return 0.0
        high = self.log_volume + 1.0
        while self.delta_at(high, relation) > delta:
            high *= 2
        return bracketed_root(lambda value: self.delta_at(value, relation) - delta, 0.0, high) * (1 + 1e-12) + 1e-15

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """log_volume + log(1 + sum_j (M_j - 1)) / (a - 1), M_j = E e^{(a - 1) max(0, mu_j^2 / 2 + mu_j Z)}."""
        a = np.asarray(orders, dtype=float)
        log_sum = np.zeros(a.shape)
        for mu, times in self._corners(relation):
            # M - 1 = e^{a (a - 1) mu^2 / 2} Phi((a - 1/2) mu) - Phi(mu / 2)
            log_excess = a * (a - 1) * mu**2 / 2 + log_ndtr((a - 0.5) * mu)
            log_excess += np.log(-np.expm1(np.minimum(log_ndtr(mu / 2) - log_excess, -1e-300)))
            log_sum = np.logaddexp(log_sum, math.log(times) + log_excess)
        return self.log_volume + log_sum / (a - 1)

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """Pairs with the volume and without it, one in each direction; replacing a record may change it in both."""
        if relation is Relation.REPLACE_ONE:
            return (CornersPair(self._corners(relation), self.log_volume),)
        mu = 1 / self.noise_multiplier
        if self.corners == 1:
            return (RectifiedGaussianPair(mu, self.log_volume), RectifiedGaussianPair(mu, 0.0))
        return tuple(CornersPair(self._corners(relation), shift) for shift in (self.log_volume, 0.0))

    def poisson_pairs(self, sample_rate: float, relation: Relation) -> tuple[Pair, ...]:
        """Return the dominating pairs on a Poisson sample."""
        raise self.refusal("dominating pair of a Poisson sample", relation)

    def poisson_rdp(self, sample_rate: float, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """Sampling never hurts: D_a is jointly quasi-convex, so the unsampled divergence is a bound."""
        return self.rdp(orders, relation)

    def _corners(self, relation: Relation) -> tuple[tuple[float, int], ...]:
        """(mu, how many) of the corners of one record's change of the gradient."""
        mu = 1 / self.noise_multiplier
        if relation is Relation.REPLACE_ONE:
            return ((2 * mu, self.corners**2), (mu, 2 * self.corners))
        return ((mu, self.corners),)

    def __str__(self) -> str:
        return f"ObjectivePerturbation({self.noise_multiplier:g})"
