"""Two processes release what one does: one batch, one noise, one ledger."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.errors import TrainingMisuse
from tacit.sampling import Batch
from tacit.training import make_private
from tacit.training.ranks import share_of
from tests.training.cases import blobs, plain_sgd, small_model
from tests.training.distributed_script import train

ROOT = Path(__file__).parents[2]


def start(folder, ranks, arguments, script="tests.training.distributed_script"):
    """The processes of one job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", script, str(folder), json.dumps(arguments)]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    return [
        subprocess.Popen(command, cwd=ROOT, env=os.environ | job | {"RANK": str(rank), "PYTHONPATH": path})
        for rank in range(ranks)
    ]


def finished(folder, ranks, **arguments):
    """What every rank of a job wrote."""
    for process in start(folder, ranks, arguments):
        assert process.wait(240) == 0
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]


def check_equal(folder, ranks, **arguments):
    found = finished(folder, ranks, **arguments)
    alone, private = train(**arguments)
    assert all(each["weights"] == found[0]["weights"] for each in found)
    assert torch.allclose(torch.tensor(found[0]["weights"]), torch.tensor(alone), rtol=1e-6, atol=1e-6)
    assert all(each["steps"] == private.ledger.steps for each in found)
    return found


@pytest.mark.slow
def test_two_processes_release_what_one_does_also_on_uneven_and_empty_batches(tmp_path):
    # Of batches of 1 record on average, a third is empty everywhere, and another third on one of the ranks.
    found = check_equal(tmp_path, 2, batch_size=1.0, steps=12)
    assert {each["standing"] for each in found} == {"claimed"}  # the stream is seeded


@pytest.mark.slow
def test_a_step_that_was_charged_before_a_rank_was_lost_stays_counted_and_moves_no_weight(tmp_path):
    lost = 3
    processes = start(tmp_path, 2, {"seed": None, "steps": 6, "lost": lost})
    assert [process.wait(240) for process in processes] == [0, 1]
    found = json.loads((tmp_path / "0.json").read_text(encoding="utf-8"))
    assert found["steps"] == lost
    assert len(found["weights"]) == lost - 1
    assert found["now"] == found["weights"][-1]
    assert found["standing"] == "conditional"  # on trust between the processes
    assert not found["missing"]


@pytest.mark.slow
def test_a_resumed_run_of_two_processes_counts_what_ran(tmp_path):
    file = str(tmp_path / "run.safetensors")
    arguments = {"seed": None, "steps": 6, "file": file}
    processes = start(tmp_path, 2, arguments | {"lost": 3})
    assert [process.wait(240) for process in processes] == [0, 1]
    found = finished(tmp_path, 2, **arguments, resume=True)
    assert found[0]["steps"] >= 3 + 6
    assert found[0]["now"] == found[1]["now"]


@pytest.mark.slow
def test_the_example_runs_under_torchrun(tmp_path):
    script = str(ROOT / "examples" / "distributed_loop.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert "2 processes, 20 private steps, standing conditional" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["poisson", "fixed_size"])
def test_four_processes_release_what_one_does(tmp_path, sampling):
    check_equal(tmp_path, 4, batch_size=20.0, sampling=sampling, max_physical_batch_size=3, steps=10)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_record_of_a_batch_is_on_one_rank_that_follows_no_other_record(ranks):
    generator = np.random.default_rng(0)
    for _ in range(50):
        records = np.flatnonzero(generator.random(40) < 0.5)
        shares = [share_of(Batch(records), rank, ranks).indices for rank in range(ranks)]
        assert sorted(np.concatenate(shares)) == records.tolist()
        fewer = [share_of(Batch(records[1:]), rank, ranks).indices for rank in range(ranks)]
        assert sum(not np.array_equal(one, other) for one, other in zip(shares, fewer, strict=True)) == len(records[:1])


def test_all_records_of_a_user_are_on_one_rank():
    indices, owners = np.arange(12), np.array([0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 0])
    shares = [share_of(Batch(indices, owners, True), rank, 2) for rank in range(2)]
    held = [set(owners[share.indices]) for share in shares]
    assert held[0] | held[1] == {0, 1, 2, 3}
    assert not held[0] & held[1]
    for share in shares:
        assert share.average
        assert sorted(set(share.owners)) == list(range(len(set(owners[share.indices]))))


def test_several_processes_are_refused_unless_they_are_asked_for(monkeypatch):
    model, data = small_model(), torch.utils.data.TensorDataset(*blobs())
    parts = model, plain_sgd(model), torch.utils.data.DataLoader(data, batch_size=20)
    privacy = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 1}
    with pytest.raises(TrainingMisuse, match="in an initialised process group"):
        make_private(*parts, **privacy, distributed=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingMisuse, match=r"Use make_private\(\.\.\., distributed=True\)"):
        make_private(*parts, **privacy)
