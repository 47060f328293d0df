"""Balanced iteration sampling: both bounds against simulation, enumeration and adaptive gradients."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import BalancedIteration, Gaussian, Laplace, from_spec
from tacit.relation import Relation

DRAWS = 200_000


def answer(sigma, iterations, participations, relation="add_remove"):
    mechanism = BalancedIteration(Gaussian(sigma), iterations, participations)
    return accountant("pld")(mechanism * iterations, relation=relation)


def mean_over_subsets(log_ratios, size):
    """e_size(W) / C(T, size) of the ratios W of shape (draws, T), by the recursion of elementary polynomials."""
    sums = [np.ones(len(log_ratios)), *(np.zeros(len(log_ratios)) for _ in range(size))]
    for column in np.exp(log_ratios).T:
        for degree in range(size, 0, -1):
            sums[degree] = sums[degree] + column * sums[degree - 1]
    return sums[size] / math.comb(log_ratios.shape[1], size)


def adaptive(noise):
    """Gradients that follow the release before them, of norm 1 or less."""
    before = np.hstack([np.ones((len(noise), 1)), noise[:, :-1]])
    return np.where(before > 0, 1.0, np.where(before > -0.5, -1.0, 0.4))


@pytest.mark.parametrize(
    ("sigma", "iterations", "participations"), [(1.0, 3, 2), (0.8, 6, 2), (1.5, 7, 3), (1.0, 9, 4)]
)
def test_simulated_deltas_lie_between_the_bounds(sigma, iterations, participations):
    rng = np.random.default_rng(iterations)
    noise = sigma * rng.standard_normal((DRAWS, iterations))
    curve = answer(sigma, iterations, participations)
    for name, gradient in (("constant", np.ones_like(noise)), ("adaptive", adaptive(noise))):
        ratio = mean_over_subsets((gradient * noise - gradient**2 / 2) / sigma**2, participations)
        for epsilon in (0.2, 0.7, 1.5):
            sides = [np.maximum(ratio - math.exp(epsilon), 0), np.maximum(1 - math.exp(epsilon) * ratio, 0)]
            found, error = max((side.mean(), side.std() / math.sqrt(DRAWS)) for side in sides)
            bounds = curve.delta(epsilon)
            assert found - 4 * error <= bounds.upper
            if name == "constant":
                assert bounds.lower <= found + 4 * error


@pytest.mark.parametrize(("sigma", "iterations", "participations"), [(2.0, 3, 2), (1.5, 6, 2)])
def test_replaced_records_lie_between_the_bounds(sigma, iterations, participations):
    """One record's gradient is 1, the other's -1, in the same secret steps."""
    noise = sigma * np.random.default_rng(1).standard_normal((DRAWS, iterations))
    with_one, with_other = (mean_over_subsets((sign * noise - 0.5) / sigma**2, participations) for sign in (1.0, -1.0))
    curve = answer(sigma, iterations, participations, "replace_one")
    for epsilon in (0.3, 1.0):
        side = np.maximum(with_one - math.exp(epsilon) * with_other, 0)
        bounds, error = curve.delta(epsilon), side.std() / math.sqrt(DRAWS)
        assert side.mean() - 4 * error <= bounds.upper
        assert bounds.lower <= side.mean() + 4 * error


def test_a_step_of_each_block_of_a_random_partition_is_a_uniform_subset():
    """The mixture of the proof, enumerated: 5 steps in random order, two blocks of two, one step of each."""
    found = Counter(
        frozenset((order[first], order[2 + second]))
        for order in itertools.permutations(range(5))
        for first, second in itertools.product(range(2), repeat=2)
    )
    assert len(found) == math.comb(5, 2)
    assert len(set(found.values())) == 1


def test_one_participation_is_an_epoch_and_all_are_plain_steps():
    epoch = accountant("pld")(Gaussian(1.0).allocated(20) * 20).epsilon(1e-5)
    one = answer(1.0, 20, 1).epsilon(1e-5)
    assert (one.lower, one.upper) == (epoch.lower, epoch.upper)
    plain = accountant("pld")(Gaussian(3.0) * 20).epsilon(1e-5)
    whole = answer(3.0, 20, 20).epsilon(1e-5)
    assert (whole.lower, whole.upper) == (plain.lower, plain.upper)


@pytest.mark.parametrize("relation", list(Relation))
def test_the_lower_end_is_the_sum_of_all_releases(relation):
    bounds = answer(2.0, 50, 5, relation).epsilon(1e-5)
    sums = accountant("pld")(Gaussian(2.0 * math.sqrt(50) / 5), relation=relation).epsilon(1e-5)
    assert bounds.lower == pytest.approx(float(sums), rel=1e-3)
    assert bounds.lower < float(bounds)


def test_the_upper_end_is_that_of_as_many_epochs_and_of_known_steps_under_replace_one():
    epochs = accountant("pld")(Gaussian(1.0).allocated(10) * 50).epsilon(1e-5)
    assert answer(1.0, 53, 5).epsilon(1e-5).upper == pytest.approx(epochs.upper, rel=1e-3)
    known = accountant("pld")(Gaussian(1.0) * 5, relation="replace_one").epsilon(1e-5)
    assert answer(1.0, 53, 5, "replace_one").epsilon(1e-5).upper == pytest.approx(float(known), rel=1e-3)
    # No less noise than the laws of random allocation can be computed for.
    small = accountant("pld")(Gaussian(0.05) * 2).epsilon(1e-5)
    assert answer(0.05, 53, 2).epsilon(1e-5).upper == pytest.approx(float(small), rel=1e-3)


def test_a_run_that_was_begun_counts_whole_and_two_are_two():
    step = BalancedIteration(Gaussian(1.0), 10, 3)
    assert step.accounted(1) == step.accounted(10)
    assert step.accounted(11)[1] == 6
    two = accountant("pld")(step * 2 + BalancedIteration(Gaussian(1.0), 10, 3, series=1) * 2).epsilon(1e-5)
    assert two.upper == pytest.approx(accountant("pld")(step * 20).epsilon(1e-5).upper, rel=1e-9)


def test_it_composes_with_others_and_survives_the_spec():
    step = BalancedIteration(Gaussian(1.0), 40, 4, series=2)
    alone = accountant("pld")(step * 40).epsilon(1e-5).interval
    both = accountant("pld")(step * 40 + Laplace(5.0)).epsilon(1e-5).interval
    assert all(one < two for one, two in zip(alone, both, strict=True))
    assert from_spec(step.spec() | {"steps": 40}) == (step, 40)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"participations": 11}, "participations must be at most iterations = 10"),
        ({"participations": 0}, "participations"),
        ({"iterations": 1.5}, "iterations"),
        ({"sample_rate": 0.1}, "sample_rate must be absent"),
        ({"epochs": 2}, "epochs must be absent"),
        ({"type": "laplace", "noise_multiplier": None, "scale": 1.0}, "must be applied to a Gaussian"),
        ({"sampling": "poisson"}, "must be absent for poisson"),
    ],
)
def test_specs_that_say_something_else_are_refused(changes, message):
    entry = {"type": "gaussian", "noise_multiplier": 1.0, "sampling": "balanced_iteration"}
    entry |= {"iterations": 10, "participations": 2, "steps": 10} | changes
    with pytest.raises(InvalidInput, match=message):
        from_spec({name: value for name, value in entry.items() if value is not None})
    with pytest.raises(InvalidInput, match="participations must be given"):
        from_spec({"type": "gaussian", "noise_multiplier": 1.0, "sampling": "balanced_iteration", "iterations": 3})
