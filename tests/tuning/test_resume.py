"""Searches that were stopped: no second charge, no second draw, nothing to read in between."""

import json
import shutil
import sys
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import chi2

from tacit.accounting import Ledger, account, accountant
from tacit.budget import Registry
from tacit.calibration import smallest
from tacit.errors import InvalidInput
from tacit.noise import SeededStream
from tacit.runs import read_config
from tacit.runs.builders import dataset_of
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.tuning import Space, resume_tuning, tune
from tacit.tuning.plan import Asked
from tacit.tuning.search_state import Standings, best_trial, chosen_trial
from tacit.tuning.tune import INTERRUPTED, SearchMethod

SHORT = {"dataset": "iris", "epochs": 1.0, "batch_size": 40, "attacks": (), "model": "linear"}
SPACE = {"learning_rate": [0.125, 0.25, 0.5], "clip_norm": [1.0]}
TARGET = Epsilon(3.0, 1e-3)
HELD = {"config.json", "ledger.json", "signature.json", "search.sealed"}


class Found(NamedTuple):
    """What a calibration returns."""

    value: float


class Killed(BaseException):
    """A kill: nothing between here and the caller handles it."""


NOISES = {"noise_multiplier": 4.0, "score_noise": 2.0, "1 / choice_epsilon": 0.5}


@pytest.fixture(autouse=True)
def own_key(tmp_path, monkeypatch):
    """A key of its own; noise that costs less than TARGET without a search for it, and a card of few numbers."""
    monkeypatch.setattr("tacit.tuning.plan.smallest", lambda name, *given, **named: Found(NOISES[name]))
    monkeypatch.setattr(
        "tacit.runs.run.account",
        lambda ledger, delta, check_brackets: account(ledger, delta=delta, accountants=["naive"]),
    )
    monkeypatch.setattr(
        "tacit.reports.card._figures",
        lambda drawn, card: {"errors": "", "detections": "", "training": None, "calibration": None},
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.delenv("TACIT_BUDGET", raising=False)
    monkeypatch.chdir(tmp_path)


def search(folder, *, dies_in=None, monkeypatch=None, **given):
    """A search, killed in the middle of trial `dies_in` = 0, 1, ..., after that trial was trained."""
    if dies_in is not None:
        made, trial = [], SearchMethod._trial

        def dying(method, job):
            found = trial(method, job)
            made.append(found)
            if len(made) > dies_in:
                raise Killed
            return found

        with monkeypatch.context() as patch:
            patch.setattr(SearchMethod, "_trial", dying)
            with pytest.raises(Killed):
                search(folder, **given)
        return None
    settings = {"target": TARGET, "trials": 4, "law": "geometric", "validation_share": 0.3} | given
    overrides = SHORT | settings.pop("overrides", {})
    return tune("digits", SPACE, out=folder, overrides=overrides, **settings)


SEED = 5  # Makes six trials, the best of which is not the last.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("selection", "dies_in"),
    [("permute_and_flip", 2), *(pytest.param("random_trials", at, marks=pytest.mark.slow) for at in (0, 2))],
)
def test_a_seeded_search_that_was_killed_ends_as_one_that_was_not(tmp_path, monkeypatch, selection, dies_in):
    given = {"overrides": {"unsafe_seed": SEED}, "selection": selection}
    whole = search(tmp_path / "whole", **given)
    search(tmp_path / "killed", dies_in=dies_in, monkeypatch=monkeypatch, **given)
    resumed = resume_tuning(tmp_path / "killed", unsafe_seed=SEED)
    assert resumed.settings == whole.settings
    for name in ("model.safetensors",):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert resumed.run.card.ledger.mechanism == whole.run.card.ledger.mechanism
    assert not (tmp_path / "killed" / "search.sealed").exists()
    assert INTERRUPTED in resumed.run.card.ledger.assumptions


@pytest.mark.slow
@pytest.mark.parametrize("selection", ["permute_and_flip", pytest.param("random_trials", marks=pytest.mark.slow)])
def test_a_search_goes_on_without_a_second_charge_and_its_folder_tells_nothing(tmp_path, monkeypatch, selection):
    monkeypatch.setattr("tacit.tuning.plan.draw_trials", lambda law, stream: 4)
    dataset = Registry.create(tmp_path / "tacit-budget.sqlite").declare("flowers")
    dataset.cap(Epsilon(2.5, 1e-3))
    search(tmp_path / "run", dies_in=1, monkeypatch=monkeypatch, budget="flowers", selection=selection)
    spent = float(dataset.spent().epsilon(1e-3))
    assert 1.9 < spent < 2.5  # A second one would cross the cap.
    assert {path.name for path in (tmp_path / "run").iterdir()} <= HELD | {"budget.json"}
    readable = [path for path in (tmp_path / "run").iterdir() if path.name != "search.sealed"]
    for path in readable:
        assert not any(word in path.read_text() for word in ('"trials"', '"kept"', '"score"', '"aside"'))
    sealed = (tmp_path / "run" / "search.sealed").read_bytes()
    assert not any(word in sealed for word in (b"trials", b"score", b"settings", b"learning_rate"))
    assert Ledger.load(tmp_path / "run" / "ledger.json").steps == 1  # the whole search, before its first trial
    found = resume_tuning(tmp_path / "run")
    assert float(dataset.spent().epsilon(1e-3)) == pytest.approx(spent, abs=1e-12)
    assert found.tradeoff.standing is Standing.PROVEN
    assert float(found.tradeoff.epsilon(1e-3)) <= 3.0
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["wall_seconds"] == 0.0
    with pytest.raises(InvalidInput, match="a search that was stopped"):
        resume_tuning(tmp_path / "run")


