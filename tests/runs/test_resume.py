"""A run that was stopped goes on from the command line, with its accounting and, seeded, to the same weights."""

import json

import pytest

from tacit.accounting import Ledger
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.runs import read_config, resume, train

SETTINGS = {"epochs": 3.0, "batch_size": 144, "noise_multiplier": 1.0, "checkpoint_every": 7, "unsafe_seed": 3}


class Stopped(Exception):
    pass


def stop_at(step):
    def watch(stage, done, total):
        if stage == "private training" and done == step:
            raise Stopped

    return watch


def stopped(folder, step=17, **changes):
    with pytest.raises(Stopped):
        train(read_config("digits", SETTINGS | changes), out=folder, on_progress=stop_at(step))


@pytest.mark.slow
def test_a_seeded_run_ends_as_if_it_had_not_been_stopped(tmp_path, capsys):
    whole = train(read_config("digits", SETTINGS), out=tmp_path / "whole")
    stopped(tmp_path / "part")
    assert not (tmp_path / "part" / "card.json").exists()
    assert main(["train", "--resume", str(tmp_path / "part"), "--unsafe-seed", "3", "--json"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert card["metrics"]["test"] == whole.card.metrics["test"]
    model = "model.safetensors"
    assert (tmp_path / "part" / model).read_bytes() == (tmp_path / "whole" / model).read_bytes()
    assert not (tmp_path / "part" / "checkpoint.safetensors").exists()
    # Steps 15 to 21 may have been taken before the stop: they count, and are taken again.
    ledgers = [Ledger.load(tmp_path / name / "ledger.json") for name in ("part", "whole")]
    assert ledgers[1].steps == 30
    assert ledgers[0].steps >= 30


@pytest.mark.slow
def test_a_secure_run_counts_what_may_be_lost(tmp_path):
    stopped(tmp_path, unsafe_seed=None)
    assert Ledger.load(tmp_path / "ledger.json").steps == 30
    run = resume(tmp_path)
    assert run.card.ledger.steps == 30 + 7
    assert "lost" in " ".join(entry.note for entry in run.card.ledger.entries)
    with pytest.raises(InvalidInput, match="This one is finished"):
        resume(tmp_path)


@pytest.mark.slow
def test_without_its_checkpoint_nothing_tells_what_was_spent(tmp_path):
    stopped(tmp_path)
    (tmp_path / "checkpoint.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"with its checkpoint\.safetensors"):
        resume(tmp_path)


@pytest.mark.slow
def test_a_run_writes_over_no_other(tmp_path):
    stopped(tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    for changes in ({"epochs": 1.0}, {"noise_multiplier": 9.0}):
        with pytest.raises(InvalidInput, match="out must be a folder without a run"):
            train(read_config("digits", SETTINGS | changes), out=tmp_path)
    assert (tmp_path / "config.json").read_bytes() == before
    assert resume(tmp_path, unsafe_seed=3).card.ledger.steps >= 30


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train"], "PRESET must be given unless --resume is"),
        (["train", "--resume", "nowhere"], "RUN must be the folder"),
        (["train", "digits", "--resume", "nowhere"], "PRESET must be left out with --resume"),
        (["train", "--resume", "nowhere", "--epochs", "3"], "epochs must be left out with --resume"),
        (["train", "--resume", "nowhere", "--set", "clip.type=flat"], "clip.type must be left out with --resume"),
    ],
)
def test_what_cannot_be_resumed(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    from tacit import runs

    (tmp_path / "my runs").mkdir()
    folder, once = tmp_path / "my runs" / "run", read_config("digits", SETTINGS | {"unsafe_seed": None})

    def stopping(config, *, on_progress, **given):
        def watch(stage, done, total):
            if (stage, done) == ("private training", 9):
                raise KeyboardInterrupt

        return train(once, on_progress=watch, **given)

    monkeypatch.setattr(runs, "train", stopping)
    assert main(["train", "digits", "--out", str(folder)]) == 1
    said = capsys.readouterr().err
    assert f"tacit train --resume '{folder}'" in said
    assert "interrupted." in said
    assert main(["train", "--resume", str(folder)]) == 0
