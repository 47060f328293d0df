"""Renyi divergences against fifty-digit integrals."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.mechanisms import renyi
from tacit.mechanisms.renyi import poisson_gaussian_rdp, pure_rdp, replaced_gaussian_rdp


def _integral(rate, sigma, order, other):
    with mpmath.workdps(50):

        def density(x, mean):
            return (1 - rate) * mpmath.npdf(x, 0, sigma) + rate * mpmath.npdf(x, mean, sigma)

        def integrand(x):
            second = mpmath.npdf(x, 0, sigma) if other == 0 else density(x, other)
            return density(x, 1) ** order * second ** (1 - order)

        points = mpmath.linspace(-12 * sigma - 1, 2 * order + 12 * sigma, 60)
        return float(mpmath.log(mpmath.quad(integrand, points)) / (order - 1))


@pytest.mark.parametrize(("rate", "order"), [(0.1, 64.0), (1e-6, 200.0), (0.9, 100.0)])
def test_the_bound_for_little_noise_is_the_series_where_both_are_known(rate, order):
    """Within 1e-9 of the binomial series, and never below it but for rounding."""
    (series,) = renyi._log_moment_series(rate, 0.05, (int(order),))
    (bound,) = renyi._log_moment_bound(rate, 0.05, np.array([order]))
    assert series * (1 - 1e-12) <= bound <= series * (1 + 1e-9)


@pytest.mark.parametrize("divergence", [poisson_gaussian_rdp, replaced_gaussian_rdp])
def test_little_noise_is_quick_and_below_the_unsampled_divergence(divergence):
    orders, sensitivity = np.array([1.5, 10.3, 1000.5]), 1 if divergence is poisson_gaussian_rdp else 2
    found = divergence(0.1, 1e-4, orders)
    assert np.all(found <= orders * sensitivity**2 / (2 * 1e-8) * (1 + 1e-9))
    assert np.all(found >= 0.9 * orders / (2 * 1e-8))


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [(0.05, 0.8, 2.5), (0.004, 1.3, 6.0), (0.3, 2.0, 1.2), pytest.param(1e-4, 0.6, 12.0, marks=pytest.mark.slow)],
)
def test_poisson_gaussian(rate, sigma, order):
    exact = _integral(rate, sigma, order, 0)
    ours = poisson_gaussian_rdp(rate, sigma, np.array([order]))[0]
    assert exact <= ours <= exact * (1 + 1e-6) + 1e-9 * rate**2


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "sigma", "order"), [(0.05, 0.8, 2.5), (0.004, 1.3, 6.0), (1.0, 2.0, 3.0)])
def test_replaced_gaussian(rate, sigma, order):
    exact = _integral(rate, sigma, order, -1)
    ours = replaced_gaussian_rdp(rate, sigma, np.array([order]))[0]
    assert exact * (1 - 1e-12) <= ours <= exact * (1 + 1e-6) + 1e-9 * rate**2


def test_series_and_quadrature_meet():
    orders = np.array([63.999999, 64.0, 64.000001])
    values = poisson_gaussian_rdp(0.01, 0.9, orders)
    assert values == pytest.approx(np.full(3, values[1]), rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-4, 1.0), st.floats(0.3, 20.0))
def test_divergences_grow_with_the_order_and_stay_below_the_unsampled_one(rate, sigma):
    orders = np.array([1.25, 1.5, 2.0, 3.0, 8.0, 20.0, 64.0])
    values = poisson_gaussian_rdp(rate, sigma, orders)
    assert np.all(np.diff(values) >= -1e-12)
    assert np.all(values <= orders / (2 * sigma**2) * (1 + 1e-9) + 1e-9)


def test_pure_divergence_is_that_of_randomised_response():
    epsilon, order = 0.7, 3.0
    p = 1 / (1 + np.exp(-epsilon))
    exact = np.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
    assert pure_rdp(epsilon, np.array([order]))[0] == pytest.approx(exact)
    assert pure_rdp(epsilon, np.array([1e6]))[0] <= epsilon
