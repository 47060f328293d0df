"""Audits through error rates at thresholds: attack scores in, a lower bound on leakage out.

The membership inference game: the caller runs the mechanism, the coins are drawn here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit import check
from tacit.attacks import Scores, advantage, ppv, roc
from tacit.audit.bounds import ESTIMATORS, Estimator, detectable_mu
from tacit.audit.results import AuditResult, Trials
from tacit.noise import SecureStream, Stream
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
    """Lower bound on the leakage that `scores` demonstrate.

    FPR and FNR are each bounded above at alpha/2, alpha = 1 - confidence, at every threshold that the estimator
    evaluates; the bounds are points that the trade-off curve must lie on or below.

    Args:
        scores: an attack's scores; `split` needs two members and two non-members.
        delta: the claim's delta in [0, 1].
        estimator: `fixed`, `split`, `bonferroni`, `dkw` or `band`; see `tacit.audit.bounds` for when each is valid.
        trials: `independent` runs of the membership game, or `records` of one model; see `Trials`.
        relation: between the two worlds of the game: adding canaries tests add/remove, swapping them replace-one.
        confidence: in (0, 1).
        claim: the guarantee under test, for the minimum detectable violation; perfect privacy when None.

    Raises:
        InvalidInput: an argument breaks its rule, or the estimator, trials or relation are unknown.

    Example:
        >>> scores = Scores("loss", np.arange(50.0) + 50, np.arange(50.0), 50.0)
        >>> audit_scores(scores, delta=1e-5, estimator="fixed").advantage
        1.0
    """
    delta = check.delta(delta)
    method = ESTIMATORS[check.choice("estimator", estimator, ESTIMATORS)]
    trials = Trials(check.choice("trials", trials, Trials))
    relation = Relation.parse(relation)
    confidence = check.confidence(confidence)
    alpha = 1 - confidence
    thresholds = method.thresholds(scores)
    at_point = method.band(scores, np.array([scores.threshold]), alpha)
    members, non_members = scores.count
    detectable = detectable_mu(method.bound, members=members, non_members=non_members, alpha=alpha, claim=claim)
    fpr, tpr, _ = roc(scores)
    return AuditResult(
        attack=scores.attack,
        estimator=method.name,
        trials=trials,
        confidence=confidence,
        delta=delta,
        advantage=advantage(scores),
        advantage_interval=(
            float(1 - at_point.fnr_high[0] - at_point.fpr_high[0]),
            float(1 - at_point.fnr_low[0] - at_point.fpr_low[0]),
        ),
        ppv=ppv(scores),
        tradeoff=measured_tradeoff(scores, method, relation=relation, confidence=confidence),
        fpr=fpr,
        tpr=tpr,
        band=method.band(scores, thresholds, alpha),
        members=members,
        non_members=non_members,
        detectable_mu=detectable,
        detectable_epsilon=gaussian_epsilon(delta, detectable),
    )


def measured_tradeoff(scores: Scores, estimator: Estimator, *, relation: Relation, confidence: float) -> TradeOff:
    """What `scores` demonstrate: the curve that the trade-off curve of the mechanism must lie on or below.

    Args:
        scores: an attack's scores.
        estimator: of both error rates.
        relation: between the two worlds of the game.
        confidence: in (0, 1).
    """
    thresholds = estimator.thresholds(scores)
    outer = ErrorPoints(*estimator.outer(scores, thresholds, 1 - confidence)).vertices()
    return TradeOff(outer, Standing.MEASURED, relation, scores.attack, confidence=confidence)


CanaryRun = Callable[[np.ndarray], np.ndarray]
"""Runs the mechanism once with the canaries that a boolean vector (m,) chooses; returns their scores, shape (m,)."""


def one_run(
    run: CanaryRun, *, attack: str, canaries: int, threshold: float = 0.0, stream: Stream | None = None
) -> Scores:
    """Scores of one run that includes each of `canaries` independently with probability 1/2.

    Args:
        run: one run of the production path; its scores must not depend on the coins themselves.
        attack: name of the attack.
        canaries: >= 2.
        threshold: the attack's own rule, fixed beforehand.
        stream: source of the coins; a new `SecureStream` by default.

    Raises:
        InvalidInput: an argument breaks its rule, or the scores are not one for each canary.

    Example:
        >>> sum(one_run(lambda included: included.astype(float), attack="sure", canaries=10).count)
        10
    """
    canaries = check.count("canaries", canaries, minimum=2)
    source = stream if stream is not None else SecureStream()
    included = source.uniform(canaries) < 0.5
    while included.all() or not included.any():
        included = source.uniform(canaries) < 0.5
    scores = np.asarray(run(included), dtype=float)
    if scores.shape != included.shape:
        raise check.fail("scores", f"one for each of {canaries} canaries", f"shape {scores.shape}")
    return Scores(attack, scores[included], scores[~included], threshold)
