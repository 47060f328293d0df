"""The f-DP calculus against closed forms."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.mechanisms.renyi import poisson_gaussian_rdp
from tacit.relation import Relation
from tacit.tradeoff.functions import epsilon_delta, from_profile, gaussian, identity
from tacit.tradeoff.gaussian import gaussian_beta, gaussian_delta, gaussian_epsilon

ALPHA = np.linspace(0, 1, 501)


def test_gaussian_is_the_closed_form():
    for mu in (0.1, 1.0, 4.0):
        f = gaussian(mu)
        assert f.p.sum() == pytest.approx(1.0, abs=1e-12)
        assert f.q.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.max(np.abs(f(ALPHA) - gaussian_beta(ALPHA, mu))) < 5e-6
        for epsilon in (0.0, 1.0, 3.0):
            assert f.delta(epsilon) == pytest.approx(gaussian_delta(epsilon, mu), rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-200])
@pytest.mark.parametrize("mu", [300.0, 999.0, 1001.0, 1e5, 1e21])
def test_epsilon_of_a_huge_mu(mu, delta):
    """Against delta at forty digits; beyond mu = 1e7 epsilon is mu^2 / 2 to every digit of a double."""
    epsilon = gaussian_epsilon(delta, mu)
    if mu > 1e7:
        assert epsilon == pytest.approx(mu**2 / 2)
        return
    with mpmath.workdps(40):
        t = mpmath.mpf(epsilon) / mu - mpmath.mpf(mu) / 2
        exact = mpmath.ncdf(-t) - mpmath.exp(epsilon + mpmath.log(mpmath.ncdf(-t - mu)))
        assert float(exact / delta) == pytest.approx(1.0, rel=1e-9 * max(1.0, mu))


def test_epsilon_delta_is_equation_1():
    epsilon, delta = 0.7, 0.01
    expected = np.maximum(0, np.maximum(1 - delta - np.exp(epsilon) * ALPHA, np.exp(-epsilon) * (1 - delta - ALPHA)))
    assert epsilon_delta(epsilon, delta)(ALPHA) == pytest.approx(expected, abs=1e-12)


def test_inverse_of_inverse_and_symmetric_functions():
    f = gaussian(1.3).subsample(0.2)
    assert f.inverse().inverse()(ALPHA) == pytest.approx(f(ALPHA), abs=1e-9)
    assert gaussian(1.3).inverse()(ALPHA) == pytest.approx(gaussian_beta(ALPHA, 1.3), abs=1e-6)
    inverse = f.inverse()
    for alpha in (0.1, 0.4, 0.8):
        assert f(inverse(alpha)) == pytest.approx(alpha, abs=1e-6)


def test_subsampling_and_its_double_conjugate():
    """The closed form of C_p(G_mu): f_p, then slope -1, then f_p^{-1}."""
    mu, rate = 1.5, 0.3
    f = gaussian(mu).subsample(rate)
    f_p = rate * gaussian_beta(ALPHA, mu) + (1 - rate) * (1 - ALPHA)
    assert f(ALPHA) == pytest.approx(f_p, abs=1e-6)
    corner = float(ndtr(-mu / 2))
    at_corner = rate * corner + (1 - rate) * (1 - corner)
    inverse = f.inverse()(ALPHA)
    expected = np.where(corner >= ALPHA, f_p, np.where(at_corner >= ALPHA, corner + at_corner - ALPHA, inverse))
    assert f.symmetrized()(ALPHA) == pytest.approx(expected, abs=1e-6)


def test_composition_of_gaussians_is_gaussian():
    both = gaussian(0.6).compose(gaussian(0.8))
    assert both(ALPHA) == pytest.approx(gaussian_beta(ALPHA, 1.0), abs=1e-5)
    many = gaussian(0.1).power(100)
    assert many(ALPHA) == pytest.approx(gaussian_beta(ALPHA, 1.0), abs=1e-4)
    assert np.all(many(ALPHA) <= gaussian_beta(ALPHA, 1.0) + 1e-6)


def test_identity_is_neutral():
    f = gaussian(1.0)
    assert f.compose(identity())(ALPHA) == pytest.approx(f(ALPHA), abs=1e-5)


def test_pure_composition_is_binomial():
    epsilon, steps = 0.3, 5
    f = epsilon_delta(epsilon, 0.0).power(steps, step=epsilon / 16)
    p = 1 / (1 + math.exp(epsilon))
    for target in (0.0, 0.3, 0.9):
        exact = sum(
            math.comb(steps, k)
            * max(0.0, (1 - p) ** k * p ** (steps - k) - math.exp(target) * p**k * (1 - p) ** (steps - k))
            for k in range(steps + 1)
        )
        assert f.delta(target) == pytest.approx(exact, abs=1e-9)


def test_deltas_compose():
    f = epsilon_delta(0.5, 0.01).power(3)
    assert f(0.0) == pytest.approx(0.99**3, abs=1e-9)


def test_functionals_of_the_central_limit_theorem():
    for mu in (0.3, 1.0, 2.0):
        f = gaussian(mu)
        assert f.chi2() == pytest.approx(math.expm1(mu**2), rel=1e-4)
        assert f.kl() == pytest.approx(mu**2 / 2, rel=1e-5)
        assert f.kappa2() == pytest.approx(mu**2 + mu**4 / 4, rel=1e-5)
        brute = np.random.default_rng(0).normal(mu**2 / 2, mu, 2_000_000)
        assert f.kappa3() == pytest.approx(np.mean(np.abs(brute) ** 3), rel=2e-2)


def test_the_appendix_figure_limit():
    """(p G + (1 - p) Id)^{(x) T} tends to G_mu with mu = p sqrt(T chi2)."""
    rate, steps = 256 / 60000 * math.sqrt(14062 / 234), 234
    f = gaussian(1 / 1.1).subsample(rate).power(steps)
    mu = rate * math.sqrt(steps * math.expm1(1 / 1.1**2))
    assert mu == pytest.approx(0.57, abs=0.005)
    assert np.max(np.abs(f(ALPHA) - gaussian_beta(ALPHA, mu))) < 0.02


def test_renyi_divergences_of_a_subsampled_gaussian():
    f = gaussian(1 / 0.9).subsample(0.05)
    for order in (1.5, 3.0, 8.0):
        exact = poisson_gaussian_rdp(0.05, 0.9, np.array([order]))[0]
        assert f.renyi(order) == pytest.approx(exact, rel=1e-3)
    assert gaussian(1.0).renyi(2.0) == pytest.approx(
        float(Gaussian(1.0).rdp(np.array(2.0), Relation.ADD_REMOVE)), rel=1e-4
    )
    assert math.isinf(epsilon_delta(1.0, 0.1).renyi(2.0))


@pytest.mark.slow
def test_profile_round_trip():
    epsilons = np.linspace(0, 8, 2000)
    deltas = np.array([gaussian_delta(float(e), 1.2) for e in epsilons])
    f = from_profile(epsilons, deltas)
    assert f(ALPHA) == pytest.approx(gaussian_beta(ALPHA, 1.2), abs=1e-4)
    assert f.delta(1.0) == pytest.approx(gaussian_delta(1.0, 1.2), rel=1e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gaussian(0.0),
        lambda: gaussian(1.0).subsample(1.5),
        lambda: gaussian(1.0).power(1.5),
        lambda: gaussian(1.0).renyi(1.0),
        lambda: epsilon_delta(-1.0, 0.1),
    ],
)
def test_bad_input(call):
    with pytest.raises(InvalidInput):
        call()
