"""A private choice: its law against exact probabilities, and its guarantee against every neighbour."""

from itertools import combinations, product

import numpy as np
import pytest

from tacit.accounting import accountant
from tacit.errors import InvalidInput, Refused
from tacit.noise import SeededStream, discrete
from tacit.noise.discrete import Scores, choice_mechanism, choose, log_probabilities
from tacit.relation import Relation

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def counts(*values):
    return Scores(np.array(values, dtype=float), 1.0, monotone=True)


def permute_and_flip_law(scores, epsilon, relation):
    """By inclusion and exclusion: P(r) = p_r sum over sets S of the others of (-1)^|S| prod_S p / (|S| + 1)."""
    rate = epsilon if relation is ADD else epsilon / 2
    flips = np.exp(rate * (scores.values - scores.values.max()))
    law = np.zeros(len(flips))
    for at, flip in enumerate(flips):
        others = [flips[each] for each in range(len(flips)) if each != at]
        for size in range(len(flips)):
            law[at] += flip * sum((-1) ** size * np.prod(part) / (size + 1) for part in combinations(others, size))
    return law


def law_of(scores, epsilon, relation, method):
    if method == "exponential":
        return np.exp(log_probabilities(scores, epsilon, relation))
    return permute_and_flip_law(scores, epsilon, relation)


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("method", ["exponential", "permute_and_flip"])
def test_draws_follow_the_stated_law(method, relation):
    """10,000 draws; each frequency within 5.6 standard deviations: false alarm below 4 * 4 * 3e-8."""
    scores, epsilon, draws, stream = counts(10, 12, 13, 13), 0.8, 10_000, SeededStream(3)
    drawn = [choose(scores, epsilon, stream, relation=relation, method=method) for _ in range(draws)]
    expected = law_of(scores, epsilon, relation, method)
    assert expected.sum() == pytest.approx(1.0)
    deviation = np.sqrt(expected * (1 - expected) / draws)
    assert np.all(np.abs(np.bincount(drawn, minlength=4) / draws - expected) < 5.6 * deviation)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("method", ["exponential", "permute_and_flip"])
def test_no_neighbour_is_told_apart_by_more_than_epsilon_and_some_are_by_that(method, relation, epsilon):
    """Every table of three counts up to 8, and every neighbour: adding moves counts by 0 or 1, replacing by -1 to 1."""
    moves = (0, 1) if relation is ADD else (-1, 0, 1)
    largest = widest = 0.0
    for table in ((0, low, 8) for low in range(9)):
        one = np.log(law_of(counts(*table), epsilon, relation, method))
        for move in product(moves, repeat=3):
            losses = one - np.log(law_of(counts(*np.add(table, move)), epsilon, relation, method))
            largest, widest = max(largest, np.abs(losses).max()), max(widest, np.ptp(losses))
    assert largest <= epsilon + 1e-9
    if method == "exponential":
        assert widest <= epsilon + 1e-9  # of bounded range, as its mechanism says
    else:
        assert largest == pytest.approx(epsilon)  # tight, and so is what follows: not of bounded range
        assert widest > epsilon * 1.05


def test_two_equal_candidates_spread_the_losses_of_permute_and_flip_as_stated():
    epsilon = 0.7
    before, after = (permute_and_flip_law(counts(*table), epsilon, ADD) for table in ((5, 5), (6, 5)))
    losses = np.log(before) - np.log(after)
    assert losses == pytest.approx([-np.log(2 - np.exp(-epsilon)), epsilon])


def test_permute_and_flip_is_never_worse_in_expectation():
    scores = counts(10, 12, 13)
    gaps = 13 - scores.values
    flip, exponential = (law_of(scores, 0.8, ADD, method) @ gaps for method in ("permute_and_flip", "exponential"))
    assert flip <= exponential


def test_a_choice_costs_its_epsilon():
    assert accountant("naive")(choice_mechanism(0.3)).epsilon(0.0) == pytest.approx(0.3)
    flip = accountant("pld")(choice_mechanism(0.3, method="permute_and_flip"))
    assert flip.epsilon(0.0) == pytest.approx(0.3, rel=1e-6)
    assert accountant("zcdp")(choice_mechanism(0.3) * 10).epsilon(1e-6) < 3


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: counts(1, float("nan")), "scores must be a list of finite numbers"),
        (lambda: choice_mechanism(-1.0), "epsilon must be in"),
        (lambda: choice_mechanism(1.0, method="gumbel"), "selection must be one of"),
    ],
)
def test_bad_input(act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act()


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_rate_that_costs_more_than_epsilon_is_refused(monkeypatch, relation):
    rate = discrete._rate
    scores = counts(90, 80)
    for epsilon in (1e-6, 1.0, 300.0):
        choose(scores, epsilon, SeededStream(0), relation=relation)
    monkeypatch.setattr(discrete, "_rate", lambda *given: 1.01 * rate(*given))
    with pytest.raises(Refused, match="by more than its epsilon"):
        choose(scores, 1.0, SeededStream(0), relation=relation)
