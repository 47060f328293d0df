"""The exact accountant against closed forms, published exact values and brute force."""

import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import Ledger
from tacit.accounting.pld.accountant import Pld, curves_of
from tacit.accounting.pld.dispatch import Dispatch, valid_bounds
from tacit.accounting.pld.fft import Convolution
from tacit.accounting.pld.inversion import SaddleLine
from tacit.accounting.pld.lattice import round_down, round_up
from tacit.accounting.pld.quadrature import on_line
from tacit.accounting.pld.truncation import Truncation
from tacit.errors import Refused
from tacit.mechanisms import (
    Approximate,
    BoundedRange,
    Compose,
    DiscreteGaussian,
    Exponential,
    FixedSize,
    Gaussian,
    Laplace,
    Mechanism,
    RandomizedResponse,
    Shuffled,
    from_spec,
)
from tacit.mechanisms.pairs.gaussian import SampledGaussianPair
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_delta, gaussian_epsilon

TRUTH = Path(__file__).parents[2] / ".." / "shared" / "truth" / "accounting.json"


def bracket(mechanism: Mechanism, delta: float, relation: str = "add_remove") -> tuple[float, float]:
    answer = Pld()(mechanism, relation=relation).epsilon(delta)
    assert answer.lower is not None
    assert answer.upper is not None
    return answer.lower, answer.upper


def test_contains_the_public_exact_values() -> None:
    if not TRUTH.exists():
        pytest.skip(f"no file of exact values at {TRUTH}")
    for row in json.loads(TRUTH.read_text())["rows"]:
        mechanism = Ledger.from_spec(row["spec"]).mechanism
        low, high = bracket(mechanism, row["delta"], row["spec"]["relation"])
        assert low <= row["exact_epsilon"] <= high, row["id"]
        assert high - low <= 1e-6 * high, row["id"]


@pytest.mark.parametrize(
    ("noise_multiplier", "rate", "steps", "exact"),
    [(1.3, 256 / 60000, 3516, 1.5555), (1.1, 256 / 60000, 14062, 4.2213), (0.5, 256 / 60000, 23438, 37.0849)],
)
def test_replace_one_values(noise_multiplier: float, rate: float, steps: int, exact: float) -> None:
    low, high = bracket(Gaussian(noise_multiplier).poisson(rate) * steps, 1e-5, "replace_one")
    assert low - 1e-4 <= exact <= high + 1e-4
    assert high - low <= 1e-6 * high


def test_known_unsoundness_of_other_accountants() -> None:
    """delta at epsilon 3.91308 is at least 1.005e-12 here, though an FFT accountant reports 1e-12."""
    tradeoff = Pld()(Gaussian(1.0).poisson(0.01) * 1000)
    assert tradeoff.delta(3.91308).lower >= 1.005e-12


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12, 1e-30])
@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_plain_gaussian_is_closed_form(delta: float, steps: int) -> None:
    low, high = bracket(Gaussian(3.0) * steps, delta)
    exact = gaussian_epsilon(delta, math.sqrt(steps) / 3.0)
    assert low <= exact <= high
    assert high - low <= 1e-7 * max(high, 1e-9)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.5, 20.0), st.integers(30, 10**8), st.floats(-25.0, -1.0), st.sampled_from(["add_remove", "replace_one"])
)
def test_rate_close_to_one_tends_to_the_gaussian(sigma: float, steps: int, log10_delta: float, relation: str) -> None:
    """A sample of rate 1 - 1e-12 is as good as all records: the quadrature meets the closed form."""
    shift = Relation.parse(relation).sensitivity
    low, high = bracket(Gaussian(sigma).poisson(1 - 1e-12) * steps, 10**log10_delta, relation)
    exact = gaussian_epsilon(10**log10_delta, shift * math.sqrt(steps) / sigma)
    assert low <= exact * (1 + 1e-6)
    assert high >= exact * (1 - 1e-6)


