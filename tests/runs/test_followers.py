"""`torchrun -m tacit train`: two processes write one folder, with the weights and the ledger of one process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import distributed as dist

from tacit.accounting import Ledger
from tacit.errors import InvalidInput, TrainingMisuse
from tacit.runs import follow, join, leave, read_config, train

ROOT = Path(__file__).parents[2]
TINY = {"epochs": 0.5, "unsafe_seed": 0, "hidden": [8]}


def launched(*arguments, **named):
    """torchrun with two processes of `tacit train`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tacit"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "train", *map(str, arguments)], env=environment, text=True, **named)


@pytest.mark.slow
def test_two_processes_write_one_folder_with_the_weights_of_one(tmp_path):
    settings = ["--epochs", "0.5", "--unsafe-seed", "0", "--hidden", "8"]
    process = launched("digits", "--out", tmp_path / "two", *settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert out.count("test accuracy") == 1
    alone = train(read_config("digits", TINY), out=tmp_path / "one")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, value in one.items():
        assert torch.allclose(value, two[name], rtol=1e-6, atol=1e-6)
    ledger = Ledger.load(tmp_path / "two" / "ledger.json")
    assert [(each.mechanism, each.steps) for each in ledger.entries] == [
        (each.mechanism, each.steps) for each in alone.card.ledger.entries
    ]
    assert "trusted with clipped sums before noise" in (tmp_path / "two" / "card.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_interrupt_stops_both_after_one_step_and_the_run_goes_on(tmp_path):
    folder = tmp_path / "run"
    process = launched("digits", "--out", folder, "--epochs", "300", "--hidden", "8", start_new_session=True)
    kept = folder / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not kept.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(120)
    assert kept.exists()
    assert not (folder / "card.json").exists()


@pytest.fixture
def second_rank(tmp_path):
    """This process as one of a group of one, told as rank 1 is."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    leave()
    assert not dist.is_initialized()


@pytest.mark.usefixtures("second_rank")
def test_a_follower_trains_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    follow(read_config("digits", TINY))
    assert set(tmp_path.rglob("*")) == before


def test_methods_of_one_process_and_launchers_without_ranks_are_refused(monkeypatch, tmp_path):
    assert join(read_config("digits", {})) == 0
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidInput, match="method must be gradient on several processes; got 'vi'"):
        join(read_config("digits", {"method": "vi"}))
    with pytest.raises(TrainingMisuse, match="got 2 ranks"):
        train(read_config("digits", {"epochs": 0.1}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
