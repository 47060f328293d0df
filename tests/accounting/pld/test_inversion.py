"""The saddle line of every mechanism, smoothed at need, against brute force and the lattice."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from tacit.accounting.pld.accountant import Pld
from tacit.accounting.pld.discrete_cumulants import MixtureCumulant, cumulants_of
from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.fft import Convolution
from tacit.accounting.pld.intervals import Contradiction, intersection
from tacit.accounting.pld.inversion import SaddleLine
from tacit.accounting.pld.schedule_cumulant import ScheduleCumulant
from tacit.mechanisms import Gaussian
from tacit.mechanisms.pairs.base import MixedPair, Pair
from tacit.mechanisms.pairs.discrete import AtomPair, DiscreteGaussianPair, DiscreteGaussianReplacePair
from tacit.mechanisms.pairs.gaussian import SampledGaussianPair
from tacit.mechanisms.pairs.laplace import LaplacePair, LaplaceReplacePair, RangePair
from tacit.mechanisms.pairs.subsampled import SampledPair

SHALLOW = [
    LaplacePair(1.3),
    RangePair(0.7),
    LaplaceReplacePair(0.8, 0.1),
    SampledPair(LaplacePair(2.0), 0.003, True),
    SampledPair(LaplacePair(2.0), 0.003, False),
    SampledPair(AtomPair.response(0.4, 0.01), 0.1, True),
    DiscreteGaussianPair(2.5, 1),
    DiscreteGaussianPair(60.0, 2),
    DiscreteGaussianReplacePair(3.0, 1, 0.2),
]


@pytest.mark.parametrize("pair", SHALLOW, ids=str)
@pytest.mark.parametrize(("theta", "frequency"), [(2.0, 0.0), (5.0, 90.0), (1.0, 2000.0)])
def test_nodes_keep_both_masses_and_every_moment(pair: Pair, theta: float, frequency: float) -> None:
    coarse, fine = pair.nodes(theta, frequency), pair.nodes(4 * theta + 3, 3 * frequency + 50)
    assert coarse is not None
    assert fine is not None
    assert coarse.p.sum() + pair.infinity_mass == pytest.approx(1.0, abs=1e-13)
    assert coarse.q.sum() + pair.negative_infinity_mass == pytest.approx(1.0, abs=1e-13)
    np.testing.assert_allclose(np.log(coarse.p / coarse.q), coarse.loss, rtol=0, atol=1e-11)
    z = theta + 1j * frequency
    values = [(nodes.p * np.exp(z * nodes.loss)).sum() for nodes in (coarse, fine)]
    assert abs(values[0] - values[1]) <= 1e-12 * (coarse.p * np.exp(theta * coarse.loss)).sum()


def test_blur_is_bounded_by_twice_its_derivative() -> None:
    """delta_v(x) - (1 - e^x)_+ <= 2 v e^{v / 8} d delta_v(x) / dv, the inequality behind the lower bound."""
    for variance in (1e-4, 0.01, 0.1):
        mu = variance**0.5
        x = mu * np.linspace(-6, 6, 2001)
        value = ndtr(-x / mu + mu / 2) - np.exp(x) * ndtr(-x / mu - mu / 2)
        slope = np.exp(-((x / mu - mu / 2) ** 2) / 2) / math.sqrt(2 * math.pi) / (2 * mu)
        excess = value - np.maximum(-np.expm1(x), 0.0)
        assert np.all(excess >= -1e-15)
        assert np.all(excess <= 2 * variance * math.exp(variance / 8) * slope + 1e-15)


def enumerated(pair: Pair, steps: int, epsilon: float) -> float:
    """delta over all outcomes of a few steps."""
    nodes = pair.nodes(40.0, 0.0)
    assert nodes is not None
    keep = nodes.p > 1e-25
    total = 0.0
    for losses in itertools.product(zip(nodes.loss[keep], nodes.p[keep], strict=True), repeat=steps - 1):
        sums = sum(loss for loss, _ in losses) + nodes.loss[keep]
        mass = math.prod(p for _, p in losses) * nodes.p[keep]
        total += float(mass @ np.maximum(-np.expm1(epsilon - sums), 0.0))
    return total


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.7])
def test_few_discrete_steps_by_enumeration(share: float, remove: bool) -> None:
    pair = SampledPair(DiscreteGaussianPair(1.4, 1), 0.03, remove)
    epsilon = share * (3.0 if remove else -3 * math.log1p(-0.03))
    low, high = Dispatch([(pair, 3)]).delta(epsilon)
    exact = enumerated(pair, 3, epsilon)
    assert low <= exact * (1 + 1e-9)
    assert high >= exact * (1 - 1e-9)
    assert high - low <= 1e-3 * exact


@settings(max_examples=10, deadline=None)
@given(st.floats(0.02, 2.0), st.integers(2, 3000), st.floats(0.1, 3.0))
def test_blurred_line_meets_the_exact_lattice(epsilon: float, steps: int, spreads: float) -> None:
    """Randomised response is exact on its lattice; the line knows it only by its characteristic function."""
    direction = Dispatch([(AtomPair.response(epsilon), steps)])
    at = min(spreads * epsilon * steps**0.5, 0.9 * steps * epsilon)
    exact = direction.delta(at)
    direction.general.exact = False
    line = direction.at_epsilon(at).near
    if not isinstance(line, SaddleLine):
        return
    low, high = line.bounds(at)
    assert low <= exact[1] * (1 + 1e-9)
    assert high >= exact[0] * (1 - 1e-9)


def test_a_bracket_that_was_once_too_high() -> None:
    parts: list[tuple[Pair, int]] = [(SampledGaussianPair(0.7992, 2.278e-5, True), 1344)]
    low, high = Dispatch(parts).epsilon(3.04e-28)
    assert low <= 3.1814819157 <= high
    assert high - low <= 1e-6 * low
    general = Convolution(parts)
    saddle = general.saddle_for_epsilon(high)
    floor, ceiling = general.bracket(saddle).bounds(high)
    assert floor <= 3.04e-28 <= ceiling


@pytest.mark.parametrize(
    ("pair", "steps", "delta"),
    [
        (LaplacePair(1e-3), 10**6, 1e-6),
        (LaplaceReplacePair(0.05, 0.1), 10**9, 1e-12),
        (SampledPair(LaplacePair(0.5), 0.01, True), 10**5, 1e-9),
        (SampledPair(DiscreteGaussianPair(5.0, 1), 0.01, True), 10**6, 1e-6),
        (DiscreteGaussianPair(500.0, 1), 10**8, 1e-20),
        (LaplacePair(1 / 0.4372), 777_757_552, 3e-27),
    ],
    ids=str,
)
def test_many_steps_stay_narrow(pair: Pair, steps: int, delta: float) -> None:
    low, high = Dispatch([(pair, steps)]).epsilon(delta)
    assert 0 < high - low <= 1e-6 * high
    below, above = Dispatch([(pair, steps)]).delta(high)
    assert below <= delta * (1 + 1e-6)
    assert above >= delta * (1 - 1e-3)


def test_near_the_largest_loss() -> None:
    """All of 20 Laplace steps at their largest loss have P-mass 2^-20; below it nothing is left of delta's slope."""
    low, high = Dispatch([(LaplacePair(0.5), 20)]).epsilon(1e-25)
    assert high == pytest.approx(10.0, rel=1e-9)
    assert high - low <= 1e-8
    assert Dispatch([(LaplacePair(0.5), 20)]).delta(10.1) == (0.0, 0.0)


