"""`tacit audit` from end to end: every attack on a small run, its repetitions, canaries, page and JSON."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.accounting import Ledger
from tacit.cli import main
from tacit.errors import Changed, InvalidInput
from tacit.runs import audit_run, read_config, train
from tacit.runs.audits import attack_names
from tacit.runs.builders import dataset_of
from tacit.runs.canary_training import Training, training_of
from tacit.runs.open_run import open_run
from tacit.runs.privileged_attacks import PrivilegedAttacks
from tacit.training import release
from tests.runs.reissued import reissue


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
    assert {finding.estimator for finding in report.findings} == {"one_run_curve"}


def test_nothing_refutes_the_proven_claim(report):
    """False alarm below 1e-6."""
    assert report.claim is not None
    assert not any(report.refutes(result) for result in report.results if result.trials == "independent")
    assert not any(finding.refuted for finding in report.findings)
    assert report.monitors == {"noise": True, "sampler": True}


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
    config = open_run(run).config()
    privileged = PrivilegedAttacks(config, dataset_of(config, None), run, 2, lambda *_: None)
    rows = [{row.tobytes() for row in np.asarray(part[0])} for part in privileged.halves]
    assert sum(map(len, rows)) == len({row.tobytes() for row in privileged.dataset.x_test})
    assert not rows[0] & rows[1]


@pytest.mark.slow
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
    config = open_run(run).config()
    dataset = dataset_of(config, None)
    for ledger, said in (
        (Ledger(relation="replace_one"), "relation replace_one"),
        (Ledger(), "steps of another kind"),
    ):
        with pytest.raises(InvalidInput, match=f"run must be one that white-box audits take; got .*{said}"):
            training_of(config, dataset, ledger)
    with pytest.raises(InvalidInput, match="method objective"):
        training_of(replace(config, method="objective"), dataset, open_run(run).ledger)
    attacker = PrivilegedAttacks(replace(config, model="convnet"), dataset, run, 2, lambda *_: None)
    with pytest.raises(InvalidInput, match="shape must be an integer >= 14"):
        attacker("lira_offline", lambda inputs: inputs, home=run)


def test_shadow_models_of_a_convolutional_run_are_stacked(run, tmp_path, caplog):
    config = replace(open_run(run).config(), model="convnet")
    dataset = dataset_of(open_run(run).config(), None)
    dataset = replace(dataset, x_train=enlarged(dataset.x_train[:300]), y_train=dataset.y_train[:300])
    dataset = replace(dataset, x_test=enlarged(dataset.x_test))
    copy = again(run, tmp_path)
    attacker = PrivilegedAttacks(config, dataset, copy, 4, lambda *_: None)
    scores = attacker("lira_offline", attacker.references.models[0], home=copy)
    assert scores.count[0] == 300
    assert (copy / "audit" / "references" / "shadows-00000.safetensors").is_file()
    assert not caplog.records


def enlarged(digits):
    """Digits (n, 64) as images of 16 by 16."""
    return digits.reshape(-1, 1, 8, 8).repeat(2, axis=2).repeat(2, axis=3)


def again(run, folder, **changes):
    """A copy of the run without audits, whose execution record has these changes."""
    copy = shutil.copytree(run, folder / "run", ignore=shutil.ignore_patterns("audit*"))
    stored = json.loads((copy / "execution.json").read_text())
    stored["records"][0] |= changes
    (copy / "execution.json").write_text(json.dumps(stored))
    return reissue(copy)


def audited(run, capsys, *options):
    code = main(["audit", str(run), "--canaries", "100", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_by_default_canaries_repeat_the_run_beside_the_attacks_of_its_settings(run, tmp_path, capsys):
    copy = again(run, tmp_path)
    code, printed = audited(copy, capsys)
    assert code == 0
    assert [row["attack"] for row in printed["audits"]] == ["white_box", "loss_threshold", "white_box", "white_box"]
    assert printed["audited"]
    assert not printed["refuted"]
    assert not printed["refusals"]
    assert printed["monitors"] == {"noise": "passed", "sampler": "passed"}
    assert {row["detectable_family"] for row in printed["audits"]} == {"gaussian"}
    assert "audited: 29 steps were run again" in (copy / "audit.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["recorded", pytest.param("eager", marks=pytest.mark.slow)])
def test_the_canary_run_has_the_engine_threads_and_pieces_of_the_run(run, tmp_path, capsys, engine):
    changes = {"engine": engine, "threads": 2, "max_physical_batch_size": 64, "accumulation": "clipped sums"}
    code, printed = audited(again(run, tmp_path, **changes), capsys, "--attack", "white_box")
    assert (code, printed["audited"], printed["differences"]) == (0, True, [])


@pytest.mark.slow
def test_a_run_of_other_files_is_not_called_audited(run, tmp_path, capsys):
    copy = again(run, tmp_path, package_hash="0" * 64)
    _, printed = audited(copy, capsys, "--attack", "white_box")
    assert not printed["audited"]
    assert [each.split(":")[0] for each in printed["differences"]] == ["package_hash"]
    page = (copy / "audit.html").read_text()
    assert "not audited: package_hash: 0000" in page
    assert ">audited" not in page


@pytest.mark.slow
def test_without_a_record_or_a_repetition_nothing_is_called_audited(run, tmp_path, capsys):
    copy = again(run, tmp_path)
    _, printed = audited(copy, capsys, "--attack", "entropy")
    assert printed["differences"] == ["the run was not repeated: attack white_box was not asked for"]
    (copy / "execution.json").unlink()
    _, printed = audited(copy, capsys, "--attack", "white_box")
    assert printed["differences"] == ["no execution record is stored with the run"]
    assert not printed["audited"]


def scaled(factor):
    scales = release.scales

    def changed(*given):
        std, divisor = scales(*given)
        return std * factor(), divisor

    return changed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "threads"), [(lambda: 0.97, 1), (lambda: torch.get_num_threads() ** -0.5, 2)], ids=["0.97", "threads"]
)
def test_wrong_noise_ends_in_exit_code_3(run, tmp_path, capsys, monkeypatch, factor, threads):
    monkeypatch.setattr(release, "scales", scaled(factor))
    code, printed = audited(again(run, tmp_path, threads=threads), capsys, "--attack", "white_box")
    assert (code, printed["refuted"]) == (3, True)
    assert printed["monitors"]["noise"] == "failed"
    # What ends a run that trains is a finding of one that is repeated.
    assert any("noise must be that which the ledger states" in said for said in printed["refusals"])


@pytest.mark.slow
def test_a_claim_that_canaries_refute_ends_in_exit_code_3(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(release, "scales", scaled(lambda: 0.1))
    code, printed = audited(again(run, tmp_path), capsys, "--attack", "white_box")
    assert (code, printed["refuted_by"]) == (3, ["white_box"])


@pytest.mark.parametrize(("file", "table"), [("card.json", "settings"), ("config.json", None)])
def test_noise_in_the_settings_that_is_not_the_ledgers_is_refused(run, tmp_path, capsys, file, table):
    copy = again(run, tmp_path)
    content = json.loads((copy / file).read_text())
    (content[table] if table else content)["noise_multiplier"] = 5 * noise_of(run)
    content.pop("epsilon", None)
    (copy / file).write_text(json.dumps(content))
    assert main(["audit", str(copy), "--canaries", "20"]) == 3
    assert main(["audit", str(reissue(copy)), "--canaries", "20"]) == 2
    assert f"noise_multiplier of {file} must be" in capsys.readouterr().err


def noise_of(run):
    return json.loads((run / "card.json").read_text())["settings"]["noise_multiplier"]


def test_the_canary_run_repeats_the_mechanisms_of_the_ledger(run):
    config, ledger = open_run(run).config(), open_run(run).ledger
    found = training_of(config, dataset_of(config, None), ledger)
    assert found == Training(noise_of(run), 100 / 1438, 29)


def test_line_12_a_run_that_is_resumed_in_another_way_has_two_records(run, tmp_path):
    copy = again(run, tmp_path, threads=7)
    (copy / "card.json").unlink()
    from tacit.runs.builders import differences, store_execution

    (record,) = open_run(run).execution
    store_execution(copy, record)
    store_execution(copy, record)
    stored = open_run(copy).execution
    assert [each.threads for each in stored] == [7, record.threads]
    assert differences(stored, record)[0] == "the run was computed in 2 ways, which differ in threads"


@pytest.mark.slow
def test_runs_that_canaries_do_not_take_say_which_they_take(tmp_path, capsys):
    config = read_config("digits", {"epochs": 1.0, "batch_size": 100, "sampling": {"type": "fixed_size"}})
    folder = train(replace(config, relation="replace_one"), out=tmp_path / "run").folder
    code, printed = audited(folder, capsys)
    assert (code, printed["audited"]) == (0, False)
    assert "White-box audits take runs of method gradient" in printed["differences"][0]
    assert [row["attack"] for row in printed["audits"]] == ["loss_threshold"]
    assert main(["audit", str(folder), "--attack", "white_box"]) == 2
    assert "White-box audits take" in capsys.readouterr().err


def test_a_ledger_of_another_run_is_refused(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    Ledger().save(folder / "ledger.json")
    with pytest.raises(Changed, match=r"ledger\.json must be"):
        audit_run(folder)
    with pytest.raises(Changed, match=r"is not the card of its ledger\.json"):
        audit_run(reissue(folder, signed=True))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"[1]", "config.json must be a JSON table"),
        ("config.json", b"null", "config.json must be a JSON table"),
        ("config.json", b"\xff\xfe", "config.json must be a JSON file"),
        ("card.json", b"x", "card.json must be a JSON file"),
        ("card.json", b"[]", "card.json must be a JSON table"),
        ("ledger.json", b'{"mechanisms": [], "unsafe": 5}', "unsafe must be a list"),
        ("execution.json", b"[]", "execution.json must be a JSON table"),
        ("execution.json", b'{"records": [{"engine": "eager"}]}', "precision of the execution record must be given"),
        ("audit.json", None, "path must be one that this command can use"),
    ],
)
def test_a_damaged_run_is_named(run, tmp_path, capsys, name, content, said):
    damaged = tmp_path / "run"
    shutil.copytree(run, damaged, ignore=shutil.ignore_patterns("audit*"))
    (damaged / name).unlink(missing_ok=True)
    (damaged / name).mkdir() if content is None else (damaged / name).write_bytes(content)
    attack = "white_box" if name in ("card.json", "execution.json") else "loss_threshold"
    if name != "audit.json":
        assert main(["audit", str(damaged)]) == 3
        assert f"{name} must be as this user's key signed it last" in capsys.readouterr().err
        (damaged / "signature.json").unlink() if name == "card.json" else reissue(damaged)
    assert main(["audit", str(damaged), "--attack", attack, "--canaries", "20"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    if name == "config.json":
        assert main(["train", "--resume", str(damaged)]) == 2
