"""Advanced composition (Dwork, Rothblum & Vadhan 2010)."""

import math
from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.accounting.naive import per_step, published, textbook
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, EpsilonCurve


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
