"""Balanced iteration sampling: both bounds against simulation, enumeration and adaptive gradients."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import BalancedIteration, Gaussian, Laplace, from_spec
from tacit.mechanisms.pairs.allocation import SubsetSumPair
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
    """The mixture of the proof, enumerated: 5 steps in random order, blocks of three and two, one step of each."""
    found = Counter(
        frozenset((order[first], order[3 + second]))
        for order in itertools.permutations(range(5))
        for first, second in itertools.product(range(3), range(2))
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
def test_the_lower_end_is_no_lower_than_the_sum_of_all_releases(relation):
    bounds = answer(2.0, 50, 5, relation).epsilon(1e-5)
    sums = accountant("pld")(Gaussian(2.0 * math.sqrt(50) / 5), relation=relation).epsilon(1e-5)
    if relation is Relation.REPLACE_ONE:
        assert bounds.lower == pytest.approx(float(sums), rel=1e-3)
    assert float(sums) * (1 - 1e-6) <= bounds.lower < float(bounds)


@pytest.mark.parametrize(
    ("sigma", "iterations", "participations", "share"),
    [
        (1.0, 100, 10, 0.95),
        (0.5, 100, 10, 0.85),
        (1.0, 100, 60, 0.9),
        (2.0, 100, 10, 0.98),
        (0.8, 1000, 10, 0.97),
        (0.8, 100, 5, 0.93),
    ],
)
def test_the_bracket_is_narrow(sigma, iterations, participations, share):
    bounds = answer(sigma, iterations, participations).epsilon(1e-5)
    assert share * bounds.upper <= bounds.lower <= bounds.upper


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("sigma", "iterations", "participations"), [(0.9, 3, 2), (0.7, 5, 2), (1.3, 6, 5)])
def test_the_pair_from_below_has_the_enumerated_laws_of_its_numbers(sigma, iterations, participations, remove):
    """Every subset and every sum of a coarse number, of which the table may keep less of P and more of Q alone."""
    pair = CoarsePair(sigma, iterations, participations, remove)
    cells = pair._edges()
    laws = [np.diff(ndtr(np.concatenate([[-np.inf], cells, [np.inf]]) / sigma - shift / sigma)) for shift in (0, 1)]
    places = list(itertools.product(range(len(cells) + 1), repeat=iterations))
    sums = [sum(place) for place in places]
    subsets = list(itertools.combinations(range(iterations), participations))
    without = [math.prod(laws[0][number] for number in place) for place in places]
    with_record = [
        np.mean([math.prod(laws[step in subset][number] for step, number in enumerate(place)) for subset in subsets])
        for place in places
    ]
    p, q = (np.bincount(sums, law) for law in ((with_record, without) if remove else (without, with_record)))
    order = np.argsort(np.log(p / q), kind="stable")
    loss, found_p, found_q = pair.table
    assert loss == pytest.approx(np.log(p / q)[order], abs=1e-9)
    assert found_p == pytest.approx(p[order], rel=1e-9)
    assert found_q == pytest.approx(q[order], rel=1e-9)
    assert (found_p <= p[order] * (1 + 1e-14)).all()
    assert (found_q >= q[order] * (1 - 1e-14)).all()


class CoarsePair(SubsetSumPair):
    """With four numbers a step, so that all of them can be enumerated."""

    def _edges(self):
        return np.array([-0.5, 0.4, 1.7])


def test_the_upper_end_is_that_of_as_many_epochs_and_of_known_steps_under_replace_one():
    """53 steps in five blocks: three of 11 steps and two of 10."""
    step = Gaussian(1.0)
    epochs = accountant("pld")(step.allocated(11) * 33 + step.allocated(10) * 20).epsilon(1e-5)
    assert answer(1.0, 53, 5).epsilon(1e-5).upper == pytest.approx(epochs.upper, rel=1e-3)
    blocks = accountant("pld")(step.allocated(2) * 8 + step * 2).epsilon(1e-5)
    assert answer(1.0, 10, 6).epsilon(1e-5).upper == pytest.approx(blocks.upper, rel=1e-3)
    known = accountant("pld")(Gaussian(1.0) * 5, relation="replace_one").epsilon(1e-5)
    assert answer(1.0, 53, 5, "replace_one").epsilon(1e-5).upper == pytest.approx(float(known), rel=1e-3)
    # No less noise than the laws of random allocation can be computed for.
    small = accountant("pld")(Gaussian(0.05) * 2).epsilon(1e-5)
    assert answer(0.05, 53, 2).epsilon(1e-5).upper == pytest.approx(float(small), rel=1e-3)


def test_a_run_that_was_begun_counts_whole_and_two_are_two():
    step = BalancedIteration(Gaussian(1.0), 10, 3)
    assert step.accounted(1) == step.accounted(10)
    assert [part.steps for part, _ in step.accounted(11)[0].parts()] == [4, 3]
    assert [times for _, times in step.accounted(11)[0].parts()] == [1, 2]
    assert step.accounted(11)[1] == 2
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
