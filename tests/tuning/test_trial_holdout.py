"""Searches whose trials have private validation of their own: one trial costs what `tacit train` states for it."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from tacit.accounting import Ledger, accountant
from tacit.calibration import smallest
from tacit.errors import InvalidInput
from tacit.mechanisms import Compose, DiscreteGaussian, Exponential, Parallel, Selection, law_of
from tacit.noise import SeededStream
from tacit.runs import read_config
from tacit.runs.builders import dataset_of
from tacit.runs.held_out import SetAside, holdout_of
from tacit.runs.methods import method_of
from tacit.runs.run import train_by
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training.holdout import OWN_COIN
from tacit.tuning import Space, resume_tuning
from tacit.tuning.plan import Asked, Parts
from tacit.tuning.tune import INTERRUPTED, SearchMethod
from tests.tuning.test_resume import HELD, SEED, SHORT, SPACE, TARGET, Found, Killed, own_key, search

__all__ = ["own_key"]

NOISY = {"type": "private", "share": 0.3, "patience": 1, "best": True}
CHOSEN = {"type": "private", "share": 0.3, "checkpoint": "exponential"}
NOISES = {"validation_noise": 4.0, "1 / checkpoint_epsilon": 2.0}
SOLVED = {}
TOTAL, LAW = Epsilon(3.0, 1e-5), law_of("logarithmic", trials=5)
ALL = {"overrides": {"validation": NOISY, "epochs": 3.0, "unsafe_seed": SEED}}


@pytest.fixture(autouse=True)
def cheap_noise(monkeypatch, own_key):
    """Costs of a trial that meet TARGET, without a search for them; other noise is searched for once."""

    def found(name, mechanism, target, *, relation):
        if name in NOISES:
            return Found(NOISES[name])
        question = (name, mechanism(1.0), target, relation)
        if question not in SOLVED:
            SOLVED[question] = smallest(name, mechanism, target, relation=relation)
        return SOLVED[question]

    monkeypatch.setattr("tacit.tuning.plan.smallest", found)


def planned(validation, *, law=LAW, private=True):
    config = read_config("digits", {"epsilon": 3.0, "batch_size": 20, "epochs": 5.0, "validation": validation})
    space = Space({"epochs": [2.0, 5.0], "batch_size": [20, 40]})
    selection = "exponential" if isinstance(law, int) else "random_trials"
    given = (selection, "private" if private else "public", 0.1, config.section("validation"))
    return Asked(space, TOTAL, law, *given).plan(config, 400)


def epsilon(mechanism):
    return accountant("pld")(mechanism).epsilon(1e-5)


@pytest.mark.slow_cases("validation0-3.0-law0")
@pytest.mark.parametrize(
    ("validation", "total", "law"),
    [
        (NOISY, 3.0, LAW),
        (NOISY | {"epsilon": 1.0}, 1.0, 3),
        (CHOSEN, 3.0, LAW),
        (CHOSEN | {"epsilon": 1.0, "checkpoint": "permute_and_flip"}, 1.0, LAW),
        (CHOSEN, 3.0, 3),
    ],
)
def test_what_all_trials_tell_of_the_holdout_costs_the_total(monkeypatch, validation, total, law):
    """Five counts for each trial: the most that a setting of the space has; or one choice."""
    monkeypatch.setattr(sys.modules[__name__], "NOISES", {})
    found = planned(validation, law=law)
    told = found.held.mechanism
    if "checkpoint" not in validation:
        assert told == DiscreteGaussian(found.held.cost) * 5
    search_of_it = told * law if law == 3 else Selection.of(told, law=law)
    assert 0.99 * total < float(epsilon(search_of_it)) <= total
    ((parallel, _),) = [(found.mechanism, 1)] if law == 3 else found.mechanism.base.parts()
    assert parallel.branches[1] == Compose.of((told * (law if law == 3 else 1), 1))


@pytest.mark.slow
def test_the_total_is_that_of_the_selection_over_the_curve_of_a_trial(monkeypatch):
    monkeypatch.setattr("tacit.tuning.plan.smallest", smallest)
    found = planned(NOISY)
    ((parallel, _),) = found.mechanism.base.parts()
    alone = [epsilon(Selection.of(branch, law=LAW)) for branch in parallel.branches]
    assert all(2.98 < float(each) <= 3.0 for each in alone)
    whole = epsilon(found.mechanism)
    assert float(whole) == max(map(float, alone))
    assert whole.lower < whole <= 3.0
    assert float(epsilon(parallel)) < 2.5  # Of one trial.


def test_with_public_scores_the_holdout_is_the_only_other_part():
    found = planned(NOISY, private=False)
    ((parallel, _),) = found.mechanism.base.parts()
    assert len(parallel.branches) == 2


@pytest.mark.parametrize("wrong", [{"epsilon": 4.0}, {"noise": 9.0}])
def test_a_cost_that_is_not_that_of_the_total_is_refused(wrong):
    with pytest.raises(InvalidInput, match="validation"):
        planned(NOISY | wrong)


@pytest.mark.slow_cases
@pytest.mark.parametrize("validation", [NOISY, CHOSEN])
def test_a_trial_has_the_ledger_of_a_run_with_the_same_settings(tmp_path, monkeypatch, validation):
    """The trial's own ledger against that of `tacit train`, on the same records, with the noise of the trial."""
    ledgers, check_cost = [], SearchMethod._check_cost
    monkeypatch.setitem(NOISES, "noise_multiplier", 8.0)

    def seen(method, ledger):
        ledgers.append((ledger, method))
        check_cost(method, ledger)

    monkeypatch.setattr(SearchMethod, "_check_cost", seen)
    search(tmp_path / "search", overrides={"validation": validation, "epochs": 3.0, "unsafe_seed": SEED})
    told = json.loads((tmp_path / "search" / "config.json").read_text())
    ledger, method = ledgers[0]
    parts = method._parts
    alone = {"noise_multiplier": told["noise_multiplier"], "validation": told["validation"]}
    config = read_config("digits", SHORT | {"delta": 1e-3, "epochs": 3.0} | alone)
    same = SetAside(parts.training, holdout_of(config, parts.held), "same")
    monkeypatch.setattr("tacit.runs.held_out.set_aside_of", lambda *given, again: same)
    done = train_by(method_of(config), config, parts.training, out=tmp_path / "train")
    assert done.card.ledger.mechanism == ledger.mechanism
    ((beside, _),) = ledger.mechanism.parts()
    assert isinstance(beside, Parallel)
    kind = DiscreteGaussian if validation is NOISY else Exponential
    assert all(isinstance(part, kind) for part, _ in beside.branches[1].parts())


