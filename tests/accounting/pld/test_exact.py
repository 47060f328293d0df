"""Two and few steps against brute force and each other."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.accounting.pld.discrete_cumulants import cumulants_of
from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.fft import Convolution
from tacit.accounting.pld.inversion import saddle_line
from tacit.accounting.pld.saddle_point import saddle_for_epsilon
from tacit.accounting.pld.step_cumulants import IndependentSum
from tacit.mechanisms import DiscreteGaussian, Gaussian, Laplace, Mechanism
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.gaussian import SampledGaussianPair
from tacit.relation import Relation


def _sums(pair: Pair, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """All losses of `steps` independent steps with their P-masses, as extended floats."""
    assert pair.table is not None
    loss, p, _ = (np.asarray(column, dtype=np.longdouble)[pair.table[1] > 1e-40] for column in pair.table)
    sums, masses = loss, p
    for _ in range(steps - 1):
        sums, masses = np.add.outer(sums, loss).ravel(), np.multiply.outer(masses, p).ravel()
        sums, masses = sums[masses > 1e-60], masses[masses > 1e-60]
    return sums, masses


def _delta(sums: np.ndarray, masses: np.ndarray, epsilon: float) -> float:
    above = sums > epsilon
    return float(-(masses[above] @ np.expm1(np.longdouble(epsilon) - sums[above])))


@given(
    scale=st.floats(0.3, 3.0),
    log_rate=st.floats(-6, 0),
    steps=st.integers(2, 3),
    relation=st.sampled_from(list(Relation)),
    share=st.floats(0, 1),
)
@example(scale=1.0, log_rate=-3.0, steps=3, relation=Relation.REPLACE_ONE, share=9.5e-246)
@example(scale=0.30078125, log_rate=0.0, steps=3, relation=Relation.ADD_REMOVE, share=1.0)
@settings(max_examples=25, deadline=None)
def test_few_steps_of_a_discrete_gaussian_hold_brute_force(scale, log_rate, steps, relation, share):
    for pair in DiscreteGaussian(scale).poisson(10**log_rate).dominating_pairs(relation):
        sums, masses = _sums(pair, steps)
        epsilon = share * float(sums[masses > 1e-12].max())
        low, high = Dispatch([(pair, steps)]).delta(max(epsilon, 0.0))
        exact = _delta(sums, masses, max(epsilon, 0.0))
        assert low <= exact * (1 + 1e-9) + 1e-35
        assert high >= exact * (1 - 1e-9)


@pytest.mark.parametrize("epsilon", [1e-8, 3e-6, 1.2e-5, 1.4e-5, 2e-5])
def test_a_line_without_its_far_tail_keeps_its_certificate(epsilon: float):
    """The tilt that suits epsilon would see only atoms of mass e^-700; without them it is exact up to their mass.

    The line once took its decay from all atoms, and was off by e^7 at the fourth of these.
    """
    (pair,) = DiscreteGaussian(3.6282).poisson(1.2e-6).dominating_pairs(Relation.REPLACE_ONE)
    parts = [(pair, 5)]
    saddle = Dispatch(parts).general.saddle_for_epsilon(epsilon)
    for _ in range(3):
        cumulants = cumulants_of(parts, saddle.theta, saddle.log_delta)
        saddle = saddle_for_epsilon(IndependentSum(cumulants, saddle.theta), epsilon)
    loss_sum = IndependentSum(cumulants_of(parts, saddle.theta, saddle.log_delta), saddle.theta)
    line = saddle_line(loss_sum, saddle, 20_000, 0.0)
    assert line is not None
    assert loss_sum.left_out > 0
    (low, high), (floor, ceiling) = line.bounds(epsilon), Convolution(parts).bracket(saddle).bounds(epsilon)
    assert low <= ceiling
    assert floor <= high


def _two_steps(pair: SampledGaussianPair, epsilon: float) -> mpmath.mpf:
    """delta of two steps when a record is removed, by quadrature over the first one's noise at 30 digits."""
    with mpmath.workdps(30):
        sigma, rate, epsilon = mpmath.mpf(pair.sigma), mpmath.mpf(pair.rate), mpmath.mpf(epsilon)
        mixed = lambda law, x: (1 - rate) * law(x, 0, sigma) + rate * law(x, 1, sigma)  # noqa: E731
        loss = lambda x: mpmath.log(1 - rate + rate * mpmath.exp((2 * x - 1) / (2 * sigma**2)))  # noqa: E731
        place = lambda value: sigma**2 * mpmath.log((mpmath.exp(value) - 1 + rate) / rate) + mpmath.mpf(1) / 2  # noqa: E731

        def alone(value: mpmath.mpf) -> mpmath.mpf:
            if value <= mpmath.log(1 - rate):
                return 1 - mpmath.exp(value)
            x = place(value)
            return 1 - mixed(mpmath.ncdf, x) - mpmath.exp(value) * mpmath.ncdf(-x / sigma)

        kink = place(epsilon - mpmath.log(1 - rate))
        points = sorted([*(k * sigma for k in range(-20, 21)), kink])
        return mpmath.quad(lambda x: mixed(mpmath.npdf, x) * alone(epsilon - loss(x)), points, method="gauss-legendre")


@pytest.mark.parametrize(
    ("sigma", "rate", "epsilon", "width"),
    # Far in the tail of few steps, and where next to nothing leaks, brackets are wider.
    [(0.8, 1e-3, 0.5, 2e-6), (0.8, 1e-3, 5.0, 4e-6), (2.86734, 0.00450993, 0.1059, 2e-3), (3.0, 1e-6, 1e-6, 0.2)],
)
def test_two_gaussian_steps_by_quadrature(sigma: float, rate: float, epsilon: float, width: float):
    pair = SampledGaussianPair(sigma, rate, True)
    low, high = Dispatch([(pair, 2)]).delta(epsilon)
    exact = float(_two_steps(pair, epsilon))
    assert low <= exact <= high
    assert high - low <= width * exact


@pytest.mark.parametrize("other", [Laplace(2.0), Laplace(0.7).poisson(0.01), DiscreteGaussian(2.5).poisson(0.1)])
def test_two_unlike_steps_do_not_depend_on_their_order(other: Mechanism):
    first = Gaussian(1.5).poisson(0.05)
    for one, two in zip(*(each.dominating_pairs(Relation.REPLACE_ONE) for each in (first, other)), strict=False):
        for epsilon in (0.01, 0.3):
            there, back = (Dispatch([(a, 1), (b, 1)]) for a, b in ((one, two), (two, one)))
            (low, high), (floor, ceiling) = there.delta(epsilon), back.delta(epsilon)
            assert max(low, floor) <= min(high, ceiling)
            assert high - low <= 1e-6 * high
