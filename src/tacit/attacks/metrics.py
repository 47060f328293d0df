"""Success metrics of membership attacks, their bounds by a guarantee, and their overlap over several runs.

FPR is the fraction of non-members flagged (type I error), TPR the fraction of members flagged (1 - type II error).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc, ndtr

from tacit import check
from tacit.attacks.base import Scores

_LARGEST_EXPONENT = 700.0  # e^709.8 is the largest double


def error_rates(scores: Scores) -> tuple[float, float]:
    """(FPR, TPR) of the attack's own rule.

    Example:
        >>> error_rates(Scores("loss", [2.0, 1.0], [0.0, 1.5], 1.0))
        (0.5, 1.0)
    """
    return float(np.mean(scores.non_members >= scores.threshold)), float(np.mean(scores.members >= scores.threshold))


def roc(scores: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(FPR, TPR, threshold) at each distinct score from the highest down, after (0, 0, inf); ends at (1, 1).

    Example:
        >>> fpr, tpr, thresholds = roc(Scores("loss", [2.0], [0.0], 1.0))
        >>> fpr, tpr
        (array([0., 0., 1.]), array([0., 1., 1.]))
    """
    thresholds = np.append(np.inf, np.unique(np.concatenate([scores.members, scores.non_members]))[::-1])
    return _flagged(scores.non_members, thresholds), _flagged(scores.members, thresholds), thresholds


def advantage(scores: Scores) -> float:
    """TPR - FPR of the attack's own rule (Yeom et al. 2018, Definition 4).

    Example:
        >>> advantage(Scores("loss", [2.0, 1.0], [0.0, 1.5], 1.0))
        0.5
    """
    fpr, tpr = error_rates(scores)
    return tpr - fpr


def ppv(scores: Scores, *, prior: float = 0.5) -> float:
    """Positive predictive value: the probability that a flagged record is a member; 0 if none is flagged.

    It is prior TPR / (prior TPR + (1 - prior) FPR), where a fraction `prior` in [0, 1] of records are members.

    Example:
        >>> round(ppv(Scores("loss", [2.0, 1.0], [0.0, 1.5], 1.0)), 4)
        0.6667
    """
    prior = check.probability("prior", prior)
    fpr, tpr = error_rates(scores)
    total = prior * tpr + (1 - prior) * fpr
    return prior * tpr / total if total > 0 else 0.0


def pure_bound(epsilon: float) -> float:
    """Bound e^epsilon - 1 on the advantage (Yeom et al. 2018, Theorem 1), trivial from epsilon log 2 on.

    Example:
        >>> round(pure_bound(0.5), 4)
        0.6487
    """
    return math.expm1(min(check.epsilon(epsilon), _LARGEST_EXPONENT))


def approximate_bound(epsilon: float, delta: float) -> float:
    """Bound (e^eps - 1 + 2 delta) / (e^eps + 1) on the advantage, attained by some (epsilon, delta)-DP mechanism.

    It is the advantage at the corner of the trade-off function of (epsilon, delta)-DP, where both error rates
    equal (1 - delta) / (e^eps + 1) (Kairouz, Oh & Viswanath 2015).

    Example:
        >>> round(approximate_bound(1.0, 1e-5), 4)
        0.4621
    """
    shrink = math.exp(-check.epsilon(epsilon))
    return (1 - shrink + 2 * check.delta(delta) * shrink) / (1 + shrink)


def gaussian_bound(mu: float) -> float:
    """Bound 2 Phi(mu/2) - 1 on the advantage under mu-GDP: the total variation of N(0, 1) and N(mu, 1), mu >= 0.

    Example:
        >>> round(gaussian_bound(1.0), 4)
        0.3829
    """
    return float(2 * ndtr(check.real("mu", mu, low=0.0) / 2) - 1)


def _flagged(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    below = np.searchsorted(np.sort(values), thresholds, side="left")
    return (len(values) - below) / len(values)


@dataclass(frozen=True)
class Overlap:
    """Records flagged in at least `runs` of all runs.

    Attributes:
        runs: least number of runs.
        members: number of members flagged so often.
        non_members: number of non-members flagged so often.
        ppv: fraction of members among them, half of all being members (as `metrics.ppv`); 0 if none is flagged.
        chance: the fraction that fair coins, independent over the runs, would flag so often.

    Example:
        >>> overlaps([Scores("loss", [2.0, 0.0], [0.0, 0.0], 1.0)])[1]
        Overlap(runs=1, members=1, non_members=0, ppv=1.0, chance=0.5)
    """

    runs: int
    members: int
    non_members: int
    ppv: float
    chance: float


def overlaps(scores: Sequence[Scores]) -> list[Overlap]:
    """For k = 0 to the number of runs, the records flagged in at least k of them.

    Source: Jayaraman & Evans 2019, Figures 4, 8, 11 and 13.

    Args:
        scores: of the same records in the same order, one for each run.

    Example:
        >>> runs = [Scores("loss", [2.0, 0.0], [0.0, 0.0], 1.0), Scores("loss", [2.0, 2.0], [0.0, 2.0], 1.0)]
        >>> [(row.members, row.non_members) for row in overlaps(runs)]
        [(2, 2), (2, 1), (1, 0)]
    """
    counts = [run.count for run in scores]
    if len(set(counts)) != 1:
        raise check.fail("scores", "of the same records, one or more runs", counts)
    inside = np.sum([run.members >= run.threshold for run in scores], axis=0)
    outside = np.sum([run.non_members >= run.threshold for run in scores], axis=0)
    runs, rows = len(scores), []
    for least in range(runs + 1):
        found, wrong = int(np.sum(inside >= least)), int(np.sum(outside >= least))
        tpr, fpr = found / len(inside), wrong / len(outside)
        value = tpr / (tpr + fpr) if found + wrong else 0.0
        rows.append(Overlap(least, found, wrong, value, 1.0 if least == 0 else float(bdtrc(least - 1, runs, 0.5))))
    return rows
