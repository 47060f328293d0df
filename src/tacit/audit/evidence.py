"""Evidence of a run by canaries in its first steps, judged against the claim composed over those steps.

Its power is that of simulated runs: canaries in a lane of their own are scored by releases of a known law, which a
wrong noise changes in a known way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import check
from tacit.attacks import Scores
from tacit.audit.bounds import ESTIMATORS
from tacit.audit.run import AuditResult, measured_tradeoff
from tacit.tradeoff import TradeOff

SIMULATED = 20
"""Simulated runs of each broken copy, unless they take long."""
DETECTED = 0.5
"""Share of simulated runs from which on a broken copy counts as noticed."""


@dataclass(frozen=True)
class CanaryEvidence:
    """What canaries in the first steps of a training found, and what they would have found in broken copies of it.

    Attributes:
        result: of the attack on the canaries.
        claim: trade-off function of these steps alone.
        epsilon: of `claim` at the delta of `result`.
        steps: how many were audited.
        total: how many the run has.
        monitors: whether the monitor of that name passed.
        power: broken copy in words -> share of `simulated` runs in which the attack refutes `claim`.
        simulated: runs of each broken copy.
        seconds: that all of it took, at most.
        is_seeded: whether the run's own noise came from a seed, which canaries do not use.
    """

    result: AuditResult
    claim: TradeOff
    epsilon: float
    steps: int
    total: int
    monitors: Mapping[str, bool]
    power: Mapping[str, float]
    simulated: int = SIMULATED
    seconds: float = 0.0
    is_seeded: bool = False

    @property
    def refuted(self) -> bool:
        """Whether the claim of these steps is refuted, by the attack or by a monitor."""
        return self.result.refutes(self.claim) or not all(self.monitors.values())

    @property
    def could_refute(self) -> bool:
        """Whether the attack notices every broken copy in at least half of the simulated runs."""
        return all(share >= DETECTED for share in self.power.values())

    def row(self) -> dict[str, Any]:
        """JSON form."""
        names = ("steps", "total", "monitors", "power", "simulated", "seconds", "is_seeded", "refuted", "could_refute")
        bounds = {"claim_epsilon": self.epsilon, "epsilon_lower": self.result.epsilon_lower}
        return {name: getattr(self, name) for name in names} | bounds


def canary_power(
    claim: TradeOff,
    simulated: Callable[[np.ndarray, int], np.ndarray],
    *,
    canaries: int,
    confidence: float,
    runs: int = SIMULATED,
) -> float:
    """Share of simulated runs in which canaries refute the claim of steps.

    Args:
        claim: of the steps.
        simulated: scores of canaries, shape (canaries,), in one simulated run: from which of them took part, and the
            number of the run.
        canaries: how many, each in or out by its own fair coin.
        confidence: of the bounds, in (0, 1).
        runs: how many.

    Raises:
        InvalidInput: fewer than two canaries.

    Example:
        >>> from tacit.accounting import accountant
        >>> from tacit.mechanisms import Gaussian
        >>> claim = accountant("pld")(Gaussian(2.0).poisson(0.1) * 20)
        >>> canary_power(claim, lambda included, _: 1.0 * included, canaries=200, confidence=0.95)
        1.0
    """
    check.count("canaries", canaries, minimum=2)
    draw, refuted = np.random.default_rng(0), 0
    for number in range(runs):
        included = draw.random(canaries) < 0.5
        total, band = simulated(included, number), ESTIMATORS["band"]
        scores = Scores("canaries", total[included], total[~included], 0.0)
        refuted += not measured_tradeoff(scores, band, relation=claim.relation, confidence=confidence) <= claim
    return refuted / runs
