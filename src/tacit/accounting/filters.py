"""Privacy filters and an odometer: mechanisms chosen freely after each output, one at a time.

Each filter spends a budget of a kind that adds up whatever the choices: pure epsilon, mu^2 of plain Gaussian steps,
(rho, delta) of approximate zCDP, or Renyi divergences at fixed orders. A filter's budget is one mechanism in a ledger.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.accounting.adaptivity import Cover
from tacit.accounting.renyi import ORDERS, RenyiCurve
from tacit.errors import BudgetExceeded, Refused
from tacit.mechanisms import Approximate, Compose, Gaussian, Generic, Mechanism
from tacit.relation import Relation
from tacit.root_finding import bisect
from tacit.tradeoff import Epsilon, GaussianCurve, Target

KINDS = ("pure", "gaussian", "zcdp", "renyi")
_ROUNDING = 1e-12
"""Relative rounding of sums: counts are multiplied, not added up one by one."""
_UNIT = 1e-15
"""Relative rounding of one sum and one product."""
_GRID = 1e-6
"""Share of delta that the budget of the zCDP filter leaves to the rounding of accountants that compose it."""
_HALF = 0.5
"""Share of delta that the zCDP filter leaves to (epsilon, delta) steps; the rest converts rho."""


class Filter(Cover):
    """Admits steps while their costs stay within `budget`, whatever is chosen after whatever was seen.

    - "pure": sum of epsilons.
    - "gaussian": sum of mu^2 of exactly Gaussian steps (Smith & Thakurta 2022; Koskela et al. 2022).
    - "zcdp": sums of rho and of delta of approximate zCDP (Whitehouse et al. 2023, Theorem 1); an (epsilon, delta)-DP
      step counts as (epsilon^2 / 2, delta).
    - "renyi": the sums of all orders (Feldman & Zrnic 2021; Lecuyer 2021). The budget of each order is that of `plan`,
      scaled so that the target is just met, and a step must fit at every order.

    The natural filter, by the exact cost of what ran, is not among them: it is refuted. A million queries take seconds.

    Args:
        kind: one of `KINDS`.
        budget: `Epsilon(epsilon, delta)` to be met by everything together; delta 0 for "pure".
        plan: of a "renyi" filter, what is intended to run.
        relation: neighbouring relation.

    Raises:
        InvalidInput: the kind is unknown, or plan and kind do not fit.

    Example:
        >>> spent = Filter("renyi", Epsilon(1.0, 1e-5), plan=Gaussian(20.0) * 10)
        >>> spent.charge(Gaussian(20.0), 5)
        >>> spent.admits(Gaussian(20.0)), spent.admits(Gaussian(1.0))
        (True, False)
    """

    def __init__(
        self,
        kind: str,
        budget: Target,
        *,
        plan: Mechanism | None = None,
        relation: Relation | str = Relation.ADD_REMOVE,
    ):
        self.kind = check.choice("kind", kind, KINDS)
        self.budget = check.instance("budget", budget, Epsilon, "one such as Epsilon(3.0, 1e-5)")
        self.relation = Relation.parse(relation)
        self.note = f"filter({kind})"
        if (plan is not None) != (kind == "renyi"):
            raise check.fail("plan", "given for a renyi filter, and for no other", plan, "It is what is meant to run.")
        if (kind == "pure") != (self.budget.delta == 0.0):
            raise check.fail("budget", "of delta 0 for a pure filter, and for no other", self.budget)
        self._limit, self.mechanism = self._budgeted(plan)
        self._spent = np.zeros_like(self._limit)
        self._costs: dict[Mechanism, tuple[np.ndarray, np.ndarray]] = {}
        self._last: Mechanism | None = None
        self._cost, self._count, self._most, self._turns = self._spent, 0, 0, 0

    def copy(self) -> Filter:
        """A filter that has spent as much."""
        copied = copy.copy(self)
        copied._costs = dict(self._costs)
        return copied

    def check(self, relation: Relation) -> None:
        """Raise `InvalidInput` under another relation than that of its costs."""
        if not self.relation.covers(relation):
            raise check.fail("relation", f"that of the filter, {self.relation.value}", relation.value)

    @property
    def limit(self) -> np.ndarray:
        """What may be charged at most, in the units of `spent`; infinite where a Renyi order is not counted."""
        return self._limit

    @property
    def spent(self) -> np.ndarray:
        """What was charged: epsilon; mu^2; (rho, delta); or the divergence of each of `accounting.renyi.ORDERS`."""
        return self._spent + self._count * self._cost

    def admits(self, mechanism: Mechanism, steps: int = 1) -> bool:
        """Whether `steps` more runs of `mechanism` fit; raises `Refused` for one whose cost this kind cannot tell."""
        check.count("steps", steps)
        self._turn_to(mechanism)
        return self._count + steps <= self._most

    def charge(self, mechanism: Mechanism, steps: int = 1) -> None:
        """Spend `steps` >= 1 runs of `mechanism` before they run; raises `BudgetExceeded`, with nothing spent."""
        if mechanism is not self._last or steps != 1:
            check.count("steps", steps)
            self._turn_to(mechanism)
        if self._count + steps > self._most:
            raise BudgetExceeded(f"the {self.kind} filter has no room for {mechanism} * {steps}; it was not taken.")
        self._count += steps

    def take(self, mechanism: Mechanism, steps: int) -> bool:
        """Charge: a ledger under a filter records no step beyond it."""
        self.charge(mechanism, steps)
        return True

    def _turn_to(self, mechanism: Mechanism) -> None:
        """Count further runs of another mechanism."""
        if mechanism is self._last:
            return
        if mechanism not in self._costs:
            check.instance("mechanism", mechanism, Mechanism, "one such as Gaussian(1.0)")
            cost = np.where(np.isfinite(self._limit), np.atleast_1d(self._price(mechanism)) * (1 + _ROUNDING), 0.0)
            with np.errstate(divide="ignore"):
                self._costs[mechanism] = cost, np.minimum(1 / cost, 1e300)
        self._spent, self._count, self._turns = self.spent, 0, self._turns + 1
        self._cost, inverse = self._costs[mechanism]
        room = self._limit * (1 - _UNIT * self._turns) - self._spent
        self._last, self._most = mechanism, int(min(max(float((room * inverse).min()), 0.0), 2.0**62))

    def _price(self, mechanism: Mechanism) -> np.ndarray | float | tuple[float, float]:
        whole = Compose.of((mechanism, 1))
        if self.kind == "pure":
            return whole.pure_epsilon(self.relation)
        if self.kind == "gaussian":
            return whole.mu(self.relation) ** 2
        if self.kind == "renyi":
            return whole.rdp(ORDERS, self.relation)
        costs = np.zeros(2)
        for part, steps in whole.parts():
            one = (
                (part.epsilon**2 / 2, part.delta) if isinstance(part, Approximate) else (part.zcdp(self.relation), 0.0)
            )
            costs += steps * np.array(one)
        return costs

    def _budgeted(self, plan: Mechanism | None) -> tuple[np.ndarray, Mechanism]:
        """The limit in units of the kind, and the budget as one mechanism."""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        if self.kind == "pure":
            return np.array([epsilon]), Approximate(epsilon, 0.0)
        if self.kind == "gaussian":
            return self._gaussian(epsilon, delta)
        if self.kind == "renyi":
            assert plan is not None
            curve = Compose.of((plan, 1)).accountable().rdp(ORDERS, self.relation)
            known = np.isfinite(curve)
            limit = np.where(known, curve * _scale(ORDERS[known], curve[known], self.budget), np.inf)
            return limit, Generic(tuple(ORDERS[known]), tuple(np.maximum.accumulate(limit[known])))
        delta *= 1 - _GRID
        most = epsilon**2 + epsilon
        rho = bisect(lambda rho: RenyiCurve(ORDERS, rho * ORDERS).epsilon(_HALF * delta) < epsilon, 0.0, most)[0]
        return np.array([rho, (1 - _HALF) * delta]), Approximate(epsilon, delta)

    def _gaussian(self, epsilon: float, delta: float) -> tuple[np.ndarray, Mechanism]:
        mu = bisect(lambda mu: GaussianCurve(mu).epsilon(delta) < epsilon, 0.0, 1e3)[0]
        factor = Gaussian(1.0).mu(self.relation)
        return np.array([mu**2]), Gaussian(factor / mu)


def _scale(orders: np.ndarray, divergences: np.ndarray, target: Epsilon) -> float:
    """The largest factor at which these divergences still meet the target."""

    def met(factor: float) -> bool:
        return RenyiCurve(orders, factor * divergences).epsilon(target.delta) < target.epsilon

    high = 1.0
    while met(high) and high < 1e12:
        high *= 2
    return bisect(met, 0.0, high)[0]


@dataclass(frozen=True)
class ExPost:
    """A statement about the losses that happened, no (epsilon, delta) guarantee of the run.

    Attributes:
        bound: with probability 1 - delta the realised privacy loss is at most this, at all times at once.
        delta: that probability's complement.
        scope: "odometer".
    """

    bound: float
    delta: float
    scope: str = "odometer"


class Odometer:
    """Running bound on the realised privacy loss of adaptively chosen steps, at one Renyi order fixed beforehand.

    e^{(a - 1)(L_t - sum rho_m)} is a non-negative supermartingale that starts at 1, so by Ville's inequality L_t is at
    most sum rho_m + log(1/delta) / (a - 1) for all t at once, with probability 1 - delta.

    Args:
        order: a > 1.
        relation: neighbouring relation.

    Example:
        >>> odometer = Odometer(8.0)
        >>> odometer.charge(Gaussian(10.0), 4)
        >>> round(odometer.bound(1e-5).bound, 4)
        1.8047
    """

    def __init__(self, order: float, *, relation: Relation | str = Relation.ADD_REMOVE):
        self._order = np.array([check.real("order", order, low=1.0, open_low=True)])
        self._relation = Relation.parse(relation)
        self._spent = 0.0

    def charge(self, mechanism: Mechanism, steps: int = 1) -> None:
        """Add `steps` >= 1 runs of `mechanism`."""
        price = float(Compose.of((mechanism, 1)).rdp(self._order, self._relation)[0])
        if not math.isfinite(price):
            raise Refused(f"{mechanism} has no finite Renyi divergence of order {self._order[0]:g}. Choose another.")
        self._spent += check.count("steps", steps) * price * (1 + _ROUNDING)

    def bound(self, delta: float) -> ExPost:
        """The bound on all losses so far, but for probability `delta` in (0, 1)."""
        check.probability("delta", delta, open_low=True, open_high=True)
        return ExPost(self._spent - math.log(delta) / float(self._order[0] - 1), delta)
