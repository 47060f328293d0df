"""One audit: attack scores in, a lower bound on leakage out."""

from __future__ import annotations

import numpy as np

from tacit import check
from tacit.attacks import Scores, advantage, ppv, roc
from tacit.audit.detectable import detectable_mu
from tacit.audit.estimators import ESTIMATORS
from tacit.audit.result import AuditResult, Trials
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, TradeOff
from tacit.tradeoff.gaussian import gaussian_epsilon


def audit_scores(
    scores: Scores,
    *,
    delta: float,
    estimator: str = "band",
    trials: Trials | str = Trials.RECORDS,
    relation: Relation | str = Relation.ADD_REMOVE,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> AuditResult:
    """The leakage that `scores` demonstrate.

    FPR and FNR are each bounded above at alpha/2, alpha = 1 - confidence, at every threshold that the estimator
    judges; the bounds are points that the trade-off curve must lie on or below.

    Args:
        scores: an attack's scores; `split` needs two members and two non-members.
        delta: the claim's delta in [0, 1].
        estimator: `fixed`, `split`, `bonferroni`, `dkw` or `band`; see `tacit.audit.estimators` for when each is valid.
        trials: `independent` runs of the membership game, or `records` of one model; see `Trials`.
        relation: between the two worlds of the game: adding canaries tests add/remove, swapping them replace-one.
        confidence: in (0, 1).
        claim: the guarantee under test, for the minimum detectable violation; perfect privacy when None.

    Raises:
        InvalidInput: an argument breaks its rule, or the estimator, trials or relation are unknown.
    """
    delta = check.delta(delta)
    method = ESTIMATORS[check.choice("estimator", estimator, ESTIMATORS)]
    trials = Trials(check.choice("trials", trials, Trials))
    relation = Relation.parse(relation)
    confidence = check.probability("confidence", confidence, open_low=True, open_high=True)
    alpha = 1 - confidence
    judged, thresholds = method.choose(scores, method.bound, delta, alpha)
    outer = ErrorPoints(*method.outer(judged, thresholds, alpha)).vertices()
    at_point = method.band(judged, np.array([judged.threshold]), alpha)
    members, non_members = judged.count
    detectable = detectable_mu(method.bound, members=members, non_members=non_members, alpha=alpha, claim=claim)
    fpr, tpr, _ = roc(scores)
    return AuditResult(
        attack=scores.attack,
        estimator=method.name,
        trials=trials,
        confidence=confidence,
        delta=delta,
        advantage=advantage(judged),
        advantage_interval=(
            float(1 - at_point.fnr_high[0] - at_point.fpr_high[0]),
            float(1 - at_point.fnr_low[0] - at_point.fpr_low[0]),
        ),
        ppv=ppv(judged),
        tradeoff=TradeOff(outer, Standing.MEASURED, relation, scores.attack, confidence=confidence),
        fpr=fpr,
        tpr=tpr,
        band=method.band(judged, thresholds, alpha),
        members=members,
        non_members=non_members,
        detectable_mu=detectable,
        detectable_epsilon=gaussian_epsilon(delta, detectable),
    )
