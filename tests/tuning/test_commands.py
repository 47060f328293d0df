"""`tacit tune` from the command line: a stop, and going on."""

import json

import pytest

from tacit.accounting import Ledger
from tacit.cli import main
from tacit.tuning.tune import INTERRUPTED, SearchMethod
from tests.tuning.test_resume import own_key

__all__ = ["own_key"]

CONFIG = (
    'dataset = "iris"\nmodel = "linear"\nepochs = 1.0\nbatch_size = 40\nattacks = []\nepsilon = 3.0\ndelta = 1e-3\n'
)
SPACE = "learning_rate = [0.125, 0.25, 0.5]\nclip_norm = [1.0, 0.5]\n"
TUNE = ["tune", "short.toml", "--space", "space.toml", "--trials", "4", "--law", "geometric", "--out", "r"]


@pytest.fixture
def project(tmp_path):
    (tmp_path / "short.toml").write_text(CONFIG)
    (tmp_path / "space.toml").write_text(SPACE)
    return tmp_path


def stopping_at(trial, monkeypatch):
    made, first = [], SearchMethod._trial

    def stopped(method, job):
        made.append(trial)
        if len(made) == trial:
            raise KeyboardInterrupt
        return first(method, job)

    monkeypatch.setattr(SearchMethod, "_trial", stopped)


@pytest.mark.slow
def test_a_stopped_search_goes_on_by_the_command_that_it_names(project, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stopping_at(1, patch)
        assert main(TUNE) != 0
    assert "tacit tune --resume r" in capsys.readouterr().err
    before = Ledger.load(project / "r" / "ledger.json").mechanism
    assert main(["tune", "--resume", "r", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    after = Ledger.load(project / "r" / "ledger.json")
    assert after.mechanism == before
    assert INTERRUPTED in after.assumptions
    assert 0.125 <= told["settings"]["learning_rate"] <= 0.5
    assert told["settings"]["clip_norm"] in (1.0, 0.5)
    assert main(["tune", "--resume", "r"]) == 2
    assert "finished" in capsys.readouterr().err


def test_a_space_of_no_lists_is_refused_before_any_training(project, capsys):
    (project / "space.toml").write_text("learning_rate = {low = 0.125, high = 0.5}\n")
    assert main(TUNE) == 2
    assert "a list" in capsys.readouterr().err
