"""Parallel composition: the worst branch counts, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.accounting import Ledger, account, accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import Compose, Exponential, Gaussian, Laplace, Parallel, alternatives, from_spec

TRAIN = Gaussian(1.0).poisson(0.01) * 500
CHOICE = Exponential(0.7)


@pytest.mark.parametrize("name", ["pld", "rdp", "zcdp", "naive"])
def test_the_worst_branch_counts(name):
    judge = accountant(name)
    for choice in (Exponential(0.7), Exponential(4.0)):
        both = judge(Parallel.of(TRAIN, choice))
        branches = [judge(TRAIN), judge(choice)]
        for delta in (1e-6, 1e-3):
            assert both.epsilon(delta) == max(branch.epsilon(delta) for branch in branches)
        assert both.delta(0.5) == max(branch.delta(0.5) for branch in branches)
        assert both.mu() == pytest.approx(max(branch.mu() for branch in branches))
        assert both.advantage() == max(branch.advantage() for branch in branches)


def test_every_branch_is_composed_with_the_rest():
    rest = Laplace(2.0)
    whole = accountant("pld")(Parallel.of(TRAIN, CHOICE) + rest)
    assert whole.epsilon(1e-6) == max(accountant("pld")(branch + rest).epsilon(1e-6) for branch in (TRAIN, CHOICE))


def test_two_parallel_mechanisms_are_taken_in_every_combination():
    first, second = Parallel.of(Laplace(1.0), Laplace(2.0)), Parallel.of(Gaussian(1.0), Gaussian(2.0))
    found = alternatives(Compose.of((first, 1), (second, 2)))
    assert len(found) == 4
    assert accountant("pld")(Ledger.of(first + second)).epsilon(1e-5) == pytest.approx(
        float(accountant("pld")(Laplace(1.0) + Gaussian(1.0)).epsilon(1e-5)), rel=1e-6
    )


def test_trade_off_is_below_that_of_every_branch():
    alpha = np.linspace(0, 1, 21)
    both = accountant("pld")(Parallel.of(TRAIN, Exponential(2.0)))
    for branch in (TRAIN, Exponential(2.0)):
        floor = accountant("pld")(branch).floor
        assert floor is not None
        assert np.all(both.curve.beta(alpha) <= floor.beta_ceiling(alpha) + 1e-9)


def test_divisions_of_their_own_meet_in_every_combination():
    both = Parallel.of(TRAIN, CHOICE), replace(Parallel.of(TRAIN, CHOICE), split=7)
    assert from_spec(both[1].spec()) == (both[1], 1)
    alike, split = (Compose.of((both[0], 1), (other, 1)) for other in both)
    assert [each.steps for each in alternatives(alike)] == [Compose.of((part, 2)).steps for part in (TRAIN, CHOICE)]
    assert [len(each.steps) for each in alternatives(split)] == [1, 2, 1]


def test_json_round_trip_and_ledger(tmp_path):
    mechanism = Parallel.of(TRAIN, CHOICE)
    assert from_spec(mechanism.spec()) == (mechanism, 1)
    ledger = Ledger.of(mechanism)
    ledger.save(tmp_path / "ledger.json")
    again = Ledger.load(tmp_path / "ledger.json")
    assert again.hash == ledger.hash
    answers = {result.tradeoff.source: result.epsilon for result in account(again, delta=1e-5).results}
    assert answers["pld"] == accountant("pld")(TRAIN).epsilon(1e-5)


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: Parallel.of(TRAIN), "branches must be two or more"),
        (lambda: from_spec({"type": "parallel", "branches": 3}), "branches must be a list of lists"),
        (lambda: from_spec({"type": "parallel", "branchess": []}), "Did you mean 'branches'"),
        (lambda: from_spec({"type": "paralel"}), "Did you mean 'parallel'"),
    ],
)
def test_bad_input(act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act()
