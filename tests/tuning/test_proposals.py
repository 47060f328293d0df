"""Candidates: whole settings that a search draws from, whatever has won before."""

import numpy as np
import pytest
from scipy.stats import chisquare

from tacit.errors import InvalidInput
from tacit.noise import SeededStream
from tacit.runs import read_config
from tacit.tradeoff import Epsilon
from tacit.tuning import Candidates, space_of, tune
from tacit.tuning.plan import Asked

TABLES = tuple({"learning_rate": rate, "batch_size": size} for rate in (0.1, 0.2, 0.4, 0.8) for size in (64, 128))


def test_trials_draw_candidates_evenly_whatever_won_before():
    """4,000 draws; chi-square, false alarm 1e-6."""
    candidates, stream = Candidates(TABLES), SeededStream(0)
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
        lambda: Candidates(()),
        lambda: Candidates(({"learning_rate": 0.1}, {"epochs": 3.0})),
        lambda: tune("digits", Candidates(({"epsilon": 0.1}, {"epsilon": 1.0})), target=Epsilon(3.0, 1e-4)),
    ],
)
def test_bad_input_is_refused(act):
    with pytest.raises(InvalidInput):
        act()