def test_a_large_discrete_gaussian_is_continuous_at_low_frequencies() -> None:
    pair = SampledPair(DiscreteGaussianPair(30.0, 2), 0.05, True)
    gaussian, limit = pair.gaussian_limit()
    assert isinstance(gaussian, SampledGaussianPair)
    nodes = pair.nodes(3.0, limit)
    u = np.arange(-14.0, 14.0, 0.002)
    base = np.exp(-(u**2) / 2) * 0.002 / math.sqrt(2 * math.pi)
    ratio = 0.95 + 0.05 * np.exp(u / gaussian.sigma - 0.5 / gaussian.sigma**2)
    assert nodes is not None
    for t in (0.0, 1.0, 40.0):
        z = 1.5 + 1j * t
        assert abs((nodes.p * np.exp(z * nodes.loss)).sum() - (base * ratio ** (1 + z)).sum()) <= 1e-12


@pytest.mark.parametrize("remove", [True, False])
def test_a_mixed_step_lies_between_its_two_and_on_the_lattice(remove: bool) -> None:
    usual, rare = (SampledGaussianPair(sigma, 0.01, remove) for sigma in (1.3, 0.65))
    mixed = [(MixedPair(usual, rare, 0.05, usual), 3000)]
    low, high = Dispatch(mixed).delta(1.0)
    assert high - low <= 1e-6 * high
    assert Dispatch([(usual, 3000)]).delta(1.0)[1] < low < high < Dispatch([(rare, 3000)]).delta(1.0)[0]
    together = [
        (MixtureCumulant(*(_sampled_cumulant(pair) for pair in (usual, rare)), share), share)
        for share in (1e-300, 1 - 1e-16)
    ]
    for cumulant, share in together:
        alone = _sampled_cumulant(usual if share < 0.5 else rare)
        assert 3000 * cumulant.log_moment(2.0) == pytest.approx(alone.log_moment(2.0), rel=1e-12)


def _sampled_cumulant(pair: SampledGaussianPair) -> ScheduleCumulant:
    cumulant = cumulants_of([(pair, 3000)], 2.0, -20.0)[0]
    assert isinstance(cumulant, ScheduleCumulant)
    return cumulant


def test_contradicting_engines_are_refused_with_a_report():
    assert intersection((1.0, 3.0), (2.0, 4.0)) == (2.0, 3.0)
    with pytest.raises(Contradiction, match="Please report this sentence") as caught:
        intersection((1.0, 2.0), (3.0, 4.0), [(LaplacePair(1.0), 3)], "delta(0.5)")
    assert caught.value.report["parts"] == "3 x LaplacePair(epsilon=1.0)"
    assert "delta(0.5)" in str(caught.value)


@pytest.mark.slow_cases("1.65541-3.08361e-06-234437-1.1e-29-0.0104")
@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta", "epsilon"),
    [(2.86734, 0.00450993, 2, 1.1e-23, 0.105921), (1.65541, 3.08361e-06, 234437, 1.1e-29, 0.0104)],
)
def test_epsilons_that_no_engine_finds_from_delta_are_searched_for(sigma, rate, steps, delta, epsilon):
    """Both were open brackets; delta at single epsilons is narrow, and falls by e^1000 and more over them."""
    answer = Pld()(Gaussian(sigma).poisson(rate) * steps).epsilon(delta)
    assert answer.lower == pytest.approx(epsilon, rel=0.01)
    assert answer.upper == pytest.approx(epsilon, rel=0.01)
    assert Pld()(Gaussian(sigma).poisson(rate) * steps).delta(answer.upper).lower <= delta
