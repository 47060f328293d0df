"""Estimators: from an attack's scores to error rates that the attack is sure to reach, with a confidence.

| name | thresholds | bound on each rate | valid when |
|---|---|---|---|
| `fixed` | the attack's own | Clopper-Pearson | the threshold was fixed before these records were scored |
| `split` | best of one half, scored on the other | Clopper-Pearson | the records are exchangeable |
| `bonferroni` | all, through ranks fixed beforehand | Clopper-Pearson, alpha shared out | always |
| `dkw` | all | Dvoretzky-Kiefer-Wolfowitz | always |
| `band` | all | the smaller of that and Clopper-Pearson at fixed ranks, alpha shared out | always |

"Always" still means independent scores: see `AuditResult` for what that says about one trained model. The commonest
error, scoring the best threshold on the records that it was picked on, is what `dkw` and `band` pay for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tacit import check
from tacit.attacks import Scores, roc
from tacit.audit.bounds import RateBound, band, clopper_pearson, dkw, ranks

Chooser = Callable[[Scores, RateBound, float, float], tuple[Scores, np.ndarray]]


@dataclass(frozen=True)
class ErrorBand:
    """Bounds on both error rates, one entry for each threshold, from the highest threshold down."""

    fpr_low: np.ndarray
    fpr_high: np.ndarray
    fnr_low: np.ndarray
    fnr_high: np.ndarray


@dataclass(frozen=True)
class Estimator:
    """Which thresholds are judged on which records, and how each rate is bounded there.

    `choose(scores, bound, delta, alpha)` returns the records to judge, their `threshold` being the point that
    advantage and PPV are told of, and the thresholds to bound.
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


def _own(scores: Scores, bound: RateBound, delta: float, alpha: float) -> tuple[Scores, np.ndarray]:
    return scores, np.array([scores.threshold])


def _all(scores: Scores, bound: RateBound, delta: float, alpha: float) -> tuple[Scores, np.ndarray]:
    return scores, roc(scores)[2]


def _best_of_half(scores: Scores, bound: RateBound, delta: float, alpha: float) -> tuple[Scores, np.ndarray]:
    """One half, drawn with a public seed, picks the threshold; the other is judged."""
    first, second = halves(scores, np.random.default_rng(0))
    best = best_threshold(first, bound, delta, alpha)
    return replace(second, threshold=best), np.array([best])


def best_threshold(scores: Scores, bound: RateBound, delta: float, alpha: float) -> float:
    """The threshold of the largest epsilon bound at `delta` on these records (then of the largest advantage)."""
    fpr, tpr, thresholds = roc(scores)
    false_alarms, misses = _counts(scores, thresholds)
    fpr_high = bound(false_alarms, len(scores.non_members), alpha / 2)
    fnr_high = bound(misses, len(scores.members), alpha / 2)
    with np.errstate(divide="ignore"):
        one = np.log(np.maximum(1 - delta - fnr_high, 0.0) / fpr_high)
        other = np.log(np.maximum(1 - delta - fpr_high, 0.0) / fnr_high)
    epsilon = np.maximum(np.maximum(one, other), 0.0)
    best = max(range(len(thresholds)), key=lambda i: (epsilon[i], tpr[i] - fpr[i]))
    return float(thresholds[best])


def halves(scores: Scores, draw: np.random.Generator) -> tuple[Scores, Scores]:
    """A random half of the members and non-members each, and the rest; the draw is no secret.

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
        Estimator("fixed", clopper_pearson, _own),
        Estimator("split", clopper_pearson, _best_of_half),
        Estimator("bonferroni", ranks, _all),
        Estimator("dkw", dkw, _all),
        Estimator("band", band, _all),
    )
}
