"""Estimators: from an attack's scores to bounds on its error rates that hold with a confidence.

| name | thresholds | bound on each rate | valid when |
|---|---|---|---|
| `fixed` | the attack's own | Clopper-Pearson | the threshold was fixed before these records were scored |
| `split` | best of one half, scored on the other | Clopper-Pearson | the records are exchangeable |
| `bonferroni` | all, through ranks fixed beforehand | Clopper-Pearson, alpha divided | always |
| `dkw` | all | Dvoretzky-Kiefer-Wolfowitz | always |
| `band` | all | the smaller of DKW and Clopper-Pearson at fixed ranks, alpha divided | always |

"Always" still assumes independent scores: see `Trials` for what that means for one trained model. Evaluating the best
threshold on the records that chose it is the commonest error; `dkw` and `band` allow every threshold, and pay for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tacit import check
from tacit.attacks import Scores, roc
from tacit.audit.bounds import RateBound, band, clopper_pearson, dkw, epsilon_at_rates, ranks

Chooser = Callable[[Scores, RateBound, float, float], tuple[Scores, np.ndarray]]


@dataclass(frozen=True)
class ErrorBand:
    """Bounds on both error rates, one entry for each threshold, from the highest threshold down.

    Attributes:
        fpr_low: lower bounds on the false positive rate, shape (thresholds,).
        fpr_high: upper bounds on it.
        fnr_low: lower bounds on the false negative rate.
        fnr_high: upper bounds on it.

    Example:
        >>> scores = Scores("loss", np.arange(2.0, 12.0), np.arange(0.0, 10.0), 5.0)
        >>> found = ESTIMATORS["fixed"].band(scores, np.array([5.0]), 0.05)
        >>> bool(found.fpr_low[0] < 0.5 < found.fpr_high[0])
        True
    """

    fpr_low: np.ndarray
    fpr_high: np.ndarray
    fnr_low: np.ndarray
    fnr_high: np.ndarray


@dataclass(frozen=True)
class Estimator:
    """Choice of thresholds and records, and the bound on each error rate there.

    Attributes:
        name: name of the estimator.
        bound: on each rate.
        choose: `choose(scores, bound, delta, alpha)` returns the scores to evaluate, whose `threshold` is the point of
            the advantage and PPV, and the thresholds at which rates are bounded.
    """

    name: str
    bound: RateBound
    choose: Chooser

    def outer(self, scores: Scores, thresholds: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on (FPR, FNR) at each threshold that hold together with probability 1 - alpha."""
        false_alarms, misses = _counts(scores, thresholds)
        members, non_members = scores.count
        return self.bound(false_alarms, non_members, alpha / 2), self.bound(misses, members, alpha / 2)

    def band(self, scores: Scores, thresholds: np.ndarray, alpha: float) -> ErrorBand:
        """Bounds on both sides of both rates that hold together with probability 1 - alpha."""
        fpr_high, fnr_high = self.outer(scores, thresholds, alpha / 2)
        false_alarms, misses = _counts(scores, thresholds)
        members, non_members = scores.count
        fpr_low = 1 - self.bound(non_members - false_alarms, non_members, alpha / 4)
        fnr_low = 1 - self.bound(members - misses, members, alpha / 4)
        return ErrorBand(fpr_low, fpr_high, fnr_low, fnr_high)


def _counts(scores: Scores, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(non-members at or above, members below) each threshold."""
    alarms = len(scores.non_members) - np.searchsorted(np.sort(scores.non_members), thresholds, side="left")
    return alarms, np.searchsorted(np.sort(scores.members), thresholds, side="left")


def _own_threshold(scores: Scores, bound: RateBound, delta: float, alpha: float) -> tuple[Scores, np.ndarray]:
    return scores, np.array([scores.threshold])


def _all_thresholds(scores: Scores, bound: RateBound, delta: float, alpha: float) -> tuple[Scores, np.ndarray]:
    return scores, roc(scores)[2]


def _best_of_half(scores: Scores, bound: RateBound, delta: float, alpha: float) -> tuple[Scores, np.ndarray]:
    """One half, drawn with a public seed, chooses the threshold; the other is evaluated."""
    first, second = halves(scores, np.random.default_rng(0))
    best = best_threshold(first, bound, delta, alpha)
    return replace(second, threshold=best), np.array([best])


def best_threshold(scores: Scores, bound: RateBound, delta: float, alpha: float) -> float:
    """The threshold of the largest epsilon bound at `delta` on these records, ties by the largest advantage.

    Args:
        scores: of the records that choose.
        bound: on each rate.
        delta: in [0, 1].
        alpha: failure probability, in (0, 1).
    """
    fpr, tpr, thresholds = roc(scores)
    false_alarms, misses = _counts(scores, thresholds)
    members, non_members = scores.count
    fpr_high, fnr_high = bound(false_alarms, non_members, alpha / 2), bound(misses, members, alpha / 2)
    epsilon = epsilon_at_rates(fpr_high, fnr_high, delta)
    best = max(range(len(thresholds)), key=lambda i: (epsilon[i], tpr[i] - fpr[i]))
    return float(thresholds[best])


def halves(scores: Scores, draw: np.random.Generator) -> tuple[Scores, Scores]:
    """A random half of the members and non-members each, and the rest; the draw need not be secret.

    Raises `InvalidInput` unless there are two of each.
    """
    if min(scores.count) < 2:
        raise check.fail("scores", "of two members and two non-members at least to split", scores.count)
    members, non_members = draw.permutation(scores.members), draw.permutation(scores.non_members)
    m, n = len(members) // 2, len(non_members) // 2
    first = replace(scores, members=members[:m], non_members=non_members[:n])
    return first, replace(scores, members=members[m:], non_members=non_members[n:])


ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        Estimator("fixed", clopper_pearson, _own_threshold),
        Estimator("split", clopper_pearson, _best_of_half),
        Estimator("bonferroni", ranks, _all_thresholds),
        Estimator("dkw", dkw, _all_thresholds),
        Estimator("band", band, _all_thresholds),
    )
}