def test_single_step_against_fifty_digits() -> None:
    mpmath.mp.dps = 50
    for sigma, rate, epsilon in [(0.3, 0.01, 3.0), (1.0, 0.5, 0.7), (2.0, 1e-6, 1e-6), (0.5, 0.001, 12.0)]:
        s, p = mpmath.mpf(sigma), mpmath.mpf(rate)
        x = s * s * mpmath.log((mpmath.e**epsilon - 1 + p) / p) + mpmath.mpf(1) / 2
        tail, shifted = (mpmath.erfc((x - u) / s / mpmath.sqrt(2)) / 2 for u in (0, 1))
        exact = (1 - p) * tail + p * shifted - mpmath.e**epsilon * tail
        answer = Pld()(Gaussian(sigma).poisson(rate)).delta(epsilon)
        assert answer.lower <= exact <= answer.upper
        # Lemma 2.4: both masses are known to 16 + 4 |log m| units, and delta is their difference.
        unsure = sum(
            float(m * (40 - 4 * mpmath.log(m))) for m in ((1 - p) * tail + p * shifted, tail * mpmath.e**epsilon)
        )
        assert answer.upper - answer.lower <= 1e-8 * float(exact) + 2 * 2**-53 * unsure


@pytest.mark.parametrize(("epsilon", "steps", "at"), [(0.5, 9, 1.2), (1.0, 4, 0.0), (0.02, 400, 0.5)])
def test_randomised_response_is_binomial(epsilon: float, steps: int, at: float) -> None:
    k = np.arange(steps + 1)
    log_binomial = np.array([math.lgamma(steps + 1) - math.lgamma(i + 1) - math.lgamma(steps - i + 1) for i in k])
    p = np.exp(log_binomial + k * epsilon - steps * np.log1p(np.exp(epsilon)))
    exact = float(p @ np.clip(-np.expm1(at - (2 * k - steps) * epsilon), 0.0, None))
    answer = Pld()(RandomizedResponse(epsilon) * steps).delta(at)
    assert answer.lower <= exact * (1 + 1e-9)
    assert answer.upper >= exact * (1 - 1e-9)
    assert answer.upper - answer.lower <= 1e-6 * exact


@settings(max_examples=40, deadline=None)
@given(st.floats(-8, 0), st.integers(2, 300), st.floats(0.0, 0.999))
def test_small_randomised_response_is_binomial(log10_epsilon: float, steps: int, share: float) -> None:
    """The tilt is near 1 / epsilon, where differences of series cancel."""
    epsilon = mpmath.mpf(10**log10_epsilon)
    at = float(share * steps * epsilon)
    p = 1 / (1 + mpmath.exp(-epsilon))
    exact = sum(
        mpmath.binomial(steps, k) * p**k * (1 - p) ** (steps - k) * -mpmath.expm1(at - (2 * k - steps) * epsilon)
        for k in range(steps + 1)
        if (2 * k - steps) * epsilon > at
    )
    answer = Pld()(RandomizedResponse(float(epsilon)) * steps).delta(at)
    assert answer.lower <= exact * (1 + 1e-12)
    assert answer.upper >= exact * (1 - 1e-12)


def test_approximate_mechanisms_compose_as_the_optimal_theorem_says() -> None:
    """Kairouz, Oh & Viswanath 2015, Theorem 3.3 at epsilon = k epsilon_0: delta = 1 - (1 - delta_0)^k."""
    answer = Pld()(Approximate(0.3, 1e-4) * 5).delta(1.5)
    exact = -math.expm1(5 * math.log1p(-1e-4))
    assert answer.lower <= exact * (1 + 1e-12)
    assert exact * (1 - 1e-12) <= answer.upper <= exact * (1 + 1e-6)


@pytest.mark.parametrize("noise_multiplier", [0.05, 0.0125, 0.005])
def test_losses_beyond_the_smallest_double(noise_multiplier: float) -> None:
    """An event of probability d that reveals all leaves delta = d + (1 - d) delta_Gaussian."""
    answer = Pld()(Gaussian(noise_multiplier) + Approximate(0.0, 1e-6)).epsilon(1e-5)
    exact = gaussian_epsilon(9e-6 / (1 - 1e-6), 1 / noise_multiplier)
    assert answer.lower <= exact <= answer.upper <= exact * (1 + 1e-3)


@pytest.mark.slow_cases("3")
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_pure_losses_beyond_the_smallest_double(steps: int) -> None:
    low, high = bracket(RandomizedResponse(1000.0) * steps, 1e-5)
    assert low <= 1000 * steps + math.log1p(-1e-5) <= high <= low * (1 + 1e-7)
    low, high = bracket(Laplace(0.0005) * steps, 1e-5)
    assert 2000 * steps * (1 - 1e-6) <= low <= high <= 2000 * steps * (1 + 1e-8)


