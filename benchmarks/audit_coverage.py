"""How often each estimator of `tacit.audit` exceeds the truth on a mechanism that is exactly mu-GDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.estimators import SequentialAudit, audit_multisplit, separation
from tacit.attacks import Scores
from tacit.audit import (
    ESTIMATORS,
    guessed_right,
    one_run_curve_refutes,
    one_run_p_value,
)
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_epsilon

DELTA, ALPHA, CANARIES, GUESSES = 1e-5, 0.05, 200, 60
Wrong = Callable[[Scores, float], bool]
"""Whether the bound at 95 % on these scores exceeds what mu-GDP leaks."""


def coverage(data_dir: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """2000 repeats of 200 fair coins each; fewer for the slow ones."""
    wrong: dict[str, tuple[Wrong, int]] = {name: (points_wrong(name), 2000) for name in ESTIMATORS}
    wrong |= {
        "normal": (lambda scores, mu: separation(scores, confidence=1 - ALPHA) > mu, 2000),
        "one_run": (one_run_wrong, 2000),
        "one_run_curve": (one_run_curve_wrong, 2000),
        "sequential": (sequential_wrong, 1000),
        "multisplit": (multisplit_wrong, 500),
    }
    for mu in (0.5, 2.0):
        for name, (find, repeats) in wrong.items():
            draw = np.random.default_rng(1)
            above = float(np.mean([find(coins(draw, mu), mu) for _ in range(repeats)]))
            allowed = ALPHA + 2 * (ALPHA * (1 - ALPHA) / repeats) ** 0.5
            row = {"above": above, "allowed": round(allowed, 4), "repeats": repeats, "met": above <= allowed}
            yield f"{name}, mu {mu:g}", row


def coins(draw: np.random.Generator, mu: float) -> Scores:
    """One run: each canary included with probability 1/2, its score N(+-mu/2, 1), thresholded at 0."""
    inside = draw.random(CANARIES) < 0.5
    values = draw.normal(size=CANARIES) + mu * (inside - 0.5)
    return Scores("coins", values[inside], values[~inside], 0.0)


def points_wrong(name: str) -> Wrong:
    """Any point of the curve beyond the true trade-off: the widest claim that the estimator makes."""

    def find(scores: Scores, mu: float) -> bool:
        method = ESTIMATORS[name]
        scored, thresholds = method.choose(scores, method.bound, DELTA, ALPHA)
        return ErrorPoints(*method.outer(scored, thresholds, ALPHA)).mu(0.0) > mu

    return find


def one_run_wrong(scores: Scores, mu: float) -> bool:
    """The true (epsilon, delta) refuted."""
    right, epsilon = guessed_right(scores, GUESSES), gaussian_epsilon(DELTA, mu)
    return one_run_p_value(canaries=CANARIES, guesses=GUESSES, right=right, epsilon=epsilon, delta=DELTA) < ALPHA


def one_run_curve_wrong(scores: Scores, mu: float) -> bool:
    """The true curve refuted."""
    right = guessed_right(scores, GUESSES)
    return one_run_curve_refutes(claim(mu), canaries=CANARIES, guesses=GUESSES, right=right, alpha=ALPHA)


def sequential_wrong(scores: Scores, mu: float) -> bool:
    """The true curve refuted at any time."""
    audit = SequentialAudit(claim(mu), confidence=1 - ALPHA)
    trials = [(True, score >= 0) for score in scores.members] + [(False, score >= 0) for score in scores.non_members]
    for index in np.random.default_rng(0).permutation(len(trials)):
        included, flagged = trials[index]
        if audit.observe(included=included, flagged=bool(flagged)):
            return True
    return False


def multisplit_wrong(scores: Scores, mu: float) -> bool:
    """The true epsilon exceeded."""
    return audit_multisplit(scores, delta=DELTA, splits=5).epsilon_lower > gaussian_epsilon(DELTA, mu)


def claim(mu: float) -> TradeOff:
    """Gaussian DP, proven."""
    return TradeOff(GaussianCurve(mu), Standing.PROVEN, Relation.ADD_REMOVE, "truth")
