"""Upper bounds on an error rate from counts, and the minimum detectable violation of an audit that uses them.

Every bound has the form u(k, n, alpha): k events among n independent draws, failure probability alpha. It holds for
one rate fixed beforehand (`clopper_pearson`) or for all thresholds at once. The lower bound on the same rate is
1 - u(n - k, n, alpha).

Estimators: from an attack's scores to bounds on its error rates that hold with a confidence.

| name | thresholds | bound on each rate | valid when |
|---|---|---|---|
| `fixed` | the attack's own | Clopper-Pearson | the threshold was fixed before these records were scored |
| `band` | all | the smaller of DKW and Clopper-Pearson at fixed ranks, alpha divided | always |

"Always" still assumes independent scores: see `Trials` for what that means for one trained model. Evaluating the best
threshold on the records that chose it is the commonest error; `band` allows every threshold, and pays for it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betainccinv

from tacit.attacks import Scores, roc
from tacit.relation import Relation
from tacit.root_finding import TO_ZERO, bisect
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_beta

RateBound = Callable[[np.ndarray, int, float], np.ndarray]
"""u(k, n, alpha): events, trials and failure probability to an upper bound on the rate."""

LARGEST_MU = 60.0  # no attack has errors at this mu: both are below 1e-190
_TAIL = np.geomspace(1e-12, 0.5, 150)
_FALSE_ALARMS = np.concatenate([[0.0], _TAIL, 1 - _TAIL[::-1]])
_RANK_RATIO = 1.2  # of neighbouring ranks: more of them cost more failure probability, fewer leave wider gaps


def clopper_pearson(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """Clopper-Pearson bound BetaInv(1 - alpha; k + 1, n - k): there <= `events` of `trials` has probability alpha.

    Exact for one threshold fixed before the trials (Clopper & Pearson 1934). `events` need not be whole, so that
    expected counts can be bounded too.

    Example:
        >>> round(float(clopper_pearson(0, 100, 0.05)), 4)
        0.0295
    """
    events = np.asarray(events, dtype=float)
    rest = np.maximum(trials - events, 0.0)
    return np.where(rest > 0, betainccinv(events + 1, np.maximum(rest, 1e-300), alpha), 1.0)


def dkw(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """Dvoretzky-Kiefer-Wolfowitz bound k/n + sqrt(log(1/alpha) / 2n), at every threshold at once, alpha <= 1/2.

    One-sided, with Massart's constant (Massart 1990, Theorem 1).

    Example:
        >>> round(float(dkw(0, 100, 0.05)), 4)
        0.1224
    """
    return np.minimum(np.asarray(events) / trials + np.sqrt(-np.log(alpha) / (2 * trials)), 1.0)


def ranks(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """Bound at every threshold at once, sharp where few or nearly all trials are events.

    The true rate beyond the r-th most extreme of n draws is at most Beta(r, n - r + 1) distributed. It is bounded at
    K ranks r fixed beforehand, each at alpha/K, where it is `clopper_pearson(r - 1, n, alpha/K)`; a threshold that
    k < r draws reach lies beyond the r-th. So u(k) is the bound at the next rank above k.

    Example:
        >>> bool(ranks(0, 100, 0.05) < dkw(0, 100, 0.05))
        True
    """
    # Each rank is about 1.2 times as far from the nearer end as the one before.
    half = np.geomspace(1, (trials + 1) / 2, max(2, round(np.log(trials) / np.log(_RANK_RATIO))))
    near = np.unique(np.floor(half)).astype(int)
    grid = np.unique(np.concatenate([near, trials + 1 - near]))
    at_rank = np.append(clopper_pearson(grid - 1, trials, alpha / len(grid)), 1.0)
    return at_rank[np.searchsorted(grid, np.asarray(events), side="right")]


def band(events: np.ndarray, trials: int, alpha: float) -> np.ndarray:
    """The smaller of `dkw` and `ranks`, each at alpha/2: sharp in the middle and in the tails.

    Example:
        >>> band([0, 50], 100, 0.05).round(3)
        array([0.071, 0.636])
    """
    return np.minimum(dkw(events, trials, alpha / 2), ranks(events, trials, alpha / 2))


def detectable_mu(
    bound: RateBound, *, members: int, non_members: int, alpha: float, claim: TradeOff | None = None
) -> float:
    """Minimum detectable violation: the smallest mu at which a best attack's expected counts refute `claim`.

    Args:
        bound: on each error rate.
        members: number of scored members, >= 1.
        non_members: number of scored non-members, >= 1.
        alpha: failure probability of the audit, in (0, 1).
        claim: the curve under test; perfect privacy when None.

    Returns:
        The mu of the mu-GDP mechanism that is attacked; inf when not even an attack without errors would refute the
        claim: then a pass of this audit says nothing.
    """
    claim = claim or perfect_privacy()
    fpr = bound(_FALSE_ALARMS * non_members, non_members, alpha / 2)

    def refutes(mu: float) -> bool:
        misses = np.zeros_like(_FALSE_ALARMS) if math.isinf(mu) else gaussian_beta(_FALSE_ALARMS, mu)
        fnr = bound(misses * members, members, alpha / 2)
        return not TradeOff(ErrorPoints(fpr, fnr), Standing.MEASURED, claim.relation, "best attack") <= claim

    return smallest_refuting(refutes) if refutes(math.inf) else math.inf


def smallest_refuting(refutes: Callable[[float], bool], *, accuracy: float = 1e-4) -> float:
    """The smallest mu in (0, 60] at which the monotone `refutes` holds, to a relative `accuracy` from above."""
    return bisect(lambda mu: not refutes(mu), 0.0, LARGEST_MU, halvings=TO_ZERO, relative=accuracy)[1]


def perfect_privacy(relation: Relation = Relation.ADD_REMOVE) -> TradeOff:
    """The claim that nothing leaks, against which an audit without a claim is measured."""
    return TradeOff(GaussianCurve(0.0), Standing.PROVEN, relation, "perfect privacy")


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
    """Choice of thresholds, and the bound on each error rate there.

    Attributes:
        name: name of the estimator.
        bound: on each rate.
        own_threshold: whether rates are bounded at the attack's own threshold alone, not at every score.
    """

    name: str
    bound: RateBound
    own_threshold: bool = False

    def thresholds(self, scores: Scores) -> np.ndarray:
        """Where rates are bounded, from the highest down."""
        return np.array([scores.threshold]) if self.own_threshold else roc(scores)[2]

    def outer(self, scores: Scores, thresholds: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds on (FPR, FNR) at each threshold that hold together with probability 1 - alpha."""
        (false_alarms, misses), (members, non_members) = _counts(scores, thresholds), scores.count
        return self.bound(false_alarms, non_members, alpha / 2), self.bound(misses, members, alpha / 2)

    def band(self, scores: Scores, thresholds: np.ndarray, alpha: float) -> ErrorBand:
        """Bounds on both sides of both rates that hold together with probability 1 - alpha."""
        fpr_high, fnr_high = self.outer(scores, thresholds, alpha / 2)
        (false_alarms, misses), (members, non_members) = _counts(scores, thresholds), scores.count
        fpr_low = 1 - self.bound(non_members - false_alarms, non_members, alpha / 4)
        fnr_low = 1 - self.bound(members - misses, members, alpha / 4)
        return ErrorBand(fpr_low, fpr_high, fnr_low, fnr_high)


def _counts(scores: Scores, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(non-members at or above, members below) each threshold."""
    alarms = len(scores.non_members) - np.searchsorted(np.sort(scores.non_members), thresholds, side="left")
    return alarms, np.searchsorted(np.sort(scores.members), thresholds, side="left")


ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (Estimator("fixed", clopper_pearson, own_threshold=True), Estimator("band", band))
}
