"""Families of claims ordered by one parameter, and the leakiest member that an audit refutes.

Where only one parameter of the mechanism is unknown, such as the noise of DP-SGD, refuting every member of the family
that leaks less is sharper than any bound at a single delta, which no attack reaches with few trials.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tacit import check
from tacit.accounting import accountant
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import GaussianCurve, TradeOff

_ACCURACY = 1e-3  # of the parameter: below the statistical error of any audit


@dataclass(frozen=True)
class Family:
    """Certified curves ordered by a parameter in [low, high].

    Attributes:
        parameter: name of the parameter.
        curve: parameter to the certified curve.
        low: smallest parameter.
        high: largest parameter.
        rising: whether a larger parameter leaks more (as mu does; noise does not).

    Example:
        >>> family = gaussian_family()
        >>> family.parameter, family.rising
        ('mu', True)
    """

    parameter: str
    curve: Callable[[float], TradeOff]
    low: float
    high: float
    rising: bool


@dataclass(frozen=True)
class Refuted:
    """The leakiest refuted member of a family: with the audit's confidence the mechanism leaks more than it.

    Attributes:
        parameter: its parameter; None when no member is refuted.
        epsilon_lower: the epsilon at delta that its curve is proven to exceed (its own where the accountant is
            one-sided); 0 when no member is refuted.

    Example:
        >>> refute_family(gaussian_family(), lambda claim: False, delta=1e-5)
        Refuted(parameter=None, epsilon_lower=0.0)
    """

    parameter: float | None
    epsilon_lower: float


def gaussian_family(relation: Relation | str = Relation.ADD_REMOVE, *, highest: float = 30.0) -> Family:
    """Gaussian DP for mu in [0, `highest`]: valid for mechanisms whose curve is Gaussian.

    Example:
        >>> gaussian_family().curve(1.0).source
        '1-GDP'
    """
    known = Relation.parse(relation)

    def curve(mu: float) -> TradeOff:
        return TradeOff(GaussianCurve(mu), Standing.PROVEN, known, f"{mu:.4g}-GDP")

    return Family("mu", curve, 0.0, highest, True)


def noise_family(
    mechanism: Callable[[float], Mechanism],
    relation: Relation | str = Relation.ADD_REMOVE,
    *,
    low: float = 0.1,
    high: float = 100.0,
) -> Family:
    """Mechanisms that differ in their noise multiplier, with the curves of the exact accountant.

    Args:
        mechanism: noise multiplier to the whole mechanism, e.g. `lambda s: Gaussian(s).poisson(q) * steps`.
        relation: neighbouring relation.
        low: smallest noise multiplier.
        high: largest noise multiplier.

    Raises:
        InvalidInput: the relation is unknown.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> family = noise_family(lambda noise: Gaussian(noise) * 4)
        >>> round(family.curve(2.0).mu(), 6)
        1.0
    """
    known, exact = Relation.parse(relation), accountant("pld")
    return Family("noise_multiplier", lambda noise: exact(mechanism(noise), relation=known), low, high, False)


def refute_family(family: Family, refutes: Callable[[TradeOff], bool], *, delta: float) -> Refuted:
    """The leakiest member of `family` that `refutes` holds for, to .1 % of its parameter.

    Refuting is monotone in the leakage, so bisection finds it; the answer is a member that was itself refuted.

    Args:
        family: the claims.
        refutes: e.g. `result.refutes`, at its own confidence.
        delta: in [0, 1], at which epsilon is read.

    Example:
        >>> found = refute_family(gaussian_family(), lambda claim: claim.curve.mu(0.0) < 1.0, delta=1e-5)
        >>> round(found.parameter, 2), round(found.epsilon_lower, 1)
        (1.0, 4.4)
    """
    delta = check.delta(delta)
    private, leaky = (family.low, family.high) if family.rising else (family.high, family.low)
    if not refutes(family.curve(private)):
        return Refuted(None, 0.0)
    if refutes(family.curve(leaky)):
        private = leaky
    while abs(leaky - private) > _ACCURACY * max(leaky, private):
        middle = (leaky + private) / 2 if min(leaky, private) <= 0 else (leaky * private) ** 0.5
        private, leaky = (middle, leaky) if refutes(family.curve(middle)) else (private, middle)
    found = family.curve(private).epsilon(delta)
    known = found.interval[0]
    return Refuted(private, float(found) if known is None else known)
