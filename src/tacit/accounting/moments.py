"""The moments accountant of Abadi et al. (2016) as the papers ran it."""

from typing import ClassVar

import numpy as np

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve

ORDERS = np.concatenate([1 + np.arange(1, 100) / 10, np.arange(60, 300) / 5, np.arange(60.0, 100.0)])
JE_ORDERS = np.concatenate([1 + np.arange(1, 1000) / 100, np.arange(12.0, 1200.0)])


class MomentsCurve(Curve):
    """delta(eps) = min_a e^{(a - 1)(D_a - eps)}: the tail bound of Abadi et al., Theorem 2.

    Args:
        orders: a > 1.
        divergences: D_a.
        extra_delta: what the divergences' own failure probability adds.
    """

    def __init__(self, orders: np.ndarray, divergences: np.ndarray, *, extra_delta: float = 0.0):
        self._orders = orders
        self._divergences = divergences
        self._extra_delta = extra_delta

    def delta(self, epsilon: float) -> float:
        tail = float(np.exp(min(np.nanmin((self._orders - 1) * (self._divergences - epsilon)), 0.0)))
        return min(tail + self._extra_delta, 1.0)

    def epsilon(self, delta: float) -> float:
        left = delta - self._extra_delta
        if left <= 0.0:
            return float("inf")
        return float(max(np.nanmin(self._divergences - np.log(left) / (self._orders - 1)), 0.0))


class Moments(Accountant):
    """Moments accountant: exact Renyi divergences on the order grid of Bu et al.'s code, old conversion.

    The grid is {1 + x/10 : x = 1..99}, {12, 12.2, ..., 59.8}, {60, ..., 99}. A valid bound, looser than `rdp`.
    """

    name: ClassVar[str] = "moments"
    standing: ClassVar[Standing] = Standing.PROVEN
    orders: ClassVar[np.ndarray] = ORDERS

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        return MomentsCurve(self.orders, mechanism.rdp(self.orders, relation))


class RdpPublished(Moments):
    """Renyi composition as Jayaraman & Evans (2019) calibrate it: the same bound on their finer and longer grid.

    The grid is {1 + x/100 : x = 1..999}, {12, 13, ..., 1199}.
    """

    name: ClassVar[str] = "rdp_je"
    orders: ClassVar[np.ndarray] = JE_ORDERS
