"""Estimators that bound epsilon directly: coverage on exact mechanisms, and power."""

import math

import numpy as np
import pytest
from benchmarks.estimators import (
    audit_multisplit,
    audit_normal,
    gaussian_family,
    noise_family,
    refute_family,
    separation,
)
from scipy.stats import binom, norm

from tacit.accounting import accountant
from tacit.attacks import Scores
from tacit.audit import (
    audit_one_run,
    audit_one_run_curve,
    audit_scores,
    guessed_right,
    one_run_curve_refutes,
    one_run_p_value,
)
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.tradeoff.gaussian import gaussian_epsilon

from .cases import claim, coin_scores, generator

DELTA, ALPHA = 1e-5, 0.05


def missed(find, mu, repeats, seed=5):
    """How often the epsilon found exceeds the true one."""
    draw, true = generator(seed), gaussian_epsilon(DELTA, mu)
    return sum(find(coin_scores(draw, mu), delta=DELTA).epsilon_lower > true for _ in range(repeats))


@pytest.mark.slow_cases
@pytest.mark.parametrize("find", [audit_normal, audit_one_run])
@pytest.mark.parametrize("mu", [0.0, 0.5, 3.0])
def test_coverage(find, mu):
    """At most 5 % of 250 repeats exceed the truth; false alarm of this test below 1e-6."""
    assert missed(find, mu, 250) <= binom.isf(1e-6, 250, ALPHA)


@pytest.mark.slow
@pytest.mark.parametrize("find", [audit_multisplit, audit_one_run_curve])
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_coverage_of_the_slower_ones(find, mu):
    assert missed(find, mu, 200) <= binom.isf(1e-6, 200, ALPHA)


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_a_true_curve_is_refuted_in_one_run_at_most_at_the_level(mu):
    """300 repeats at level .2, claim exactly true; false alarm below 1e-6."""
    draw, refuted = generator(7), 0
    for _ in range(300):
        scores = coin_scores(draw, mu, 300)
        refuted += one_run_curve_refutes(
            claim(mu), canaries=300, guesses=60, right=guessed_right(scores, 60), alpha=0.2
        )
    assert refuted <= binom.isf(1e-6, 300, 0.2)


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("guesses", [40, 250])
def test_the_curve_bound_is_above_the_exact_tail_of_independent_canaries(mu, guesses):
    """Guessing all of m independent mu-GDP canaries right has a binomial law: never below the bound's level."""
    rate = norm.cdf(mu / 2)
    for alpha in (0.2, 0.05, 1e-3):
        for right in range(guesses + 1):
            if one_run_curve_refutes(claim(mu), canaries=guesses, guesses=guesses, right=right, alpha=alpha):
                assert binom.sf(right - 1, guesses, rate) < alpha


def test_the_curve_says_more_than_one_point_of_it():
    """On the same guesses the curve of Gaussian DP proves a larger epsilon than (epsilon, delta) does."""
    scores = coin_scores(generator(9), 1.0, 4000)
    by_curve, by_point = (find(scores, delta=DELTA).epsilon_lower for find in (audit_one_run_curve, audit_one_run))
    assert 1.1 * by_point < by_curve < gaussian_epsilon(DELTA, 1.0)


def test_one_run_p_value_by_hand():
    """Without delta it is the binomial tail; with it, the worst of the tails below is added."""
    rate = math.e / (1 + math.e)
    assert one_run_p_value(canaries=50, guesses=20, right=18, epsilon=1.0, delta=0.0) == pytest.approx(
        binom.sf(17, 20, rate)
    )
    extra = max(binom.cdf(17, 20, rate) - binom.cdf(17 - i, 20, rate) for i in (1,)) / 1
    worst = max(extra, *((binom.cdf(17, 20, rate) - binom.cdf(17 - i, 20, rate)) / i for i in range(1, 19)))
    assert one_run_p_value(canaries=50, guesses=20, right=18, epsilon=1.0, delta=1e-3) == pytest.approx(
        binom.sf(17, 20, rate) + 2 * 50 * 1e-3 * worst
    )


def test_perfect_guesses_cap_epsilon_where_the_formula_says():
    """r right guesses of r prove no more than -log(a^(-1/r) - 1)."""
    scores = Scores("sure", np.ones(50), np.zeros(50), 0.5)
    found = audit_one_run(scores, delta=0.0, guesses=[100]).epsilon_lower
    assert found == pytest.approx(-math.log(0.05 ** (-1 / 100) - 1), abs=1e-3)


