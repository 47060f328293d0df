"""Candidates of Optuna samplers: made before any private record is read, and from nothing private."""

import sys

import numpy as np
import pytest
from scipy.stats import chisquare

from tacit.errors import InvalidInput
from tacit.noise import SeededStream
from tacit.runs import read_config
from tacit.tradeoff import Epsilon
from tacit.tuning import Candidates, propose, space_of, tune
from tacit.tuning.plan import Asked

RANGES = {"learning_rate": (0.05, 2.0), "batch_size": (16, 128), "clip_norm": [0.5, 1.0]}


def test_proposals_lie_in_their_ranges_and_repeat():
    one, other = (propose(RANGES, count=16) for _ in range(2))
    assert one == other
    assert len(one.settings) == 16
    assert all(0.05 <= each["learning_rate"] <= 2.0 and each["clip_norm"] in (0.5, 1.0) for each in one.settings)
    assert all(isinstance(each["batch_size"], int) and 16 <= each["batch_size"] <= 128 for each in one.settings)


def test_a_learning_sampler_follows_the_public_score_and_no_other():
    seen = []

    def score(settings):
        seen.append(settings)
        return -abs(np.log(settings["learning_rate"]))

    found = propose({"learning_rate": (0.01, 100.0)}, count=40, sampler="tpe", public_score=score)
    assert [dict(each) for each in found.settings] == seen  # One score for each candidate, and nothing else is told.
    distance = [abs(np.log(each["learning_rate"])) for each in found.settings]
    assert np.median(distance[20:]) < np.median(distance[:10])
    blind = propose({"learning_rate": (0.01, 100.0)}, count=10, sampler="tpe")
    assert blind == propose({"learning_rate": (0.01, 100.0)}, count=10, sampler="tpe")


def test_trials_draw_candidates_evenly_whatever_won_before():
    """4,000 draws; chi-square, false alarm 1e-6."""
    candidates, stream = propose(RANGES, count=8), SeededStream(0)
    listed = [dict(each) for each in candidates.settings]
    drawn = np.bincount([listed.index(candidates.draw(stream)) for _ in range(4000)], minlength=8)
    assert chisquare(drawn).pvalue > 1e-6


def test_a_search_over_candidates_pays_for_the_costliest_of_them():
    config = read_config("digits", {"epsilon": 3.0})
    candidates = Candidates(({"batch_size": 64, "epochs": 5.0}, {"batch_size": 128, "epochs": 2.0}))
    asked = Asked(space_of(config, candidates), Epsilon(3.0, 1e-5), 2, "exponential", "private", 0.1)
    search = asked.plan(config, 1280)
    assert (search.rate, search.steps) == (0.1, 100)
    assert Asked.of(asked.table()) == asked


@pytest.mark.parametrize(
    "act",
    [
        lambda: propose({}, count=3),
        lambda: propose(RANGES, count=0),
        lambda: propose(RANGES, count=3, sampler="bayes"),
        lambda: propose(RANGES, count=3, sampler=object()),
        lambda: propose({"learning_rate": (1.0, 0.1)}, count=3),
        lambda: propose({"learning_rate": 0.1}, count=3),
        lambda: propose({"learning_rate": []}, count=3),
        lambda: Candidates(()),
        lambda: Candidates(({"learning_rate": 0.1}, {"epochs": 3.0})),
        lambda: tune("digits", propose({"epsilon": (0.1, 1.0)}, count=3), target=Epsilon(3.0, 1e-4)),
    ],
)
def test_bad_input_is_refused(act):
    with pytest.raises(InvalidInput):
        act()


def test_without_optuna_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(InvalidInput, match=r"pip install 'tacit\[optuna\]'"):
        propose(RANGES, count=3)