@pytest.mark.parametrize("validation", [NOISY, pytest.param(CHOSEN, marks=pytest.mark.slow)])
def test_a_search_states_one_entry_and_keeps_nothing_of_other_trials(tmp_path, monkeypatch, validation):
    monkeypatch.setattr("tacit.tuning.plan.draw_trials", lambda law, stream: 3)
    monkeypatch.setitem(NOISES, "noise_multiplier", 8.0)
    done = search(tmp_path / "run", overrides={"validation": validation, "epochs": 3.0})
    ledger = Ledger.load(tmp_path / "run" / "ledger.json")
    ((mechanism, steps),) = ledger.mechanism.parts()
    assert (type(mechanism), steps) == (Selection, 1)
    assert mechanism == done.search.mechanism
    assert ledger.standing is Standing.PROVEN
    assert OWN_COIN in ledger.assumptions
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert ("validation_accuracy" in card["metrics"]) == (validation is NOISY)
    names = {path.name for path in (tmp_path / "run").rglob("*") if path.is_file()}
    told = {"card.html", "card.json", "config.json", "ledger.json", "model.safetensors", "preprocessing.json"}
    assert names <= told | {"signature.json", "execution.json"}
    assert card["wall_seconds"] == 0.0


@pytest.mark.slow
def test_parts_are_disjoint_the_same_for_all_trials_and_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.tuning.plan.draw_trials", lambda law, stream: 3)
    held, trained, trial = [], [], SearchMethod._trial

    def seen(method, job):
        held.append(method._parts.held.x_train)
        trained.append((method._parts.training.x_train, method._parts.scored.x))
        return trial(method, job)

    monkeypatch.setattr(SearchMethod, "_trial", seen)
    search(tmp_path / "run", **ALL)
    assert all(np.array_equal(each, held[0]) for each in held)
    data = dataset_of(read_config("digits", SHORT | {"epsilon": 3.0}), None)
    parts = [held[0], *trained[0]]
    assert sum(map(len, parts)) == len(data.x_train)
    assert sorted(map(bytes, np.concatenate(parts))) == sorted(map(bytes, data.x_train))


