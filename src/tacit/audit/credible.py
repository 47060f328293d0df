"""Credible lower bounds (Zanella-Beguelin, Wutschitz, Tople, Salem, Ruehle, Paverd, Naseri, Koepf & Jones 2023)."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from tacit import check
from tacit.attacks import Scores
from tacit.audit.results import Finding

VALID_WHEN = (
    "the prior is accepted (Beta(1/2, 1/2) for FPR and FNR, independent) and the threshold was fixed before "
    "the trials; a credible bound, which need not hold in any fraction of repeats"
)
_GRID = 600


def audit_bayesian(scores: Scores, *, delta: float, confidence: float = 0.95) -> Finding:
    """The epsilon that is exceeded with posterior probability `confidence`.

    FPR ~ Beta(k + 1/2, n - k + 1/2) and FNR alike, independent; epsilon(FPR, FNR) = max{log((1 - delta - FNR) / FPR),
    log((1 - delta - FPR) / FNR), 0}. The posterior is summed over 600 x 600 equally likely pairs. It never refutes
    a claim: a credible statement is no confidence statement.
    """
    delta = check.delta(delta)
    confidence = check.probability("confidence", confidence, open_low=True, open_high=True)
    members, non_members = scores.count
    alarms = int(np.sum(scores.non_members >= scores.threshold))
    misses = int(np.sum(scores.members < scores.threshold))
    level = (np.arange(_GRID) + 0.5) / _GRID
    fpr = betaincinv(alarms + 0.5, non_members - alarms + 0.5, level)[:, None]
    fnr = betaincinv(misses + 0.5, members - misses + 0.5, level)[None, :]
    with np.errstate(divide="ignore"):
        one = np.log(np.maximum(1 - delta - fnr, 0.0) / fpr)
        other = np.log(np.maximum(1 - delta - fpr, 0.0) / fnr)
    epsilon = np.maximum(np.maximum(one, other), 0.0)
    return Finding(
        attack=scores.attack,
        estimator="bayesian",
        valid_when=VALID_WHEN,
        confidence=confidence,
        delta=delta,
        epsilon_lower=float(np.quantile(epsilon, 1 - confidence, method="lower")),
    )
