"""The least mu of Gaussian DP: bounds that hold it, narrow, and finite without slack where the tail is Gaussian."""

import itertools
import math

import mpmath
import numpy as np
import pytest

from tacit.accounting.pld.accountant import Pld
from tacit.accounting.pld.gaussian_cover import Chart, mu_bounds, mu_floor
from tacit.mechanisms import Gaussian, Laplace, RandomizedResponse
from tacit.tradeoff.gaussian import gaussian_beta, gaussian_delta, gaussian_mu


@pytest.mark.slow_cases(
    "Gaussian(1.1).poisson(0.01) * 1000-add_remove-1e-09",
    "Gaussian(0.5).poisson(0.2) * 300-add_remove-1e-05",
    "Gaussian(1.1).poisson(0.01) * 1000-replace_one-1e-05",
)
@pytest.mark.parametrize(
    ("mechanism", "relation", "slack"),
    [
        (Gaussian(1.1).poisson(0.01) * 1000, "add_remove", 1e-9),
        (Gaussian(0.5).poisson(0.2) * 300, "add_remove", 1e-5),
        (Gaussian(1.1).poisson(0.01) * 1000, "replace_one", 1e-5),
        (Gaussian(0.062).poisson(0.01), "add_remove", 1e-9),
        (RandomizedResponse(0.5) * 9, "add_remove", 1e-9),
    ],
    ids=str,
)
def test_mu_is_narrow_and_covers_every_epsilon(mechanism, relation, slack):
    curve = Pld()(mechanism, relation=relation)
    low, high = curve.mu(slack=slack).interval
    assert high - low <= 1e-6 * high
    last, best = curve.epsilon(slack).upper, 0.0
    for epsilon in np.linspace(0.0, last, 60):
        delta = curve.delta(float(epsilon))
        assert delta.lower <= gaussian_delta(float(epsilon), high) + slack
        best = max(best, gaussian_mu(float(epsilon), delta.lower - slack))
    assert best <= high
    assert low >= best * (1 - 1e-3)


def test_a_gaussian_profile_which_touches_everywhere_needs_its_own_mu():
    def near(_):
        return lambda epsilon: (gaussian_delta(epsilon, 0.7) * (1 - 1e-10), gaussian_delta(epsilon, 0.7) * (1 + 1e-10))

    chart, epsilons = Chart(near), np.linspace(0.0, 4.5, 33)
    low, high = mu_bounds(mu_floor(1e-12, epsilons, chart), 1e-12, epsilons, chart)
    assert low <= 0.7 <= high * (1 + 1e-6)
    assert high - low <= 2e-5


def test_without_slack_mu_is_that_of_the_gaussian_tail():
    """delta at huge epsilons, at forty digits, needs ever more of 1 / sigma; the bound itself is never exceeded."""
    sigma, rate = 0.7, 0.2
    low, high = Pld()(Gaussian(sigma).poisson(rate)).mu(slack=0.0).interval
    assert low <= 1 / sigma <= high
    assert high - low <= 1e-8
    with mpmath.workdps(40):
        for epsilon in (10, 100, 1000):
            x = sigma**2 * mpmath.log((mpmath.e**epsilon - 1 + rate) / rate) + 0.5
            above = [mpmath.erfc(z / sigma / mpmath.sqrt(2)) / 2 for z in (x, x - 1)]
            delta = (1 - rate - mpmath.e**epsilon) * above[0] + rate * above[1]
            mu = 0.95 / sigma if epsilon == 1000 else 1 / sigma
            z = epsilon / mu - mu / 2
            gaussian = mpmath.erfc(z / math.sqrt(2)) / 2 - mpmath.e**epsilon * mpmath.erfc((z + mu) / math.sqrt(2)) / 2
            assert (delta > gaussian) == (epsilon == 1000)


def test_without_slack_pure_steps_have_a_finite_mu():
    low, high = (Pld()(Laplace(10.0).poisson(0.01) * 1000)).mu(slack=0.0).interval
    assert 0 < low < high < 0.05
    assert Pld()(Gaussian(1.0).poisson(0.01)).mu(slack=0.5) == 0.0


