"""A few of the kill points of `kill_points.py`: every method ends in a card, and no release goes unrecorded."""

import random

import pytest

from tacit.errors import InvalidInput
from tacit.runs import resume
from tests.runs.kill_points import FINISHED, KILLED, LEFTOVERS, METHODS, NEVER, attempt, events_of, survive

QUICK = ("gradient", "objective")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "method", [method if method in QUICK else pytest.param(method, marks=pytest.mark.slow) for method in METHODS]
)
def test_a_killed_run_ends_in_a_card_and_understates_nothing(method, tmp_path):
    fault, kills = survive(
        method, tmp_path / "run", random.Random(f"kill {method}"), events_of(method, tmp_path / "all")
    )
    assert (fault, kills > 0) == ("", True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_whose_budget_was_lost_ends_with_what_it_has(tmp_path):
    folder, released = tmp_path / "run", tmp_path / "released"
    ended = [attempt("gradient", folder, released, 40) for _ in range(2)]
    if FINISHED not in ended:
        assert attempt("gradient", folder, released, NEVER) == FINISHED
    assert (folder / "model.safetensors").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_a_run_left_that_was_killed_after_its_card_is_removed(tmp_path):
    folder, released = tmp_path / "run", tmp_path / "released"
    events = events_of("objective", tmp_path / "all")[1]
    assert attempt("objective", folder, released, events - 1, files_only=True) == KILLED
    assert any(path.name.endswith(LEFTOVERS) for path in folder.iterdir())
    with pytest.raises(InvalidInput, match="This one is finished"):
        resume(folder)
    assert not [path.name for path in folder.iterdir() if path.name.endswith(LEFTOVERS)]
