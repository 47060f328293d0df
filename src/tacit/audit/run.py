"""Audits through error rates at thresholds: attack scores in, a lower bound on leakage out.

The membership inference game: the caller runs the mechanism, the coins are drawn here.

The separation of near-normal canary scores (as in "Let's ask Gauss", arXiv 2606.12733).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from tacit import check
from tacit.attacks import Scores, advantage, ppv, roc
from tacit.audit.bounds import (
    ESTIMATORS,
    LARGEST_MU,
    detectable_mu,
    perfect_privacy,
    smallest_refuting,
)
from tacit.audit.results import AuditResult, Finding, Trials
from tacit.noise import SecureStream, Stream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, TradeOff
from tacit.tradeoff.gaussian import gaussian_beta, gaussian_epsilon


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
    outer = ErrorPoints(*method.outer(scores, thresholds, alpha)).vertices()
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
        tradeoff=TradeOff(outer, Standing.MEASURED, relation, scores.attack, confidence=confidence),
        fpr=fpr,
        tpr=tpr,
        band=method.band(scores, thresholds, alpha),
        members=members,
        non_members=non_members,
        detectable_mu=detectable,
        detectable_epsilon=gaussian_epsilon(delta, detectable),
    )


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


VALID_WHEN = (
    "the canaries are independent and their scores near-normal with one spread (white-box Dirac canaries over many "
    "steps); epsilon also takes the mechanism to be Gaussian DP"
)
_CENTRE = np.linspace(0.05, 0.95, 91)  # error rates: the tails of near-normal scores are not normal
_ROUNDING = 1e-12  # above the rounding of G_mu, so that a true claim is not refuted by it


def separation(scores: Scores, *, confidence: float) -> float:
    """Lower confidence bound d - z sqrt(1/m + 1/n + d^2 / (2 (m + n))) on (mean_in - mean_out) / spread, >= 0.

    The variance is that of a standardised difference of m and n normal scores with a pooled spread; with m = n it is
    2/n + d^2 / (4n).

    Example:
        >>> draw = np.random.default_rng(0)
        >>> scores = Scores("canaries", draw.normal(1.0, 1.0, 1000), draw.normal(0.0, 1.0, 1000), 0.5)
        >>> 0.8 < separation(scores, confidence=0.95) < 1.0
        True
    """
    confidence = check.confidence(confidence)
    members, non_members = scores.count
    if min(members, non_members) < 2:
        raise check.fail("scores", "of two members and two non-members at least", scores.count)
    squares = members * scores.members.var() + non_members * scores.non_members.var()
    spread = float(np.sqrt(squares / (members + non_members - 2)))
    gap = float(scores.members.mean() - scores.non_members.mean())
    if spread == 0.0:
        return np.inf if gap > 0 else 0.0
    return max(0.0, _lower(gap / spread, members, non_members, confidence))


def normal_points(scores: Scores, *, confidence: float, relation: Relation | str = Relation.ADD_REMOVE) -> TradeOff:
    """Measured curve of the error rates in [.05, .95] that thresholds reach on normal scores of that `separation`.

    The tails are left out: there even nearly normal scores are not normal.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> scores = Scores("canaries", draw.normal(1.0, 1.0, 1000), draw.normal(0.0, 1.0, 1000), 0.5)
        >>> normal_points(scores, confidence=0.95).standing.value
        'measured'
    """
    points = _points(separation(scores, confidence=confidence))
    return TradeOff(points, Standing.MEASURED, Relation.parse(relation), scores.attack, confidence=confidence)


def audit_normal(
    scores: Scores,
    *,
    delta: float,
    relation: Relation | str = Relation.ADD_REMOVE,
    confidence: float = 0.95,
    claim: TradeOff | None = None,
) -> Finding:
    """Lower bound on mu by the `separation`, and the epsilon at `delta` of Gaussian DP with that mu.

    Where only the noise of the mechanism is unknown, `refute_family` on the points gives the sharper epsilon.

    Args:
        scores: of canaries; two in and two out at least.
        delta: in [0, 1], at which epsilon is read.
        relation: between the two worlds of the game.
        confidence: in (0, 1).
        claim: the guarantee under test; without one nothing is refuted.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> scores = Scores("canaries", draw.normal(1.0, 1.0, 1000), draw.normal(0.0, 1.0, 1000), 0.5)
        >>> 0.8 < audit_normal(scores, delta=1e-5).mu_lower < 1.0
        True
    """
    delta, relation = check.delta(delta), Relation.parse(relation)
    reached = normal_points(scores, confidence=confidence, relation=relation)
    mu = separation(scores, confidence=confidence)
    members, non_members = scores.count
    return Finding(
        attack=scores.attack,
        estimator="normal",
        valid_when=VALID_WHEN,
        confidence=confidence,
        delta=delta,
        epsilon_lower=gaussian_epsilon(delta, mu),
        mu_lower=mu,
        refuted=None if claim is None else not reached <= claim,
        tradeoff=reached,
        detectable_mu=_detectable(claim or perfect_privacy(relation), members, non_members, confidence),
    )


def _lower(gap: float, members: int, non_members: int, confidence: float) -> float:
    variance = 1 / members + 1 / non_members + gap**2 / (2 * (members + non_members))
    return gap - float(ndtri(confidence)) * float(np.sqrt(variance))


def _points(gap: float) -> ErrorPoints:
    """Error rates of thresholds on normal scores of that separation; the trivial point without one."""
    if gap <= 0:
        return ErrorPoints(np.ones(1), np.ones(1))
    missed = gaussian_beta(_CENTRE, gap) if np.isfinite(gap) else np.zeros_like(_CENTRE)
    return ErrorPoints(_CENTRE, np.minimum(missed + _ROUNDING, 1.0))


def _detectable(claim: TradeOff, members: int, non_members: int, confidence: float) -> float:
    """The smallest separation whose expected lower bound refutes `claim`; inf if none up to 60 does."""

    def refutes(gap: float) -> bool:
        reached = max(0.0, _lower(gap, members, non_members, confidence))
        return not TradeOff(_points(reached), Standing.MEASURED, claim.relation, "best attack") <= claim

    return smallest_refuting(refutes) if refutes(LARGEST_MU) else float("inf")
