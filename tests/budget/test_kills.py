"""Processes that are killed at any time: no release without a reservation, and no reservation lost."""

import json
import multiprocessing
import random
from pathlib import Path

import pytest

from tests.budget.kills import survive

FORK = "fork" in multiprocessing.get_all_start_methods()
STORED = Path(__file__).parents[2] / "benchmarks" / "results" / "reservation_kills.json"


@pytest.mark.skipif(not FORK, reason="processes start too slowly without fork")
@pytest.mark.parametrize("kills", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_killed_runs_stay_reserved_and_release_nothing_unreserved(tmp_path, kills):
    found = survive(tmp_path, kills, random.Random())
    assert (found["unreserved"], found["lost"]) == (0, 0)
    assert 0 <= found["stranded"] <= kills  # a kill strands at most the one at work
    assert found["releases"] > kills / 4


def test_the_stored_result_of_five_hundred_kills_shows_no_fault():
    found = json.loads(STORED.read_text())
    assert found["kills"] >= 500
    assert (found["unreserved"], found["lost"]) == (0, 0)
    assert found["releases"] > found["kills"] / 4
