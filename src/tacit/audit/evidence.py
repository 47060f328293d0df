"""Evidence of a run by canaries in its first steps, judged against the claim composed over those steps.

Its power is that of simulated runs: the scores of canaries in a lane of their own follow a known law, right and wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit import check
from tacit.attacks import Scores
from tacit.audit.canaries import LikelihoodRatio
from tacit.audit.results import AuditResult
from tacit.audit.run import audit_scores
from tacit.tradeoff import TradeOff

SIMULATED = 20
"""Simulated runs of each broken copy."""
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
        power: broken copy in words -> share of `SIMULATED` runs in which the attack refutes `claim`.
    """

    result: AuditResult
    claim: TradeOff
    epsilon: float
    steps: int
    total: int
    monitors: Mapping[str, bool]
    power: Mapping[str, float]

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
        return {
            "steps": self.steps,
            "total": self.total,
            "claim_epsilon": self.epsilon,
            "epsilon_lower": self.result.epsilon_lower,
            "monitors": dict(self.monitors),
            "power": dict(self.power),
            "simulated": SIMULATED,
            "refuted": self.refuted,
            "could_refute": self.could_refute,
        }


def canary_power(
    claim: TradeOff,
    *,
    noise_multiplier: float,
    true_noise: float,
    sample_rate: float,
    steps: int,
    canaries: int,
    delta: float,
    confidence: float,
) -> float:
    """Share of `SIMULATED` runs in which canaries refute the claim of steps whose noise is another than is claimed.

    Args:
        claim: of the steps.
        noise_multiplier: as claimed.
        true_noise: that is added, >= 0, in units of the clipping norm.
        sample_rate: in (0, 1].
        steps: how many.
        canaries: how many, each in or out by its own fair coin.
        delta: of the bounds.
        confidence: of the bounds, in (0, 1).

    Raises:
        InvalidInput: fewer than two canaries.

    Example:
        >>> from tacit.accounting import accountant
        >>> from tacit.mechanisms import Gaussian
        >>> of_steps = {"noise_multiplier": 2.0, "sample_rate": 0.1, "steps": 20, "canaries": 200}
        >>> claim = accountant("pld")(Gaussian(2.0).poisson(0.1) * 20)
        >>> canary_power(claim, true_noise=0.0, delta=1e-5, confidence=0.95, **of_steps)
        1.0
    """
    check.count("canaries", canaries, minimum=2)
    draw, refuted = np.random.default_rng(0), 0
    for _ in range(SIMULATED):
        included = draw.random(canaries) < 0.5
        observer = LikelihoodRatio(noise_multiplier, sample_rate)
        for _ in range(steps):
            sampled = included & (draw.random(canaries) < sample_rate)
            observer.add(sampled + true_noise * draw.standard_normal(canaries))
        total = np.asarray(observer.total)
        scores = Scores("canaries", total[included], total[~included], 0.0)
        bounds = {"delta": delta, "trials": "independent", "relation": claim.relation, "confidence": confidence}
        refuted += audit_scores(scores, **bounds).refutes(claim)
    return refuted / SIMULATED
