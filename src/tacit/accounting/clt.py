"""The central limit theorem for f-DP (Bu, Dong, Long & Su 2020)."""

import math
from typing import ClassVar

from tacit.accounting.base import Accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, GaussianCurve


class Clt(Accountant):
    """The Gaussian limit of the composed trade-off function, mu = p sqrt(T (e^{1/sigma^2} - 1)).

    Theorem 5 of Bu et al.: a limit as p sqrt(T) tends to a constant, without any bound on the error at finite
    T. It lies below the exact epsilon on most published rows; it is never a bound.
    """

    name: ClassVar[str] = "clt"
    standing: ClassVar[Standing] = Standing.ASYMPTOTIC

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """G_mu of the limit."""
        return GaussianCurve(math.sqrt(mechanism.clt_mu_squared(relation)))
