"""Credible lower bounds (Zanella-Beguelin, Wutschitz, Tople, Salem, Ruehle, Paverd, Naseri, Koepf & Jones 2023)."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from tacit import check
from tacit.attacks import Scores
from tacit.audit.bounds import epsilon_at_rates
from tacit.audit.results import Finding

VALID_WHEN = (
    "the prior is accepted (Beta(1/2, 1/2) for FPR and FNR, independent) and the threshold was fixed before "
    "the trials; a credible bound, which need not hold in any fraction of repeats"
)
_GRID = 600  # equally likely values of each rate


def audit_bayesian(scores: Scores, *, delta: float, confidence: float = 0.95) -> Finding:
    """Credible lower bound: the epsilon that is exceeded with posterior probability `confidence`.

    FPR ~ Beta(k + 1/2, n - k + 1/2) and FNR alike, independent; epsilon(FPR, FNR) = max{log((1 - delta - FNR) / FPR),
    log((1 - delta - FPR) / FNR), 0}. The posterior is summed over 600 x 600 equally likely pairs. It never refutes
    a claim: a credible statement is no confidence statement.

    Args:
        scores: an attack's scores, whose threshold was fixed before the trials.
        delta: in [0, 1], at which epsilon is read.
        confidence: in (0, 1).

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> scores = Scores("loss", np.arange(10.0, 60.0), np.arange(0.0, 50.0), 30.0)
        >>> found = audit_bayesian(scores, delta=1e-5)
        >>> found.epsilon_lower > 0, found.refuted
        (True, None)
    """
    delta = check.delta(delta)
    confidence = check.confidence(confidence)
    members, non_members = scores.count
    alarms = int(np.sum(scores.non_members >= scores.threshold))
    misses = int(np.sum(scores.members < scores.threshold))
    level = (np.arange(_GRID) + 0.5) / _GRID
    fpr = betaincinv(alarms + 0.5, non_members - alarms + 0.5, level)[:, None]
    fnr = betaincinv(misses + 0.5, members - misses + 0.5, level)[None, :]
    epsilon = epsilon_at_rates(fpr, fnr, delta)
    return Finding(
        attack=scores.attack,
        estimator="bayesian",
        valid_when=VALID_WHEN,
        confidence=confidence,
        delta=delta,
        epsilon_lower=float(np.quantile(epsilon, 1 - confidence, method="lower")),
    )
