"""A folder that came from elsewhere may hold anything: it is refused in a sentence, and nothing of it runs."""

import json
import os
import shutil
import struct

import pytest

from tacit.cli import main
from tacit.runs import read_config, train
from tests.runs.reissued import reissue

SETTINGS = {"dataset": "iris", "epochs": 1.0, "batch_size": 30, "noise_multiplier": 1.0, "attacks": (), "delta": 1e-3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "run"
    train(read_config("digits", SETTINGS), out=folder)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def tensors(header, content=b"\0" * 4):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
FILES = {
    "longer header than the file": struct.pack("<Q", 2**63) + b"{}",
    "negative length": b"\xff" * 8,
    "empty": b"",
    "more values than bytes": tensors({"a": ONE | {"shape": [10**12]}}),
    "values that overlap": tensors({"a": ONE, "b": ONE}),
    "values beyond the end": tensors({"a": ONE | {"data_offsets": [4, 8]}}),
    "pickle": b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.",
    "zip": b"PK\x03\x04" + bytes(40),
    "tar": b"model" + bytes(507),
    "npy": b"\x93NUMPY\x01\x00" + bytes(40),
}


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint.safetensors"])
@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_no_such_model_or_checkpoint_is_read(run, name, content, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (run / name).write_bytes(content)
    if name.startswith("model"):
        assert main(["audit", "run"]) == 3
        assert "model.safetensors must be as this user's key signed it last" in capsys.readouterr().err
        assert main(["verify", "run"]) == 3
        reissue(run)
        assert main(["audit", "run"]) == 2
        error = capsys.readouterr().err
        assert "must be a complete safetensors file" in error or "weights of the hidden layers must be" in error
    else:
        for gone in ("card.json", "signature.json"):
            (run / gone).unlink()
        assert main(["train", "--resume", "run"]) == 2
        assert "checkpoint must be" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "9" * 5000, "-1", "true", '"1"', "[]", "[" * 10**5]


@pytest.mark.parametrize("number", NUMBERS, ids=range(len(NUMBERS)))
def test_no_such_number_of_steps_is_accounted_for(number, tmp_path, capsys):
    text = '{"mechanisms": [{"type": "gaussian", "noise_multiplier": 1.0, "steps": NUMBER}]}'
    (tmp_path / "s.json").write_text(text.replace("NUMBER", number))
    for command in (["account", str(tmp_path / "s.json"), "--delta", "1e-5"], ["verify", str(tmp_path / "s.json")]):
        assert main(command) == 2
        assert "must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", [{"id": "../../x"}, {"id": "\0"}, {"count": 10**400}, {"count": 1e308}, {"mac": "é"}]
)
def test_a_signature_with_other_parts_is_an_edited_one(run, change, capsys):
    table = json.loads((run / "signature.json").read_text())
    table["signature"].update(change)
    (run / "signature.json").write_text(json.dumps(table))
    assert main(["verify", str(run)]) == 3


def test_links_in_a_folder_lead_to_no_write(tmp_path):
    """What a run writes replaces a link; a lock that is a link is refused."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(read_config("digits", SETTINGS).settings()))
    victims = [tmp_path / f"victim{name}" for name in (".lock", "-signature.json", "-card.html", "-execution.json")]
    for victim in victims:
        victim.write_text("{}")
        os.symlink(victim, run / victim.name.removeprefix("victim").removeprefix("-"))
    assert main(["train", "--resume", str(run)]) == 2
    (run / ".lock").unlink()
    assert main(["train", "--resume", str(run)]) in (0, 2)
    assert {path.read_text() for path in victims} == {"{}"}


def test_devices_and_pipes_are_no_files_of_a_run(run, capsys):
    for name in ("model.safetensors", "signature.json"):
        (run / name).unlink()
        os.symlink("/dev/zero", run / name)
    (run / "card.html").unlink()
    os.mkfifo(run / "card.html")
    assert main(["verify", str(run)]) == 3
    assert "card.html" in capsys.readouterr().out
