"""Steps of bounded range picked adaptively: brackets against every way to pick that can be enumerated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from tacit.accounting.pld.accountant import Pld
from tacit.accounting.pld.envelopes import BLOCK, AdaptiveLowerBound, FixedMemberLowerBound, coarse_dispatch, in_blocks
from tacit.mechanisms import Compose, Exponential, Gaussian, RandomizedResponse
from tacit.mechanisms.pairs.adaptive import AdaptivePair, AttainedPair, JointPair, RevealedBlock, attained_lines
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.gaussian import SampledGaussianPair
from tacit.mechanisms.pairs.laplace import RangePair
from tacit.mechanisms.pairs.subsampled import RevealedPair, SampledPair
from tacit.relation import Relation

FAMILIES = [
    RangePair(0.3),
    RangePair(4.0),
    SampledPair(RangePair(1.0), 0.05, True),
    SampledPair(RangePair(1.0), 0.05, False),
    RevealedPair(RangePair(2.0), 0.1),
]


def _delta(pair: Pair, epsilon: float) -> float:
    nodes = pair.nodes(1.0, 0.0)
    assert nodes is not None
    return float(nodes.p @ np.maximum(-np.expm1(epsilon - nodes.loss), 0.0))


@given(
    family=st.sampled_from(FAMILIES),
    share=st.floats(-1, 1),
    count=st.integers(1, 9),
    knots=st.lists(st.floats(-5, 5), min_size=1, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_some_pair_of_a_covering_is_as_bad_as_any_member(family, share, count, knots):
    """For sums of hockey sticks, which are all convex questions there are."""
    member = sum(_delta(family.attained(share), knot) for knot in knots)
    covering = max(sum(_delta(pair, knot) for knot in knots) for pair in family.covering(count))
    assert covering >= member * (1 - 1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_step_is_the_envelope(family: Pair):
    one = AdaptivePair(family, 1)
    for share in (0.0, 0.2, 0.7):
        epsilon = share * family.largest
        p, q = family.bin_masses(np.array([epsilon]))
        exact = float(p[1] - np.exp(epsilon) * q[1])
        assert exact * (1 - 1e-9) <= _delta(one, epsilon) <= exact * 1.02


def _two_steps(family: Pair, epsilon: float, shares: np.ndarray) -> float:
    """The best first step of the listed members, and after each of its outcomes the best second one."""
    members = [family.attained(float(share)) for share in shares]
    best = 0.0
    for first in members:
        nodes = first.nodes(1.0, 0.0)
        assert nodes is not None
        value = sum(
            p * max(_delta(second, epsilon - loss) for second in members)
            for loss, p in zip(nodes.loss, nodes.p, strict=True)
        )
        best = max(best, float(value))
    return best


@pytest.mark.slow_cases
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_two_steps_by_brute_force(family: Pair, share: float):
    """The true supremum lies between the best of 81 members and that plus what the grid of members can miss."""
    epsilon = share * 2 * family.largest
    enumerated = _two_steps(family, epsilon, np.linspace(-1.0, 1.0, 82)[:-1])
    floor, _ = AdaptiveLowerBound(family, 2).delta(epsilon)
    ceiling = _delta(AdaptivePair(family, 2), epsilon)
    assert enumerated <= ceiling <= enumerated * 1.02
    assert floor <= ceiling
    assert enumerated * 0.98 <= floor <= enumerated * 1.002


def _in_both_orders(one: Pair, other: Pair, epsilon: float, shares: np.ndarray) -> float:
    """The same for a step of each of two families, whichever is first."""

    def after(first: Pair, second: Pair) -> float:
        ends = [second.attained(float(share)) for share in shares]
        best = 0.0
        for member in (first.attained(float(share)) for share in shares):
            nodes = member.nodes(1.0, 0.0)
            assert nodes is not None
            value = sum(
                p * max(_delta(end, epsilon - loss) for end in ends)
                for loss, p in zip(nodes.loss, nodes.p, strict=True)
            )
            best = max(best, float(value))
        return best

    return max(after(one, other), after(other, one))


@pytest.mark.parametrize("pairs", [(RangePair(0.3), RangePair(2.0)), (RangePair(1.0), FAMILIES[2])])
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_steps_of_two_families_by_brute_force(pairs: tuple[Pair, Pair], share: float):
    epsilon = share * sum(pair.largest for pair in pairs)
    found = _in_both_orders(*pairs, epsilon, np.linspace(-1.0, 1.0, 82)[:-1])
    families = tuple((pair, 1) for pair in pairs)
    floor, ceiling = _delta(AttainedPair(families), epsilon), _delta(JointPair(families), epsilon)
    assert found <= ceiling <= found * 1.02
    assert found * 0.98 <= floor <= ceiling
    assert floor <= found * 1.002


def test_the_pair_of_attained_lines_has_their_largest_as_its_profile():
    families = ((RangePair(0.5), 3), (RangePair(2.0), 1))
    pair, (x, value, slope) = AttainedPair(families), attained_lines(families)
    for side in (1, 2):
        assert pair.table[side].sum() == pytest.approx(1.0, abs=1e-12)
        assert (pair.table[side] > 0).all()
    assert (np.diff(pair.table[0]) > 0).all()
    for epsilon in (-3.0, -0.4, 0.0, 0.01, 1.0, 2.9):
        largest = max(float((value - slope * (np.exp(epsilon) - np.exp(x))).max()), 1 - np.exp(epsilon))
        assert _delta(pair, epsilon) == pytest.approx(largest, rel=1e-9)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("step", [Exponential(0.4), Exponential(3.0), Exponential(1.0).poisson(0.1)])
def test_one_choice_beside_other_steps_is_exact(step, relation: str):
    """Against the best member for each outcome of the other steps, here binary answers."""
    answers, epsilon = RandomizedResponse(0.5) * 3, 0.7
    both = Pld()(answers + step, relation=relation).delta(epsilon)
    assert both.upper - both.lower <= 1e-5 * both.upper
    truth = 1 / (1 + np.exp(-0.5))
    shares = np.linspace(-1.0, 1.0, 4001)
    found = 0.0
    for pair in step.dominating_pairs(Relation(relation)):
        members = [pair.attained(float(share)) for share in shares]
        loss, p = (
            np.array(rows) for rows in zip(*((each.nodes(1.0, 0.0).columns[:2]) for each in members), strict=True)
        )
        total = sum(
            binom.pmf(k, 3, truth) * (p * np.maximum(-np.expm1(epsilon - (2 * k - 3) * 0.5 - loss), 0.0)).sum(1).max()
            for k in range(4)
        )
        found = max(found, float(total))
    assert both.lower * (1 - 1e-6) <= found <= both.upper


def test_a_few_choices_beside_noise_are_close():
    steps = Gaussian(1.1).poisson(0.01) * 1000 + Exponential(0.1) * 4 + Exponential(0.3)
    answer = Pld()(steps).epsilon(1e-5)
    assert answer.lower <= answer.upper <= answer.lower * 1.0005


@pytest.mark.slow_cases
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("steps", [3, 20, BLOCK])
def test_no_fixed_member_leaks_more_than_the_bound(family: Pair, steps: int):
    upper, lower = AdaptivePair(family, steps), AdaptiveLowerBound(family, steps)
    assert upper.table[1].sum() == pytest.approx(1.0, abs=1e-12)
    assert upper.table[2].sum() == pytest.approx(1.0, abs=1e-12)
    for delta in (1e-2, 1e-8):
        fixed, _ = FixedMemberLowerBound([(family, steps)], coarse_dispatch(in_blocks([(family, steps)]))).epsilon(
            delta
        )
        if fixed == 0.0:
            continue
        assert _delta(upper, fixed) >= delta * (1 - 1e-6)
        assert lower.epsilon(delta)[0] >= fixed * (1 - 5e-3)


@pytest.mark.slow
@given(share=st.floats(-1, 1), steps=st.integers(2, 200), log_delta=st.floats(-25, -1))
@settings(max_examples=8, deadline=None)
def test_the_bracket_holds_every_fixed_choice(share, steps, log_delta):
    step = RangePair(0.7)
    answer = Pld()(Exponential(0.7) * steps).epsilon(10**log_delta)
    fixed = coarse_dispatch([(step.attained(share), steps)]).epsilon(10**log_delta)[0]
    assert answer.lower <= answer.upper
    assert fixed <= answer.upper
    assert answer.upper - answer.lower <= 0.03 * answer.upper


def test_blocks_take_the_place_of_steps_of_an_envelope_only():
    step, other = RangePair(0.2), SampledGaussianPair(2.0, 0.1, True)
    parts = [(step, 2 * BLOCK + 3), (step, 1), (other, 700)]
    assert in_blocks(parts) == [(AdaptivePair(step, BLOCK), 2), (AdaptivePair(step, 3), 1), (step, 1), (other, 700)]


def test_adaptive_steps_beside_others():
    """More than either part alone, and no more than the parts' upper bounds at half of delta each add up to."""
    choices, noise = Exponential(0.1) * 100, Gaussian(5.0) * 4
    both, one, two = (Pld()(each) for each in (Compose.of((choices, 1), (noise, 1)), choices, noise))
    assert one.epsilon(1e-6).lower <= both.epsilon(1e-6).lower <= both.epsilon(1e-6).upper
    assert both.epsilon(1e-6).upper <= one.epsilon(5e-7).upper + two.epsilon(5e-7).upper
    assert both.epsilon(1e-6).upper <= 1.02 * both.epsilon(1e-6).lower


