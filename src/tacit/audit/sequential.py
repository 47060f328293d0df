"""Anytime-valid audits: the confidence holds although the auditor looks after every trial and stops at will."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit import check
from tacit.tradeoff import TradeOff

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
