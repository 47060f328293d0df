"""What a run tells of its test records: exactly of public ones, with paid noise of private ones, or nothing."""

import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from tacit.accounting import Ledger, account, accountant
from tacit.budget import Registry
from tacit.cli import main
from tacit.data import table
from tacit.errors import InvalidInput
from tacit.mechanisms import DiscreteGaussian, Gaussian
from tacit.noise import SeededStream
from tacit.runs import Config, held_out, read_config, train
from tacit.runs.held_out import measured_exactly, noisy_result, planned_cost
from tacit.training.holdout import LEVELS, rounded_sum, unit_means

DELTA = 1e-4
CLASSES = 'classes = ["no", "yes"]\n'


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A configuration of an own table in the working directory: 500 records of 100 users."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_BUDGET", raising=False)
    draw = np.random.default_rng(0)
    rows = [
        f"u{at % 100},{a:.3f},{b:.3f},{'yes' if a + b > 1 else 'no'}" for at, (a, b) in enumerate(draw.random((500, 2)))
    ]
    (tmp_path / "mine.csv").write_text("\n".join(["who,a,b,label", *rows]))
    (tmp_path / "mine.toml").write_text(
        f'dataset = "table"\nepsilon = 4.0\ndelta = {DELTA}\nepochs = 2\nbatch_size = 64\nlearning_rate = 2.0\n'
        'attacks = []\nengine = "eager"\n[table]\npath = "mine.csv"\ntarget = "label"\ndrop = ["who"]\n'
        f"{CLASSES}[table.bounds]\na = [0.0, 1.0]\nb = [0.0, 1.0]\n"
    )
    return tmp_path


def trained(folder, **overrides):
    return train(read_config(str(folder / "mine.toml"), overrides), out=folder / "run")


EXACT = {"constant_test", "test_low", "test_high", "balanced_accuracy", "auroc", "base_rate", "calibration_error"}


@pytest.mark.slow
def test_an_own_table_tells_one_result_with_noise_that_its_test_records_paid(own):
    run = trained(own)
    card = json.loads((own / "run" / "card.json").read_text())
    assert {name for name, value in card["metrics"].items() if value is not None} == {"test"}
    assert card["calibration"] == []
    assert card["training_curve"] == {"private": [], "nonprivate": []}
    told = card["held_out"]
    assert (told["records"], told["test"], told["standing"]) == ("private", "noisy", "proven")
    found = {row["accountant"]: row for row in card["guarantees"]}["pld"]
    assert found["epsilon"] - 1e-3 < told["epsilon"] <= found["epsilon"] <= 4.0
    (row,) = told["mechanisms"]
    paid = accountant("pld")(DiscreteGaussian(row["noise_multiplier"]))
    assert float(paid.epsilon(DELTA)) == pytest.approx(told["epsilon"])
    assert told["says"] in (own / "run" / "card.html").read_text()
    assert run.card.ledger.unsafe == []


@pytest.mark.slow
def test_nothing_that_was_not_paid_for_lies_in_the_folder(own, monkeypatch):
    """Without noise the result is known to the digit; with it that number is in no file."""
    exact = trained(own, unsafe_test_metrics=True, unsafe_seed=3, attacks=("loss_threshold",)).card.metrics["test"]
    for path in sorted((own / "run").iterdir()):
        path.unlink()
    monkeypatch.setattr(held_out, "discrete_gaussian", lambda stream, variance: 7)
    noisy = trained(own, unsafe_seed=3).card.metrics["test"]
    assert noisy == pytest.approx(exact + 7 / 100)
    card = json.loads((own / "run" / "card.json").read_text())
    assert card["metrics"]["test"] == noisy
    assert exact not in numbers({name: part for name, part in card.items() if name not in ("facts", "guarantees")})


def numbers(value):
    """Every number in a JSON value."""
    if isinstance(value, dict | list):
        return [found for each in (value.values() if isinstance(value, dict) else value) for found in numbers(each)]
    return [value] if isinstance(value, float) else []


