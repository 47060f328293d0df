"""Private validation in `tacit train`: two branches in the ledger, one side for each record, runs that go on."""

import json

import numpy as np
import pytest

from tacit.accounting import Ledger, accountant
from tacit.budget import Registry
from tacit.cli import main
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.mechanisms import Parallel
from tacit.runs import read_config, resume, train
from tacit.runs.builders import dataset_of
from tacit.runs.held_out import set_aside_of, trained_on
from tacit.runs.run_signature import MODEL, VALIDATION
from tacit.standing import Standing

QUICK = {"epsilon": 3.0, "delta": 1e-5, "epochs": 3.0, "batch_size": 200, "attacks": (), "engine": "eager"}


def config(**validation):
    return read_config("digits", {**QUICK, "validation": {"type": "private", **validation}})


@pytest.mark.slow
def test_a_run_states_two_branches_and_tells_a_noisy_accuracy(tmp_path):
    done = train(config(), out=tmp_path)
    ledger = Ledger.load(tmp_path / "ledger.json")
    ((mechanism, _),) = ledger.mechanism.parts()
    assert isinstance(mechanism, Parallel)
    assert ledger.standing is Standing.PROVEN
    assert 2.9 < float(accountant("pld")(ledger).epsilon(1e-5)) <= 3.0
    records = len(dataset_of(config(), None).y_train)
    assert 0.8 * records < done.card.records < records
    assert 0 < done.card.metrics["validation_accuracy"] < 1.2


@pytest.mark.parametrize(
    ("bound", "metric"),
    [
        ({"error_bound": 25.0}, "validation_error"),
        pytest.param({"tolerance": 2.0}, "validation_within", marks=pytest.mark.slow),
    ],
)
def test_a_regression_declares_the_bound_of_its_score(tmp_path, original_files, bound, metric):
    """In rings of abalones: targets from 1 to 29, and a model that gives their place in between."""
    given = {"dataset": "abalone", "validation": {"type": "private", "patience": 2, "best": True} | bound}
    done = train(read_config("digits", QUICK | given), data_dir=original_files, out=tmp_path)
    ((mechanism, _),) = done.card.ledger.mechanism.parts()
    assert isinstance(mechanism, Parallel)
    assert done.card.ledger.standing is Standing.PROVEN
    assert 2.9 < float(accountant("pld")(done.card.ledger).epsilon(1e-5)) <= 3.0
    # At most the bound, and noise whose standard deviation is below a tenth of that: 400 records, three looks.
    assert 0 < done.card.metrics[metric] < 1.5 * (25.0 if metric == "validation_error" else 1.0)


def test_the_parts_are_found_again_and_no_record_is_in_both(tmp_path):
    data = dataset_of(config(), None)
    made = set_aside_of(config(share=0.3), data, tmp_path, again=False)
    made.write(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    again = set_aside_of(config(share=0.3), data, tmp_path, again=True)
    assert again.holdout.identity() == made.holdout.identity()
    assert np.array_equal(again.training.x_train, made.training.x_train)
    assert len(made.training.y_train) + len(made.holdout) == len(data.y_train)
    assert np.array_equal(trained_on(config(share=0.3), data, tmp_path).x_train, made.training.x_train)
    assert set(json.loads((tmp_path / VALIDATION).read_text())) == {"id"}
    other = set_aside_of(config(share=0.3), data, tmp_path, again=False)
    assert other.holdout.identity() != made.holdout.identity()


@pytest.mark.slow
def test_early_stopping_and_the_best_epoch_cost_the_plan(tmp_path):
    flags = [
        "--validation",
        "private",
        "--set",
        "validation.patience=1",
        "--set",
        "validation.best=true",
        "--epochs",
        "6",
    ]
    common = [
        "train",
        "digits",
        "--epsilon",
        "0.5",
        "--delta",
        "1e-5",
        "--attack",
        "loss_threshold",
        "--batch-size",
        "400",
    ]
    assert main([*common, *flags, "--out", str(tmp_path / "r")]) == 0
    card = json.loads((tmp_path / "r" / "card.json").read_text())
    ((branches),) = [row["branches"] for row in card["mechanisms"]]
    assert branches[0][0]["steps"] == card["settings"]["steps"]
    assert main(["audit", str(tmp_path / "r"), "--attack", "loss_threshold", "--json"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", ["noisy", pytest.param("exponential", marks=pytest.mark.slow)])
def test_a_stopped_run_goes_on_with_the_same_ledger(tmp_path, checkpoint):
    def stop(stage, done, total):
        if stage == "private training" and done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config(checkpoint=checkpoint), out=tmp_path, on_progress=stop)
    before = Ledger.load(tmp_path / "ledger.json").mechanism
    done = resume(tmp_path)
    assert done.card.ledger.mechanism == before
    assert done.card.ledger.standing is Standing.PROVEN


@pytest.mark.slow
def test_a_registry_is_charged_once_with_both_branches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_BUDGET", raising=False)
    dataset = Registry.create(tmp_path / "tacit-budget.sqlite").declare("digits")
    train(config(), out=tmp_path / "r", budget="digits")
    ((mechanism, steps),) = dataset.total().mechanism.parts()
    assert isinstance(mechanism, Parallel)
    assert steps == 1


@pytest.mark.parametrize(
    "change",
    [
        {"validation": {"type": "public"}},
        {"validation": {"type": "private", "share": 1.0}},
        {"validation": {"type": "private", "patience": 0}},
        {"validation": {"type": "private", "checkpoint": "exponential", "best": True}},
        {"validation": {"type": "private"}, "method": "objective"},
        {"validation": {"type": "private"}, "epsilon": None, "noise_multiplier": 1.0},
        {"validation": {"type": "private"}, "dataset": "abalone"},
        {"validation": {"type": "private", "tolerance": 1.0}},
        {"validation": {"type": "private", "tolerance": 1.0, "error_bound": 4.0}, "dataset": "abalone"},
        {"validation": {"type": "private", "epsilon": 1.0, "noise": 4.0}},
        {"validation": {"type": "private", "noise": 4.0, "checkpoint": "exponential"}},
        {"validation": {"type": "private", "noise": 0.5}},
        {"validation": {"type": "private"}, "sampling": {"type": "shuffled"}},
    ],
)
def test_what_no_theorem_covers_is_refused_before_a_step(change, tmp_path, original_files):
    with pytest.raises((BudgetExceeded, InvalidInput)):
        train(read_config("digits", QUICK | change), data_dir=original_files, out=tmp_path / "r")
    assert not (tmp_path / "r" / MODEL).exists()
