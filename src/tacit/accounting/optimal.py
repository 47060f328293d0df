"""Optimal composition of (epsilon, delta) guarantees (Kairouz, Oh & Viswanath 2015)."""

import math
from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.accounting.naive import per_step, textbook
from tacit.accounting.pld import Pld
from tacit.mechanisms import Approximate, Compose, Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, GaussianCurve


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
