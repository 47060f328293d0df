"""Renyi differential privacy: sums of Renyi divergences of many orders, converted to (epsilon, delta) at the end.

`Rdp` is Mironov (2017) with the conversion of Canonne, Kamath & Steinke (2020), `Moments` the moments accountant of
Abadi et al. (2016), `Generic` that of Triastcyn & Faltings (2019), as published and in a sound form.
"""

from typing import ClassVar

import numpy as np

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve

_FRACTIONAL = (1 + np.geomspace(1e-3, 0.1, 12), np.arange(1.15, 4.0, 0.05), np.arange(4.0, 12.0, 0.2))
ORDERS = np.concatenate([*_FRACTIONAL, np.arange(12.0, 64.0), np.geomspace(64, 1024, 24).round()])
"""Default orders of `Rdp`: from near 1, for large epsilon, to 1024, for small epsilon; denser where optima lie."""
MOMENTS_ORDERS = np.concatenate([1 + np.arange(1, 100) / 10, np.arange(60, 300) / 5, np.arange(60.0, 100.0)])
"""The grid of Bu et al.'s code."""
JAYARAMAN_EVANS_ORDERS = np.concatenate([1 + np.arange(1, 1000) / 100, np.arange(12.0, 1200.0)])
"""The grid of Jayaraman & Evans's code."""
_EXPONENTS = np.geomspace(1e-3, 1e5, 4000)  # lambda of `Generic`: so dense that the minimum is one over all lambda
_INTEGER_ORDERS = np.concatenate([np.arange(2.0, 65.0), np.unique(np.geomspace(65, 1024, 32).round())])


class RenyiCurve(Curve):
    """The profile implied by divergences D_a, by the improved conversion.

    delta(eps) = min_a e^{(a - 1)(D_a - eps)} (1 - 1/a)^{a - 1} / a (Canonne, Kamath & Steinke 2020,
    Proposition 12), and total variation <= sqrt(1 - e^{-KL}) (Bretagnolle & Huber) with KL <= D_a.
    """

    def __init__(self, orders: np.ndarray, divergences: np.ndarray):
        self._orders = orders
        self._divergences = divergences

    def delta(self, epsilon: float) -> float:
        """The smallest delta over the orders."""
        a = self._orders
        log_delta = (a - 1) * (self._divergences - epsilon + np.log1p(-1 / a)) - np.log(a)
        total_variation = np.sqrt(-np.expm1(-np.min(self._divergences)))
        return float(min(np.exp(min(np.nanmin(log_delta), 0.0)), total_variation, 1.0))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon over the orders, in closed form for each."""
        if self.delta(0.0) <= delta:
            return 0.0
        if delta == 0.0:
            return float("inf")
        a = self._orders
        return float(max(np.nanmin(self._divergences + np.log1p(-1 / a) - np.log(delta * a) / (a - 1)), 0.0))


class MomentsCurve(Curve):
    """Profile delta(eps) = min_a e^{(a - 1)(D_a - eps)}: the tail bound of Abadi et al., Theorem 2.

    Args:
        orders: a > 1.
        divergences: D_a.
        extra_delta: failure probability of the divergences, added to delta.
    """

    def __init__(self, orders: np.ndarray, divergences: np.ndarray, *, extra_delta: float = 0.0):
        self._orders = orders
        self._divergences = divergences
        self._extra_delta = extra_delta

    def delta(self, epsilon: float) -> float:
        """The smallest delta over the orders."""
        tail = float(np.exp(min(np.nanmin((self._orders - 1) * (self._divergences - epsilon)), 0.0)))
        return min(tail + self._extra_delta, 1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon over the orders, in closed form for each."""
        left = delta - self._extra_delta
        if left <= 0.0:
            return float("inf")
        return float(max(np.nanmin(self._divergences - np.log(left) / (self._orders - 1)), 0.0))


class Rdp(Accountant):
    """Renyi accountant with the improved conversion, which minimises over `orders`."""

    name: ClassVar[str] = "rdp"
    standing: ClassVar[Standing] = Standing.PROVEN
    orders: ClassVar[np.ndarray] = ORDERS
    conversion: ClassVar[type[RenyiCurve] | type[MomentsCurve]] = RenyiCurve

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The curve of the summed divergences."""
        return self.conversion(self.orders, mechanism.rdp(self.orders, relation))


class Moments(Rdp):
    """Moments accountant: exact Renyi divergences on the order grid of Bu et al.'s code, old conversion.

    The grid is {1 + x/10 : x = 1..99}, {12, 12.2, ..., 59.8}, {60, ..., 99}. A valid bound, looser than `rdp`.
    """

    name: ClassVar[str] = "moments"
    orders: ClassVar[np.ndarray] = MOMENTS_ORDERS
    conversion = MomentsCurve


class RdpJayaramanEvans(Moments):
    """Renyi composition as Jayaraman & Evans (2019) calibrate it: the same bound on their finer and longer grid.

    The grid is {1 + x/100 : x = 1..999}, {12, 13, ..., 1199}.
    """

    name: ClassVar[str] = "rdp_jayaraman_evans"
    orders: ClassVar[np.ndarray] = JAYARAMAN_EVANS_ORDERS


class Generic(Accountant):
    """Epsilon(delta) = min over lambda of (sum c(lambda) + log(1/delta)) / lambda, c = lambda q^2 D_{lambda + 1}.

    Equations 7-8 of the paper. That subsampling multiplies a Renyi divergence by q^2 is asserted there and false:
    at order 2 the factor is already q^2 (e^{1/sigma^2} - 1) sigma^2.
    """

    name: ClassVar[str] = "generic"
    standing: ClassVar[Standing] = Standing.CLAIMED

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The tail bound of the divergences as published."""
        orders = 1 + _EXPONENTS
        return MomentsCurve(orders, mechanism.published_generic_rdp(orders, relation))


class GenericSound(Rdp):
    """The same Chernoff bound over integer orders with proven subsampled Renyi divergences.

    Poisson samples: Mironov, Talwar & Zhang (2019); fixed-size samples: Wang, Balle & Kasiviswanathan (2019).
    """

    name: ClassVar[str] = "generic_sound"
    orders: ClassVar[np.ndarray] = _INTEGER_ORDERS
