"""The main job from end to end on a small run: data, training, accounting, attack, card."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit import data
from tacit.accounting import ACCOUNTANTS, Ledger, accountant
from tacit.cli import main
from tacit.data import published
from tacit.errors import InvalidInput, MissingData, TrainingMisuse
from tacit.mechanisms import Gaussian
from tacit.runs import audit_run, read_config, train
from tacit.runs.builders import noise_of, sampling_of
from tacit.runs.settings import NOISE_SHAPES, SAMPLINGS, SHORT_FORMS

SETTINGS = {"epochs": 3.0, "batch_size": 100}
CARD_KEYS = {
    "dataset",
    "model",
    "method",
    "metrics",
    "guarantees",
    "audits",
    "mechanisms",
    "ledger_hash",
    "unsafe",
    "versions",
    "wall_seconds",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    stages = []
    folder = tmp_path_factory.mktemp("run")
    done = train(
        read_config("digits", SETTINGS), out=folder, on_progress=lambda stage, at, of: stages.append((stage, at, of))
    )
    return done, stages


def test_the_folder_has_everything(run):
    folder = run[0].folder
    assert {path.name for path in folder.iterdir()} == {
        "card.html",
        "card.json",
        "config.json",
        "execution.json",
        "ledger.json",
        "model.safetensors",
        "preprocessing.json",
        "signature.json",
    }


def test_card_json_has_the_agreed_keys(run):
    card = json.loads((run[0].folder / "card.json").read_text())
    assert card.keys() >= CARD_KEYS
    assert card["dataset"] == "digits"
    assert 0 < card["metrics"]["test"] <= 1
    assert 0 < card["metrics"]["nonprivate_test"] <= 1
    said = {row["accountant"] for row in card["guarantees"]} | {row["accountant"] for row in card["refused"]}
    assert said == set(ACCOUNTANTS)
    for row in card["guarantees"]:
        assert row.keys() >= {
            "accountant",
            "standing",
            "relation",
            "delta",
            "epsilon",
            "epsilon_lower",
            "mu",
            "advantage",
        }
    *_, found = card["audits"]
    assert found["attack"] == "loss_threshold"
    assert found.keys() >= {"attack", "confidence", "advantage", "ppv", "epsilon_lower", "mu_lower"}


def test_what_was_accounted_is_what_was_run(run):
    ledger = Ledger.load(run[0].folder / "ledger.json")
    steps = round(3.0 / (100 / 1438))
    assert ledger.steps == steps
    ((mechanism, count),) = ledger.mechanism.steps
    assert count == steps
    assert mechanism == Gaussian(mechanism.base.noise_multiplier).poisson(100 / 1438)
    assert ledger.hash == json.loads((run[0].folder / "card.json").read_text())["ledger_hash"]


def test_the_calibrated_target_is_met_and_used_up(run):
    ledger = Ledger.load(run[0].folder / "ledger.json")
    assert 3.99 < accountant("pld")(ledger).epsilon(1e-4) <= 4.0


def test_progress_covers_every_stage(run):
    stages = run[1]
    of_canaries = ("training with canaries", "simulated runs")  # Left out where a busy machine is too slow for them.
    assert [name for name, at, of in stages if at == of and name not in of_canaries] == [
        "loading data",
        "private training",
        "non-private baseline",
        "accounting",
        "attacks",
    ]


def test_ledger_is_a_spec(run, capsys):
    assert main(["account", str(run[0].folder / "ledger.json"), "--delta", "1e-4", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    card = json.loads((run[0].folder / "card.json").read_text())
    assert [row["epsilon"] for row in answer["results"]] == [row["epsilon"] for row in card["guarantees"]]


def test_nothing_private_is_in_the_folder(run):
    text = "".join((run[0].folder / name).read_text() for name in ("card.json", "config.json", "ledger.json"))
    assert "unsafe_seed" not in text
    assert "losses" not in text


@pytest.mark.slow
def test_audit_again(run, capsys):
    again = audit_run(run[0].folder, attacks=["loss_threshold"]).results
    assert again[0].row() == run[0].audits[0].row()
    assert main(["audit", str(run[0].folder), "--attack", "loss_threshold", "--confidence", "0.99", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["audits"]
    assert row["confidence"] == 0.99
    assert row["epsilon_lower"] <= run[0].audits[0].epsilon_lower


def test_a_killed_run_has_already_written_what_it_planned_to_spend(tmp_path):
    class Killed(Exception):
        pass

    def kill(stage, at, of):
        if stage == "private training" and at == 2:
            raise Killed

    with pytest.raises(Killed):
        train(read_config("digits", SETTINGS), out=tmp_path, on_progress=kill)
    assert Ledger.load(tmp_path / "ledger.json").steps == round(3.0 / (100 / 1438))


@pytest.mark.slow
def test_a_seeded_run_repeats_and_says_that_it_proves_nothing(tmp_path):
    config = read_config("digits", SETTINGS | {"unsafe_seed": 5, "noise_multiplier": 1.0})
    first, second = train(config, out=tmp_path / "a"), train(config, out=tmp_path / "b")
    assert first.card.metrics == second.card.metrics
    card = json.loads((tmp_path / "a" / "card.json").read_text())
    assert card["unsafe"] == ["unsafe_seeded_stream"]
    assert not [row for row in card["guarantees"] if row["standing"] == "proven"]


def table_run(tmp_path, *, bounds):
    """Exit code of a run on a table of one's own."""
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'yes' if a + b > 1 else 'no'}" for a, b in rng.random((400, 2))]
    (tmp_path / "mine.csv").write_text("\n".join(["a,b,label", *rows]))
    (tmp_path / "mine.toml").write_text(
        'dataset = "table"\nmodel = "linear"\nepsilon = 8.0\ndelta = 1e-4\nepochs = 20\nbatch_size = 64\n'
        'learning_rate = 2.0\n[table]\npath = "mine.csv"\ntarget = "label"\nclasses = ["no", "yes"]\n'
        f"[table.bounds]\n{bounds}\n"
    )
    arguments = ["train", str(tmp_path / "mine.toml"), "--data-dir", str(tmp_path), "--out", str(tmp_path / "run")]
    return main([*arguments, "--json"])


