import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from tacit.attacks import Scores
from tacit.audit import ESTIMATORS, Trials, audit_scores
from tacit.audit.bounds import Estimator, clopper_pearson
from tacit.errors import InvalidInput, NotABound
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import ErrorPoints, GaussianCurve, TradeOff
from tacit.tradeoff.gaussian import gaussian_delta

ALPHA, REPEATS = 0.05, 1000
MISSES_ALLOWED = binom.isf(1e-6, REPEATS, ALPHA)


def gaussian_scores(draw, mu, size=200):
    """Independent trials of the membership game on a mechanism that is exactly mu-GDP."""
    return Scores("gaussian", draw.normal(mu, 1, size), draw.normal(0, 1, size), mu / 2)


def claim(mu, standing=Standing.PROVEN):
    return TradeOff(GaussianCurve(mu), standing, Relation.ADD_REMOVE, "claim")


def outer(estimator, scores):
    return ErrorPoints(*estimator.outer(scores, estimator.thresholds(scores), ALPHA))


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("mu", [0.3, 1.5, 4.0])
def test_coverage_on_a_gaussian_mechanism(name, mu):
    """A true claim is refuted in at most 5 % of repeats; false alarm of this test below 1e-6."""
    draw = np.random.default_rng(11)
    refuted = sum(outer(ESTIMATORS[name], gaussian_scores(draw, mu)).mu(0.0) > mu for _ in range(REPEATS))
    assert refuted <= MISSES_ALLOWED


def missed_bands(estimator, mu=1.0):
    """In how many of the repeats the band leaves out a true rate somewhere."""
    draw, missed = np.random.default_rng(3), 0
    for _ in range(REPEATS):
        judged = gaussian_scores(draw, mu)
        thresholds = estimator.thresholds(judged)
        band = estimator.band(judged, thresholds, ALPHA)
        fpr, fnr = ndtr(-thresholds), ndtr(thresholds - mu)
        inside = (band.fpr_low <= fpr) & (fpr <= band.fpr_high) & (band.fnr_low <= fnr) & (fnr <= band.fnr_high)
        missed += not inside.all()
    return missed


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", ESTIMATORS)
def test_bands_cover_the_true_rates(name):
    """Both sides, every threshold, together at 95 %; false alarm of this test below 1e-6."""
    assert missed_bands(ESTIMATORS[name]) <= MISSES_ALLOWED


def test_the_band_test_catches_pointwise_bounds_passed_off_as_simultaneous():
    assert missed_bands(Estimator("wrong", clopper_pearson)) > 2 * MISSES_ALLOWED


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_false_claim_is_refuted_and_a_true_one_is_not(name):
    result = audit_scores(
        gaussian_scores(np.random.default_rng(1), 2.0, 2000), delta=1e-5, estimator=name, trials="independent"
    )
    assert result.refutes(claim(1.0))
    assert not result.tradeoff <= claim(1.0, Standing.CLAIMED)
    assert result.tradeoff <= claim(2.0)
    assert not result.refutes(claim(2.0))
    assert 1.0 < result.mu_lower < 2.0
    assert 0 < result.epsilon_lower < GaussianCurve(2.0).epsilon(1e-5)


def test_an_audit_is_a_measured_lower_bound():
    result = audit_scores(gaussian_scores(np.random.default_rng(1), 2.0), delta=1e-5, relation="replace_one")
    tradeoff = result.tradeoff
    assert (tradeoff.standing, tradeoff.relation, tradeoff.confidence) == (Standing.MEASURED, "replace_one", 0.95)
    assert tradeoff.epsilon(1e-5).lower == result.epsilon_lower
    with pytest.raises(NotABound):
        _ = tradeoff.upper


def test_a_claim_about_other_neighbours_is_not_judged():
    result = audit_scores(gaussian_scores(np.random.default_rng(1), 2.0), delta=1e-5, relation="replace_one")
    with pytest.raises(InvalidInput, match="relation must be add_remove"):
        result.refutes(claim(1.0))


def test_fixed_threshold_by_hand():
    scores = Scores("hand", np.repeat([1.0, 0.0], [90, 10]), np.repeat([1.0, 0.0], [5, 95]), 0.5)
    result = audit_scores(scores, delta=1e-3, estimator="fixed", trials="independent")
    fpr, fnr = clopper_pearson(np.array([5, 10]), 100, 0.025)
    assert result.epsilon_lower == pytest.approx(
        max(math.log((1 - 1e-3 - fnr) / fpr), math.log((1 - 1e-3 - fpr) / fnr))
    )
    assert result.advantage == pytest.approx(0.85)
    assert result.ppv == pytest.approx(0.9 / 0.95)
    low, high = result.advantage_interval
    assert low < 0.85 < high < 1


