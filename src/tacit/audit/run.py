"""Audits through error rates at thresholds: attack scores in, a lower bound on leakage out.

The membership inference game: the caller runs the mechanism, the coins are drawn here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit import check
from tacit.attacks import Scores, advantage, ppv, roc
from tacit.audit.bounds import ESTIMATORS, best_threshold, clopper_pearson, detectable_mu, halves
from tacit.audit.results import AuditResult, Finding, Trials
from tacit.noise import SecureStream, Stream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, TradeOff
from tacit.tradeoff.gaussian import gaussian_epsilon

VALID_WHEN = "the records are exchangeable"


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
    evaluated, thresholds = method.choose(scores, method.bound, delta, alpha)
    outer = ErrorPoints(*method.outer(evaluated, thresholds, alpha)).vertices()
    at_point = method.band(evaluated, np.array([evaluated.threshold]), alpha)
    members, non_members = evaluated.count
    detectable = detectable_mu(method.bound, members=members, non_members=non_members, alpha=alpha, claim=claim)
    fpr, tpr, _ = roc(scores)
    return AuditResult(
        attack=scores.attack,
        estimator=method.name,
        trials=trials,
        confidence=confidence,
        delta=delta,
        advantage=advantage(evaluated),
        advantage_interval=(
            float(1 - at_point.fnr_high[0] - at_point.fpr_high[0]),
            float(1 - at_point.fnr_low[0] - at_point.fpr_low[0]),
        ),
        ppv=ppv(evaluated),
        tradeoff=TradeOff(outer, Standing.MEASURED, relation, scores.attack, confidence=confidence),
        fpr=fpr,
        tpr=tpr,
        band=method.band(evaluated, thresholds, alpha),
        members=members,
        non_members=non_members,
        detectable_mu=detectable,
        detectable_epsilon=gaussian_epsilon(delta, detectable),
    )


def audit_multisplit(
    scores: Scores,
    *,
    delta: float,
    splits: int = 25,
    relation: Relation | str = Relation.ADD_REMOVE,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> Finding:
    """Multisplit bound: median over random halvings of the bounds of `split`, each at failure probability alpha / 2.

    If the median exceeds the truth, at least half of the bounds do, each with probability at most alpha / 2; by
    Markov's inequality that happens with probability at most alpha (Meinshausen, Meier & Buehlmann 2009, twice the
    median p-value). A claim is refuted when more than half of the halvings refute it. The bound no longer depends on
    one lucky halving.

    Args:
        scores: an attack's scores; two members and two non-members at least.
        delta: in [0, 1], at which epsilon is read.
        splits: odd number of halvings.
        relation: between the two worlds of the game.
        confidence: in (0, 1).
        claim: the guarantee under test; without one nothing is refuted.

    Raises:
        InvalidInput: an argument breaks its rule, or the claim is about another relation.

    Example:
        >>> scores = Scores("loss", np.arange(50.0) + 50, np.arange(50.0), 50.0)
        >>> audit_multisplit(scores, delta=1e-5, splits=3).epsilon_lower > 1
        True
    """
    delta, relation = check.delta(delta), Relation.parse(relation)
    confidence = check.confidence(confidence)
    splits = check.count("splits", splits)
    if splits % 2 == 0:
        raise check.fail("splits", "odd, so that there is a median", splits)
    if claim is not None and claim.relation is not relation:
        raise check.fail("relation", f"{claim.relation.value}, as the claim's is", relation.value)
    alpha = (1 - confidence) / 2
    reached = [_reached(halves(scores, np.random.default_rng(seed)), delta, alpha, relation) for seed in range(splits)]
    return Finding(
        attack=scores.attack,
        estimator="multisplit",
        valid_when=VALID_WHEN,
        confidence=confidence,
        delta=delta,
        epsilon_lower=float(np.median([bound.epsilon(delta) for bound in reached])),
        mu_lower=float(np.median([bound.mu() for bound in reached])),
        refuted=None if claim is None else sum(not bound <= claim for bound in reached) > splits / 2,
    )


def _reached(parts: tuple[Scores, Scores], delta: float, alpha: float, relation: Relation) -> TradeOff:
    """Error rates bounded on the second half at the threshold chosen on the first."""
    first, second = parts
    threshold = best_threshold(first, clopper_pearson, delta, alpha)
    alarms = np.array([np.sum(second.non_members >= threshold)])
    misses = np.array([np.sum(second.members < threshold)])
    members, non_members = second.count
    points = ErrorPoints(clopper_pearson(alarms, non_members, alpha / 2), clopper_pearson(misses, members, alpha / 2))
    return TradeOff(points, Standing.MEASURED, relation, first.attack, confidence=1 - alpha)


Trial = Callable[[bool], float]
"""Runs the mechanism once, with the canary or without, and scores what it released: higher means "with"."""

CanaryRun = Callable[[np.ndarray], np.ndarray]
"""Runs the mechanism once with the canaries that a boolean vector (m,) chooses; returns their scores, shape (m,)."""

Progress = Callable[[int, int], None]


def many_runs(
    trial: Trial,
    *,
    attack: str,
    runs: int,
    threshold: float = 0.0,
    on_progress: Progress = lambda done, total: None,
) -> Scores:
    """Scores of `runs` independent runs with the canary and `runs` without: the trials of bounds on the mechanism.

    The worlds alternate, so that a machine that drifts affects both alike.

    Args:
        trial: runs the mechanism; each run must start anew, from nothing that an earlier one left.
        attack: name of the attack.
        runs: in each world, >= 1.
        threshold: the attack's own rule, fixed beforehand.
        on_progress: called with (runs done, runs in all).

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> many_runs(float, attack="sure", runs=3, threshold=0.5).count
        (3, 3)
    """
    runs = check.count("runs", runs)
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * runs):
        included = number % 2 == 0
        found[included].append(float(trial(included)))
        on_progress(number + 1, 2 * runs)
    return Scores(attack, np.array(found[True]), np.array(found[False]), threshold)


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