def test_the_noise_has_the_law_that_the_ledger_says(monkeypatch):
    """Chi-square of 2,000 results, false alarm 1e-6."""
    data = table(
        {"a": np.linspace(0, 1, 50), "y": np.array(["n", "p"] * 25)},
        target="y",
        classes=["n", "p"],
        bounds={"a": (0, 1)},
    )
    config = Config(epsilon=1.0, delta=DELTA, test_records="private", unsafe_seed=1)
    predicted = np.tile([0.4, 0.6], (len(data.y_test), 1))
    ledger, answers = Ledger(), account(Ledger.of(Gaussian(4.0)), delta=DELTA, accountants=["pld"])
    scale = smallest_noise(config, data)
    streams = iter(map(SeededStream, range(2000)))
    monkeypatch.setattr(held_out, "stream_of", lambda config: next(streams))
    monkeypatch.setattr(held_out, "_ledger", lambda *given, **rest: Ledger.of(DiscreteGaussian(scale)))
    monkeypatch.setattr(held_out, "_told", lambda *given: {})
    n, right = len(data.y_test), int((data.y_test == 1).sum())
    counts = [round(noisy_result(config, data, predicted, answers, ledger)[0] * n) for _ in range(2000)]
    law = np.exp(-0.5 * ((np.arange(-60, 61)) / scale) ** 2)
    law /= law.sum()
    expected = np.zeros(n + 1)
    np.add.at(expected, np.clip(right + np.arange(-60, 61), 0, n), law)
    kept = expected * 2000 >= 5
    observed = np.bincount(counts, minlength=n + 1)
    bins = [*observed[kept], observed[~kept].sum() + 5]
    assert chisquare(bins, np.array([*(expected[kept] * 2000), expected[~kept].sum() * 2000 + 5])).pvalue > 1e-6


def smallest_noise(config, data):
    paid = planned_cost(replace(config, test_epsilon=2.0), data, "record")
    ((mechanism, _),) = paid.mechanism.parts()
    return mechanism.noise_multiplier


def of_task(task, **given):
    draw = np.random.default_rng(1)
    x = draw.random(60)
    frame = {"a": x, "who": np.array([f"u{at // 3}" for at in range(60)])}
    if task == "regression":
        return table(
            frame | {"y": 4 * x}, target="y", task=task, target_range=(0, 4), bounds={"a": (0, 1)}, user="who", **given
        )
    labels = np.where(x > 0.5, "p", "n")
    return table(frame | {"y": labels}, target="y", classes=["n", "p"], bounds={"a": (0, 1)}, user="who", **given)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_user_moves_the_sum_by_no_more_than_the_sensitivity(task, monkeypatch):
    """Each user of the test part removed in turn, with the same coins: the sum moves by at most the levels."""
    data = of_task(task)
    assert data.test_units is not None
    assert not set(data.units) & set(data.test_units)
    paid = planned_cost(Config(epsilon=1.0, delta=DELTA, test_records="private", test_epsilon=1.0), data, "user")
    ((mechanism, _),) = paid.mechanism.parts()
    assert mechanism.sensitivity == LEVELS
    draw = np.random.default_rng(2)
    shape = (len(data.y_test), 2) if task == "classification" else (len(data.y_test),)
    predicted = draw.normal(0, 50, shape)  # As far off as a model can be.
    predicted[0] = np.nan
    everyone = np.unique(data.test_units)
    shares = unit_means(held_out._losses(data, predicted), data.test_units)
    for gone, _ in enumerate(everyone):
        kept = data.test_units != everyone[gone]
        part = replace(data, x_test=data.x_test[kept], y_test=data.y_test[kept], test_units=data.test_units[kept])
        left = unit_means(held_out._losses(part, predicted[kept]), part.test_units)
        coins = np.full(len(shares), 0.5)
        whole, less = (rounded_sum(each, LEVELS, Coins(coins)) for each in (shares, left))
        assert np.allclose(np.delete(shares, gone), left)
        assert 0 <= whole - less <= mechanism.sensitivity


class Coins:
    """A stream with given coins."""

    def __init__(self, coins):
        self._coins = coins

    def uniform(self, size):
        return self._coins[:size]


@pytest.mark.slow
def test_users_and_numbers_are_measured_in_a_run(own):
    text = (
        (own / "mine.toml")
        .read_text()
        .replace('drop = ["who"]', 'user = "who"')
        .replace("batch_size = 64", "batch_size = 20")
    )
    (own / "mine.toml").write_text(text)
    card = trained(own).card
    assert card.held_out["test"] == "noisy"
    assert card.held_out["mechanisms"][0]["sensitivity"] == LEVELS
    assert card.ledger.unit == "user"
    assert 0 <= card.metrics["test"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "test", "unsafe"),
    [({"test_records": "public"}, "exact", []), ({"unsafe_test_metrics": True}, "exact", ["unsafe_test_metrics"])],
)
def test_a_declaration_or_the_switch_gives_exact_results(own, overrides, test, unsafe):
    card = trained(own, **overrides).card
    assert card.held_out["test"] == test
    assert card.ledger.unsafe == unsafe
    assert set(card.metrics) >= EXACT
    assert card.metrics["nonprivate_test"] is not None
    assert card.training_curve["private"]


