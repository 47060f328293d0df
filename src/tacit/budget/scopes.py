"""`Scope`: what may follow earlier outputs in the runs of a data set, and the filter or odometer that counts them.

Caps as plain values: a `Target` to and from JSON, and in words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import check
from tacit.accounting import Filter, Odometer
from tacit.accounting.filters import KINDS as FILTERS
from tacit.mechanisms import Compose, Gaussian, Mechanism, from_spec
from tacit.mechanisms.spec import mechanism_rows
from tacit.root_finding import bisect
from tacit.tradeoff import Advantage, Epsilon, Errors, Mu, Target

KINDS = ("adaptive", "fixed", *FILTERS, "odometer")
_ORDER = 8.0
"""Renyi order of an odometer by default: near the best for epsilons of 1 to 3 at delta 1e-5 (budgets of many runs)."""
_NOISE = (1e-2, 1e8)  # noise multipliers among which the least one that fits is looked for


@dataclass(frozen=True)
class Scope:
    """What a data set's total is proven for.

    - "adaptive": the exact total, conditional on settings that followed no output.
    - "fixed": the same, the settings of all runs declared fixed before the first release.
    - "renyi", "gaussian", "pure", "zcdp": a filter (`accounting.Filter`) admits runs whatever they followed.
    - "odometer": a bound on the loss that happened, for all times at once; no guarantee beforehand.

    Args:
        kind: one of `KINDS`.
        budget: of a filter.
        plan: of a "renyi" filter, what is intended to run; one Gaussian release by default.
        order: of an odometer, > 1.

    Example:
        >>> Scope("gaussian", Epsilon(3.0, 1e-5)).says
        'filter(gaussian)'
    """

    kind: str = "adaptive"
    budget: Epsilon | None = None
    plan: Mechanism | None = None
    order: float | None = None

    def __post_init__(self) -> None:
        check.choice("scope", self.kind, KINDS)
        if self.is_filter != (self.budget is not None):
            hint = "It is epsilon and delta of the cap."
            raise check.fail("budget", "an Epsilon for the scope of a filter, and none otherwise", self.budget, hint)
        check.that(self.plan is None or self.kind == "renyi", "plan", "left out unless the scope is renyi", self.kind)
        if self.order is not None and self.kind != "odometer":
            raise check.fail("order", "left out unless the scope is odometer", self.kind)

    @property
    def is_filter(self) -> bool:
        """Whether a filter admits runs."""
        return self.kind in FILTERS

    @property
    def says(self) -> str:
        """Its name as ledgers and cards give it."""
        return f"filter({self.kind})" if self.is_filter else self.kind

    def spec(self) -> dict[str, Any]:
        """JSON form."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.budget is not None:
            found |= {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        if self.plan is not None:
            found["plan"] = [part.spec() | {"steps": steps} for part, steps in self.plan.parts()]
        return found if self.order is None else found | {"order": self.order}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Scope:
        """The scope of a JSON table."""
        budget = Epsilon(spec["epsilon"], spec["delta"]) if "epsilon" in spec else None
        rows = spec.get("plan")
        plan = None if rows is None else Compose.of(*map(from_spec, mechanism_rows({"mechanisms": rows})))
        return cls(spec["kind"], budget, plan, spec.get("order"))

    def filter_after(self, ran: Iterable[tuple[Mechanism, int]], relation: str) -> Filter:
        """The filter when it has admitted `ran`.

        Raises:
            BudgetExceeded: it does not admit all of them.
            Refused: the filter's kind has no cost for one of them.
        """
        assert self.budget is not None
        plan = Gaussian(1.0) if self.kind == "renyi" and self.plan is None else self.plan
        found = Filter(self.kind, self.budget, plan=plan, relation=relation)
        for mechanism, steps in ran:
            found.charge(mechanism, steps)
        return found

    def odometer_after(self, ran: Iterable[tuple[Mechanism, int]], relation: str) -> Odometer:
        """The odometer when `ran` have run."""
        found = Odometer(_ORDER if self.order is None else self.order, relation=relation)
        for mechanism, steps in ran:
            found.charge(mechanism, steps)
        return found


def used(filter: Filter) -> float:
    """The share of a filter's budget that is spent, where it is tightest, in [0, 1].

    Example:
        >>> spent = Filter("pure", Epsilon(2.0, 0.0))
        >>> used(spent)
        0.0
    """
    limit = filter.limit
    known = np.isfinite(limit) & (limit > 0)
    return float((filter.spent[known] / limit[known]).max(initial=0.0))


def least_noise(filter: Filter) -> float | None:
    """Noise multiplier of the least noisy Gaussian release that a filter still admits; None where none is.

    Example:
        >>> round(least_noise(Filter("gaussian", Epsilon(3.0, 1e-5))), 2)
        1.39
    """
    if filter.kind == "pure" or not filter.copy().admits(Gaussian(_NOISE[1])):
        return None
    low, high = map(math.log, _NOISE)
    return math.exp(bisect(lambda at: not filter.copy().admits(Gaussian(math.exp(at))), low, high)[1])


_KINDS: dict[str, type[Target]] = {"epsilon": Epsilon, "advantage": Advantage, "mu": Mu, "errors": Errors}


def target_spec(target: Target) -> dict[str, Any]:
    """JSON form of a target.

    Raises:
        InvalidInput: it is none of `Epsilon`, `Advantage`, `Mu`, `Errors`.

    Example:
        >>> target_spec(Mu(0.5))
        {'type': 'mu', 'mu': 0.5}
    """
    for name, kind in _KINDS.items():
        if type(target) is kind:
            return {"type": name, **vars(target)}
    raise check.fail("cap", "an Epsilon, Advantage, Mu or Errors target", target)


def target_from_spec(spec: Mapping[str, Any]) -> Target:
    """The target of a JSON table."""
    values = {key: value for key, value in spec.items() if key != "type"}
    return _KINDS[check.choice("type", spec.get("type"), _KINDS)](**values)


def in_words(target: Target) -> str:
    """A target as a person reads it.

    Example:
        >>> in_words(Epsilon(3.0, 1e-5))
        'epsilon 3 at delta 1e-05'
    """
    if isinstance(target, Epsilon):
        return f"epsilon {target.epsilon:g} at delta {target.delta:g}"
    if isinstance(target, Errors):
        return f"type II error {target.beta:g} at type I error {target.alpha:g}"
    return " ".join(f"{name} {value:g}" for name, value in vars(target).items())


def reached(target: Target, tradeoff: Any) -> float:
    """The number that `target` bounds, read off a curve, in the unit of the target."""
    if isinstance(target, Epsilon):
        return float(tradeoff.epsilon(target.delta))
    if isinstance(target, Advantage):
        return float(tradeoff.advantage())
    if isinstance(target, Mu):
        return float(tradeoff.mu())
    assert isinstance(target, Errors)
    return float(tradeoff.beta(target.alpha))