def test_guessing_counts_by_hand():
    scores = Scores("hand", np.array([5.0, 4.0, 1.0]), np.array([4.5, 0.0, 2.0]), 0.0)
    assert guessed_right(scores, 2) == 2
    assert guessed_right(scores, 4) == 2
    assert guessed_right(scores, 6) == 4
    with pytest.raises(InvalidInput, match="guesses must be at most 6"):
        guessed_right(scores, 8)


def test_the_separation_by_hand():
    scores = Scores("hand", np.array([3.0, 5.0]), np.array([0.0, 2.0]), 0.0)
    spread = math.sqrt(2.0)
    gap = 3 / spread
    expected = gap - 1.6448536 * math.sqrt(1 + gap**2 / 8)
    assert separation(scores, confidence=0.95) == pytest.approx(max(expected, 0.0), rel=1e-6)
    assert separation(scores, confidence=0.5) == pytest.approx(gap)


def test_scores_without_spread():
    assert separation(Scores("sure", np.ones(5), np.zeros(5), 0.5), confidence=0.95) == math.inf
    assert separation(Scores("blind", np.ones(5), np.ones(5), 0.5), confidence=0.95) == 0.0


@pytest.mark.parametrize("find", [audit_normal, audit_multisplit, audit_one_run, audit_one_run_curve])
def test_power_and_fairness(find):
    """A leak of mu 3 refutes mu .7 with 2000 canaries and not mu 3; nothing refutes perfect privacy where it holds."""
    scores = coin_scores(generator(1), 3.0, 2000)
    assert find(scores, delta=DELTA, claim=claim(0.7)).refuted
    assert not find(scores, delta=DELTA, claim=claim(3.0)).refuted
    blind = Scores("blind", np.ones(500), np.ones(500), 1.0)
    found = find(blind, delta=DELTA, claim=claim(0.0))
    assert (found.refuted, found.epsilon_lower) == (False, 0.0)


@pytest.mark.parametrize("find", [audit_normal, audit_one_run, audit_one_run_curve])
def test_the_minimum_detectable_violation_is_where_refuting_begins(find):
    draw = generator(3)
    least = find(coin_scores(draw, 1.0, 600), delta=DELTA, claim=claim(0.5)).detectable_mu
    assert least > 0.5

    def found(mu):
        return sum(find(coin_scores(draw, mu, 600), delta=DELTA, claim=claim(0.5)).refuted for _ in range(20))

    assert found(0.5 + (least - 0.5) * 2) >= 15
    assert found(0.5 + (least - 0.5) / 2) <= 10


def test_a_family_gives_more_than_a_single_delta():
    scores = coin_scores(generator(4), 2.0, 4000)
    result = audit_scores(scores, delta=DELTA, trials="independent")
    by_curve = refute_family(gaussian_family(), result.refutes, delta=DELTA)
    assert by_curve.parameter == pytest.approx(result.mu_lower, rel=2e-3)
    assert result.epsilon_lower < by_curve.epsilon_lower < gaussian_epsilon(DELTA, 2.0)


def test_a_family_of_noise_is_searched_from_its_private_end():
    judge, steps = accountant("pld"), 50
    family = noise_family(lambda noise: Gaussian(noise) * steps, low=1.0, high=100.0)
    truth = judge(Gaussian(10.0) * steps)
    found = refute_family(family, lambda curve: curve.epsilon(DELTA) < 0.999 * truth.epsilon(DELTA), delta=DELTA)
    assert found.parameter == pytest.approx(10.0, rel=5e-3)
    assert found.epsilon_lower < truth.epsilon(DELTA)
    assert refute_family(family, lambda curve: False, delta=DELTA).parameter is None
    assert refute_family(family, lambda curve: True, delta=DELTA).parameter == 1.0


def test_findings_have_rows_like_other_audits():
    row = audit_normal(coin_scores(generator(0), 1.0), delta=DELTA).row()
    assert list(row) == ["attack", "confidence", "advantage", "ppv", "epsilon_lower", "mu_lower"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda s: audit_normal(s, delta=2.0), "delta must be"),
        (lambda s: audit_normal(s, delta=DELTA, confidence=1.0), "confidence must be"),
        (lambda s: audit_multisplit(s, delta=DELTA, splits=4), "splits must be odd"),
        (lambda s: audit_one_run(s, delta=DELTA, guesses=[500]), "guesses must be at most"),
        (lambda s: audit_one_run_curve(s, delta=DELTA, confidence=0), "confidence must be"),
        (lambda s: separation(Scores("one", np.ones(1), np.ones(3), 0), confidence=0.9), "two members"),
        (lambda s: audit_multisplit(s, delta=DELTA, relation="replace_one", claim=claim(1.0)), "relation must be"),
    ],
)
def test_bad_arguments_are_refused(call, said):
    with pytest.raises(InvalidInput, match=said):
        call(coin_scores(generator(0), 1.0))
