"""`tacit budget`, and `tacit train` and `tacit sweep` with a registry in the folder."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from tacit import BudgetExceeded, InvalidInput
from tacit.accounting import accountant
from tacit.budget import Registry, find_registry
from tacit.cli import main
from tacit.data import Dataset
from tacit.mechanisms import Gaussian
from tacit.runs import config_from_table, resume, train
from tacit.runs import run as run_module
from tacit.runs.run_budget import UNTRACKED, RunBudget
from tacit.standing import Standing

SMALL = {"dataset": "digits", "epsilon": 1.0, "epochs": 0.5, "delta": 1e-5, "attacks": ()}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("TACIT_BUDGET", "TACIT_BUDGET_DATASET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def spent(name: str) -> float:
    registry = find_registry()
    assert registry is not None
    return float(registry.dataset(name).spent().epsilon(1e-5))


@pytest.mark.slow
def test_six_commands_from_init_to_refusal_and_export(project, capsys, monkeypatch):
    assert main(["budget", "init", "survey", "--data", "digits", "--epsilon", "1.2", "--delta", "1e-5"]) == 0
    run = train(config_from_table(SMALL), out=project / "first")
    assert run.budget is not None
    assert run.budget.name == "survey"  # recognised by its records
    assert spent("survey") == pytest.approx(1.0, abs=1e-3)
    assert UNTRACKED not in run.card.ledger.assumptions
    monkeypatch.setattr(run_module, "dataset_of", lambda *_: pytest.fail("the data were read"))
    capsys.readouterr()
    assert main(["train", "digits", "--epsilon", "1", "--epochs", "0.5", "--delta", "1e-5", "--budget", "survey"]) == 2
    refusal = capsys.readouterr().err
    assert "budget of 'survey' must stay within epsilon 1.2 at delta 1e-05" in refusal
    assert "Left: one Gaussian release" in refusal
    assert main(["budget", "show", "survey", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["total"]["standing"] == run.card.ledger.standing.value
    assert main(["budget", "history"]) == 0
    assert "first: " in capsys.readouterr().out
    assert main(["budget", "verify"]) == 0
    assert main(["budget", "cap", "survey", "--epsilon", "3", "--delta", "1e-5"]) == 0
    capsys.readouterr()
    for form in ("json", "csv"):
        assert main(["budget", "export", "survey", "--format", form]) == 0
        text = capsys.readouterr().out
        assert "@" not in text  # neither user nor computer
        assert "digest" not in text
        found = list(csv.DictReader(io.StringIO(text))) if form == "csv" else json.loads(text)
        assert len(found) >= 1
    assert main(["budget", "export", "survey", "--format", "deployments"]) == 2


@pytest.mark.slow
def test_a_lone_run_needs_no_registry_and_says_that_the_total_is_not_tracked(project):
    run = train(config_from_table(SMALL), out=project / "lone")
    assert run.budget is None
    assert UNTRACKED in run.card.ledger.assumptions
    assert not (project / "tacit-budget.sqlite").exists()


def data(shift: float = 0.0) -> Dataset:
    x = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32) + np.float32(shift)
    y = np.arange(100) % 2
    return Dataset("table", x, y, x[:2], y[:2], ("a", "b"), (-9.0, 9.0))


def test_records_cannot_be_charged_under_another_name(project):
    registry = Registry.create("tacit-budget.sqlite")
    registry.declare("patients").register(data().x_train, data().y_train)
    registry.declare("others")
    config = config_from_table(SMALL)
    with pytest.raises(InvalidInput, match="budget must be patients, which holds these records; got 'others'"):
        RunBudget.find(config, "others").recognise(config, data())
    charged = RunBudget.find(config, None)
    charged.recognise(config, data(shift=1.0))
    assert charged.dataset is None
    RunBudget.find(config, "-").recognise(config, data())
    assert registry.dataset("patients").spent().standing is Standing.CLAIMED
    with pytest.raises(InvalidInput, match="budget must be"):
        RunBudget.find(config, "patient")
    with pytest.raises(InvalidInput, match="relation must be add_remove"):
        RunBudget.find(config_from_table(SMALL | {"relation": "replace_one"}), "patients")


def test_a_run_without_room_is_refused_before_its_first_step_and_a_failed_one_is_given_back(project, monkeypatch):
    assert main(["budget", "init", "survey", "--data", "digits", "--epsilon", "1.2", "--delta", "1e-5"]) == 0
    registry = find_registry()
    assert registry is not None
    registry.dataset("survey").reserve(Gaussian(5.0))
    before = spent("survey")
    with pytest.raises(BudgetExceeded, match="survey"):
        train(config_from_table(SMALL), out=project / "refused")
    with pytest.raises(BudgetExceeded, match="survey"):  # whose plan only the data tell
        train(config_from_table(SMALL | {"method": "objective", "epsilon": 1.1}), out=project / "also")
    assert spent("survey") == before


@pytest.mark.slow
def test_a_stopped_run_keeps_its_reservation_when_it_is_resumed(project, monkeypatch):
    assert main(["budget", "init", "survey", "--data", "digits"]) == 0

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "private training" and done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config_from_table(SMALL | {"checkpoint_every": 1}), out=project / "stopped", on_progress=stop)
    registry = find_registry()
    assert registry is not None
    planned = registry.dataset("survey").total().steps
    run = resume(project / "stopped")
    assert run.budget is not None
    held = list(registry.dataset("survey").known.held.values())
    assert [each.status for each in held] == ["settled"]
    assert planned <= run.card.ledger.steps <= registry.dataset("survey").total().steps


@pytest.mark.slow
def test_a_sweep_prints_what_its_runs_cost_together(project, capsys):
    grid = project / "grid.toml"
    fixed = "epochs = 0.5\ndelta = 1e-5\nepsilon = 1.0\nattacks = []\n"
    grid.write_text(f'preset = "digits"\n[fixed]\n{fixed}[grid]\ninit_seed = [0, 1]\n')
    assert main(["sweep", str(grid), "--workers", "1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    alone = train(config_from_table(SMALL), out=project / "alone").card.ledger.mechanism
    both = float(accountant("pld")(alone * 2).epsilon(1e-5))
    assert f"Total of 2 runs on digits: epsilon {both:.4g} at delta 1e-05" in told


def test_a_sweep_over_the_cap_is_refused_before_its_first_run(project, capsys, monkeypatch):
    assert main(["budget", "init", "survey", "--data", "digits", "--epsilon", "1.2", "--delta", "1e-5"]) == 0
    monkeypatch.setattr("tacit.sweeps.run._local", lambda *_: pytest.fail("a run began"))
    grid = project / "grid.toml"
    fixed = "epochs = 0.5\ndelta = 1e-5\nepsilon = 1.0\nattacks = []\n"
    grid.write_text(f'preset = "digits"\n[fixed]\n{fixed}[grid]\ninit_seed = [0, 1]\n')
    capsys.readouterr()
    assert main(["sweep", str(grid), "--workers", "1", "--budget", "survey"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "budget of 'survey' must stay within epsilon 1.2 at delta 1e-05; run 'grid' would take it from 0 to" in told
    assert "Left: one Gaussian release" in told
    registry = find_registry()
    assert registry is not None
    assert not registry.dataset("survey").known.held