def test_vertices_answer_like_all_the_points():
    points = outer(ESTIMATORS["band"], gaussian_scores(np.random.default_rng(4), 1.5, 500))
    few = points.vertices()
    assert len(few.alpha) < len(points.alpha) / 5
    for delta in (0.0, 1e-5, 0.1):
        assert few.epsilon(delta) == pytest.approx(points.epsilon(delta), rel=1e-12)
    assert few.mu(0.0) == pytest.approx(points.mu(0.0), rel=1e-12)
    assert few.advantage() == pytest.approx(points.advantage(), rel=1e-12)


def test_scores_without_information_prove_nothing():
    result = audit_scores(Scores("blind", np.ones(500), np.ones(500), 1.0), delta=1e-5)
    assert (result.advantage, result.epsilon_lower, result.mu_lower) == (0.0, 0.0, 0.0)
    assert not result.refutes(claim(0.0))


def test_an_attack_that_is_worse_than_chance_leaks_as_much_as_its_mirror_image():
    scores = gaussian_scores(np.random.default_rng(2), 2.0, 1000)
    mirrored = Scores("mirrored", -scores.members, -scores.non_members, 0.0)
    assert audit_scores(mirrored, delta=1e-5).mu_lower == 0.0
    assert audit_scores(Scores("swapped", scores.non_members, scores.members, 0.0), delta=1e-5).mu_lower == 0.0


def test_minimum_detectable_violation():
    scores = gaussian_scores(np.random.default_rng(2), 0.5, 100)
    many = gaussian_scores(np.random.default_rng(2), 0.5, 10_000)
    against_nothing, against_claim = audit_scores(scores, delta=1e-5), audit_scores(scores, delta=1e-5, claim=claim(1))
    assert 0 < audit_scores(many, delta=1e-5).detectable_mu < against_nothing.detectable_mu
    assert against_claim.detectable_mu > max(1.0, against_nothing.detectable_mu)
    assert gaussian_delta(against_claim.detectable_epsilon, against_claim.detectable_mu) == pytest.approx(1e-5)


def test_an_audit_too_small_to_refute_a_claim_says_so():
    result = audit_scores(gaussian_scores(np.random.default_rng(2), 9.0, 20), delta=1e-5, claim=claim(6.0))
    assert (result.detectable_mu, result.detectable_epsilon) == (math.inf, math.inf)
    assert not result.refutes(claim(6.0))


def test_detectable_is_where_audits_begin_to_refute():
    """A leak a third above it is found in most of 100 seeded audits, one a third below it in few."""
    draw = np.random.default_rng(8)
    least = audit_scores(
        gaussian_scores(draw, 1.0, 500), delta=1e-5, estimator="fixed", trials="independent"
    ).detectable_mu

    def found(mu):
        return sum(outer(ESTIMATORS["fixed"], gaussian_scores(draw, mu, 500)).mu(0.0) > 0 for _ in range(100))

    assert found(least * 4 / 3) > 60
    assert found(least * 2 / 3) < 40


def test_what_is_claimed_depends_on_the_trials():
    scores = gaussian_scores(np.random.default_rng(1), 1.0)
    assert "this one model" in audit_scores(scores, delta=1e-5).statement
    independent = audit_scores(scores, delta=1e-5, trials=Trials.INDEPENDENT, confidence=0.99)
    assert "99 % confidence over independent trials" in independent.statement
    nearly = audit_scores(scores, delta=1e-5, trials="independent", confidence=0.99999999)
    assert "With 99.99 % confidence" in nearly.statement


def test_the_row_is_plain_and_the_result_frozen():
    result = audit_scores(gaussian_scores(np.random.default_rng(1), 1.0), delta=1e-5)
    row = json.loads(json.dumps(result.row()))
    assert list(row) == ["attack", "confidence", "advantage", "ppv", "epsilon_lower", "mu_lower"]
    with pytest.raises(FrozenInstanceError):
        result.delta = 0.1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"delta": 2.0}, "delta must be"),
        ({"delta": math.nan}, "delta must be"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"confidence": 0.0}, "confidence must be"),
        ({"confidence": "0.95"}, "confidence must be"),
        ({"estimator": "bandd"}, "Did you mean 'band'"),
        ({"trials": "models"}, "independent, records"),
        ({"relation": "add"}, "relation must be"),
    ],
)
def test_bad_arguments_are_refused(change, said):
    scores = gaussian_scores(np.random.default_rng(1), 1.0)
    with pytest.raises(InvalidInput, match=said):
        audit_scores(scores, **({"delta": 1e-5} | change))


def test_one_record_shows_nothing():
    assert audit_scores(Scores("tiny", np.ones(1), np.zeros(1), 0.5), delta=1e-5).epsilon_lower == 0.0