def test_a_revealed_block_is_the_mixture_over_how_many_steps_run():
    block = RevealedBlock(RangePair(1.0), steps=30, rate=0.1, most=12)
    tail = float(binom.sf(12, 30, 0.1))
    assert tail <= block.infinity_mass <= 100 * tail
    table = block.table
    for side, lost in ((1, block.infinity_mass), (2, block.negative_infinity_mass)):
        assert table[side].sum() == pytest.approx(1 - lost, rel=1e-9)
    for epsilon in (0.05, 0.8, 2.5):
        runs = [
            max(1 - np.exp(epsilon), 0.0),
            *(_delta(AdaptivePair(RangePair(1.0), j), epsilon) for j in range(1, 13)),
        ]
        exact = float(binom.pmf(np.arange(13), 30, 0.1) @ runs)
        # Tables of fewer runs have finer grids.
        assert (
            exact * (1 - 1e-9)
            <= _delta(block, epsilon) + block.infinity_mass
            <= exact * 1.02 + 1.01 * block.infinity_mass
        )


@pytest.mark.parametrize("most", [16, 64, 128])
def test_hardly_ever_do_more_steps_of_a_fitting_block_run(most: int):
    block = RevealedBlock.fitting(RangePair(1.0), 1e-4, most)
    assert block.rate * block.steps < most
    assert binom.sf(most, block.steps, block.rate) <= block.infinity_mass <= 1e-39


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_who_knows_how_many_steps_will_run_learns_more_than_who_adapts(epsilon: float):
    family, steps = RevealedPair(RangePair(1.0), 0.05), 40
    block = RevealedBlock(family.base, steps, family.rate, 40)
    adapting = _delta(AdaptivePair(family, steps), epsilon)
    assert adapting * 0.98 <= _delta(block, epsilon) <= 1.4 * adapting


@pytest.mark.slow
def test_groups_of_steps_that_hardly_run_keep_both_bounds_close():
    low, high = (Pld()(Exponential(0.5).poisson(1e-5) * 3000, relation="replace_one").epsilon(d) for d in (1e-9, 1e-12))
    for answer in (low, high):
        assert 0.97 * answer.upper <= answer.lower <= answer.upper


@pytest.mark.slow_cases
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("rate", [1.0, 0.01, 1e-4])
@pytest.mark.parametrize(("epsilon", "steps"), [(50.0, 3), (20.0, 64), (400.0, 2), (20.0, 3000)])
def test_large_losses_stay_in_the_range_of_doubles(epsilon: float, steps: int, rate: float):
    step = Exponential(epsilon).poisson(rate) if rate < 1 else Exponential(epsilon)
    answer = Pld()(step * steps, relation="replace_one").epsilon(1e-5)
    if rate < 1:
        assert answer.lower <= answer.upper <= epsilon * steps * (1 + 1e-8)
        return
    assert 0.9 * answer.upper <= answer.lower <= answer.upper <= epsilon * steps * (1 + 1e-8)
