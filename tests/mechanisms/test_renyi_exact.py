"""Renyi divergences of the subsampled Gaussian: never below exact sums, and of the shape that the theory gives."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tacit.mechanisms import Gaussian
from tacit.mechanisms.renyi import log_excess, poisson_gaussian_rdp, replaced_gaussian_rdp
from tacit.relation import Relation


def _series(rate: float, sigma: float, order: int) -> mpmath.mpf:
    """(1 / (a - 1)) log sum_k C(a, k) (1 - p)^{a - k} p^k e^{k (k - 1) / 2 s^2}."""
    p, s = mpmath.mpf(rate), mpmath.mpf(sigma)
    terms = (
        mpmath.binomial(order, k) * (1 - p) ** (order - k) * p**k * mpmath.exp(k * (k - 1) / (2 * s**2))
        for k in range(order + 1)
    )
    return mpmath.log(mpmath.fsum(terms)) / (order - 1)


def _settings(count: int, seed: int) -> list[tuple[float, float, int]]:
    """Rates from 1e-12 to 1, noises from .05 to 100, integer orders from 2 to 256, all log-uniform."""
    rng = np.random.default_rng(seed)
    found = 10 ** rng.uniform([-12, -1.3, 0.301], [0, 2, 2.408], (count, 3))
    return [(float(rate), float(sigma), int(order)) for rate, sigma, order in found]


def _check(settings: list[tuple[float, float, int]]) -> None:
    with mpmath.workdps(60):
        for rate, sigma, order in settings:
            exact = _series(rate, sigma, order)
            # The order beside it takes the quadrature; D_a grows with a.
            at, beside = poisson_gaussian_rdp(rate, sigma, np.array([order, order * (1 + 1e-11)]))
            assert exact <= at <= exact * (1 + 1e-8), (rate, sigma, order)
            assert exact <= beside, (rate, sigma, order)
            bound = order >= 2e4 * sigma**2
            assert bound or beside <= exact * (1 + 1e-8), (rate, sigma, order)


def test_integer_orders_are_the_binomial_sum() -> None:
    _check(_settings(60, 0))


@pytest.mark.slow
def test_integer_orders_are_the_binomial_sum_at_2000_settings() -> None:
    _check(_settings(2000, 1))


@pytest.mark.slow_cases
@pytest.mark.parametrize(("sigma", "rate", "order"), [(1.5, 1.06e-6, 63.0), (1.824, 6.04e-6, 81.0), (0.3, 1e-9, 2.5)])
@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_moments_that_a_far_peak_decides_are_not_left_out(sigma, rate, order, relation) -> None:
    """The tilted peak of these lies where the density itself is below e^-700; the first was once 1.5e-7."""
    (found,) = Gaussian(sigma).poisson(rate).rdp(np.array([order]), relation)
    with mpmath.workdps(40):
        s, p = mpmath.mpf(sigma), mpmath.mpf(rate)
        one = lambda x: (1 - p) * mpmath.npdf(x, 0, s) + p * mpmath.npdf(x, 1, s)  # noqa: E731
        two = (lambda x: one(-x)) if relation is Relation.REPLACE_ONE else (lambda x: mpmath.npdf(x, 0, s))
        points = [-16 * s + k * s for k in range(int((2 * order + 32 * s) / s) + 1)]
        exact = mpmath.log(mpmath.quad(lambda x: one(x) ** order * two(x) ** (1 - order), points)) / (order - 1)
        assert exact <= found <= exact * (1 + 1e-8)


@pytest.mark.slow_cases("replaced_gaussian_rdp")
@pytest.mark.parametrize("divergence", [poisson_gaussian_rdp, replaced_gaussian_rdp])
def test_the_log_moment_is_convex_in_the_order(divergence) -> None:
    """(a - 1) D_a is a cumulant generating function; quadrature and series must lie on one convex curve."""
    for rate, sigma, _ in _settings(40, 2):
        orders = np.concatenate([np.linspace(1.01, 12, 60), [15.5, 16, 16.5, 63, 63.5, 64, 64.5, 65]])
        orders = orders[orders < 2e4 * sigma**2]
        if len(orders) < 3:
            continue
        log_moment = (orders - 1) * divergence(rate, sigma, orders)
        slopes = np.diff(log_moment) / np.diff(orders)
        room = 1e-8 * log_moment[1:-1] / np.minimum(np.diff(orders)[:-1], np.diff(orders)[1:])
        assert np.all(np.diff(slopes) >= -room)
        assert np.all(np.diff(log_moment) >= -1e-9 * log_moment[1:])


def test_the_excess_of_a_power_keeps_its_digits() -> None:
    rng = np.random.default_rng(3)
    orders, logs = 1 + 10 ** rng.uniform(-6, 4, 400), rng.choice([-1, 1], 400) * 10 ** rng.uniform(-8, 2.8, 400)
    with mpmath.workdps(60):
        for order, r in zip(orders, logs, strict=True):
            exact = mpmath.log(mpmath.expm1(mpmath.mpf(order) * r) - mpmath.mpf(order) * mpmath.expm1(r))
            assert abs(log_excess(np.array([r]), order)[0] - exact) <= 1e-13 * max(1, abs(exact))
