"""The separation of near-normal canary scores (as in "Let's ask Gauss", arXiv 2606.12733)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from tacit import check
from tacit.attacks import Scores
from tacit.audit.results import Finding
from tacit.relation import Relation
from tacit.root_finding import TO_ZERO, bisect
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_beta, gaussian_epsilon

VALID_WHEN = (
    "the canaries are independent and their scores near-normal with one spread (white-box Dirac canaries over many "
    "steps); epsilon also takes the mechanism to be Gaussian DP"
)
_CENTRE = np.linspace(0.05, 0.95, 91)
_ROUNDING = 1e-12


def separation(scores: Scores, *, confidence: float) -> float:
    """Lower confidence bound d - z sqrt(1/m + 1/n + d^2 / (2 (m + n))) on (mean_in - mean_out) / spread, >= 0.

    The variance is that of a standardised difference of m and n normal scores with a pooled spread; with m = n it is
    2/n + d^2 / (4n).
    """
    confidence = check.probability("confidence", confidence, open_low=True, open_high=True)
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
    """The error rates in [.05, .95] that thresholds on scores of that separation reach, as a measured curve.

    The tails are left out: there even nearly normal scores are not normal.
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
    """mu >= the lower bound on the separation, and the epsilon at `delta` of Gaussian DP with that mu.

    Where the mechanism is known but for its noise, `refute_family` on the points gives the sharper epsilon.
    """
    delta, relation = check.delta(delta), Relation.parse(relation)
    reached = normal_points(scores, confidence=confidence, relation=relation)
    mu = separation(scores, confidence=confidence)
    members, non_members = scores.count
    against = claim or TradeOff(GaussianCurve(0.0), Standing.PROVEN, relation, "perfect privacy")
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
        detectable_mu=_detectable(against, members, non_members, confidence),
    )


def _lower(gap: float, members: int, non_members: int, confidence: float) -> float:
    variance = 1 / members + 1 / non_members + gap**2 / (2 * (members + non_members))
    return gap - float(ndtri(confidence)) * float(np.sqrt(variance))


def _points(gap: float) -> ErrorPoints:
    """Error rates of thresholds on normal scores of that separation; nothing is reached without one."""
    if gap <= 0:
        return ErrorPoints(np.ones(1), np.ones(1))
    missed = gaussian_beta(_CENTRE, gap) if np.isfinite(gap) else np.zeros_like(_CENTRE)
    return ErrorPoints(_CENTRE, np.minimum(missed + _ROUNDING, 1.0))


def _detectable(claim: TradeOff, members: int, non_members: int, confidence: float) -> float:
    """The smallest separation whose expected lower bound refutes `claim`; inf above 60."""

    def refutes(gap: float) -> bool:
        reached = max(0.0, _lower(gap, members, non_members, confidence))
        return not TradeOff(_points(reached), Standing.MEASURED, claim.relation, "best attack") <= claim

    if not refutes(60.0):
        return float("inf")
    return bisect(lambda gap: not refutes(gap), 0.0, 60.0, halvings=TO_ZERO, relative=1e-4)[1]
