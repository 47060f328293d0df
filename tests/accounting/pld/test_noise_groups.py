"""Schedules of many unlike noises: from above and from below."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting.pld.accountant import Pld
from tacit.accounting.pld.envelopes import GroupedDispatch
from tacit.accounting.pld.fft import grouped_by_noise
from tacit.mechanisms import Compose, Gaussian
from tacit.mechanisms.pairs.gaussian import GaussianPair, SampledGaussianPair
from tacit.relation import Relation


def schedule(high, low, count, rate):
    return Compose.of(*((Gaussian(float(sigma)).poisson(rate), 1) for sigma in np.linspace(high, low, count)))


@given(st.lists(st.floats(0.3, 30.0), min_size=1, max_size=60), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_a_group_is_at_its_leakiest_or_at_its_quietest(sigmas, distinct):
    parts = [(SampledGaussianPair(sigma, 0.1, True), 1 + k % 3) for k, sigma in enumerate(sigmas)]
    for upper, extreme in ((True, min(sigmas)), (False, max(sigmas))):
        found = dict(grouped_by_noise([*parts, (GaussianPair(1.0), 1)], distinct)[upper])
        assert found.pop(GaussianPair(1.0)) == 1
        assert len(found) <= distinct
        assert {pair.sigma for pair in found} <= set(sigmas)
        assert extreme in {pair.sigma for pair in found}
        assert sum(found.values()) == sum(steps for _, steps in parts)
        before, after = (
            np.sort(np.repeat([pair.sigma for pair in pairs], list(steps)))
            for pairs, steps in (zip(*parts, strict=True), (found.keys(), found.values()))
        )
        assert np.all(after <= before if upper else after >= before)


def test_rates_and_directions_are_not_mixed():
    parts = [(SampledGaussianPair(1.0 + k / 100, rate, remove), 1) for k in range(10) for rate in (0.1, 0.2)
             for remove in (True, False)]  # fmt: skip
    _, found = grouped_by_noise(parts, 4)
    assert {(pair.rate, pair.remove, steps) for pair, steps in found} == {
        (rate, remove, 10) for rate in (0.1, 0.2) for remove in (True, False)
    }


@pytest.mark.slow
@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_the_bracket_of_groups_holds_the_exact_one(relation):
    steps = schedule(4.0, 1.0, 26, 0.05)
    exact, rough = (Pld(distinct=distinct)(steps, relation=relation) for distinct in (100, 20))
    found, around = exact.epsilon(1e-5), rough.epsilon(1e-5)
    assert around.lower <= found.upper
    assert found.lower <= around.upper < 1.25 * around.lower
    known, between = exact.delta(found.upper / 2).interval, rough.delta(found.upper / 2).interval
    assert between[0] <= known[1]
    assert known[0] <= between[1]


def test_steps_that_no_grouping_makes_fewer_are_answered_once():
    parts = [(SampledGaussianPair(1.0, 0.01 + k / 1000, True), 1) for k in range(30)]
    assert GroupedDispatch.of(parts, 10) is None
    assert GroupedDispatch.of([(SampledGaussianPair(1.0 + k / 100, 0.01, True), 1) for k in range(30)], 10) is not None


def test_a_schedule_that_one_line_covers_stays_exact():
    found = Pld(distinct=100)(schedule(1.2, 0.8, 2000, 0.01)).epsilon(1e-5)
    assert found.upper - found.lower < 1e-7 * found.upper
