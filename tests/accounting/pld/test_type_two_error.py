"""Exact bounds on the type II error: they hold the true one and are narrow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import binom

from tacit.accounting import accountant
from tacit.accounting.pld.bracket import _above, type_two_error
from tacit.mechanisms import Gaussian, RandomizedResponse
from tacit.tradeoff.gaussian import gaussian_beta, gaussian_delta


def bounds(mechanism, alpha, relation="add_remove"):
    answer = accountant("pld")(mechanism, relation=relation).beta(alpha)
    return answer.interval


@given(mu=some.floats(0.05, 6.0), log_alpha=some.floats(-12.0, -0.01))
@settings(max_examples=60, deadline=None)
def test_a_gaussian_profile_gives_its_trade_off_function(mu, log_alpha):
    alpha, epsilons = 10.0**log_alpha, np.linspace(0, 8 * mu + mu * mu, 129)
    deltas = np.array([gaussian_delta(e, mu) for e in epsilons])

    def delta(epsilon):
        exact = gaussian_delta(epsilon, mu)
        return exact * (1 - 1e-10), exact * (1 + 1e-10)

    low, high = type_two_error(alpha, epsilons, deltas, lambda epsilon: delta)
    exact = float(gaussian_beta(np.array([alpha]), mu)[0])
    assert low <= exact * (1 + 1e-9)
    assert exact <= high * (1 + 1e-9)
    assert high - low <= 1e-5 * max(exact, 1e-3) or high == 1 - alpha


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, *(pytest.param(alpha, marks=pytest.mark.slow) for alpha in (0.5, 1e-3, 1e-6))])
@pytest.mark.parametrize(
    ("mechanism", "relation"),
    [
        (Gaussian(1.1).poisson(0.01) * 1000, "add_remove"),
        pytest.param(Gaussian(0.5).poisson(0.2) * 300, "add_remove", marks=pytest.mark.slow),
        pytest.param(Gaussian(0.8).poisson(0.02) * 50, "replace_one", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_sampled_gaussians_are_narrow_and_between_dense_tangents(mechanism, relation, alpha):
    curve = accountant("pld")(mechanism, relation=relation)
    low, high = curve.beta(alpha).interval
    assert low <= high
    # Some epsilon near the best one gives as much, with its own exact delta.
    best = 0.0
    for epsilon in np.linspace(0.0, curve.epsilon(1e-12).upper, 400):
        upper = float(curve.delta(float(epsilon)).upper)
        best = max(best, 1 - upper - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - upper - alpha))
    assert best <= high
    # 1 - delta near 1 is a difference that keeps the spacing of doubles below 1, on both sides.
    assert low >= best * (1 - 1e-9) - 8 * 2.0**-53
    # What delta near 1 is known to, beside a small beta.
    assert high - low <= 1e-6 * high + 1e-8


def test_randomised_response_is_between_its_bounds():
    """The best test of k answers out of nine that agree rejects the likeliest counts first."""
    steps, keep = 9, np.exp(0.5) / (1 + np.exp(0.5))
    counts = np.arange(steps, -1, -1)
    hit, miss = binom.pmf(counts, steps, keep), binom.pmf(counts, steps, 1 - keep)
    for alpha in (0.3, 0.05, 1e-3):
        below = np.cumsum(miss)
        full = int(np.searchsorted(below, alpha))
        share = (alpha - (below[full - 1] if full else 0.0)) / miss[full]
        power = hit[:full].sum() + share * hit[full]
        low, high = bounds(RandomizedResponse(0.5) * steps, alpha)
        assert low <= 1 - power <= high


@pytest.mark.slow
def test_ends_and_many_alphas_are_answered():
    curve = accountant("pld")(Gaussian(1.1).poisson(0.01) * 1000)
    assert curve.beta(0.0).interval[0] == pytest.approx(1.0)
    assert float(curve.beta(1.0)) == 0.0
    alphas = np.linspace(0.01, 0.9, 50)
    rough, fine = curve.curve.beta(alphas), np.array([float(curve.beta(float(a))) for a in alphas])
    assert (rough <= fine + 1e-12).all()
    assert np.abs(rough - fine).max() < 0.05


def test_tangents_on_the_grid_refute_what_exact_values_refute():
    curve = accountant("pld")(Gaussian(1.1).poisson(0.02) * 300).curve
    alpha = np.linspace(0.01, 0.9, 8)
    exact = curve.beta(alpha)
    for share in (0.2, 0.9, 1 - 1e-5, 1 + 1e-5, 1.1):
        for place in range(len(alpha)):
            reached = np.ones(len(alpha))
            reached[place] = share * exact[place]
            assert curve.refuted_by(alpha, reached) == (share < 1)


@given(
    slopes=some.lists(some.floats(-2.0, 2.0), min_size=2, max_size=7), ends=some.tuples(*[some.floats(0.0, 1.0)] * 4)
)
@settings(max_examples=300, deadline=None)
def test_a_concave_function_stays_below_the_bound_of_four_points(slopes, ends):
    """The least of some lines, with kinks; each value is known to an interval of up to .1."""
    places = np.linspace(-1.0, 1.0, len(slopes))
    rows = np.linspace(-1.5, 1.5, 3001)

    def value(x):
        return np.min(
            [-((place) ** 2) + slope * (x - place) for place, slope in zip(places, slopes, strict=True)], axis=0
        )

    points = np.array([-1.5, -0.5, 0.5, 1.5])
    known = [
        (float(value(x)) - 0.1 * end, float(value(x)) + 0.1 * (1 - end)) for x, end in zip(points, ends, strict=True)
    ]
    assert float(value(rows).max()) <= _above(points, known) + 1e-12


@pytest.mark.parametrize(("noise_multiplier", "rate", "steps"), [(1.192, 1.2e-5, 9), (0.6, 1e-5, 20), (0.32, 0.06, 9)])
def test_few_rare_steps_have_a_narrow_beta_at_every_alpha(noise_multiplier, rate, steps):
    """At .5 the best test is that of epsilon = 0, a kink: nothing but the grid was left, 3 s and 1 % wide."""
    curve = accountant("pld")(Gaussian(noise_multiplier).poisson(rate) * steps)
    deltas = {epsilon: curve.delta(epsilon).upper for epsilon in (0.0, rate * steps, 10 * rate * steps)}
    for alpha in (0.5, 0.1):
        low, high = curve.beta(alpha).interval
        assert low <= high <= low + 2e-5 * (1 - alpha - low)
        for epsilon, delta in deltas.items():
            assert high >= 1 - delta - np.exp(epsilon) * alpha
            assert high >= np.exp(-epsilon) * (1 - delta - alpha)