@pytest.mark.slow
def test_a_table_of_ones_own(tmp_path, capsys):
    assert table_run(tmp_path, bounds="a = [0.0, 1.0]\nb = [0.0, 1.0]") == 0
    out = capsys.readouterr()
    card = json.loads(out.out)
    assert card["metrics"]["test"] > 0.8
    assert card["leaks"] == card["unsafe"] == []
    assert "warning" not in out.err
    assert main(["audit", str(tmp_path / "run"), "--data-dir", str(tmp_path), "--json"]) == 0


@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_undeclared_bounds_of_a_table_leave_claims_only(tmp_path, capsys):
    assert table_run(tmp_path, bounds="a = [0.0, 1.0]") == 0
    card = json.loads(capsys.readouterr().out)
    assert card["leaks"] == ["bounds of b"]
    assert card["unsafe"] == ["read_from_data: bounds of b"]
    assert "Read from the data without being paid for: bounds of b" in card["assumptions"]
    assert {row["standing"] for row in card["guarantees"]} == {"claimed"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_what_a_data_set_was_prepared_from_is_said_beside_the_number(tmp_path, monkeypatch, capsys):
    prepared = replace(published.source("digits"), leaks=("the vocabulary",))
    monkeypatch.setitem(published._SOURCES, "digits", prepared)
    assert main(["train", "digits", "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    said = "without a privacy cost: the vocabulary."
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (tmp_path / "run" / "card.html").read_text()
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert "proven" in {row["standing"] for row in card["guarantees"]}
    assert "Read from the data without being paid for: the vocabulary" in card["assumptions"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "digit"], "Did you mean 'digits'"),
        (["train", "nowhere.toml"], "configuration must be a file that exists"),
        (["train", "digits", "--clip-norm", "-1"], "clip_norm must be in (0, inf); got -1.0"),
        (["train", "digits", "--epsilon", "nan"], "epsilon must be in (0, inf); got nan"),
        (["train", "digits", "--epsilon", "1", "--noise-multiplier", "1"], "Give exactly one"),
        (["train", "digits", "--batch-size", "100000"], "batch_size must be in [1, 1438]"),
        (["train", "digits", "--dataset", "digitz"], "Did you mean 'digits'"),
        (["train", "digits", "--epsilonn", "1"], "No such option: --epsilonn"),
        (["train", "digits", "--method", "gradeint"], "Did you mean 'gradient'"),
        (["audit", "nowhere"], "RUN must be the folder of a `tacit train`"),
        (["data", "digitz"], "Did you mean 'digits'"),
        (["data", "--download"], "NAME must be given with --download"),
    ],
)
def test_mistakes_give_one_sentence_and_exit_code_2(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


def test_missing_data_says_where_and_how(tmp_path):
    with pytest.raises(MissingData, match=r"train-images-idx3-ubyte\.gz"):
        train(read_config("mnist", {}), data_dir=tmp_path, out=tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["r[/b]", pytest.param("r[red]", marks=pytest.mark.slow), pytest.param("r:smile:", marks=pytest.mark.slow)]
)
def test_a_folders_name_is_printed_as_it_is_and_no_bar_is_drawn_in_a_log(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "digits", "--epochs", "0.1", "--out", name]) == 0
    assert main(["audit", name]) == 0
    told = capsys.readouterr()
    assert str(Path(name) / "card.html") in told.out
    assert str(Path(name) / "audit.html") in told.out
    assert told.err == ""


