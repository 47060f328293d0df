"""How well an attack did, and the bounds that a guarantee puts on that.

FPR is the fraction of non-members flagged (type I error), TPR the fraction of members flagged (1 - type II error).

Several runs of one setting: who is flagged in how many of them (Jayaraman & Evans 2019, Figures 4, 8, 11, 13).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc, ndtr

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


@dataclass(frozen=True)
class Overlap:
    """Records flagged in at least `runs` of all runs.

    Attributes:
        members, non_members: how many of either are.
        ppv: fraction of members among them, half of all being members (as `metrics.ppv`); 0 if none is flagged.
        chance: the fraction that guesses by fair coins, independent over the runs, would flag that often.
    """

    runs: int
    members: int
    non_members: int
    ppv: float
    chance: float


def overlaps(scores: Sequence[Scores]) -> list[Overlap]:
    """For k = 0 to the number of runs, who is flagged in at least k of them.

    Args:
        scores: of the same records in the same order, one for each run.
    """
    inside, outside = _times(scores)
    runs = len(scores)
    rows = []
    for least in range(runs + 1):
        found, wrong = int(np.sum(inside >= least)), int(np.sum(outside >= least))
        tpr, fpr = found / len(inside), wrong / len(outside)
        value = tpr / (tpr + fpr) if found + wrong else 0.0
        rows.append(Overlap(least, found, wrong, value, _at_least(least, runs)))
    return rows


def shared_members(scores: Sequence[Scores], *, fpr: float) -> np.ndarray:
    """Which members, boolean (n,), every run flags at its lowest threshold of FPR below `fpr`."""
    _times(scores)
    return np.all([members_at_fpr(each, fpr) for each in scores], axis=0)


def _at_least(least: int, runs: int) -> float:
    return 1.0 if least == 0 else float(bdtrc(least - 1, runs, 0.5))


def _times(scores: Sequence[Scores]) -> tuple[np.ndarray, np.ndarray]:
    """How often each member and each non-member is flagged."""
    if not scores or len({each.count for each in scores}) != 1:
        raise check.fail("scores", "of the same records, one or more runs", [each.count for each in scores])
    inside = np.sum([each.members >= each.threshold for each in scores], axis=0)
    return inside, np.sum([each.non_members >= each.threshold for each in scores], axis=0)
