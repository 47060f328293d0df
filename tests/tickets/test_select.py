"""Private choice among tickets: probabilities, sensitivity, and what the published score comes to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidInput
from tacit.noise.discrete import log_probabilities
from tacit.relation import Relation
from tacit.tickets import count_scores, paper_scores
from tacit_papers.lottery_ticket.mechanism import explain

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


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: count_scores([1, float("nan")], [0.1, 0.2]), "scores must be a list of finite numbers"),
        (lambda: count_scores([], []), "scores must be a list of finite numbers"),
        (lambda: paper_scores([0.9], [0.1], nu=0.0), "nu must be in"),
    ],
)
def test_bad_input(act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act()
