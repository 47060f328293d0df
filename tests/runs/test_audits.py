"""`tacit audit` from end to end: every attack on a small run, its repetitions, canaries, page and JSON."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tacit.accounting import Ledger
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.runs import audit, audit_run, read_config, train
from tacit.runs.audits import attack_names, white_box
from tacit.runs.builders import dataset_of
from tacit.runs.privileged_attacks import PrivilegedAttacks
from tacit.runs.stored_run import stored_config


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audits")
    return train(read_config("digits", {"epochs": 2.0, "batch_size": 100}), out=folder).folder


@pytest.fixture(scope="module")
def report(run):
    return audit_run(run, attacks=attack_names(), shadows=4, canaries=300, runs=2, confidence=1 - 1e-7)


def test_every_attack_answers(report):
    assert [result.attack for result in report.results] == attack_names()
    assert all(-1 <= result.advantage <= 1 for result in report.results)
    assert {finding.estimator for finding in report.findings} == {"normal", "one_run_curve"}


def test_nothing_refutes_the_proven_claim(report):
    """False alarm below 1e-6."""
    assert report.claim is not None
    assert not any(report.refutes(result) for result in report.results if result.trials == "independent")
    assert not any(finding.refuted for finding in report.findings)


def test_every_pass_stands_beside_what_could_have_been_found(report):
    assert all(result.detectable_epsilon > 0 for result in report.results)
    assert all(finding.detectable_mu > 0 for finding in report.findings)


def test_canaries_are_independent_trials_and_records_are_not(report):
    trials = {result.attack: result.trials for result in report.results}
    assert trials.pop("white_box") == "independent"
    assert set(trials.values()) == {"records"}


def test_repetitions_are_attacked_with_fresh_noise_and_kept(run, report):
    assert set(report.overlaps) == set(attack_names()) - {"white_box"}
    rows = report.overlaps["loss_threshold"]
    assert [row.runs for row in rows] == [0, 1, 2]
    assert rows[0].members > rows[2].members
    weights = [path.read_bytes() for path in (run / "model.safetensors", run / "audit/run-2/model.safetensors")]
    assert weights[0] != weights[1]


def test_an_audit_goes_on_from_what_an_earlier_one_left(run, report):
    before = {path: path.stat().st_mtime_ns for path in (run / "audit").rglob("*") if path.is_file()}
    again = audit_run(run, attacks=["lira_offline", "gradient_norm"], shadows=4, runs=2)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    first = {result.attack: result.advantage for result in report.results}
    assert {result.attack: result.advantage for result in again.results}.items() <= first.items()


def test_members_and_the_attackers_own_records_are_apart(run):
    config = stored_config(run, {})
    privileged = PrivilegedAttacks(config, dataset_of(config, None), run, 2, lambda *_: None)
    rows = [{row.tobytes() for row in np.asarray(part[0])} for part in (privileged.non_members, privileged.public)]
    assert sum(map(len, rows)) == len({row.tobytes() for row in privileged.dataset.x_test})
    assert not rows[0] & rows[1]


def test_the_command_prints_and_writes(run, capsys):
    arguments = ["audit", str(run), "--attack", "entropy", "--attack", "white_box", "--canaries", "200"]
    assert main([*arguments, "--runs", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {row["attack"] for row in printed["audits"]} == {"entropy", "white_box"}
    contract = {"attack", "confidence", "advantage", "ppv", "epsilon_lower", "mu_lower"}
    assert all(row.keys() >= contract for row in printed["audits"])
    assert len(printed["overlaps"]["entropy"]) == 3
    assert printed["claim"]["approximate_bound"] >= printed["claim"]["advantage"]
    assert json.loads((run / "audit.json").read_text()) == printed
    page = (run / "audit.html").read_text()
    assert page.count("<svg") == 4
    assert "<script" not in page
    assert main(arguments) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "one_run_curve: valid when" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--attack", "lira"], "attack must be one of"),
        (["--attack", "white_bx"], "Did you mean 'white_box'"),
        (["--runs", "0"], "runs must be"),
        (["--shadows", "1"], "shadows must be"),
        (["--attack", "white_box", "--canaries", "0"], "canaries must be an integer >= 2"),
        (["--canaries", "-3"], "canaries must be an integer >= 2"),
        (["--confidence", "1.5"], "confidence must be"),
    ],
)
def test_bad_arguments_are_one_sentence(run, capsys, arguments, said):
    assert main(["audit", str(run), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_runs_that_an_attack_does_not_fit(run):
    config = stored_config(run, {})
    dataset = dataset_of(config, None)
    with pytest.raises(InvalidInput, match="add_remove for white_box"):
        white_box(replace(config, relation="replace_one"), dataset, run, canaries=10)
    attacker = PrivilegedAttacks(replace(config, model="convnet"), dataset, run, 2, lambda *_: None)
    with pytest.raises(InvalidInput, match="model must be linear or mlp"):
        attacker("lira_offline", lambda inputs: inputs, home=run)


STEPLESS = b'{"settings": {"sampling": "poisson", "clipping": "flat", "sample_rate": 0.1, "noise_multiplier": 1.0}}'


@pytest.mark.parametrize("ask", [audit, audit_run])
def test_a_ledger_of_another_run_is_refused(ask, run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    Ledger().save(folder / "ledger.json")
    with pytest.raises(InvalidInput, match=r"whose ledger\.json is the one of its card\.json"):
        ask(folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"[1]", "config.json must be a JSON table"),
        ("config.json", b"null", "config.json must be a JSON table"),
        ("config.json", b"\xff\xfe", "config.json must be a JSON file"),
        ("card.json", b"x", "card.json must be a JSON file"),
        ("card.json", b"[]", "card.json must be a JSON table"),
        ("card.json", b'{"settings": 5}', "settings of card.json must be a table"),
        ("card.json", STEPLESS, "attack must be another one for this run"),
        ("ledger.json", b'{"mechanisms": [], "unsafe": 5}', "unsafe must be a list"),
        ("model.safetensors", None, "path must be a model file that exists"),
        ("audit.json", None, "path must be one that this command can use"),
    ],
)
def test_a_damaged_run_is_named(run, tmp_path, capsys, name, content, said):
    damaged = tmp_path / "run"
    shutil.copytree(run, damaged, ignore=shutil.ignore_patterns("audit*"))
    (damaged / name).unlink(missing_ok=True)
    (damaged / name).mkdir() if content is None else (damaged / name).write_bytes(content)
    attack = "white_box" if name == "card.json" else "loss_threshold"
    assert main(["audit", str(damaged), "--attack", attack, "--canaries", "20"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    if name == "config.json":
        assert main(["train", "--resume", str(damaged)]) == 2
