"""The last iterate of projected noisy gradient descent on a smooth convex problem, all other iterates hidden."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.mechanisms.base import Mechanism
from tacit.mechanisms.pairs import NOTHING, EnclosedPair, GaussianPair, Pair
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_epsilon

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