@pytest.mark.parametrize(("sigma", "rate"), [(0.062, 0.01), (0.01, 0.001), (0.001, 0.5)])
def test_one_step_of_little_noise_has_its_closed_form(sigma, rate):
    curve = Pld()(Gaussian(sigma).poisson(rate))
    with mpmath.workdps(60):
        for epsilon in (0.1, 50.0, 0.4 / sigma**2, 0.5 / sigma**2):
            x = mpmath.mpf(sigma) ** 2 * mpmath.log((mpmath.exp(epsilon) - 1 + rate) / rate) + 0.5
            above = [mpmath.erfc(z / sigma / mpmath.sqrt(2)) / 2 for z in (x, x - 1)]
            exact = (1 - mpmath.mpf(rate) - mpmath.exp(epsilon)) * above[0] + mpmath.mpf(rate) * above[1]
            low, high = curve.delta(epsilon).interval
            assert low <= exact <= high
            assert high - low <= 1e-7 * high


@pytest.mark.slow
def test_regret_is_the_distance_between_the_curve_and_its_gaussian_one():
    """The smallest k with f(alpha + k) - k <= G_mu(alpha), here against f from exact type II errors."""
    curve = Pld()(Gaussian(1.1).poisson(0.01) * 1000)
    report = curve.mu_report()
    assert report.slack == 1e-5
    assert float(report.mu) == float(curve.mu(slack=1e-5))
    excess = [
        float(curve.beta(alpha + report.regret)) - report.regret - float(gaussian_beta(np.array([alpha]), report.mu)[0])
        for alpha in np.linspace(0.3, 0.97, 21)
    ]
    assert -0.05 * report.regret <= max(excess) <= 1e-9
    assert report.recommended == (report.regret <= 0.01)
    assert curve.mu_report(slack=1e-9).regret >= report.regret


@pytest.mark.parametrize(
    ("noise_multiplier", "rate", "steps", "slack", "width"),
    [
        (2.942071615576791, 0.0014661246420745887, 51, 1e-9, 2e-6),
        (0.5520789198698512, 0.0005209702351472973, 40, 1e-5, 2e-6),
        (1.29, 5.2e-4, 59, 1e-6, 2e-5),
        (1.192, 1.2e-5, 9, 1e-9, 2e-6),
        (1.192, 1.2e-5, 100, 1e-5, 2e-5),
        (0.6, 1e-5, 20, 1e-12, 2e-6),
        (0.8, 1e-6, 5, 1e-12, 2e-6),
    ],
)
def test_few_rare_steps_have_a_narrow_mu(noise_multiplier, rate, steps, slack, width):
    """Bounds were asked for where they decide nothing, and none were left for those that do: 600 times wide.

    Saddles were orders of magnitude off as a first guess, and no lattice reached twice its epsilon: 4 s, and no bound.
    """
    low, high = Pld()(Gaussian(noise_multiplier).poisson(rate) * steps).mu(slack=slack).interval
    assert 0 < low <= high <= low * (1 + width)


def test_one_step_within_the_slack_needs_no_mu():
    """A saddle of one rare step is a hundred times too high, and alone decided that its mu is not 0."""
    assert Pld()(Gaussian(0.855).poisson(4.23e-6)).mu(slack=1e-5).interval == (0.0, 0.0)


@pytest.mark.filterwarnings("error")
def test_mu_of_rare_steps_warns_of_no_overflow():
    """Bounds near an epsilon were computed outside of the context in which overflows mean nothing."""
    assert Pld()(Gaussian(2.7213871969917736).poisson(2.8974151052892366e-05) * 12).mu() > 0


@pytest.mark.parametrize(
    "mechanism", [Gaussian(1.1).poisson(0.0042667) * 14062, Gaussian(2.0).poisson(0.2) * 100], ids=str
)
def test_tiny_slacks_have_a_narrow_mu(mechanism):
    """The grid ended where delta is 1e-15, so that nothing below that slack was known but the tail: 180 times wide."""
    curve = Pld()(mechanism)
    found = [curve.mu(slack=slack).interval for slack in (1e-15, 1e-30, 1e-100, 0.0)]
    for low, high in found:
        assert 0 < low <= high <= low * (1 + 2e-6)
    assert all(before[0] < after[1] for before, after in itertools.pairwise(found))
