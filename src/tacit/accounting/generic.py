"""The generic accountant of Triastcyn & Faltings (2019), as published and in a sound form."""

from typing import ClassVar

import numpy as np

from tacit.accounting.base import Accountant
from tacit.accounting.moments import MomentsCurve
from tacit.accounting.rdp import RenyiCurve
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve

_EXPONENTS = np.geomspace(1e-3, 1e5, 4000)
_INTEGER_ORDERS = np.concatenate([np.arange(2.0, 65.0), np.unique(np.geomspace(65, 1024, 32).round())])


class Generic(Accountant):
    """eps(delta) = min over lambda of (sum c(lambda) + log(1/delta)) / lambda, c = lambda q^2 D_{lambda + 1}.

    Equations 7-8 of the paper. That subsampling multiplies a Renyi divergence by q^2 is asserted there and false:
    at order 2 the factor is already q^2 (e^{1/sigma^2} - 1) sigma^2.
    """

    name: ClassVar[str] = "generic"
    standing: ClassVar[Standing] = Standing.CLAIMED

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        orders = 1 + _EXPONENTS
        return MomentsCurve(orders, mechanism.published_generic_rdp(orders, relation))


class GenericSound(Accountant):
    """The same Chernoff bound over integer orders with proven subsampled Renyi divergences.

    Poisson samples: Mironov, Talwar & Zhang (2019); fixed-size samples: Wang, Balle & Kasiviswanathan (2019).
    """

    name: ClassVar[str] = "generic_sound"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        return RenyiCurve(_INTEGER_ORDERS, mechanism.rdp(_INTEGER_ORDERS, relation))
