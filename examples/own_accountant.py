"""Write an accountant and let tacit check it: monotone, consistent, a bound where it claims to be one."""

import math
from typing import ClassVar

from tacit import Gaussian, Standing
from tacit.accounting import Accountant
from tacit.testing import check_accountant
from tacit.tradeoff import EpsilonCurve


class AdvancedZcdp(Accountant):
    """zCDP with the conversion epsilon = rho + 2 sqrt(rho log(1 / delta)) (Bun and Steinke 2016, Proposition 1.3)."""

    name: ClassVar[str] = "own_zcdp"
    standing: ClassVar[Standing] = Standing.PROVEN

    def curve(self, mechanism, relation):
        """Return the curve that answers for the composed mechanism."""
        rho = mechanism.zcdp(relation)
        return EpsilonCurve(lambda delta: rho + 2 * math.sqrt(rho * math.log(1 / delta)) if delta > 0 else math.inf)


class Optimistic(AdvancedZcdp):
    """The same with a wrong constant: below the truth, which the check finds."""

    def curve(self, mechanism, relation):
        """Return a curve that is too low."""
        rho = mechanism.zcdp(relation)
        return EpsilonCurve(lambda delta: math.sqrt(rho * math.log(1 / delta)) if delta > 0 else math.inf)


check_accountant(AdvancedZcdp())
print(f"{AdvancedZcdp()(Gaussian(2.0) * 10).epsilon(1e-5):.3f} by an accountant that passes")
try:
    check_accountant(Optimistic())
except AssertionError as error:
    print(f"the other one: {error}")