@pytest.mark.slow
def test_a_delta_too_large_for_the_data_must_be_asked_for(tmp_path, capsys):
    command = ["train", "digits", "--delta", "0.01", "--epochs", "0.1", "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert "below 1/n = 0.0007 for the 1438 records" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*command, "--set", "unsafe_delta=true"]) == 0
    assert "n=1438" in capsys.readouterr().err
    assert Ledger.load(tmp_path / "run" / "ledger.json").unsafe == ["unsafe_delta"]


def test_overrides_switch_between_noise_and_epsilon(tmp_path):
    assert read_config("adult", {"epsilon": 2.0}).noise_multiplier is None
    assert read_config("digits", {"noise_multiplier": 2.0}).epsilon is None
    with pytest.raises(InvalidInput, match="convnet"):
        train(read_config("digits", {"model": "convnet", "dataset": "breast_cancer"}), out=tmp_path / "never")


def test_settings_reach_the_run_by_flag_and_by_set(tmp_path, capsys):
    folder = tmp_path / "run"
    given = (
        "--hidden 8 --hidden 4 --set momentum=0.5 --relation replace_one --set confidence=0.9 --epochs 0.2 --epsilon 9"
    )
    assert main(["train", "digits", *given.split(), "--attack", "loss_threshold", "--out", str(folder)]) == 0
    settings = json.loads((folder / "config.json").read_text())
    assert settings["hidden"] == [8, 4]
    assert (settings["momentum"], settings["relation"], settings["confidence"]) == (0.5, "replace_one", 0.9)
    card = json.loads((folder / "card.json").read_text())
    assert card["guarantees"][0]["relation"] == "replace_one"
    assert card["guarantees"][0]["epsilon"] <= 9


def test_infinities_are_spelled_in_json(run):
    text = (run[0].folder / "card.json").read_text()
    assert "Infinity" not in text
    assert "NaN" not in text
    assert math.isfinite(json.loads(text)["wall_seconds"])


KINDS = [
    "clip.type=per_layer",
    "clip.type=automatic clip.stability=0.1",
    "clip.type=adaptive clip.quantile=0.6",
    "sampling=fixed_size relation=replace_one",
    "noise.type=exponential noise_multiplier=2 noise.end=1",
    "noise=banded:2 sampling.type=cyclic_poisson",
    "optimizer=adam_bc learning_rate=0.01 adam_floor=1e-4 max_physical_batch_size=32",
    "optimizer=adagrad learning_rate=0.1 learning_rate_schedule=cosine precision=bfloat16",
]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", KINDS)
def test_kinds_of_clipping_sampling_noise_and_optimizer(kinds, tmp_path):
    arguments = ["train", "digits", "--epochs", "0.3", "--batch-size", "144", "--out", str(tmp_path), "--json"]
    given = kinds.split()
    if "noise_multiplier" not in kinds:
        given.append("noise_multiplier=1.5")
    assert main([*arguments, *(text for each in given for text in ("--set", each))]) == 0
    settings = json.loads((tmp_path / "config.json").read_text())
    for key, value in (each.split("=") for each in given):
        section, _, name = (f"{key}.{SHORT_FORMS[key]}" if key in SHORT_FORMS else key).rpartition(".")
        found = (settings[section] if section else settings)[name]
        assert str(found) == value or float(found) == float(value)
    assert Ledger.load(tmp_path / "ledger.json").steps == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "clip.type=flatt"], "Did you mean 'flat'"),
        (["--set", "clip.type=adaptive", "--set", "clip.stability=1"], "key of a adaptive clip must be one of"),
        (["--set", "noise.type=exponential"], "end of [noise] must be given for exponential"),
        (["--set", "noise.type=exponential", "--set", "noise.end=1"], "constant where epsilon is given"),
        (["--set", "sampling.cap=3"], "type of [sampling] must be one that has cap; got 'poisson'"),
        (["--set", "sampling.type=grouped_poisson", "--set", "sampling.users=user"], "users of [sampling]"),
        (["--set", "nonprivate_learning_rate=-1"], "nonprivate_learning_rate must be in (0, inf)"),
        (["--set", "precision=float16"], "precision must be one of"),
    ],
)
def test_settings_of_another_kind_are_refused(arguments, sentence, capsys, tmp_path):
    assert main(["train", "digits", "--epochs", "0.1", "--out", str(tmp_path / "run"), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_one_of_several_processes_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingMisuse, match="one process on one device; got 2 ranks"):
        train(read_config("digits", {"epochs": 0.1}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_ends_in_at_most_eight_lines_with_what_matters(tmp_path, capsys):
    """Epsilon with standing and delta, accuracy against the constant and without privacy, attack, budget, card."""
    assert main(["train", "digits", "--epochs", "0.2", "--out", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 8
    assert re.match(r"ε ≤ [\d.]+ at δ = 0.0001, proven, for .* \(accountant pld\)\.$", lines[0])
    assert re.search(
        r"Test accuracy [\d.]+ % .*commonest class: [\d.]+ %.*, without privacy [\d.]+ %: digits", lines[1]
    )
    assert any("Strongest attack: ε ≥" in line and "could have detected ε" in line for line in lines)
    assert str(tmp_path / "run" / "card.html") in lines[-1]


@pytest.mark.parametrize("kind", NOISE_SHAPES)
def test_every_noise_that_is_offered_is_there(kind):
    values = {"end": 0.5, "factor": 0.5, "every": 3}
    section = {"type": kind} | {name: values[name] for name in NOISE_SHAPES[kind]}
    assert noise_of(read_config("digits", {"noise_multiplier": 1.0, "noise": section})) is not None


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_every_sampling_that_is_offered_is_there(kind):
    dataset = data.load("iris")
    own = {"truncated_poisson": {"cap": 40}, "grouped_poisson": {"users": dataset.feature_names[0]}}
    config = read_config("digits", {"sampling": {"type": kind} | own.get(kind, {})})
    assert sampling_of(config, dataset).type == kind
