"""Concentrated differential privacy (Dwork & Rothblum 2016)."""

import math
from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, EpsilonCurve


class Cdp(Accountant):
    """eps = mean + deviation sqrt(2 log(1/delta)), the tail of a subgaussian privacy loss."""

    name: ClassVar[str] = "cdp"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        mean, deviation = mechanism.cdp(relation)

        def epsilon_at(delta: float) -> float:
            if delta <= 0.0 or math.isinf(mean):
                return math.inf
            return mean + deviation * math.sqrt(2 * math.log(1 / delta))

        return EpsilonCurve(epsilon_at)
