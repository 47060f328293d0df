"""Private choice among tickets: probabilities, sensitivity, and what the published score comes to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import accountant
from tacit.errors import InvalidInput, Refused
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.tickets import choice_mechanism, choose, count_scores, explain, log_probabilities, paper_scores, select

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
DENSITIES = [0.7**i for i in range(1, 16)]


def test_the_published_choice_is_nearly_uniform():
    """15 tickets of 95 %, densities .7^i: picking a sparse one has probability .604 instead of .6 at epsilon 1."""
    scores = paper_scores([0.95] * 15, DENSITIES)
    loose, tight = (explain(scores, DENSITIES, epsilon, REPLACE) for epsilon in (0.1, 0.02))
    assert scores.sensitivity == 49
    assert (round(loose.ratio, 3), round(tight.ratio, 3)) == (1.034, 1.007)
    assert (round(loose.from_uniform, 4), round(tight.from_uniform, 4)) == (0.0038, 0.0008)
    assert (round(loose.sparse[0], 3), loose.sparse[1]) == (0.604, 0.6)


def test_counts_are_selective_at_the_same_epsilon():
    """One point of accuracy of 10,000 records at epsilon .1: a factor of e^5 under replace-one."""
    scores = count_scores([9500, 9400], [0.1, 0.1])
    log = log_probabilities(scores, 0.1, REPLACE)
    assert log[0] - log[1] == pytest.approx(5.0)
    log = log_probabilities(scores, 0.1, ADD)
    assert log[0] - log[1] == pytest.approx(10.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=6), st.data(), st.floats(0.05, 3.0))
def test_no_neighbour_moves_a_probability_by_more_than_epsilon(counts, draw, epsilon):
    """Adding a record raises every count by 0 or 1; replacing one moves every count by -1, 0 or 1."""
    densities = np.linspace(1.0, 0.1, len(counts))
    for relation, steps in ((ADD, (0, 1)), (REPLACE, (-1, 0, 1))):
        moves = draw.draw(st.lists(st.sampled_from(steps), min_size=len(counts), max_size=len(counts)))
        one = log_probabilities(count_scores(counts, densities, penalty=0.1, size=100), epsilon, relation)
        other = np.array(counts) + np.array(moves)
        two = log_probabilities(count_scores(list(other), densities, penalty=0.1, size=100), epsilon, relation)
        assert np.max(np.abs(one - two)) <= epsilon + 1e-9
        assert np.ptp(one - two) <= epsilon + 1e-9  # bounded range, as the ledger says


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip"])
def test_draws_follow_the_stated_law(method):
    """20,000 draws; each frequency within 5.6 standard deviations: false alarm below 3 * 3e-8."""
    scores, epsilon, draws = count_scores([10, 12, 13], [0.5, 0.2, 0.1]), 0.8, 20_000
    stream = SeededStream(3)
    found = np.bincount(
        [choose(scores, epsilon, stream, relation=ADD, method=method) for _ in range(draws)], minlength=3
    )
    if method == "exponential":
        expected = np.exp(log_probabilities(scores, epsilon, ADD))
    else:
        expected = permute_and_flip_law(epsilon * np.array([-3.0, -1.0, 0.0]))
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert np.all(np.abs(found / draws - expected) < 5.6 * deviation)


def permute_and_flip_law(log_flips):
    """By summing over the order of the tickets."""
    from itertools import permutations

    law = np.zeros(len(log_flips))
    orders = list(permutations(range(len(log_flips))))
    for order in orders:
        left = 1.0
        for index in order:
            law[index] += left * np.exp(log_flips[index]) / len(orders)
            left *= 1 - np.exp(log_flips[index])
    return law


def test_permute_and_flip_is_never_worse_in_expectation():
    scores, epsilon = count_scores([10, 12, 13], [0.5, 0.2, 0.1]), 0.8
    gaps = 13 - scores.values
    flip = permute_and_flip_law(-epsilon * gaps)
    assert flip @ gaps <= np.exp(log_probabilities(scores, epsilon, ADD)) @ gaps


def test_a_choice_costs_its_epsilon():
    assert accountant("naive")(choice_mechanism(0.3)).epsilon(0.0) == pytest.approx(0.3)
    flip = accountant("pld")(choice_mechanism(0.3, method="permute_and_flip"))
    assert flip.epsilon(0.0) == pytest.approx(0.3, rel=1e-6)
    assert accountant("zcdp")(choice_mechanism(0.3) * 10).epsilon(1e-6) < 3


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: count_scores([1, float("nan")], [0.1, 0.2]), "scores must be a list of finite numbers"),
        (lambda: count_scores([], []), "scores must be a list of finite numbers"),
        (lambda: choice_mechanism(-1.0), "epsilon must be in"),
        (lambda: choice_mechanism(1.0, method="gumbel"), "selection must be one of"),
        (lambda: paper_scores([0.9], [0.1], nu=0.0), "nu must be in"),
    ],
)
def test_bad_input(act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act()


@pytest.mark.parametrize("relation", [Relation.ADD_REMOVE, Relation.REPLACE_ONE])
def test_a_rate_that_costs_more_than_epsilon_is_refused(monkeypatch, relation):
    rate = select._rate
    scores = count_scores([90, 80], [0.5, 0.1])
    for epsilon in (1e-6, 1.0, 300.0):
        choose(scores, epsilon, SeededStream(0), relation=relation)
    monkeypatch.setattr(select, "_rate", lambda *given: 1.01 * rate(*given))
    with pytest.raises(Refused, match="by more than its epsilon"):
        choose(scores, 1.0, SeededStream(0), relation=relation)
