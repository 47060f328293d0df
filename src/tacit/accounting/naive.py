"""Basic composition: epsilons add up and deltas add up (Dwork, Kenthapadi, McSherry, Mironov & Naor 2006)."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.accounting.joint import joint
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, EpsilonCurve

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
