"""Basic composition: epsilons add up and deltas add up (Dwork, Kenthapadi, McSherry, Mironov & Naor 2006)."""

from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, EpsilonCurve


class Naive(Accountant):
    """Sum of per-step epsilons, delta shared equally among the steps that need one.

    The Gaussian's per-step epsilon is the larger of the classical sqrt(2 log(1.25/delta)) / sigma and the exact
    one, so the sum is a bound also where the classical formula's proof (epsilon <= 1) does not reach.
    """

    name: ClassVar[str] = "naive"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        return EpsilonCurve(
            lambda delta: sum(steps * epsilon for epsilon, steps in per_step(mechanism, relation, delta))
        )


def per_step(mechanism: Mechanism, relation: Relation, delta: float) -> list[tuple[float, int]]:
    """(epsilon, steps) of every part; each step that is not pure gets an equal share of `delta`."""
    parts = [(part, steps, part.is_pure(relation)) for part, steps in mechanism.parts()]
    impure = sum(steps for _, steps, pure in parts if not pure)
    share = delta / max(impure, 1)
    return [(part.classical_epsilon(0.0 if pure else share, relation), steps) for part, steps, pure in parts]