@pytest.mark.slow
def test_an_older_edited_copied_or_foreign_state_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    search(folder, dies_in=0, monkeypatch=monkeypatch, overrides={"unsafe_seed": SEED}, selection="exponential")
    state = folder / "search.sealed"
    first = state.read_bytes()
    state.write_bytes(first[:-1] + bytes([first[-1] ^ 1]))
    with pytest.raises(InvalidInput, match="was changed"):
        resume_tuning(folder, unsafe_seed=SEED)
    state.write_bytes(first)
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(InvalidInput, match="in which the search ran last"):
        resume_tuning(tmp_path / "copy", unsafe_seed=SEED)
    with monkeypatch.context() as patch:
        patch.setenv("TACIT_KEY", "another key of thirty-two letters and more")
        with pytest.raises(InvalidInput, match="another key"):
            resume_tuning(folder, unsafe_seed=SEED)
    resume_tuning(folder, unsafe_seed=SEED)
    state.write_bytes(first)  # once more from the start, for another winner
    with pytest.raises(InvalidInput, match="older than what was sealed since"):
        resume_tuning(folder, unsafe_seed=SEED)


def test_other_records_and_another_seed_are_refused(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    search(folder, dies_in=0, monkeypatch=monkeypatch, overrides={"unsafe_seed": SEED})
    with pytest.raises(InvalidInput, match="another seed"):
        resume_tuning(folder, unsafe_seed=SEED + 1)

    def other(*given):
        data = dataset_of(*given)
        data.y_train[0] = (data.y_train[0] + 1) % 3
        return data

    monkeypatch.setattr(sys.modules["tacit.tuning.tune"], "dataset_of", other)
    with pytest.raises(InvalidInput, match="records that the search began with"):
        resume_tuning(folder, unsafe_seed=SEED)


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip"])
def test_a_fixed_number_of_trials_costs_its_target_in_both_branches(monkeypatch, method):
    monkeypatch.setattr("tacit.tuning.plan.smallest", smallest)
    config = read_config("digits", {"epsilon": 3.0, "batch_size": 20, "epochs": 10.0})
    found = Asked(Space(SPACE), Epsilon(3.0, 1e-5), 3, method, "private", 0.1).plan(config, 2000)
    assert found.told["trials"] == 3
    for branch in found.mechanism.branches:
        assert 2.99 < float(accountant("pld")(branch).epsilon(1e-5)) <= 3.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"selection": "exponential", "validation": "public"},
        {"selection": "permute_and_flip", "trials": 2.5},
        {"selection": "permute_and_flip", "trials": 1},
        {"selection": "best"},
    ],
)
def test_selections_that_have_no_meaning_are_refused(tmp_path, wrong):
    with pytest.raises(InvalidInput):
        search(tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


def test_a_preset_of_another_method_is_no_search():
    assert read_config("digits", SHORT | {"epsilon": 3.0, "delta": 1e-3}).method == "gradient"
    with pytest.raises(InvalidInput, match="gradient"):
        tune("digits", SPACE, target=TARGET, overrides=SHORT | {"method": "objective"})


def test_interruptions_that_follow_nothing_leave_the_law_of_the_winner_as_it_is():
    """4,000 searches of 3 trials over 4 settings, each interrupted at random; chi-square, false alarm 1e-6."""
    chance, stream = np.random.default_rng(0), SeededStream(1)
    wins = np.zeros((2, 4))
    for interrupted in (0, 1):
        for _ in range(2000):

            def run(interrupted=interrupted):
                while True:
                    setting = int(chance.integers(4))
                    score = float(setting + chance.normal(0, 2))
                    if not interrupted or chance.random() < 0.5:  # a lost trial is made anew
                        return score, setting

            wins[interrupted, best_trial(Standings(3), stream, run)] += 1
    expected = wins.sum(0) / 2
    assert ((wins - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 3)


def test_a_choice_is_made_once_and_the_others_are_forgotten():
    saved, standings = [], Standings(3)
    scores = iter([(1.0, "a"), (3.0, "b"), (2.0, "c")])
    winner = chosen_trial(
        standings,
        lambda: next(scores),
        lambda counts: counts.index(max(counts)),
        lambda: saved.append(0),
    )
    assert (winner, standings.kept, len(saved)) == ("b", [(3.0, "b")], 4)
    again = chosen_trial(standings, lambda: next(scores), lambda counts: 1 / 0)
    assert again == "b"
