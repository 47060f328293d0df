"""A proven claim of this library is never refuted: every estimator against the certified curves of exact games.

Family-wise: true claims are refuted by any audit of this file with probability below 1e-3, an equal share for each.
Coins and noise are seeded, so that the outcome does not change from run to run.
"""

import math

import numpy as np
import pytest
from benchmarks.estimators import SequentialAudit, audit_multisplit, audit_normal

from tacit.accounting import accountant
from tacit.attacks import Scores
from tacit.audit import (
    ESTIMATORS,
    audit_one_run,
    audit_one_run_curve,
    audit_scores,
)
from tacit.mechanisms import Gaussian, Laplace, RandomizedResponse
from tacit.noise import SeededStream, gaussian, laplace

DELTA, TRIALS = 1e-5, 1500


def normal_game(stream, inside, noise=1.2, steps=4):
    """The sum of the releases is what the best attack looks at."""
    return gaussian(stream, (TRIALS, steps), std=noise).sum(axis=1) + steps * inside


def sampled_game(stream, inside, noise=1.0, rate=0.1, steps=30):
    seen = gaussian(stream, (TRIALS, steps), std=noise) + (stream.uniform((TRIALS, steps)) < rate) * inside[:, None]
    return np.log1p(rate * np.expm1((seen - 0.5) / noise**2)).sum(axis=1)


def laplace_game(stream, inside, scale=0.5, steps=3):
    seen = laplace(stream, (TRIALS, steps), scale=scale) + inside[:, None]
    return ((np.abs(seen) - np.abs(seen - 1)) / scale).sum(axis=1) + 1e-9 * stream.uniform(TRIALS)


def answer_game(stream, inside, epsilon=1.0):
    honest = stream.uniform(TRIALS) < 1 / (1 + math.exp(-epsilon))
    return np.where(honest, inside, ~inside) + 1e-9 * stream.uniform(TRIALS)


GAMES = {
    "gaussian": (normal_game, Gaussian(1.2) * 4),
    "sampled gaussian": (sampled_game, Gaussian(1.0).poisson(0.1) * 30),
    "laplace": (laplace_game, Laplace(0.5) * 3),
    "randomized response": (answer_game, RandomizedResponse(1.0) * 1),
}
FINDERS = {
    "multisplit": audit_multisplit,
    "one_run": audit_one_run,
    "one_run_curve": audit_one_run_curve,
    "normal": audit_normal,
}
AUDITS = len(GAMES) * (len(ESTIMATORS) + len(FINDERS) + 1)
CONFIDENCE = 1 - 1e-3 / AUDITS


@pytest.fixture(scope="module", params=GAMES)
def played(request):
    game, mechanism = GAMES[request.param]
    stream = SeededStream(5)
    inside = stream.uniform(TRIALS) < 0.5
    values = np.asarray(game(stream, inside), dtype=float)
    scores = Scores(request.param, values[inside], values[~inside], float(np.median(values)))
    return scores, accountant("pld")(mechanism), (values, inside)


@pytest.mark.slow_cases("laplace-fixed")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_estimator_refutes_what_is_proven(name, played):
    scores, claim, _ = played
    result = audit_scores(scores, delta=DELTA, estimator=name, trials="independent", confidence=CONFIDENCE, claim=claim)
    assert not result.refutes(claim)
    assert result.tradeoff <= claim
    assert result.detectable_mu > 0


@pytest.mark.slow_cases("sampled gaussian-multisplit", "laplace-multisplit")
@pytest.mark.parametrize("name", FINDERS)
def test_no_direct_bound_on_epsilon_refutes_what_is_proven(name, played):
    scores, claim, _ = played
    if name == "normal" and "gaussian" not in scores.attack:
        pytest.skip("the scores of this mechanism are not normal, and the estimator says that they must be")
    assert not FINDERS[name](scores, delta=DELTA, confidence=CONFIDENCE, claim=claim).refuted


@pytest.mark.slow_cases("laplace")
def test_no_sequential_audit_refutes_what_is_proven(played):
    scores, claim, (values, inside) = played
    audit = SequentialAudit(claim, confidence=CONFIDENCE)
    for score, included in zip(values.tolist(), inside.tolist(), strict=True):
        assert not audit.observe(included=included, flagged=score >= scores.threshold)


def test_every_game_leaks_measurably(played):
    """Each leaks: a third of the privacy that is there would be refuted."""
    scores, _, _ = played
    result = audit_scores(scores, delta=DELTA, trials="independent", confidence=CONFIDENCE)
    assert result.mu_lower > 0.3
