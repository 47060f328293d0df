"""Basic composition: epsilons add up and deltas add up (Dwork, Kenthapadi, McSherry, Mironov & Naor 2006).

Advanced composition (Dwork, Rothblum & Vadhan 2010).

Optimal composition of (epsilon, delta) guarantees (Kairouz, Oh & Viswanath 2015).

Two steps whose profiles are known in closed form, composed by the best split of epsilon and delta.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.accounting.pld.accountant import Pld
from tacit.mechanisms import Approximate, Compose, Gaussian, Mechanism, ObjectivePerturbation
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, EpsilonCurve, GaussianCurve
from tacit.tradeoff.gaussian import gaussian_delta

PerStep = Callable[[Mechanism, float, Relation], float]


def textbook(part: Mechanism, delta: float, relation: Relation) -> float:
    """The larger of the classical and the exact epsilon of one step: a bound wherever the classical proof ends."""
    return max(part.classical_epsilon(delta, relation), part.epsilon_at(delta, relation))


def published(part: Mechanism, delta: float, relation: Relation) -> float:
    """The classical epsilon of one step also where its proof does not reach, as Jayaraman & Evans use it."""
    return part.classical_epsilon(delta, relation)


def per_step(mechanism: Mechanism, relation: Relation, delta: float, rule: PerStep) -> list[tuple[float, int]]:
    """(epsilon, steps) of every part; each step that is not pure gets an equal share of `delta`."""
    parts = [(part, steps, part.is_pure(relation)) for part, steps in mechanism.parts()]
    impure = sum(steps for _, steps, pure in parts if not pure)
    share = delta / max(impure, 1)
    return [(rule(part, 0.0 if pure else share, relation), steps) for part, steps, pure in parts]


class _Shared(Accountant):
    """Sum of per-step epsilons by a rule, delta shared equally among the steps that need one."""

    @abstractmethod
    def rule(self, part: Mechanism, delta: float, relation: Relation) -> float:
        """epsilon of one step at its share of delta."""

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        return EpsilonCurve(
            lambda delta: sum(steps * epsilon for epsilon, steps in per_step(mechanism, relation, delta, self.rule))
        )


class Naive(_Shared):
    """Sum of per-step epsilons, delta shared equally among the steps that need one.

    A Gaussian step's epsilon is the larger of sqrt(2 log(1.25/delta)) / sigma and the exact one, so the sum is a
    bound also where the classical formula's proof (epsilon <= 1) does not reach. Objective perturbation and its
    rounding step are the two unlike steps of one release: their delta is split in the best way, see `JointCurve`.
    """

    name: ClassVar[str] = "naive"
    standing: ClassVar[Standing] = Standing.PROVEN

    def rule(self, part: Mechanism, delta: float, relation: Relation) -> float:
        return textbook(part, delta, relation)

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        return joint(mechanism, relation) or super().curve(mechanism, relation)


class NaivePublished(_Shared):
    """Naive composition as Jayaraman & Evans (2019) calibrate it: the classical formula at every epsilon."""

    name: ClassVar[str] = "naive_je"
    standing: ClassVar[Standing] = Standing.CLAIMED

    def rule(self, part: Mechanism, delta: float, relation: Relation) -> float:
        return published(part, delta, relation)


class Advanced(Accountant):
    """eps = sqrt(2 log(1/delta') sum eps_i^2) + sum eps_i (e^{eps_i} - 1) (Dwork & Roth 2014, Theorem 3.20).

    delta' is half of delta, the other half is shared by the steps that are not pure.
    """

    name: ClassVar[str] = "advanced"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        def epsilon_at(delta: float) -> float:
            if delta <= 0.0:
                return math.inf
            steps = per_step(mechanism, relation, delta / 2, textbook)
            if any(epsilon > 700.0 for epsilon, _ in steps):
                return math.inf
            squares = sum(times * epsilon**2 for epsilon, times in steps)
            drift = sum(times * epsilon * math.expm1(epsilon) for epsilon, times in steps)
            return math.sqrt(2 * math.log(2 / delta) * squares) + drift

        return EpsilonCurve(epsilon_at)


class AdvancedPublished(Accountant):
    """Jayaraman & Evans's form: eps = sqrt(2 log(2/delta) sum eps_i^2) + sum eps_i^2.

    It puts x for e^x - 1, the wrong side of the theorem it invokes.
    """

    name: ClassVar[str] = "advanced_je"
    standing: ClassVar[Standing] = Standing.CLAIMED

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        def epsilon_at(delta: float) -> float:
            if delta <= 0.0:
                return math.inf
            steps = per_step(mechanism, relation, delta / 2, published)
            squares = sum(times * epsilon**2 for epsilon, times in steps)
            return math.sqrt(2 * math.log(2 / delta) * squares) + squares

        return EpsilonCurve(epsilon_at)


class Optimal(Accountant):
    """The best that can be said from every step's (epsilon_i, delta_i) alone.

    By Theorem 3.3 of the paper an (epsilon, delta)-DP step is dominated by randomised response that reveals
    everything with probability delta; the exact composition of those is computed by `pld`. Steps that are not pure
    share `shared_delta` equally, so the curve ends at that delta: a smaller one costs infinity.

    Args:
        shared_delta: in (0, 1), the part of delta that the steps' own deltas use up.
    """

    name: ClassVar[str] = "optimal"
    standing: ClassVar[Standing] = Standing.PROVEN

    def __init__(self, *, shared_delta: float = 5e-7):
        self._shared_delta = shared_delta

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        steps = per_step(mechanism, relation, self._shared_delta, textbook)
        if any(math.isinf(epsilon) for epsilon, _ in steps):
            return GaussianCurve(math.inf)
        pure = [part.is_pure(relation) for part, _ in mechanism.parts()]
        impure = sum(times for (_, times), whole in zip(steps, pure, strict=True) if not whole)
        share = self._shared_delta / max(impure, 1)
        responses = [
            (Approximate(epsilon, 0.0 if whole else share), times)
            for (epsilon, times), whole in zip(steps, pure, strict=True)
        ]
        return Pld().curve(Compose.of(*responses), relation)


_SHARES = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)


class JointCurve(Curve):
    """An objective perturbation, for any number of corners, and the Gaussian step that hides its solver's error.

    delta(epsilon) <= min over t of delta_objective(epsilon - t) + delta_gaussian(t): either loss may be large.
    """

    def __init__(self, objective: ObjectivePerturbation, mu: float, relation: Relation):
        self._objective = objective
        self._mu = mu
        self._relation = relation

    def delta(self, epsilon: float) -> float:
        shares = [share * self._mu for share in _SHARES if share * self._mu < epsilon] or [0.0]
        return min(
            min(self._objective.delta_at(epsilon - share, self._relation) + gaussian_delta(share, self._mu), 1.0)
            for share in shares
        )


def joint(mechanism: Mechanism, relation: Relation) -> JointCurve | None:
    """The curve of these two steps; None for anything else."""
    parts = list(mechanism.parts())
    if len(parts) != 2 or any(steps > 1 for _, steps in parts):
        return None
    kinds = {type(part): part for part, _ in parts}
    objective, rounding = kinds.get(ObjectivePerturbation), kinds.get(Gaussian)
    if not isinstance(objective, ObjectivePerturbation) or not isinstance(rounding, Gaussian):
        return None
    return JointCurve(objective, rounding.mu(relation), relation)