def test_laplace_alone_and_pure_limit() -> None:
    tradeoff = Pld()(Laplace(2.0))
    exact = -math.expm1((0.2 - 0.5) / 2)
    assert tradeoff.delta(0.2).lower <= exact <= tradeoff.delta(0.2).upper
    low, high = bracket(Laplace(2.0) * 10, 1e-30)
    assert low <= 5.0 * (1 + 1e-9)
    assert high <= 5.0 * (1 + 1e-6)


def test_one_exponential_mechanism_is_exact() -> None:
    """H = (1 - e^{(x - eps) / 2})^2 / (1 - e^{-eps}): the best of all two-outcome mechanisms, found by search."""
    epsilon, at = 1.3, 0.4
    t = np.linspace(0, epsilon, 200_001)
    best = float(np.max((-np.expm1(at - t)) * (-np.expm1(t - epsilon)) / -np.expm1(-epsilon)))
    assert Pld()(Exponential(epsilon)).delta(at).upper == pytest.approx(best, rel=1e-7)


def brute_force(losses: np.ndarray, masses: np.ndarray, steps: int, epsilon: float) -> float:
    """delta by direct convolution of values at equal distances."""
    total = np.array([1.0])
    for _ in range(steps):
        total = np.convolve(total, masses)
    sums = steps * losses[0] + (losses[1] - losses[0]) * np.arange(len(total))
    return float(total @ np.clip(-np.expm1(epsilon - sums), 0.0, None))


def test_discrete_gaussian_by_direct_convolution() -> None:
    x = np.arange(-60, 62)
    p = np.exp(-((x - 1.0) ** 2) / (2 * 2.5**2))
    exact = brute_force((2 * x - 1) / (2 * 2.5**2), p / p.sum(), 12, 1.5)
    answer = Pld()(DiscreteGaussian(2.5) * 12).delta(1.5)
    assert answer.lower <= exact * (1 + 1e-10)
    assert answer.upper >= exact * (1 - 1e-10)
    assert answer.upper - answer.lower <= 1e-6 * exact


MIXED = [
    Gaussian(0.8).poisson(0.02) * 30 + Laplace(3.0) * 4,
    Laplace(1.0).poisson(0.1) * 50,
    RandomizedResponse(1.0).poisson(0.2) * 20 + Gaussian(4.0) * 3,
    BoundedRange(0.5).poisson(0.1) * 20,
    Approximate(0.1, 1e-8).poisson(0.3) * 5 + Gaussian(2.0),
    DiscreteGaussian(4.0).poisson(0.1) * 20,
]


@pytest.mark.parametrize(
    "relation",
    [
        Relation.ADD_REMOVE,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (Relation.REPLACE_ONE, Relation.ZERO_OUT)),
    ],
)
@pytest.mark.parametrize("mechanism", MIXED, ids=str)
def test_unlike_mechanisms_give_an_ordered_bracket(mechanism: Mechanism, relation: Relation) -> None:
    tradeoff = Pld()(mechanism, relation=relation)
    deltas = [1e-3, 1e-5, 1e-7]
    answers = [tradeoff.epsilon(delta) for delta in deltas]
    for delta, answer in zip(deltas, answers, strict=True):
        assert 0 <= answer.lower <= answer.upper
        back = tradeoff.delta(answer.upper)
        assert back.lower <= delta * (1 + 1e-6)
    assert [float(a) for a in answers] == sorted(float(a) for a in answers)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_steps_noise_and_rate_are_monotone(relation: str) -> None:
    base = bracket(Gaussian(1.0).poisson(0.01) * 500, 1e-6, relation)
    for more in (
        Gaussian(1.0).poisson(0.01) * 510,
        Gaussian(0.99).poisson(0.01) * 500,
        Gaussian(1.0).poisson(0.0101) * 500,
    ):
        assert bracket(more, 1e-6, relation)[0] > base[1]


def test_replace_one_lies_between_one_and_two_removals() -> None:
    mechanism = Gaussian(1.0).poisson(0.01) * 500
    one = bracket(mechanism, 1e-6)
    both = bracket(mechanism, 1e-6, "replace_one")
    assert one[1] < both[0]
    group = Pld()(mechanism).delta(both[0] / 2)
    assert (1 + math.exp(both[0] / 2)) * group.upper >= 1e-6


