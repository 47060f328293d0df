"""Trade-off curves: closed forms, duality and honest sides."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput, NotABound
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import (
    Advantage,
    Epsilon,
    EpsilonCurve,
    ErrorPoints,
    Errors,
    GaussianCurve,
    Mu,
    ProfileCurve,
    TradeOff,
    target_of,
)
from tacit.tradeoff.gaussian import gaussian_beta, gaussian_delta, gaussian_epsilon, gaussian_mu


def _mp_delta(epsilon, mu):
    with mpmath.workdps(50):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@settings(max_examples=150, deadline=None)
@given(st.floats(1e-3, 100), st.floats(1e-3, 30))
def test_gaussian_delta_agrees_with_fifty_digits(epsilon, mu):
    exact = _mp_delta(epsilon, mu)
    if exact < 1e-290:
        return
    assert gaussian_delta(epsilon, mu) == pytest.approx(float(exact), rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(-30, -0.1), st.floats(1e-3, 20))
def test_gaussian_epsilon_and_mu_invert_delta(log10_delta, mu):
    delta = 10.0**log10_delta
    epsilon = gaussian_epsilon(delta, mu)
    if epsilon > 0:
        assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-8)
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-7)
    else:
        assert gaussian_delta(0.0, mu) <= delta


def test_delta_zero_and_one():
    assert math.isinf(gaussian_epsilon(0.0, 1.0))
    assert gaussian_epsilon(1.0, 1.0) == 0.0


def _proven(curve, floor=None):
    return TradeOff(curve, Standing.PROVEN, Relation.ADD_REMOVE, "test", floor=floor)


def test_default_beta_is_a_tight_lower_bound_on_the_gaussian_curve():
    curve = ProfileCurve(lambda epsilon: gaussian_delta(epsilon, 1.2))
    alpha = np.linspace(0, 1, 101)
    exact = gaussian_beta(alpha, 1.2)
    assert np.all(curve.beta(alpha) <= exact + 1e-12)
    assert np.max(exact - curve.beta(alpha)) < 1e-3
    assert np.all(curve.beta_ceiling(alpha) >= exact - 1e-12)
    assert np.max(curve.beta_ceiling(alpha) - exact) < 3e-2


def test_mu_of_a_gaussian_profile_is_found_from_above():
    curve = ProfileCurve(lambda epsilon: gaussian_delta(epsilon, 1.2))
    assert 1.2 - 1e-6 <= curve.mu(1e-9) <= 1.26


def test_epsilon_curve_inverts_itself():
    curve = EpsilonCurve(lambda delta: gaussian_epsilon(delta, 1.0))
    for epsilon in (0.0, 0.5, 2.0, 6.0):
        assert curve.delta(epsilon) == pytest.approx(gaussian_delta(epsilon, 1.0), rel=1e-6)


def test_bayes_risk_is_the_minimum_over_all_tests():
    curve = _proven(GaussianCurve(1.0))
    alpha = np.linspace(0, 1, 200001)
    beta = gaussian_beta(alpha, 1.0)
    for prior in (0.01, 0.3, 0.5, 0.9):
        brute = np.min(prior * beta + (1 - prior) * alpha)
        assert float(curve.bayes_risk(prior)) == pytest.approx(brute, abs=1e-7)


def test_answers_carry_both_sides():
    curve = _proven(GaussianCurve(1.0), floor=GaussianCurve(0.9))
    epsilon = curve.epsilon(1e-5)
    assert epsilon == gaussian_epsilon(1e-5, 1.0)
    assert epsilon.upper == float(epsilon)
    assert epsilon.lower == gaussian_epsilon(1e-5, 0.9)
    beta = curve.beta(0.1)
    assert beta.lower == float(beta)
    assert beta.upper == pytest.approx(float(gaussian_beta(np.array(0.1), 0.9)))
    tpr = curve.tpr(0.1)
    assert (tpr.lower, tpr.upper) == (1 - beta.upper, 1 - beta.lower)


@pytest.mark.parametrize("standing", [Standing.ASYMPTOTIC, Standing.BAYESIAN, Standing.CLAIMED])
def test_nothing_weaker_than_proven_reads_as_a_bound(standing):
    curve = TradeOff(GaussianCurve(1.0), standing, Relation.ADD_REMOVE, "test", floor=GaussianCurve(0.9))
    answers = [
        curve.epsilon(1e-5),
        curve.delta(1.0),
        curve.beta(0.1),
        curve.tpr(0.1),
        curve.advantage(),
        curve.bayes_risk(0.2),
        curve.mu(),
    ]
    for answer in answers:
        assert answer.standing is standing
        assert answer.interval == (None, None)
        for side in ("lower", "upper"):
            with pytest.raises(NotABound, match=standing.value):
                getattr(answer, side)
    for side in ("lower", "upper"):
        with pytest.raises(NotABound):
            getattr(curve, side)


def test_audit_and_claim_compare():
    measured = TradeOff(ErrorPoints([0.1], [0.2]), Standing.MEASURED, Relation.ADD_REMOVE, "attack", confidence=0.95)
    assert measured <= _proven(GaussianCurve(3.0))
    assert not measured <= _proven(GaussianCurve(1.0))
    assert measured.lower is measured.curve
    with pytest.raises(NotABound):
        _ = measured.upper
    with pytest.raises(NotABound):
        _ = _proven(GaussianCurve(1.0)) <= _proven(GaussianCurve(2.0))


def test_error_points_hull_is_convex_and_symmetric():
    points = ErrorPoints([0.1, 0.3], [0.5, 0.45])
    alpha = np.linspace(0, 1, 301)
    hull = points.beta_ceiling(alpha)
    assert hull[0] == 1.0
    assert hull[-1] == 0.0
    assert np.all(np.diff(hull, 2) >= -1e-12)
    assert points.beta_ceiling(np.array([0.1]))[0] == pytest.approx(0.5)
    assert points.beta_ceiling(np.array([0.5]))[0] == pytest.approx(0.1)
    assert points.epsilon(1e-5) == pytest.approx(math.log((1 - 1e-5 - 0.5) / 0.1))


def test_targets_say_by_how_much_they_are_missed():
    curve = _proven(GaussianCurve(1.0))
    assert Mu(1.0).met(curve)
    assert not Mu(0.99).met(curve)
    assert Epsilon(float(curve.epsilon(1e-5)), 1e-5).met(curve)
    assert Advantage(0.39).met(curve)
    assert not Advantage(0.38).met(curve)
    assert Errors(alpha=0.05, beta=0.7).met(curve)
    assert not Errors(alpha=0.05, beta=0.8).met(curve)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Epsilon(0, 1e-5),
        lambda: Epsilon(math.nan, 1e-5),
        lambda: Epsilon(math.inf, 1e-5),
        lambda: Epsilon("1", 1e-5),
        lambda: Epsilon(1, 2),
        lambda: Advantage(1.0),
        lambda: Mu(-1),
        lambda: Errors(alpha=0.5, beta=0.6),
        lambda: target_of(),
        lambda: target_of(epsilon=1.0),
        lambda: target_of(epsilon=1.0, delta=1e-5, mu=1.0),
    ],
)
def test_bad_targets(build):
    with pytest.raises(InvalidInput):
        build()


def test_regret_of_gaussian_differential_privacy():
    assert _proven(GaussianCurve(1.0)).mu_regret() == 0.0
    step = _proven(EpsilonCurve(lambda delta: 1.0))
    mu = float(step.mu())
    assert 0.0 < step.mu_regret() < 0.5
    alpha = np.linspace(1e-3, 1, 400)
    regret = step.mu_regret()
    assert np.all(step.curve.beta(np.minimum(alpha + regret, 1)) - regret <= gaussian_beta(alpha, mu) + 1e-9)
    worse = regret * 0.95
    assert np.any(step.curve.beta(np.minimum(alpha + worse, 1)) - worse > gaussian_beta(alpha, mu))


def test_mu_is_an_interval():
    def profile(epsilon):
        return gaussian_delta(epsilon, 1.2)

    curve = _proven(ProfileCurve(profile), floor=ProfileCurve(profile))
    mu = curve.mu()
    assert mu.lower <= 1.2 + 1e-6
    assert mu.lower == pytest.approx(1.2, rel=1e-3)
    assert mu.upper >= 1.2 - 1e-6


def test_attribute_inference_is_the_best_test_at_that_level():
    curve = _proven(GaussianCurve(1.0))
    assert float(curve.attribute_inference(0.5)) == pytest.approx(1 - float(gaussian_beta(np.array(0.5), 1.0)))
