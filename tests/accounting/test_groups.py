"""Groups of records in steps of DP-SGD: the mixture over how many of a group are sampled, against other ways to it."""

import itertools

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import binom, norm

from tacit.accounting import Ledger, account, accountant
from tacit.mechanisms import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FixedSize,
    Gaussian,
    KaryRandomizedResponse,
    Laplace,
    Parallel,
    PermuteAndFlip,
    RandomizedResponse,
    Shuffled,
)
from tacit.mechanisms.pairs.gaussian import normal_cells
from tacit.mechanisms.pairs.groups import LARGEST_GROUP, GaussianMixturePair
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.tradeoff.curve import GroupCurve

PLD = accountant("pld")
RUN = Ledger.of(Gaussian(1.0).poisson(0.01) * 1000)


@pytest.mark.slow_cases("4-8.9")
@pytest.mark.parametrize(("size", "known"), [(2, 3.98), (4, 8.90)])
def test_groups_of_a_run_cost_what_the_table_of_budgets_says(size, known):
    answer = PLD.grouped(RUN, size).epsilon(1e-5)
    assert float(answer) == pytest.approx(known, abs=0.01)
    assert float(answer) - answer.lower < 1e-4 * float(answer)
    assert float(answer) < float(PLD(RUN).group(size).epsilon(1e-5))


@pytest.mark.slow
def test_groups_agree_with_dp_accounting():
    size, rate, sigma, steps = 3, 0.05, 1.4, 10
    answer = PLD.grouped(Ledger.of(Gaussian(sigma).poisson(rate) * steps), size).epsilon(1e-6)
    weights = binom.pmf(np.arange(size + 1), size, rate)
    for pessimistic in (True, False):
        theirs = privacy_loss_distribution.from_mixture_gaussian_mechanism(
            sigma,
            list(range(size + 1)),
            list(weights),
            pessimistic_estimate=pessimistic,
            value_discretization_interval=1e-3,
        ).self_compose(steps)
        epsilon = theirs.get_epsilon_for_delta(1e-6)
        assert epsilon >= answer.lower if pessimistic else epsilon <= float(answer)
        assert epsilon == pytest.approx(float(answer), rel=2e-2)


@given(some.floats(0.3, 5.0), some.floats(1e-3, 0.9), some.integers(2, 8), some.floats(0.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_one_step_has_the_divergence_of_its_densities(sigma, rate, size, epsilon):
    x = np.linspace(-12 * sigma, size + 12 * sigma, 100_001)
    base = norm.pdf(x, 0, sigma)
    weights = binom.pmf(np.arange(size + 1), size, rate)
    mixed = sum(weight * norm.pdf(x, i, sigma) for i, weight in enumerate(weights))
    for remove, p, q in ((True, mixed, base), (False, base, mixed)):
        above = GaussianMixturePair.of_group(sigma, rate, size, remove=remove).bin_masses(np.array([epsilon]))
        found = float(above[0][1] - np.exp(epsilon) * above[1][1])
        assert found == pytest.approx(np.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0.0), x), abs=2e-7)


@given(some.floats(0.05, 20.0), some.floats(1e-6, 0.99), some.sampled_from([2, 3, 17, 256]), some.booleans())
@settings(max_examples=60, deadline=None)
def test_masses_lie_at_the_losses_asked_for(sigma, rate, size, remove):
    """The ratio of the masses of a narrow bin is between its edges, and all of them add up to one."""
    pair = GaussianMixturePair.of_group(sigma, rate, size, remove=remove)
    sign, least = (1, size * np.log1p(-rate)) if remove else (-1, size * np.log1p(-rate))
    edges = np.sort(sign * (least + np.geomspace(1e-6, 60, 400)))
    p, q = pair.bin_masses(edges)
    assert p.sum() == pytest.approx(1) == pytest.approx(q.sum())
    p, q = p[1:-1], q[1:-1]
    seen = (p > 1e-200) & (q > 1e-200) & (np.diff(edges) > 1e-4)
    ratio = np.log(p[seen]) - np.log(q[seen])
    room = 1e-9 + pair.edge_error(float(np.abs(edges).max())) + 1e-12 * np.abs(np.log(np.minimum(p[seen], q[seen])))
    assert np.all(ratio >= edges[:-1][seen] - room)
    assert np.all(ratio <= edges[1:][seen] + room)


