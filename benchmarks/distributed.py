"""Weak scaling of private training on several processes: python -m benchmarks.distributed [--ranks 1 2] [--store].

Every process clips `--local` records of a step on average, so that a perfect job takes equally long on more processes.
Printed for each number of processes: median seconds of a step of the slowest rank, the ratio to one process, the
largest relative difference between the sums that one and several processes release without noise on the same batches
(of the seeded sampler), and the resident memory of the largest rank. Then, for a network of 21 million parameters under
Adam: what the largest rank holds between steps and at its peak beside what it held before the network was made, with
whole parameters and with shards (FSDP2). `--store` writes `results/distributed.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from tacit.noise import SeededStream
from tacit.training import make_private

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "distributed.json"
WARM_UP = 2


def network() -> nn.Module:
    """A convolutional network of 0.2 million parameters for images of 28 x 28."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.Tanh()]
    return nn.Sequential(*layers, nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 10))


def wide_network() -> nn.Module:
    """A network of 21 million parameters, whose memory can be told from that of the libraries."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1024, 3200), nn.Tanh(), nn.Linear(3200, 3200), nn.Tanh(), nn.Linear(3200, 2400))


def resident() -> float:
    """Memory that this process holds now, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 2**20


def peak() -> float:
    """The most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory_worker(folder: str, sharded: bool) -> None:
    """One process of a job: writes what it holds between steps of the wide network under Adam, and at its peak."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(64, 1024), torch.randint(0, 10, (64,)))
    before = resident()
    model = wide_network()
    if sharded:
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(data, batch_size=8)
    named: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 3, "distributed": True}
    private = make_private(model, optimizer, loader, **named)
    for _, (x, y) in zip(range(3), private.loader, strict=False):
        nn.functional.cross_entropy(private.model(x), y, reduction="none").backward()
        private.optimizer.step()
    del x, y
    parameters = sum(value.numel() for value in model.parameters())
    found = {"between": resident() - before, "peak": peak() - before, "parameters": parameters}
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


class Kept(torch.optim.SGD):
    """Plain SGD that keeps every gradient it is given: the releases."""

    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **named)
        self.given: list[torch.Tensor] = []

    def step(self, closure: Any = None) -> None:
        """Keep the gradients, and step."""
        held = (p.grad for group in self.param_groups for p in group["params"])
        self.given.append(torch.cat([gradient.flatten() for gradient in held if gradient is not None]))
        super().step()


def worker(folder: str, batch: int, steps: int, noise_multiplier: float) -> None:
    """One process of a job: writes its seconds a step, its releases without noise, and its memory."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(20 * batch, 1, 28, 28, generator=generator)
    data = TensorDataset(inputs, torch.randint(0, 10, (20 * batch,), generator=generator))
    model = network()
    optimizer = Kept(model.parameters(), lr=1e-3)
    private = make_private(
        model,
        optimizer,
        DataLoader(data, batch_size=batch),
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        unsafe_no_noise=True,
        steps=steps,
        stream=SeededStream(2),
        distributed=True,
    )
    seconds: list[float] = []
    while len(seconds) < steps:
        for x, y in private.loader:
            if len(seconds) == steps:
                break
            started = time.perf_counter()
            nn.functional.cross_entropy(private.model(x), y, reduction="none").backward()
            private.optimizer.step()
            seconds.append(time.perf_counter() - started)
            private.optimizer.zero_grad()
    torch.save(torch.stack(optimizer.given), Path(folder, f"{dist.get_rank()}.pt"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"seconds": seconds[WARM_UP:], "megabytes": memory, "parameters": optimizer.given[0].numel()}
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def job(ranks: int, batch: int, steps: int, noise_multiplier: float) -> tuple[list[dict[str, Any]], torch.Tensor]:
    """What the ranks of one job wrote, and the releases of the first."""
    with tempfile.TemporaryDirectory() as folder:
        rows = started(folder, ranks, "--worker", [folder, batch, steps, noise_multiplier])
        return rows, torch.load(Path(folder, "0.pt"), weights_only=True)


def started(folder: str, ranks: int, role: str, arguments: list[Any]) -> list[dict[str, Any]]:
    """What every rank of a job wrote into `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.distributed", role, json.dumps(arguments)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, env=os.environ | shared | {"RANK": str(rank)}) for rank in range(ranks)
    ]
    if any(process.wait(300) for process in processes):
        raise RuntimeError("a process of the job failed")
    return [json.loads(Path(folder, f"{rank}.json").read_text("utf-8")) for rank in range(ranks)]


def memory(ranks: list[int]) -> list[dict[str, Any]]:
    """One row for each number of processes and each way to hold the parameters."""
    rows = []
    for size in ranks:
        for sharded in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                found = started(folder, size, "--memory-worker", [folder, sharded])
            row = {"ranks": size, "sharded": sharded, "parameters": found[0]["parameters"]}
            rows.append(row | {key: round(max(each[key] for each in found)) for key in ("between", "peak")})
    return rows


def measured(ranks: list[int], local: int, steps: int, rounds: int) -> list[dict[str, Any]]:
    """One row for each number of processes; jobs of all numbers take turns."""
    times: dict[int, list[float]] = {size: [] for size in ranks}
    megabytes: dict[int, float] = {}
    for _ in range(rounds):
        for size in ranks:
            found, _ = job(size, local * size, steps, 1.0)
            times[size].append(statistics.median(map(max, zip(*(row["seconds"] for row in found), strict=True))))
            megabytes[size] = max(row["megabytes"] for row in found)
    rows = []
    for size in ranks:
        _, whole = job(1, local * size, 6, 0.0)
        found, union = job(size, local * size, 6, 0.0)
        difference = float(((union - whole).norm(dim=1) / whole.norm(dim=1)).max())
        ratio = statistics.median(each / one for each, one in zip(times[size], times[ranks[0]], strict=True))
        row = {"ranks": size, "records": local * size, "parameters": found[0]["parameters"]}
        row |= {"milliseconds": round(1000 * statistics.median(times[size]), 2), "ratio": round(ratio, 3)}
        rows.append(row | {"difference": float(f"{difference:.1e}"), "megabytes": round(megabytes[size])})
    return rows


def main() -> None:
    """Run the jobs and print one line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--local", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--worker", type=json.loads)
    parser.add_argument("--memory-worker", type=json.loads)
    given = parser.parse_args()
    if given.memory_worker:
        memory_worker(*given.memory_worker)
        return
    if given.worker:
        worker(*given.worker)
        return
    found = {}
    if given.show:
        found = json.loads(RESULTS.read_text("utf-8"))
    else:
        found["scaling"] = measured(given.ranks, given.local, given.steps, given.rounds)
        found["memory"] = memory(given.ranks)
    print("| processes | records a step | ms a step | ratio | difference of releases | MB of the largest rank |")
    print("|---|---|---|---|---|---|")
    for row in found["scaling"]:
        cells = [row[key] for key in ("ranks", "records", "milliseconds", "ratio", "difference", "megabytes")]
        print("| " + " | ".join(map(str, cells)) + " |")
    print("\n| processes | parameters | MB between steps | MB at the peak |")
    print("|---|---|---|---|")
    for row in found["memory"]:
        held = "shards" if row["sharded"] else "whole"
        print(f"| {row['ranks']} | {held} | {row['between']} | {row['peak']} |")
    if given.store:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