def test_many_unlike_multipliers_against_the_same_in_few() -> None:
    sigmas = np.repeat(np.linspace(0.8, 1.4, 20), 40)
    few = Compose.of(*((Gaussian(float(s)).poisson(0.01), 1) for s in sigmas))
    spread = sigmas * (1 + 1e-9 * np.arange(len(sigmas)))
    many = Compose.of(*((Gaussian(float(s)).poisson(0.01), 1) for s in spread))
    low, high = bracket(few, 1e-6)
    low_many, high_many = bracket(many, 1e-6)
    assert low * (1 - 1e-5) <= low_many <= high_many <= high * (1 + 1e-9)
    assert high_many - low_many <= 1e-6 * high_many


def test_shuffled_batches_pay_for_every_pass() -> None:
    for steps, passes in [(10, 1), (11, 2), (25, 3)]:
        shuffled = Shuffled(Gaussian(2.0), 100, 10) * steps
        assert bracket(shuffled, 1e-5)[1] == pytest.approx(bracket(Gaussian(2.0) * passes, 1e-5)[1], rel=1e-9)


def test_a_pass_without_its_incomplete_last_batch_ends_earlier() -> None:
    """3 of 10 records: a loader that drops the last batch has begun a fourth pass after 10 steps."""
    dropped = Shuffled(Gaussian(2.0), 10, 3)
    kept = Shuffled(Gaussian(2.0), 10, 3, drop_last=False)
    for steps, short, long in [(3, 1, 1), (4, 2, 1), (9, 3, 3), (10, 4, 3), (13, 5, 4)]:
        assert dropped.accounted(steps) == (Gaussian(2.0), short)
        assert kept.accounted(steps) == (Gaussian(2.0), long)
        for each in (dropped, kept):
            assert from_spec(each.spec() | {"steps": steps}) == (each, steps)


def test_every_series_of_shuffled_batches_is_rounded_up_to_passes() -> None:
    series = [Shuffled(Gaussian(20.0), 100, 10, number) for number in range(2000)]
    many = Compose.of(*((step, 11) for step in series), (series[0], 9))
    assert many.accountable() == Gaussian(20.0) * 4000
    assert bracket(many, 1e-5) == bracket(Gaussian(20.0) * 4000, 1e-5)


def test_fixed_size_batches_only_under_replacement() -> None:
    step = FixedSize(Gaussian(1.0), 1000, 10)
    with pytest.raises(Refused, match="replace_one"):
        Pld()(step * 10)
    at, fraction = 0.05, 0.01
    inner = math.log1p(math.expm1(at) / fraction)
    answer = Pld()(step, relation="replace_one").delta(at)
    assert answer.upper == pytest.approx(fraction * gaussian_delta(inner, 2.0), rel=1e-7)