def test_vectors_of_any_directions_leak_less():
    """Three contributions of norm at most 1 that are not parallel, one step, by drawing: 99.9 % per epsilon."""
    sigma, rate, draws = 0.8, 0.4, 200_000
    stream = SeededStream(5)
    vectors = np.array([[1.0, 0.0], [0.6, 0.8], [-0.5, 0.5]])
    subsets = np.array([[(s >> i) & 1 for i in range(3)] for s in range(8)], dtype=float)
    log_w = subsets.sum(1) * np.log(rate) + (3 - subsets.sum(1)) * np.log1p(-rate)
    means = subsets @ vectors
    which = np.searchsorted(np.cumsum(np.exp(log_w)), stream.uniform(draws))
    x = means[np.minimum(which, 7)] + sigma * norm.ppf(stream.uniform((draws, 2)))
    squares = ((x[:, None, :] - means) ** 2).sum(-1)
    loss = np.logaddexp.reduce(log_w - squares / (2 * sigma**2), axis=1) + (x**2).sum(1) / (2 * sigma**2)
    bound = PLD.grouped(Ledger.of(Gaussian(sigma).poisson(rate) * 1), 3)
    for epsilon in (0.2, 0.5, 1.0, 2.0):
        gained = np.maximum(1 - np.exp(epsilon - loss), 0.0)
        assert gained.mean() - 3.1 * gained.std() / draws**0.5 <= float(bound.delta(epsilon))


def test_plain_gaussian_steps_are_exact_under_every_relation():
    for relation, mu in (("add_remove", 0.5 * 3), ("replace_one", 1.0 * 3), ("zero_out", 0.5 * 3)):
        found = PLD.grouped(Ledger.of(Gaussian(2.0) * 1, relation=relation), 3)
        assert float(found.mu()) == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize(
    "ledger",
    [
        Ledger.of(Gaussian(1.0).poisson(0.01) * 10, relation="replace_one"),
        Ledger.of(Parallel.of(Gaussian(1.0), Gaussian(2.0)) * 1),
    ],
    ids=["replace-one", "branches"],
)
def test_other_steps_keep_the_bound_from_single_records(ledger):
    assert isinstance(PLD.grouped(ledger, 2).curve, GroupCurve)


def test_groups_in_shuffled_passes_are_those_of_their_gaussian_runs():
    ledger = Ledger.of(Shuffled(Gaussian(2.0), 100, 10) * 20)
    assert float(PLD.grouped(ledger, 2).mu()) == pytest.approx(2 * 2**0.5 / 2.0)


def test_one_record_is_no_group_and_a_large_group_is_bounded_still():
    assert float(PLD.grouped(RUN, 1).epsilon(1e-5)) == float(PLD(RUN).epsilon(1e-5))
    assert not isinstance(PLD.grouped(RUN, LARGEST_GROUP).curve, GroupCurve)
    assert isinstance(PLD.grouped(RUN, LARGEST_GROUP + 1).curve, GroupCurve)


def test_the_exact_bound_is_what_the_command_line_and_account_give():
    small = Ledger.of(Gaussian(2.0).poisson(0.1) * 3)
    (result,) = account(small, delta=1e-5, accountants=["pld"], group=2).results
    exact = PLD.grouped(small, 2).epsilon(1e-5)
    assert (result.epsilon, result.epsilon_lower) == (float(exact), exact.lower)