@pytest.mark.slow
def test_a_killed_search_goes_on_with_the_same_holdout(tmp_path, monkeypatch):
    whole = search(tmp_path / "whole", **ALL)
    search(tmp_path / "killed", dies_in=1, monkeypatch=monkeypatch, **ALL)
    assert {path.name for path in (tmp_path / "killed").iterdir()} <= HELD
    resumed = resume_tuning(tmp_path / "killed", unsafe_seed=SEED)
    assert resumed.settings == whole.settings
    assert (tmp_path / "killed" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    assert resumed.run.card.ledger.mechanism == whole.run.card.ledger.mechanism
    assert INTERRUPTED in resumed.run.card.ledger.assumptions


def test_a_search_that_was_killed_after_its_last_trial_still_plans_as_before(tmp_path, monkeypatch):
    def dying(*given):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("tacit.runs.run.attack_model", dying)
        with pytest.raises(Killed):
            search(tmp_path / "run", **ALL)
    before = Ledger.load(tmp_path / "run" / "ledger.json").mechanism
    assert "noise" in json.loads((tmp_path / "run" / "config.json").read_text())["validation"]
    done = resume_tuning(tmp_path / "run", unsafe_seed=SEED)
    assert before == done.run.card.ledger.mechanism == Compose.of((done.search.mechanism, 1))


def test_a_trial_that_tells_more_than_planned_is_refused():
    held = planned(NOISY).held
    for told in (DiscreteGaussian(4.0) * 6, DiscreteGaussian(3.9) * 5, DiscreteGaussian(4.0, 2) * 5):
        with pytest.raises(InvalidInput, match="holdout"):
            held.check_cost(Compose.of((told, 1)))
    held.check_cost(Compose.of((DiscreteGaussian(4.0) * 2, 1)))


def test_a_holdout_takes_no_scored_record_and_leaves_some_to_train_on():
    data = dataset_of(read_config("digits", SHORT | {"epsilon": 3.0}), None)
    asked = Asked(Space(SPACE), TARGET, 3, "exponential", "private", 0.4, read_config(
        "digits", SHORT | {"epsilon": 3.0, "validation": NOISY}).section("validation"))  # fmt: skip
    stream = SeededStream(3)
    aside, held = asked.draw_parts(len(data.y_train), stream)
    assert not set(aside) & set(held)
    parts = Parts.of(data, public=False, aside=aside, held=held)
    assert len(parts.training.y_train) == len(data.y_train) - len(aside) - len(held)
    assert len(parts.scored[1]) == len(aside)
    assert len(parts.held.y_train) == len(held)
    with pytest.raises(InvalidInput, match="share"):
        asked.draw_parts(1, stream)


def test_the_registry_is_asked_for_the_search_on_what_is_left_to_train_on():
    """Of 1,000 records 600 are trained on: .4 are held for the trials, after none was set aside for public scores."""
    config = read_config("digits", SHORT | {"epsilon": 3.0, "validation": NOISY | {"share": 0.4}})
    given = (Space(SPACE), TOTAL, LAW, "random_trials", "public", 0.1, config.section("validation"))
    asked = Asked(*given)
    assert asked.whole(config, 1000) == asked.plan(config, 600).mechanism
    assert Asked.of(asked.table()) == asked
