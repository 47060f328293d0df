"""Concentrated differential privacy: zCDP (Bun & Steinke 2016) and mean-concentrated (Dwork & Rothblum 2016)."""

import math
from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, EpsilonCurve, ProfileCurve


class ZcdpCurve(ProfileCurve):
    """Profile delta(eps) = e^{-(eps - rho)^2 / (4 rho)} for eps >= rho (Bun & Steinke 2016, Proposition 1.3)."""

    def __init__(self, rho: float):
        self._rho = rho
        super().__init__(lambda epsilon: math.exp(-((epsilon - rho) ** 2) / (4 * rho)) if epsilon > rho else 1.0)

    def epsilon(self, delta: float) -> float:
        """Epsilon = rho + 2 sqrt(rho log(1/delta)), the inverse in closed form."""
        if delta >= 1.0:
            return 0.0
        if delta == 0.0 or math.isinf(self._rho):
            return math.inf if self._rho else 0.0
        return self._rho + 2 * math.sqrt(self._rho * math.log(1 / delta))


class Zcdp(Accountant):
    """Sum of rho. Subsampling does not amplify zCDP, so sampled steps count in full."""

    name: ClassVar[str] = "zcdp"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The curve of the summed rho."""
        return ZcdpCurve(mechanism.zcdp(relation))


class Cdp(Accountant):
    """Epsilon = mean + deviation sqrt(2 log(1/delta)), the tail of a subgaussian privacy loss."""

    name: ClassVar[str] = "cdp"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The tail of the summed mean and deviation."""
        mean, deviation = mechanism.cdp(relation)

        def epsilon_at(delta: float) -> float:
            if delta <= 0.0 or math.isinf(mean):
                return math.inf
            return mean + deviation * math.sqrt(2 * math.log(1 / delta))

        return EpsilonCurve(epsilon_at)