def test_answers_at_the_ends() -> None:
    tradeoff = Pld()(Gaussian(1.0).poisson(0.01) * 100)
    assert tradeoff.epsilon(1.0).upper == 0.0
    assert tradeoff.epsilon(0.0).lower == math.inf
    assert Pld()(Laplace(2.0) * 3).epsilon(0.0).upper == pytest.approx(1.5, rel=1e-6)
    assert Pld()(Gaussian(0.0, unsafe_no_noise=True).poisson(0.1) * 3).epsilon(1e-5).lower == math.inf
    assert tradeoff.beta(0.05).lower <= tradeoff.beta(0.05).upper
    assert tradeoff.advantage().lower <= tradeoff.advantage().upper


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.floats(-6, 0), st.floats(-0.7, 3), st.floats(0, 9), st.floats(-30, -0.01))
def test_sound_over_the_whole_range(rate: float, sigma: float, steps: float, delta: float) -> None:
    """lower <= upper, and upper is an epsilon that meets delta: its own delta cannot lie above."""
    mechanism = Gaussian(10**sigma).poisson(10**rate) * round(10**steps)
    tradeoff = Pld()(mechanism)
    answer = tradeoff.epsilon(10**delta)
    assert 0.0 <= answer.lower <= answer.upper
    if 0 < answer.upper < math.inf:
        assert tradeoff.delta(float(answer.upper)).lower <= 10**delta * (1 + 1e-6)


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("sigma", "rate", "steps"), [(1.0, 0.01, 1000), (0.6, 0.004, 2000), (2.0, 0.2, 50), (0.8, 1e-3, 5000)]
)
def test_below_the_upper_bounds_of_another_library(sigma: float, rate: float, steps: int) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    other = dp_accounting.pld.PLDAccountant()
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    other.compose(dp_accounting.SelfComposedDpEvent(event, steps))
    for delta in (1e-4, 1e-6):
        assert bracket(Gaussian(sigma).poisson(rate) * steps, delta)[0] <= other.get_epsilon(delta) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    [(1.888e-6, 0.8866, 53, 1.29e-14), (1.371e-4, 1.239, 38, 1.34e-28), (4.902e-4, 4.583, 10, 1.25e-24)],
)
def test_slowly_falling_tails_stay_narrow(rate: float, sigma: float, steps: int, delta: float) -> None:
    """Few participations decide here, and no tilt makes epsilon typical."""
    low, high = bracket(Gaussian(sigma).poisson(rate) * steps, delta)
    assert 0 < high - low <= 1e-6 * high


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.floats(-4, 0), st.floats(-0.4, 0.8), st.floats(0.5, 3.5), st.floats(-20, -1), st.booleans())
def test_three_engines_agree(rate: float, sigma: float, steps: float, delta: float, remove: bool) -> None:
    """Saddle line, lattice and truncated lattice bound the same delta, by separate arithmetic."""
    parts = [(SampledGaussianPair(10**sigma, 10**rate, remove), round(10**steps))]
    direction, general = Dispatch(parts), Convolution(parts, largest=1 << 14)
    epsilon = direction.epsilon(10**delta)[1]
    if not 1e-4 < epsilon < 1e6:
        return
    bounds = [direction.delta(epsilon), general.bracket(general.saddle_for_epsilon(epsilon)).bounds(epsilon)]
    truncated = Truncation(parts, 2e-7).near_epsilon(epsilon)
    bounds += [truncated.bounds(epsilon)] if truncated else []
    assert max(low for low, _ in bounds) <= min(high for _, high in bounds) * (1 + 1e-8)


def test_disagreeing_engines_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SaddleLine, "bounds", lambda self, epsilon: (1e-3, 1.1e-3))
    curves_of.cache_clear()
    with pytest.raises(Refused, match="disagree"):
        Pld()(Gaussian(1.0).poisson(0.01) * 1000).epsilon(1e-6)


def test_every_rounding_is_ordered_and_keeps_mass() -> None:
    """K of the rounded losses brackets K of the pair at every tilt, and the up rounding keeps both masses."""
    pair = SampledGaussianPair(0.6, 0.02, True)
    log_mass, loss = on_line(pair, np.arange(-14.0, 30.0, 0.01), 0.01)
    for pitch in (0.05, 0.01, 0.001):
        up = round_up(pair, -0.0203, pitch, int(25 / pitch))
        down = round_down(pair, -0.0203, pitch, int(25 / pitch), 3.0)
        assert up.masses.sum() + up.infinity_mass == pytest.approx(1.0, abs=1e-12)
        assert up.masses @ np.exp(-up.losses) == pytest.approx(1.0, abs=1e-10)
        for theta in (0.5, 1.0, 3.0, 6.0):
            exact = float(np.exp(log_mass + theta * loss).sum())
            assert down.masses @ np.exp(theta * down.losses) <= exact * (1 + 1e-10)
            assert up.masses @ np.exp(theta * up.losses) >= exact * (1 - 1e-10)


class _Broken:
    """An engine whose arithmetic overflowed."""

    theta, epsilon = 1.0, 1.0

    def __init__(self, low: float, high: float):
        self._answer = (low, high)

    def bounds(self, epsilon: float) -> tuple[float, float]:
        return self._answer


@pytest.mark.parametrize("answer", [(math.nan, math.nan), (0.1, math.nan), (0.2, 0.1), (-0.1, 0.5)])
def test_an_engine_that_leaves_the_doubles_bounds_nothing(answer: tuple[float, float]) -> None:
    assert valid_bounds(_Broken(*answer), 1.0) == (0.0, 1.0)


def test_a_tail_that_once_overflowed() -> None:
    answer = Pld()(Gaussian(0.2101720683572847).poisson(0.00023852668545443914) * 230).epsilon(4.321797628685781e-18)
    assert 0.0 <= answer.lower <= answer.upper < math.inf