@pytest.mark.parametrize("size", [2, 8])
def test_line_5_a_laplace_count_beside_a_run_keeps_the_exact_bound_of_groups(size):
    """Issue 35, line 5; the truth by averaging the delta of the run over the loss of the count."""
    steps = Gaussian(2.0).poisson(0.05) * 10
    run = PLD.grouped(Ledger.of(steps), size)
    answer = PLD.grouped(Ledger.of(steps + Laplace(50.0)), size).epsilon(1e-5)
    assert answer.upper - answer.lower < 2e-6 * answer.upper
    reach, epsilon = size / 50.0, (answer.lower + answer.upper) / 2
    inner, weight = np.polynomial.legendre.leggauss(4)
    total = [0.5 * float(run.delta(epsilon - reach)), 0.5 * np.exp(-reach) * float(run.delta(epsilon + reach))]
    for x, w in zip(reach * inner, reach * weight, strict=True):
        total.append(w * np.exp((x - reach) / 2) / 4 * float(run.delta(epsilon - x)))
    assert sum(total) == pytest.approx(1e-5, rel=1e-4)


def test_a_step_without_pairs_of_groups_leaves_the_floor_of_the_others():
    ledger = Ledger.of(Gaussian(1.0) * 3 + Exponential(0.1).poisson(0.5))
    found, alone = PLD.grouped(ledger, 3).epsilon(1e-5), PLD.grouped(Ledger.of(Gaussian(1.0) * 3), 3).epsilon(1e-5)
    assert alone.lower <= found.lower <= found.upper
    assert isinstance(PLD.grouped(ledger, 3).curve, GroupCurve)
    assert isinstance(
        PLD.grouped(Ledger.of(FixedSize(Gaussian(1.0), 100, 10) * 3, relation="replace_one"), 2).curve, GroupCurve
    )


def _noise(mechanism, x, centre):
    """Density or probability of the noise around a centre, written anew."""
    if isinstance(mechanism, Laplace):
        return np.exp(-np.abs(x - centre) / mechanism.scale) / (2 * mechanism.scale)
    weight = (
        (lambda y: np.exp(-(y**2) / (2 * mechanism.scale**2)))
        if isinstance(mechanism, DiscreteGaussian)
        else (lambda y: np.exp(-mechanism.parameter * np.abs(y)))
    )
    return weight(x - centre) / weight(np.arange(-400.0, 401.0)).sum()


@pytest.mark.parametrize("mechanism", [Laplace(1.5), DiscreteGaussian(2.0), DiscreteLaplace(0.6)], ids=str)
@pytest.mark.parametrize("relation", list(Relation), ids=str)
@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_groups_in_a_sample_leak_most_with_equal_contributions(mechanism, relation, rate):
    """Every choice of contributions of three records from -1, 0, 1, by sums over all subsets."""
    if isinstance(mechanism, Laplace) and relation is Relation.REPLACE_ONE and rate < 1:
        pytest.skip("no pair: the curve of single records answers")
    pairs, times = (mechanism.poisson(rate)).group_pairs(3, relation)
    assert times == 1
    x, step = (np.arange(-400.0, 401.0), 1.0)
    if isinstance(mechanism, Laplace):
        x, step = np.arange(-40.0, 40.0, 1 / 256) + 1 / 512, 1 / 256
    subsets = list(itertools.product((0, 1), repeat=3))

    def law(values):
        shares = [rate ** sum(s) * (1 - rate) ** (3 - sum(s)) for s in subsets]
        laws = [_noise(mechanism, x, float(np.dot(s, values))) for s in subsets]
        return step * sum(share * each for share, each in zip(shares, laws, strict=True))

    epsilons = np.array([0.05, 0.3, 0.9, 1.7])
    known = []
    for pair in pairs:
        p, q = (np.cumsum(mass[::-1])[::-1][1:] for mass in pair.bin_masses(epsilons))
        known.append(p - np.exp(epsilons) * q)
    worst = np.zeros((2, len(epsilons)))
    replaced = relation is Relation.REPLACE_ONE
    for one in itertools.combinations_with_replacement((-1, 0, 1), 3):
        for other in itertools.product((-1, 0, 1), repeat=3) if replaced else [(0, 0, 0)]:
            p, q = law(one), law(other)
            for k, (a, b) in enumerate(((p, q), (q, p))):
                worst[k] = np.maximum(worst[k], [np.maximum(a - np.exp(e) * b, 0.0).sum() for e in epsilons])
    for k in range(2):
        assert worst[k] == pytest.approx(known[k % len(known)], abs=2e-5 if isinstance(mechanism, Laplace) else 1e-12)


