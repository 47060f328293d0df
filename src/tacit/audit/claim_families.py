"""Families of claims ordered by one parameter, and the leakiest member that an audit refutes.

Where only one parameter of the mechanism is unknown, such as the noise of DP-SGD, refuting every member of the family
that leaks less is sharper than any bound at a single delta, which no attack reaches with few trials.

Anytime-valid audits: the confidence holds although the auditor looks after every trial and stops at will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

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


_EPSILONS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # points of the claim that are bet against
_BETS = (0.02, 0.1, 0.3, 0.6)  # stakes b: small ones find weak evidence, large ones find strong evidence early


class SequentialAudit:
    """An e-process against a claim; it refutes the claim when the wealth of its bets reaches 1 / alpha.

    Under the claim, flagging obeys P(flag | in) - e^eps P(flag | out) <= delta(eps), and the same with the worlds or
    the answers exchanged. With fair coins X = 2 [in, flag] - 2 e^eps [out, flag] is a payoff in [-2 e^eps, 2] of mean
    at most delta(eps), so a bettor who stakes b in [0, 1) multiplies his wealth by 1 + b (X - delta) / (2 e^eps +
    delta): a supermartingale that reaches 1 / alpha with probability at most alpha (Ville 1939). The bets are fixed in
    advance: a mean over eps, b and the four exchanges.

    Args:
        claim: the curve under test.
        confidence: 1 - alpha, in (0, 1).

    Valid when every trial is an independent run of the membership game with a fair coin, and the rule that flags
    depends on earlier trials only.

    Raises:
        InvalidInput: the confidence breaks its rule.

    Example:
        >>> from tacit.audit.bounds import perfect_privacy
        >>> audit = SequentialAudit(perfect_privacy())
        >>> for trial in range(100):
        ...     refuted = audit.observe(included=trial % 2 == 0, flagged=trial % 2 == 0)
        >>> refuted
        True
    """

    def __init__(self, claim: TradeOff, *, confidence: float = 0.95):
        self.claim = claim
        confidence = check.confidence(confidence)
        self.alpha = 1 - confidence
        self.trials = 0
        epsilons = np.array(_EPSILONS)
        deltas = np.array([float(claim.delta(epsilon)) for epsilon in _EPSILONS])
        self._slope, self._delta = np.exp(epsilons)[:, None], deltas[:, None]
        self._stake = np.array(_BETS) / (2 * self._slope + self._delta)
        self._logs = np.zeros((4, *self._stake.shape))
        self._highest = 0.0

    @property
    def evidence(self) -> float:
        """Current wealth, 1 before the first trial."""
        return float(np.exp(self._log_wealth()))

    @property
    def p_value(self) -> float:
        """1 / the highest wealth so far, at most 1: valid whenever it is read."""
        return float(np.exp(-self._highest))

    @property
    def refuted(self) -> bool:
        """Whether the claim was refuted, now or earlier."""
        return self.p_value <= self.alpha

    def observe(self, *, included: bool, flagged: bool) -> bool:
        """Add one trial: the coin, and whether the attack said "in"; returns `refuted`."""
        self.trials += 1
        for side, (world, answer) in enumerate(((True, True), (False, False), (False, True), (True, False))):
            gain = 2.0 * (included is world and flagged is answer)
            loss = 2.0 * self._slope * (included is not world and flagged is answer)
            self._logs[side] += np.log1p(self._stake * (gain - loss - self._delta))
        self._highest = max(self._highest, self._log_wealth())
        return self.refuted

    def _log_wealth(self) -> float:
        return float(np.logaddexp.reduce(self._logs, axis=None) - np.log(self._logs.size))


class SequentialBound:
    """The largest claim of an ordered list that is refuted together with all smaller ones, at any time.

    Args:
        claims: from the least to the most leaky, e.g. Gaussian DP for a grid of mu.
        confidence: of the bound; no share of it is lost to the length of the list, because a wrong bound needs the
            first true claim to be refuted.

    Raises:
        InvalidInput: there is no claim, or the confidence breaks its rule.

    Example:
        >>> from tacit.audit import gaussian_family
        >>> bound = SequentialBound([gaussian_family().curve(mu) for mu in (0.0, 0.5, 4.0)])
        >>> for trial in range(100):
        ...     bound.observe(included=trial % 2 == 0, flagged=trial % 2 == 0)
        >>> bound.refuted
        2
    """

    def __init__(self, claims: Sequence[TradeOff], *, confidence: float = 0.95):
        if not claims:
            raise check.fail("claims", "one claim at least", 0)
        self._audits = [SequentialAudit(claim, confidence=confidence) for claim in claims]

    def observe(self, *, included: bool, flagged: bool) -> None:
        """Add one trial."""
        for audit in self._audits:
            audit.observe(included=included, flagged=flagged)

    @property
    def refuted(self) -> int:
        """How many claims from the first on are refuted."""
        return next((count for count, audit in enumerate(self._audits) if not audit.refuted), len(self._audits))
