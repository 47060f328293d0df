"""Renyi differential privacy: add up Renyi divergences of many orders, convert at the end (Mironov 2017)."""

from typing import ClassVar

import numpy as np

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve

ORDERS = np.concatenate(
    [
        1 + np.geomspace(1e-3, 0.1, 12),
        np.arange(1.15, 4.0, 0.05),
        np.arange(4.0, 12.0, 0.2),
        np.arange(12.0, 64.0),
        np.geomspace(64, 1024, 24).round(),
    ]
)


class RenyiCurve(Curve):
    """The profile implied by divergences D_a, by the improved conversion.

    delta(eps) = min_a e^{(a - 1)(D_a - eps)} (1 - 1/a)^{a - 1} / a (Canonne, Kamath & Steinke 2020,
    Proposition 12), and total variation <= sqrt(1 - e^{-KL}) (Bretagnolle & Huber) with KL <= D_a.
    """

    def __init__(self, orders: np.ndarray, divergences: np.ndarray):
        self._orders = orders
        self._divergences = divergences

    def delta(self, epsilon: float) -> float:
        a = self._orders
        log_delta = (a - 1) * (self._divergences - epsilon + np.log1p(-1 / a)) - np.log(a)
        total_variation = np.sqrt(-np.expm1(-np.min(self._divergences)))
        return float(min(np.exp(min(np.nanmin(log_delta), 0.0)), total_variation, 1.0))

    def epsilon(self, delta: float) -> float:
        if self.delta(0.0) <= delta:
            return 0.0
        if delta == 0.0:
            return float("inf")
        a = self._orders
        return float(max(np.nanmin(self._divergences + np.log1p(-1 / a) - np.log(delta * a) / (a - 1)), 0.0))


class Rdp(Accountant):
    """Renyi accountant with the improved conversion.

    Args:
        orders: Renyi orders > 1 over which the conversion minimises.
    """

    name: ClassVar[str] = "rdp"
    standing: ClassVar[Standing] = Standing.PROVEN

    def __init__(self, *, orders: np.ndarray = ORDERS):
        self._orders = orders

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        return RenyiCurve(self._orders, mechanism.rdp(self._orders, relation))