def test_groups_of_answers_are_products_of_the_single_ones():
    for mechanism, relation in ((RandomizedResponse(0.7), "add_remove"), (KaryRandomizedResponse(0.4, 3), "zero_out")):
        pair = mechanism.dominating_pairs(Relation(relation))[0]
        loss = [sum(each) for each in itertools.product(pair.losses, repeat=4)]
        p = [np.prod(each) for each in itertools.product(pair.p, repeat=4)]
        found = PLD.grouped(Ledger.of(mechanism * 2, relation=relation), 2)
        for epsilon in (0.1, 0.8):
            known = sum(m * max(1 - np.exp(epsilon - x), 0.0) for x, m in zip(loss, p, strict=True))
            assert float(found.delta(epsilon)) >= known * (1 - 1e-9)
            if isinstance(mechanism, RandomizedResponse):
                assert found.delta(epsilon).lower <= known <= float(found.delta(epsilon)) * (1 + 1e-9)


@given(some.integers(0, 10**6), some.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_choices_of_groups_leak_no_more_than_the_pair(seed, size):
    """Five outcomes whose scores each of the records moves by one at most."""
    scores = 6 * SeededStream(seed).uniform(5)
    moved = scores + size * (2 * SeededStream(seed + 1).uniform(5) - 1)
    epsilon = 0.8
    laws = [np.exp(epsilon * s / 2) / np.exp(epsilon * s / 2).sum() for s in (scores, moved)]
    bound = PLD.grouped(Ledger.of(Exponential(epsilon)), size)
    for e in (0.0, 0.5, 1.5):
        assert np.maximum(laws[0] - np.exp(e) * laws[1], 0.0).sum() <= float(bound.delta(e))


def test_pure_guarantees_of_groups_grow_with_their_size():
    for mechanism in (
        Laplace(2.0),
        Exponential(0.5),
        PermuteAndFlip(0.5),
        RandomizedResponse(0.5),
        Approximate(0.5, 0.0),
    ):
        answer = PLD.grouped(Ledger.of(mechanism * 2), 3).epsilon(0.0)
        assert float(answer) == pytest.approx(3.0, rel=1e-6), str(mechanism)
        assert answer.lower == pytest.approx(3.0, rel=1e-6) or isinstance(mechanism, Exponential | PermuteAndFlip)


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("sigma", "rate", "size"), [(0.7, 0.001, 64), (4.0, 0.01, 64), (1.0, 0.3, 5)])
def test_masses_of_a_mixture_are_those_of_the_sum_over_all_components(sigma, rate, size, remove):
    """Components of next to no density are left out: no mass may tell, next to the largest loss and far below it."""
    pair = GaussianMixturePair.of_group(sigma, rate, size, remove=remove)
    end = 400.0 if remove else -size * np.log1p(-rate) * (1 - 1e-9)
    edges = np.linspace(-end if remove else -400.0, end, 5000)
    p, q = pair.bin_masses(edges)
    z = pair._places(edges if remove else -edges[::-1]) * sigma
    binomial = np.exp(pair.log_weights)
    mixed = sum(weight * normal_cells(z - i / sigma) for i, weight in enumerate(binomial))
    np.testing.assert_allclose(p if remove else q[::-1], mixed, rtol=1e-12, atol=1e-300)
    inside = np.isfinite(z)
    terms = pair._logs[:, None] + np.multiply.outer(pair.shifts, z[inside] / sigma)
    loss = (edges if remove else -edges[::-1])[inside]
    np.testing.assert_allclose(np.logaddexp.reduce(terms, axis=0), loss, rtol=1e-11, atol=1e-11)
