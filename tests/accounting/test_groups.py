"""Groups of records in steps of DP-SGD: the mixture over how many of a group are sampled, against other ways to it."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import binom, norm

from tacit.accounting import Ledger, account, accountant
from tacit.mechanisms import Gaussian, Laplace, Parallel, Shuffled
from tacit.mechanisms.pairs import LARGEST_GROUP, GaussianMixturePair
from tacit.noise import SeededStream
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
        Ledger.of(Gaussian(1.0).poisson(0.01) * 10 + Laplace(3.0)),
        Ledger.of(Parallel.of(Gaussian(1.0), Gaussian(2.0)) * 1),
    ],
    ids=["replace-one", "Laplace beside", "branches"],
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
