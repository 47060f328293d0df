import math

import numpy as np
import pytest
from benchmarks.estimators import audit_normal, many_runs
from benchmarks.worst_case import WorstCase

from tacit.audit import audit_scores
from tacit.errors import InvalidInput


def game(hidden, epsilon=20.0, steps=10):
    return WorstCase(hidden=hidden, records=20, epsilon=epsilon, delta=1e-5, steps=steps)


def test_the_claim_is_what_was_asked_for():
    played = game((), epsilon=10.0, steps=50)
    assert played.claim.epsilon(1e-5) == pytest.approx(10.0, rel=1e-6)
    assert played.claim.mu() == pytest.approx(math.sqrt(50) / played.noise)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(), pytest.param((16, 16), marks=pytest.mark.slow)])
def test_the_final_model_gives_away_the_sum_of_all_releases(hidden):
    """N(steps, steps noise^2) with the canary, N(0, same) without: means within 6 standard errors of 24 runs each,
    spread within 6 of its own; false alarm below 1e-6."""
    played = game(hidden)
    scores = many_runs(played.trial, attack="black_box", runs=24, threshold=played.threshold)
    spread = played.noise * math.sqrt(played.steps)
    assert abs(scores.members.mean() - played.steps) < 6 * spread / math.sqrt(24)
    assert abs(scores.non_members.mean()) < 6 * spread / math.sqrt(24)
    pooled = np.concatenate([scores.members - played.steps, scores.non_members]).std()
    assert abs(pooled / spread - 1) < 6 / math.sqrt(96)


@pytest.mark.slow
def test_audits_find_most_of_the_leak_and_never_more():
    """Few full-batch steps are exactly Gaussian, so the normal estimator applies; confidence 1 - 1e-6."""
    played = game(())
    scores = many_runs(played.trial, attack="black_box", runs=60, threshold=played.threshold)
    by_counts = audit_scores(
        scores, delta=1e-5, estimator="fixed", trials="independent", confidence=1 - 1e-6, claim=played.claim
    )
    assert not by_counts.refutes(played.claim)
    found = audit_normal(scores, delta=1e-5, confidence=1 - 1e-6, claim=played.claim)
    assert not found.refuted
    assert 0.3 * played.claim.mu() < found.mu_lower


@pytest.mark.parametrize("bad", [{"steps": 0}, {"records": 0}, {"epsilon": math.nan}, {"delta": 2.0}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(InvalidInput):
        WorstCase(**({"hidden": (), "records": 5, "epsilon": 1.0, "delta": 1e-5, "steps": 2} | bad))
