"""Commands that spend: refused before any record is read, and the walk of docs/budget.md as printed there."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import BudgetExceeded, Epsilon
from tacit.budget import Registry
from tacit.mechanisms import Gaussian
from tacit.runs import read_config, train
from tacit.tuning import tune

PAGE = Path(__file__).parents[2] / "docs" / "budget.md"
_VARIES = re.compile(r"/\S*(?=tacit-budget)|\d{4}-\d\d-\d\dT[\d:]+Z|\s+")


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = Registry.create(tmp_path / "tacit-budget.sqlite").declare("survey", facts={"records": 1437})
    found.cap(Epsilon(3.0, 1e-5))
    found.reserve(Gaussian(1.4))  # 2.97 of 3
    return found


def _unread(*_: object) -> None:
    raise AssertionError("records were read")


SHORT = {"epochs": 1.0, "epsilon": 2.0, "delta": 1e-5, "attacks": ()}


@pytest.mark.parametrize(
    "settings",
    [SHORT, SHORT | {"method": "objective", "model": "linear"}, SHORT | {"method": "ticket"}, SHORT | {"method": "vi"}],
    ids=lambda settings: settings.get("method", "gradient"),
)
def test_a_run_is_refused_before_its_records_are_read_where_nothing_is_left(dataset, monkeypatch, settings):
    dataset.cap(Epsilon(2.0, 1e-5))  # Below what was spent.
    monkeypatch.setattr("tacit.runs.run.dataset_of", _unread)
    with pytest.raises(BudgetExceeded, match="Nothing is left"):
        train(read_config("digits", settings), budget="survey")


@pytest.mark.slow
def test_a_search_is_refused_before_its_records_are_read(dataset, monkeypatch):
    monkeypatch.setattr(importlib.import_module("tacit.tuning.tune"), "dataset_of", _unread)
    space = {"learning_rate": [0.25, 1.0]}
    with pytest.raises(BudgetExceeded, match="'survey' must stay within epsilon 3"):
        tune("digits", space, target=Epsilon(2.0, 1e-5), trials=3, overrides=SHORT, budget="survey")
    assert [row.kind for row in dataset.history()].count("reserve") == 1


@pytest.mark.slow
def test_the_walk_of_the_page_prints_what_the_page_shows(tmp_path):
    """Two colleagues, a cap, a refusal and an export, from `init` on."""
    console = re.search(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S).group(1)
    walk = re.findall(r"^\$ tacit (.+)\n((?:(?!\$ ).*\n)*)", console, re.M)
    assert len(walk) == 6
    for command, shown in walk:
        done = subprocess.run(
            [sys.executable, "-m", "tacit", *command.split()], cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        printed = _VARIES.sub(" ", done.stdout + done.stderr)
        for part in shown.split("...\n"):
            assert _VARIES.sub(" ", part).strip() in printed, command
        assert (done.returncode == 0) == ("must stay within" not in shown)
