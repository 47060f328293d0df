"""What an estimator found that bounds epsilon directly, not through error rates at thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.tradeoff import TradeOff


@dataclass(frozen=True)
class Finding:
    """A lower bound on epsilon at `delta`, with its confidence and what it rests on.

    Attributes:
        attack: name of the attack.
        estimator: `multisplit`, `normal`, `one_run`, `one_run_curve` or `bayesian`.
        valid_when: what must hold for the bound, in words.
        confidence: in (0, 1); of `bayesian`, the credibility under its prior.
        delta: at which epsilon is read.
        epsilon_lower: >= 0.
        mu_lower: the same for Gaussian DP, where the estimator gives it.
        refuted: whether the claim that was given is refuted; None without a claim.
        tradeoff: error rates that the attack is sure to reach, where the estimator gives them.
        detectable_mu: the smallest mu of a mu-GDP mechanism on which a best attack would have been expected to refute
            the claim (perfect privacy without one); None where the estimator has no such statement.
    """

    attack: str
    estimator: str
    valid_when: str
    confidence: float
    delta: float
    epsilon_lower: float
    mu_lower: float | None = None
    refuted: bool | None = None
    tradeoff: TradeOff | None = None
    detectable_mu: float | None = None

    def row(self) -> dict[str, Any]:
        """The entry of this audit in `card.json`; it judges no single point, so advantage and PPV are None."""
        return {
            "attack": self.attack,
            "confidence": self.confidence,
            "advantage": None,
            "ppv": None,
            "epsilon_lower": self.epsilon_lower,
            "mu_lower": self.mu_lower,
        }
