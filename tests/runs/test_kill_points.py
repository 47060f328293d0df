"""A few of the kill points of `kill_points.py`: every method ends in a card, and no release goes unrecorded."""

import random

import pytest

from tests.runs.kill_points import FINISHED, METHODS, attempt, survive

QUICK = ("gradient", "objective")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "method", [method if method in QUICK else pytest.param(method, marks=pytest.mark.slow) for method in METHODS]
)
def test_a_killed_run_ends_in_a_card_and_understates_nothing(method, tmp_path):
    assert survive(method, tmp_path / "run", random.Random(f"kill {method}")) == ""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_whose_budget_was_lost_ends_with_what_it_has(tmp_path):
    folder, released = tmp_path / "run", tmp_path / "released"
    ended = [attempt("gradient", folder, released, 40) for _ in range(2)]
    if FINISHED not in ended:
        assert attempt("gradient", folder, released, 10**9) == FINISHED
    assert (folder / "model.safetensors").exists()
