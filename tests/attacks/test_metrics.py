import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.attacks import (
    Scores,
    advantage,
    approximate_bound,
    error_rates,
    gaussian_bound,
    ppv,
    pure_bound,
    roc,
)
from tacit.errors import InvalidInput
from tacit.tradeoff import GaussianCurve, ProfileCurve
from tacit_papers.evaluating_dp.leakage import members_at_fpr

HAND = Scores("hand", np.array([5.0, 4.0, 3.0, 1.0]), np.array([4.5, 3.0, 2.0, 0.0]), 3.0)
NONE_FLAGGED = Scores("hand", np.array([1.0]), np.array([2.0]), 9.0)


def test_rates_advantage_and_ppv_by_hand():
    assert error_rates(HAND) == (0.5, 0.75)
    assert advantage(HAND) == 0.25
    assert ppv(HAND) == pytest.approx(3 / 5)
    assert [ppv(HAND, prior=prior) for prior in (0.5, 0.1)] == pytest.approx([0.6, 0.075 / 0.525])


def test_ppv_is_zero_when_nobody_is_flagged():
    assert ppv(NONE_FLAGGED) == 0.0


def test_roc_by_hand():
    fpr, tpr, thresholds = roc(HAND)
    assert thresholds.tolist() == [np.inf, 5.0, 4.5, 4.0, 3.0, 2.0, 1.0, 0.0]
    assert fpr.tolist() == [0, 0, 0.25, 0.25, 0.5, 0.75, 0.75, 1]
    assert tpr.tolist() == [0, 0.25, 0.25, 0.5, 0.75, 0.75, 1, 1]


def test_members_at_fpr_takes_the_last_threshold_strictly_below():
    assert members_at_fpr(HAND, 0.25).tolist() == [True, False, False, False]
    assert members_at_fpr(HAND, 0.26).tolist() == [True, True, False, False]
    assert members_at_fpr(NONE_FLAGGED, 0.5).tolist() == [False]


numbers = st.lists(st.integers(-5, 5), min_size=1, max_size=20)


@given(numbers, numbers)
@settings(max_examples=60)
def test_roc_climbs_from_corner_to_corner_and_agrees_with_counting(members, non_members):
    scores = Scores("any", np.array(members), np.array(non_members), 0.0)
    fpr, tpr, thresholds = roc(scores)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert np.all(np.diff(fpr) >= 0)
    assert np.all(np.diff(tpr) >= 0)
    for f, t, threshold in zip(fpr, tpr, thresholds, strict=True):
        assert f == np.mean(scores.non_members >= threshold)
        assert t == np.mean(scores.members >= threshold)


def test_published_values_of_the_bounds():
    assert pure_bound(1.0) == pytest.approx(1.718, abs=1e-3)
    assert approximate_bound(1.0, 0.0) == pytest.approx(0.462, abs=1e-3)
    assert approximate_bound(1000.0, 1e-5) == 1.0
    assert approximate_bound(0.0, 0.3) == pytest.approx(0.3)
    assert math.isfinite(pure_bound(5000.0))


@given(st.floats(0.05, 5))
@settings(max_examples=30)
def test_the_gaussian_bound_is_its_total_variation_and_inside_the_others(mu):
    curve = GaussianCurve(mu)
    assert gaussian_bound(mu) == pytest.approx(curve.advantage(), rel=1e-12)
    for delta in (1e-3, 1e-6):
        assert approximate_bound(curve.epsilon(delta), delta) >= gaussian_bound(mu)


def test_the_approximate_bound_is_reached():
    epsilon, delta = 0.7, 0.02
    curve = ProfileCurve(lambda e: max(delta, 1 - (1 - delta) * (1 + math.exp(e)) / (1 + math.exp(epsilon))))
    assert curve.advantage() == pytest.approx(approximate_bound(epsilon, delta))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ppv(HAND, prior=1.5),
        lambda: members_at_fpr(HAND, 0.0),
        lambda: members_at_fpr(HAND, math.nan),
        lambda: pure_bound(-1.0),
        lambda: approximate_bound(1.0, 2.0),
        lambda: gaussian_bound(-0.1),
    ],
)
def test_bad_numbers_are_refused(call):
    with pytest.raises(InvalidInput):
        call()
