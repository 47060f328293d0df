"""The last iterate of projected noisy gradient descent on a smooth convex problem, all other iterates hidden.

Objective perturbation of a linear model by Gaussian noise, with the exact law of its privacy loss as a bound.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.discrete import NOTHING, EnclosedPair
from tacit.mechanisms.pairs.gaussian import CornersPair, GaussianPair, RectifiedGaussianPair
from tacit.relation import Relation
from tacit.root_finding import bracketed_root
from tacit.tradeoff.gaussian import gaussian_delta, gaussian_epsilon


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


MOST_ITERATIONS = 10**6
"""Steps up to which the rounding of powers stays within the margin of mu."""
_MARGIN = 1 + 1e-9


@dataclass(frozen=True)
class LastIterate(Mechanism):
    """x_T of x_{t+1} = P(x_t - step_size (grad F(x_t) + N(0, (noise_multiplier lipschitz)^2 I))), and nothing else.

    F is a sum over records plus public terms, P the projection on a convex set. In units of the shift
    step_size lipschitz of one step, with c = max(|1 - step_size strong_convexity|, |1 - step_size smoothness|),

        mu = s / noise_multiplier  min over K of (sum_{j < K} c^j + c^K w_K) / sqrt(sum_{j < K} c^{2 j}),

    s the sensitivity of the relation, w_T = 0, and for K < T w_K = diameter / (s step_size lipschitz). Without a
    diameter K = T: mu^2 = (s / noise_multiplier)^2 (1 + c) (1 - c^T) / ((1 - c) (1 + c^T)), which stays bounded as T
    grows where c < 1, and is reached by a quadratic where c is that of the strong convexity. THEORY.md, Theorem 1.12.

    The facts are those that its fields name, declared by whoever states it: they hold for every data set. Every
    record's gradient has norm at most `lipschitz` everywhere in the set without being clipped (clipped gradients may
    belong to no convex function), the step size and the starting point are public, and no earlier iterate is shown.

    Args:
        noise_multiplier: std of a step's noise over `lipschitz`, > 0.
        iterations: T in [1, 10^6], full-batch steps.
        smoothness: > 0, bound on the eigenvalues of the Hessian of F, the whole sum.
        step_size: in (0, 2 / smoothness], of the sum.
        strong_convexity: in [0, smoothness], of F.
        lipschitz: > 0, bound on the gradient of one record's term.
        diameter: > 0, of the set that P projects on; None where there is none.

    Source: Bok, Su & Altschuler 2024 (arXiv:2403.00278), Theorems 4.2 and 4.3; earlier Feldman et al. 2018, Altschuler
    & Talwar 2022.

    Example:
        >>> last = LastIterate(10.0, iterations=1000, smoothness=1.0, step_size=0.5, strong_convexity=0.5)
        >>> round(last.bound(Relation.ADD_REMOVE), 4)
        0.2646
    """

    type: ClassVar[str] = "last_iterate"
    takes_samples: ClassVar[bool] = False
    noise_multiplier: float
    iterations: int
    smoothness: float
    step_size: float
    strong_convexity: float = 0.0
    lipschitz: float = 1.0
    diameter: float | None = None

    def __post_init__(self) -> None:
        check.positive("noise_multiplier", self.noise_multiplier)
        check.real("noise_multiplier", self.noise_multiplier, low=1e-9, high=1e9)
        check.count("iterations", self.iterations, maximum=MOST_ITERATIONS)
        check.positive("smoothness", self.smoothness)
        check.positive("step_size", self.step_size)
        if self.step_size * self.smoothness > 2:
            rule = f"at most 2 / smoothness = {2 / self.smoothness:g}"
            raise check.fail("step_size", rule, self.step_size, "A longer step contracts nothing.")
        check.real("strong_convexity", self.strong_convexity, low=0.0, high=self.smoothness)
        check.positive("lipschitz", self.lipschitz)
        if self.diameter is not None:
            check.positive("diameter", self.diameter)

    def bound(self, relation: Relation) -> float:
        """Return mu such that x_T is mu-GDP."""
        return relation.sensitivity / self.noise_multiplier * self._least(relation.sensitivity) * _MARGIN

    def mu(self, relation: Relation) -> float:
        """Return mu where it is reached: by a quadratic, without a set to project on."""
        if not self._reached:
            raise self.refusal("exact GDP parameter", relation)
        return self.bound(relation)

    def zcdp(self, relation: Relation) -> float:
        """Return mu^2 / 2."""
        return self.bound(relation) ** 2 / 2

    def rdp(self, orders: np.ndarray, relation: Relation) -> np.ndarray:
        """D_a = a mu^2 / 2."""
        return np.asarray(orders, dtype=float) * self.zcdp(relation)

    def epsilon_at(self, delta: float, relation: Relation) -> float:
        """Return that of a mu-GDP mechanism."""
        return gaussian_epsilon(delta, self.bound(relation))

    def dominating_pairs(self, relation: Relation) -> tuple[Pair, ...]:
        """N(mu, 1) against N(0, 1); from below a quadratic, or nothing where a set bounds the iterates."""
        above = GaussianPair(self.bound(relation))
        if self._reached:
            return (above,)
        below = self._quadratic(relation)
        return (EnclosedPair(above, GaussianPair(below) if below else NOTHING),)

    @property
    def _gap(self) -> float:
        """1 - c."""
        return max(min(self.step_size * self.strong_convexity, 2 - self.step_size * self.smoothness), 0.0)

    @property
    def _reached(self) -> bool:
        return self.diameter is None and self._gap == self.step_size * self.strong_convexity

    def _least(self, sensitivity: float) -> float:
        """The minimum over K, without s / noise_multiplier."""
        last = np.arange(1 if self.diameter is not None else self.iterations, self.iterations + 1, dtype=float)
        shifts, squares, power = _geometric(self._gap, last)
        if self.diameter is not None:
            apart = self.diameter / (sensitivity * self.step_size * self.lipschitz)
            shifts[:-1] += power[:-1] * apart
        return float(np.min(shifts / np.sqrt(squares)))

    def _quadratic(self, relation: Relation) -> float:
        """Return mu of the flattest quadratic and a record of constant gradient; 0 where a set cuts it off."""
        if self.diameter is not None:
            return 0.0
        factor = 1 - self.step_size * self.strong_convexity
        powers = factor ** np.arange(self.iterations)
        shift = abs(float(powers.sum())) / math.sqrt(float((powers**2).sum()))
        return relation.sensitivity / self.noise_multiplier * shift / _MARGIN

    def __str__(self) -> str:
        return f"LastIterate({self.noise_multiplier:g}, {self.iterations} steps)"


def _geometric(gap: float, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of c^j and of c^{2 j} over j < K, and c^K, for c = 1 - gap and each K."""
    if gap == 0.0:
        return counts.copy(), counts.copy(), np.ones_like(counts)
    if gap >= 1.0:
        return np.ones_like(counts), np.ones_like(counts), np.zeros_like(counts)
    log = counts * math.log1p(-gap)
    return -np.expm1(log) / gap, -np.expm1(2 * log) / (gap * (2 - gap)), np.exp(log)
