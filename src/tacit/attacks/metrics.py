"""How well an attack did, and the bounds that a guarantee puts on that.

FPR is the fraction of non-members flagged (type I error), TPR the fraction of members flagged (1 - type II error).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from tacit import check
from tacit.attacks.base import Scores

PRIORS = (0.5, 0.1, 0.01)


def error_rates(scores: Scores) -> tuple[float, float]:
    """(FPR, TPR) of the attack's own rule."""
    return float(np.mean(scores.non_members >= scores.threshold)), float(np.mean(scores.members >= scores.threshold))


def roc(scores: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(FPR, TPR, threshold) at each distinct score from the highest down, after (0, 0, inf); ends at (1, 1)."""
    thresholds = np.append(np.inf, np.unique(np.concatenate([scores.members, scores.non_members]))[::-1])
    return _flagged(scores.non_members, thresholds), _flagged(scores.members, thresholds), thresholds


def advantage(scores: Scores) -> float:
    """TPR - FPR of the attack's own rule (Yeom et al. 2018, Definition 4)."""
    fpr, tpr = error_rates(scores)
    return tpr - fpr


def ppv(scores: Scores, *, prior: float = 0.5) -> float:
    """Probability that a flagged record is a member when a fraction `prior` of records are; 0 if none is flagged.

    prior TPR / (prior TPR + (1 - prior) FPR); at .5 it is TP / (TP + FP) of equally many members and non-members.
    """
    prior = check.probability("prior", prior)
    fpr, tpr = error_rates(scores)
    total = prior * tpr + (1 - prior) * fpr
    return prior * tpr / total if total > 0 else 0.0


def ppv_at_priors(scores: Scores) -> dict[float, float]:
    """`ppv` at the priors .5, .1 and .01: membership is rare outside the laboratory."""
    return {prior: ppv(scores, prior=prior) for prior in PRIORS}


def members_at_fpr(scores: Scores, fpr: float) -> np.ndarray:
    """Which members, boolean of shape (n,), are flagged at the lowest threshold whose FPR is below `fpr` in (0, 1]."""
    fpr = check.probability("fpr", fpr, open_low=True)
    rates, _, thresholds = roc(scores)
    return scores.members >= thresholds[np.flatnonzero(rates < fpr)[-1]]


def accuracy_loss(*, private: float, nonprivate: float) -> float:
    """1 - private / nonprivate test accuracy, in (-inf, 1]; `nonprivate` in (0, 1], `private` in [0, 1]."""
    private = check.probability("private", private)
    return 1 - private / check.probability("nonprivate", nonprivate, open_low=True)


def pure_bound(epsilon: float) -> float:
    """e^epsilon - 1 (Yeom et al. 2018, Theorem 1): above 1, hence empty, from epsilon log 2 on."""
    return math.expm1(min(check.epsilon(epsilon), 700.0))


def approximate_bound(epsilon: float, delta: float) -> float:
    """(e^eps - 1 + 2 delta) / (e^eps + 1): the most that any (epsilon, delta)-DP mechanism allows.

    It is the advantage at the corner of the trade-off function of (epsilon, delta)-DP, where both error rates
    equal (1 - delta) / (e^eps + 1) (Kairouz, Oh & Viswanath 2015).
    """
    shrink = math.exp(-check.epsilon(epsilon))
    return (1 - shrink + 2 * check.delta(delta) * shrink) / (1 + shrink)


def gaussian_bound(mu: float) -> float:
    """2 Phi(mu/2) - 1, the total variation of N(0, 1) and N(mu, 1), mu >= 0."""
    return float(2 * ndtr(check.real("mu", mu, low=0.0) / 2) - 1)


def _flagged(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    below = np.searchsorted(np.sort(values), thresholds, side="left")
    return (len(values) - below) / len(values)
