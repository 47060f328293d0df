"""Files of a run: what was changed, taken away or put back is refused or visible."""

import json
import os
import shutil
import stat

import pytest

from tacit.accounting import Ledger
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.runs import read_config, resume, train
from tacit.signing import configuration_folder

SETTINGS = {"dataset": "iris", "epochs": 1.0, "batch_size": 30, "noise_multiplier": 1.0, "attacks": (), "delta": 1e-3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed") / "run"
    train(read_config("digits", SETTINGS), out=folder)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def verified(path, capsys):
    code = main(["verify", str(path), "--json"])
    return code, json.loads(capsys.readouterr().out)


def edit(path, change):
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def test_an_own_run_is_evidence(run, capsys):
    code, said = verified(run, capsys)
    assert (code, said["of"]) == (0, "run")
    assert {row["is"] for row in said["files"]} == {"signed by this user's key"}
    assert main(["account", str(run / "ledger.json"), "--json", "--accountant", "pld"]) == 0
    # A ledger is the record of a run only where it states the facts of that run.
    stated = Ledger.load(run / "ledger.json").is_run
    assert json.loads(capsys.readouterr().out)["of"] == ("run" if stated else "spec")


def test_the_key_is_this_users_alone(run):
    assert stat.S_IMODE((configuration_folder() / "signing.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["config.json", "card.json", "card.html", "ledger.json", "model.safetensors"])
def test_a_changed_byte_of_any_file_is_noticed(run, name, capsys):
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(content)
    code, said = verified(run, capsys)
    assert (code, said["of"]) == (3, "spec")


@pytest.mark.parametrize("key", ["metrics", "guarantees", "audits"])
def test_numbers_of_the_card_cannot_be_edited_unnoticed(run, key, capsys):
    edit(run / "card.json", lambda card: card.update({key: []}))
    assert verified(run, capsys)[0] == 3


def test_a_ledger_without_hashes_and_signature_is_only_a_statement(run, capsys):
    def strip(table):
        for name in ("hash", "signature", "facts"):
            table.pop(name, None)
        for row in table["mechanisms"]:
            row.pop("hash")
            row["steps"] = 1

    edit(run / "ledger.json", strip)
    assert main(["account", str(run / "ledger.json"), "--json", "--accountant", "pld"]) == 3
    assert verified(run / "ledger.json", capsys)[1]["of"] == "spec"
    alone = shutil.copy(run / "ledger.json", run.parent / "alone.json")
    assert main(["account", str(alone), "--json", "--accountant", "pld"]) == 0
    assert json.loads(capsys.readouterr().out)["of"] == "spec"


def test_a_foreign_run_opens_and_says_so(run, capsys, monkeypatch):
    monkeypatch.setenv("TACIT_KEY", "the key of somebody else, long enough")
    code, said = verified(run, capsys)
    assert (code, said["of"]) == (0, "spec")
    assert main(["account", str(run / "ledger.json"), "--json", "--accountant", "pld"]) == 0
    assert json.loads(capsys.readouterr().out)["of"] == "spec"


def test_a_foreign_ledger_is_not_signed_by_being_saved_again(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_KEY", "the key of somebody else, long enough")
    Ledger.load(run / "ledger.json").save(tmp_path / "again.json")
    assert not Ledger.load(tmp_path / "again.json").is_evidence


class Stopped(Exception):
    pass


def stopped(folder, at, **changes):
    def watch(stage, done, total):
        if stage == "private training" and done == at:
            raise Stopped

    settings = SETTINGS | {"epochs": 4.0, "checkpoint_every": 2} | changes
    with pytest.raises(Stopped):
        train(read_config("digits", settings), out=folder, on_progress=watch)


def test_an_older_checkpoint_put_back_is_refused(tmp_path):
    folder, kept = tmp_path / "run", tmp_path / "kept"
    stopped(folder, 3)
    shutil.copy(folder / "checkpoint.safetensors", kept)

    def watch(stage, done, total):
        if stage == "private training" and done == 9:
            raise Stopped

    with pytest.raises(Stopped):
        resume(folder, on_progress=watch)
    shutil.copy(kept, folder / "checkpoint.safetensors")
    with pytest.raises(InvalidInput, match="An older one was put back"):
        resume(folder)


def test_a_flipped_bit_of_the_weights_is_refused(tmp_path):
    stopped(tmp_path / "run", 3)
    path = tmp_path / "run" / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="whose content was edited"):
        resume(tmp_path / "run")


@pytest.mark.slow
def test_a_run_in_work_is_not_resumed_by_another(tmp_path):
    from tacit.locking import locked

    stopped(tmp_path / "run", 3)
    with locked("out", tmp_path / "run"), pytest.raises(InvalidInput, match="free of other processes"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run").card.ledger.steps >= 16
    assert not [name for name in os.listdir(tmp_path / "run") if name.endswith((".lock", ".part"))]


@pytest.mark.slow
def test_a_run_without_budget_left_ends_with_what_it_has(tmp_path):
    folder = tmp_path / "run"
    stopped(folder, 3, noise_multiplier=None, epsilon=2.0)
    run = resume(folder)
    assert (folder / "card.json").exists()
    assert run.card.ledger.steps <= 16
    assert "budget" in run.card.settings["stopped"]


class TestPutBack:
    """What another run, or this one earlier, wrote is refused or lowers the standing of the run that goes on."""

    def test_the_checkpoint_of_another_run_of_the_same_settings_is_refused(self, tmp_path):
        for name, at in (("short", 3), ("long", 9)):
            stopped(tmp_path / name, at)
        shutil.copy(tmp_path / "short" / "checkpoint.safetensors", tmp_path / "long" / "checkpoint.safetensors")
        with pytest.raises(InvalidInput, match="that of another run"):
            resume(tmp_path / "long")

    def test_weights_of_another_checkpoint_are_refused(self, tmp_path):
        from safetensors import safe_open
        from safetensors.torch import load_file, save_file

        paths = []
        for name, at in (("short", 3), ("long", 9)):
            stopped(tmp_path / name, at)
            paths.append(tmp_path / name / "checkpoint.safetensors")
        tensors = load_file(paths[0])
        with safe_open(paths[1], framework="pt") as file:
            header = file.metadata()
        save_file(tensors, paths[1], header)
        with pytest.raises(InvalidInput, match="whose content was edited"):
            resume(tmp_path / "long")

    @pytest.mark.slow
    def test_an_older_copy_of_the_whole_folder_is_refused(self, tmp_path):
        folder, kept = tmp_path / "run", tmp_path / "kept"
        stopped(folder, 3)
        shutil.copytree(folder, kept)
        resume(folder)
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        with pytest.raises(InvalidInput, match="as this user's key signed it last"):
            resume(folder)
        assert main(["verify", str(folder)]) == 3

    @pytest.mark.slow
    @pytest.mark.parametrize("method", ["gradient", pytest.param("vi", marks=pytest.mark.slow)])
    def test_a_copy_that_goes_on_beside_its_original_makes_one_of_them_a_claim(self, method, tmp_path, capsys):
        first, second = tmp_path / "first", tmp_path / "second"
        stopped(first, 3, method=method) if method == "gradient" else stopped_inference(first)
        shutil.copytree(first, second)
        ledgers = [resume(folder).card.ledger for folder in (first, second)]
        assert [ledger.standing.value == "claimed" for ledger in ledgers] == [False, True]
        assert any("went on elsewhere" in switch for switch in ledgers[1].unsafe)
        assert [verified(folder, capsys)[0] for folder in (first, second)] == [0, 0]

    @pytest.mark.slow
    def test_an_older_ledger_of_a_run_without_checkpoints_is_refused_or_a_claim(self, tmp_path):
        folder, kept = tmp_path / "run", tmp_path / "kept"
        stopped_inference(folder)
        shutil.copytree(folder, kept)
        with pytest.raises(Stopped):
            resume(folder, on_progress=at_inference)
        assert Ledger.load(folder / "ledger.json").steps > Ledger.load(kept / "ledger.json").steps
        shutil.copy(kept / "ledger.json", folder / "ledger.json")
        assert resume(folder).card.ledger.standing.value == "claimed"

    @pytest.mark.slow
    def test_a_signature_that_was_taken_away_leaves_a_claim(self, tmp_path):
        stopped(tmp_path / "run", 3)
        (tmp_path / "run" / "signature.json").unlink()
        ledger = resume(tmp_path / "run").card.ledger
        assert (ledger.standing.value, ledger.unsafe) == ("claimed", ["unsafe_run: not signed"])

    def test_settings_that_were_edited_while_a_run_was_stopped_are_refused(self, tmp_path):
        stopped(tmp_path / "run", 3)
        edit(tmp_path / "run" / "config.json", lambda config: config.update(checkpoint_every=1))
        with pytest.raises(InvalidInput, match="as this user's key signed it last"):
            resume(tmp_path / "run")

    def test_a_ledger_that_was_taken_away_after_a_release_is_missed(self, tmp_path):
        """Output perturbation is stopped after its release, which nothing but the ledger tells of."""
        folder = tmp_path / "run"

        def watch(stage, done, total):
            if (stage, done) == ("private training", 1):
                raise Stopped

        settings = SETTINGS | {"method": "objective", "epsilon": 1.0, "noise_multiplier": None}
        with pytest.raises(Stopped):
            train(read_config("digits", settings), out=folder, on_progress=watch)
        (folder / "ledger.json").unlink()
        with pytest.raises(InvalidInput, match=r"with its ledger\.json"):
            resume(folder)

    def test_another_execution_record_is_noticed(self, run, capsys):
        edit(run / "execution.json", lambda table: table.update(records=[]))
        assert verified(run, capsys)[0] == 3


def at_inference(stage, done, total):
    if (stage, done) == ("private inference", 2):
        raise Stopped


def stopped_inference(folder):
    with pytest.raises(Stopped):
        train(read_config("digits", SETTINGS | {"method": "vi"}), out=folder, on_progress=at_inference)
