"""Random allocation: both bounds against quadrature, simulation, published values and Poisson samples."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from tacit.accounting import accountant
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Gaussian, Laplace, RandomAllocation, from_spec
from tacit.mechanisms.allocation import AllocationEpoch
from tacit.mechanisms.pairs.allocation import AllocationPair
from tacit.mechanisms.pairs.convex_order import LowerLaw, UpperLaw, quadrature_error, sum_of_ratios
from tacit.relation import Relation
from tacit.tradeoff.gaussian import gaussian_delta

# sigma, steps of an epoch, epochs, intervals of epsilon at delta 1e-5 with and without the record first, as computed
# independently by the prototype of correlated-noise.md 3.4.
PUBLISHED = [
    (1.0, 2, 1, (3.697262, 3.697569), (3.079655, 3.079930)),
    (1.0, 10, 1, (2.188712, 2.189097), (1.364804, 1.365047)),
    (1.0, 100, 1, (0.620917, 0.620987), (0.421934, 0.422002)),
    (0.8, 100, 1, (1.373832, 1.374095), (0.591567, 0.591683)),
    (0.6, 100, 10, (6.830385, 6.831354), (3.962902, 3.963747)),
    (0.8, 100, 10, (2.907358, 2.907919), (2.255700, 2.256137)),
    (1.0, 100, 10, (1.701317, 1.701849), (1.547568, 1.548055)),
    (2.0, 100, 10, (0.602819, 0.603661), (0.599176, 0.600022)),
]
LARGE = [
    (1.0, 1000, 1, (0.138836, 0.138876), (0.126282, 0.126321)),
    (0.8, 1000, 1, (0.283563, 0.283631), (0.184871, 0.184989)),
    (0.5, 1000, 1, (3.134118, 3.134225), (0.497446, 0.497619)),
    (1.0, 10000, 1, (0.037237, 0.037268), (0.036364, 0.036394)),
    (2.0, 10000, 1, (0.013455, 0.013463), (0.013436, 0.013444)),
    (0.4, 100000, 1, (1.862710, 1.862802), (0.135165, 0.135879)),
    (0.5, 1000, 10, (5.059885, 5.060465), (2.096886, 2.097675)),
    (1.0, 1000, 100, (1.623873, 1.624952), (1.607661, 1.608744)),
]


def bracket(noise_multiplier, steps, epochs=1, delta=1e-5):
    answer = accountant("pld")(Gaussian(noise_multiplier).allocated(steps) * (steps * epochs)).epsilon(delta)
    return answer.lower, answer.upper


def deltas(noise_multiplier, steps, epsilon, remove):
    """Both bounds on delta of one epoch, straight from the two laws."""
    bounds = []
    for upper in (False, True):
        pair = AllocationPair(noise_multiplier, steps, remove, upper)
        _, p, q = pair.table
        bounds.append(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) + pair.infinity_mass)
    return bounds


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "remove", "add"),
    [*PUBLISHED, *(pytest.param(*row, marks=pytest.mark.slow) for row in LARGE)],
)
def test_brackets_overlap_published_ones_and_are_narrow(sigma, steps, epochs, remove, add):
    low, high = bracket(sigma, steps, epochs)
    assert low <= max(remove[1], add[1])
    assert high >= max(remove[0], add[0])
    assert high - low <= 1e-3 * high


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("remove", [True, False])
def test_two_steps_agree_with_quadrature(epsilon, remove):
    """R = (W_1 + W_2) / 2: given W_1, the divergence is that of one lognormal, in closed form (Black & Scholes)."""

    def call(strike):
        if strike <= 0:
            return 1 - strike
        z = -math.log(strike) - 0.5
        return norm.cdf(z + 1) - strike * norm.cdf(z)

    def put(strike):
        return call(strike) - 1 + strike

    def given_first(z):
        ratio = math.exp(z - 0.5)
        if remove:
            return norm.pdf(z) * call(2 * math.exp(epsilon) - ratio) / 2
        left = 2 * math.exp(-epsilon) - ratio
        return norm.pdf(z) * math.exp(epsilon) / 2 * put(left) if left > 0 else 0.0

    kink = math.log(2 * math.exp(epsilon if remove else -epsilon)) + 0.5
    exact = sum(quad(given_first, *ends, epsabs=1e-14, limit=200)[0] for ends in ((-12, kink), (kink, 14)))
    low, high = deltas(1.0, 2, epsilon, remove)
    assert low <= exact <= high
    assert high - low <= 1e-2 * high


@pytest.mark.parametrize(("sigma", "steps", "epsilon"), [(1.0, 100, 0.3), (0.5, 100, 1.0), (0.8, 200, 0.1)])
def test_simulated_epochs_lie_within_four_standard_errors(sigma, steps, epsilon):
    """False alarm 6e-5 for each of six comparisons."""
    draw = np.random.default_rng(7)
    ratio = np.concatenate(
        [np.exp(draw.standard_normal((20_000, steps)) / sigma - 0.5 / sigma**2).mean(axis=1) for _ in range(5)]
    )
    for remove, sample in (
        (True, np.maximum(ratio - math.exp(epsilon), 0)),
        (False, np.maximum(1 - math.exp(epsilon) * ratio, 0)),
    ):
        low, high = deltas(sigma, steps, epsilon, remove)
        error = 4 * sample.std() / math.sqrt(len(sample))
        assert low - error <= sample.mean() <= high + error


def test_simulated_runs_of_ten_epochs_lie_within_four_standard_errors():
    """False alarm 6e-5."""
    sigma, steps, epochs, epsilon = 0.8, 20, 10, 3.0
    draw = np.random.default_rng(11)
    noise = draw.standard_normal((40_000, epochs, steps))
    # Under P the record's step has mean 1; by symmetry it is the first.
    noise[:, :, 0] += 1 / sigma
    loss = np.log(np.exp(noise / sigma - 0.5 / sigma**2).mean(axis=2)).sum(axis=1)
    sample = np.maximum(-np.expm1(epsilon - loss), 0)
    answer = accountant("pld")(Gaussian(sigma).allocated(steps) * (steps * epochs)).delta(epsilon)
    assert sample.mean() - 4 * sample.std() / 200 <= answer.upper
    # Removing a record costs more than adding one here, so that the lower bound is that of the simulated direction.
    assert answer.lower <= sample.mean() + 4 * sample.std() / 200


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    sigma=st.floats(0.3, 20.0),
    steps=st.integers(2, 60),
    epsilon=st.floats(0.0, 4.0),
    remove=st.booleans(),
)
def test_bounds_are_ordered_below_one_release_and_above_the_sampled_mean(sigma, steps, epsilon, remove):
    low, high = deltas(sigma, steps, epsilon, remove)
    assert low <= high
    assert low <= gaussian_delta(epsilon, 1 / sigma) * (1 + 1e-9)
    # A coarsening: who sees only the mean of an epoch's releases sees one Gaussian release of 1 / sqrt(T) its size.
    mean = gaussian_delta(epsilon, 1 / (sigma * math.sqrt(steps)))
    assert high >= mean * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(sigma=st.floats(0.06, 50.0), steps=st.integers(1, 40))
def test_laws_keep_their_mass_and_mean_to_their_stated_error(sigma, steps):
    upper, lower = (sum_of_ratios(sigma, steps, upper=upper) for upper in (True, False))
    assert isinstance(upper, UpperLaw)
    assert isinstance(lower, LowerLaw)
    assert upper.mass.sum() + upper.zero == pytest.approx(1, abs=upper.error)
    assert float(upper.mass @ np.exp(upper.log_points)) + upper.lost == pytest.approx(steps, rel=upper.error)
    assert lower.mass.sum() == pytest.approx(1, abs=lower.error)
    assert lower.mean.sum() == pytest.approx(steps, rel=lower.error)


def test_the_error_of_quadrature_is_below_one_rounding_unit_on_every_grid():
    for sigma in (0.06, 0.1, 0.5, 1.0, 10.0, 1e3):
        assert quadrature_error(10 + 1 / sigma, 0.08 * sigma / 2 if sigma < 1 else 0.02) < 2**-50


def test_more_noise_and_longer_epochs_cost_less():
    rows = [bracket(sigma, 50)[1] for sigma in (0.5, 1.0)]
    assert rows == sorted(rows, reverse=True)
    rows = [bracket(1.0, steps)[1] for steps in (1, 2, 10, 40)]
    assert rows == sorted(rows, reverse=True)


@pytest.mark.parametrize(("sigma", "steps", "epochs"), [(1.0, 10, 1), (0.8, 100, 10)])
def test_an_epoch_costs_less_than_one_of_poisson_samples(sigma, steps, epochs):
    sampled = accountant("pld")(Gaussian(sigma).poisson(1 / steps) * (steps * epochs)).epsilon(1e-5)
    assert bracket(sigma, steps, epochs)[1] < sampled.lower


def test_one_step_is_the_gaussian_mechanism():
    low, high = bracket(1.0, 1)
    exact = accountant("pld")(Gaussian(1.0)).epsilon(1e-5)
    assert low == pytest.approx(exact, rel=1e-8)
    assert high == pytest.approx(exact, rel=1e-8)


def test_begun_epochs_count_whole_and_every_series_by_itself():
    step = Gaussian(1.0).allocated(10)
    assert step.accounted(11)[1] == 2
    two = accountant("pld")(step * 4 + RandomAllocation(Gaussian(1.0), 10, series=1) * 4).epsilon(1e-5)
    assert two == pytest.approx(accountant("pld")(step * 20).epsilon(1e-5), rel=1e-9)


def test_it_composes_with_other_mechanisms_and_survives_the_spec():
    mechanism = Gaussian(1.0).allocated(10) * 20
    answer = accountant("pld")(mechanism + Laplace(5.0)).epsilon(1e-5)
    assert accountant("pld")(mechanism).epsilon(1e-5).upper < answer.lower <= answer.upper
    step, times = from_spec(Gaussian(1.0).allocated(10).spec() | {"steps": 20})
    assert (step, times) == (Gaussian(1.0).allocated(10), 20)


def test_replace_one_is_refused_by_pld_alone():
    step = Gaussian(1.0).allocated(10) * 10
    with pytest.raises(Refused, match="State add_remove or zero_out"):
        accountant("pld")(step, relation=Relation.REPLACE_ONE)
    assert accountant("rdp")(step, relation=Relation.REPLACE_ONE).epsilon(1e-5) > 0


def test_only_gaussian_steps_with_an_exact_range_are_taken():
    with pytest.raises(InvalidInput, match="must be applied to a Gaussian"):
        RandomAllocation(Laplace(1.0), 10)
    with pytest.raises(Refused, match=r"from noise_multiplier 0\.06 up"):
        AllocationEpoch(Gaussian(0.01), 10).dominating_pairs(Relation.ADD_REMOVE)
    with pytest.raises(InvalidInput, match="steps_per_epoch"):
        from_spec({"type": "gaussian", "noise_multiplier": 1.0, "sampling": "random_allocation"})


def test_the_type_two_error_of_many_epochs_is_enclosed_from_the_pair_below():
    """Its lower curve is one composition; as a worst member of a family each epsilon of the search cost a lattice."""
    curve = accountant("pld")(RandomAllocation(Gaussian(1.0), 100) * 1000)
    beta = curve.beta(0.05)
    assert 0 < beta.upper - beta.lower <= 1e-4
    mu = curve.mu()
    assert 0 < mu.upper - mu.lower <= 1e-3 * mu.upper