@pytest.mark.slow
def test_published_test_records_are_public_unless_they_are_declared_private(tmp_path):
    assert measured_exactly(read_config("digits", {}))
    card = train(read_config("digits", {"epochs": 1.0, "test_records": "private", "attacks": ()}), out=tmp_path).card
    assert card.held_out["test"] == "noisy"


@pytest.mark.slow
def test_a_registry_is_charged_for_a_result_before_the_run_or_there_is_none(own, capsys):
    dataset = Registry.create(own / "tacit-budget.sqlite").declare("mine")
    assert main(["train", "mine.toml", "--budget", "mine", "--out", "none"]) == 0
    card = json.loads((own / "none" / "card.json").read_text())
    assert card["metrics"]["test"] is None
    assert card["held_out"]["test"] == "not measured"
    before = len(list(dataset.total().mechanism.parts()))
    assert main(["train", "mine.toml", "--budget", "mine", "--set", "test_epsilon=0.5", "--out", "some"]) == 0
    card = json.loads((own / "some" / "card.json").read_text())
    assert 0.49 < card["held_out"]["epsilon"] <= 0.5
    found = [part for part, _ in dataset.total().mechanism.parts()]
    assert sum(isinstance(part, DiscreteGaussian) for part in found) == 1
    assert len(found) >= before
    assert "not measured" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_card_of_an_attempt_before_may_have_told_the_result(own, monkeypatch):
    from tacit.runs import run as module

    sign = module.run_signature.sign_run

    def killed_after_the_card(folder, *given):
        if (folder / "card.json").exists():
            raise KeyboardInterrupt
        return sign(folder, *given)

    monkeypatch.setattr(module.run_signature, "sign_run", killed_after_the_card)
    with pytest.raises(KeyboardInterrupt):
        trained(own)
    monkeypatch.undo()
    monkeypatch.chdir(own)
    card = module.resume(own / "run").card
    assert card.metrics["test"] is None
    assert "earlier attempt" in card.held_out["says"]


def stop(folder):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_sweep_keeps_nothing_of_private_test_records(own, capsys):
    (own / "grid.toml").write_text(
        'preset = "mine.toml"\n[fixed]\nattacks = ["loss_threshold"]\n[grid]\nlearning_rate = [0.5, 1.0]\n'
    )
    assert main(["sweep", "grid.toml", "--workers", "1"]) == 0
    rows = sqlite3.connect(own / "results.sqlite").execute("select result from tasks").fetchall()
    values = [json.loads(result)["value"] for (result,) in rows]
    assert len(values) == 2
    assert all(set(each["metrics"].values()) == {None} and each["attack"] == {} for each in values)
    (own / "grid.toml").write_text(
        'preset = "mine.toml"\n[fixed]\ntest_records = "public"\n[grid]\nlearning_rate = [0.5]\n'
    )
    assert main(["sweep", "grid.toml", "--workers", "1", "--store", "public.sqlite"]) == 0
    ((result,),) = sqlite3.connect(own / "public.sqlite").execute("select result from tasks").fetchall()
    assert json.loads(result)["value"]["metrics"]["test"] is not None
    (own / "grid.toml").write_text('preset = "mine.toml"\n[fixed]\ntest_epsilon = 1.0\n[grid]\nlearning_rate = [0.5]\n')
    assert main(["sweep", "grid.toml", "--workers", "1", "--store", "paid.sqlite"]) == 2
    assert "every run of which would cost it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "overrides",
    [
        {"test_records": "secret"},
        {"test_epsilon": -1.0},
        {"test_epsilon": 1.0, "test_records": "public"},
        {"test_epsilon": 1.0, "unsafe_test_metrics": True},
        {"unsafe_test_metrics": 1},
    ],
)
def test_settings_that_contradict_each_other_are_refused(own, overrides):
    with pytest.raises(InvalidInput):
        trained(own, **overrides)
