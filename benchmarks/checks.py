"""What the run-time checks of `make_private` cost: steps with all checks as a ratio to the same steps without any.

    python benchmarks/checks.py [--models mnist adult] [--rounds 40] [--steps 20] [--json FILE]

Both ways draw Poisson batches, run the model once, clip, add exact noise and update; the way without checks has no
trace of rows and outputs, no replay, no state guard and no probe. The two ways and a second run of the first take
turns within every round, in thread CPU time; the ratio of the two equal ways is the control. Steps 1 to 3, which are
always probed, are left out; probed later steps count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tacit.training import Private, make_private
from tacit.training.batch_session import PhysicalBatch
from tacit.training.private_step import apply_release

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS, Case

Steps = Callable[[int], None]
RECORDS = 20_000
WARM_UP = 5


def private_parts(case: Case) -> Private:
    """A private run of a benchmark model on made-up records."""
    torch.manual_seed(0)
    model, inputs = case.build(), case.inputs(RECORDS)
    assert isinstance(inputs, torch.Tensor)
    data = TensorDataset(inputs, torch.randint(0, case.classes, (RECORDS,)))
    optimizer = SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, batch_size=case.batch)
    return make_private(model, optimizer, loader, clip_norm=1.0, noise_multiplier=1.0, steps=10**6)


def checked(case: Case) -> Steps:
    """The loop that a user writes."""
    private = private_parts(case)

    def batches():
        while True:
            yield from private.loader

    source = batches()

    def run(steps: int) -> None:
        for _ in range(steps):
            x, y = next(source)
            F.cross_entropy(private.model(x), y, reduction="none").backward()
            private.optimizer.step()

    return run


def unchecked(case: Case) -> Steps:
    """The same computation by the parts under the loop."""
    private = private_parts(case)
    session, model, optimizer = private.model.session, private.model.clipped, private.optimizer.original

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = session.open()
            session.issue(PhysicalBatch(len(batch), last=True))
            x, y = private.loader.batch_of(batch.indices)
            recording = model.record((x,))
            root = recording.outputs.requires_grad_()
            losses = F.cross_entropy(root, y, reduction="none")
            (cotangents,) = torch.autograd.grad(losses.sum(), root)
            session.record(*model.release(recording, cotangents))
            released = session.release()
            assert released is not None
            apply_release(model.trainable, optimizer, released)

    return run


def seconds(run: Steps, steps: int) -> float:
    """Thread CPU seconds of one step."""
    start = time.thread_time()
    run(steps)
    return (time.thread_time() - start) / steps


def measured(case: Case, rounds: int, steps: int) -> dict[str, float]:
    """Milliseconds of a step without checks, the ratio with them, and the ratio of two equal ways."""
    ways = [unchecked(case), checked(case), unchecked(case)]
    for way in ways:
        way(WARM_UP)
    times: list[list[float]] = []
    for number in range(rounds):
        # Each way follows each other one equally often, as what ran before decides what is in the caches.
        order = [(number + place) % 3 for place in range(3)]
        found = {place: seconds(ways[place], steps) for place in order}
        times.append([found[place] for place in range(3)])
    plain = [(first + second) / 2 for first, _, second in times]
    return {
        "milliseconds": 1000 * statistics.median(plain),
        "ratio": statistics.median(with_checks / base for (_, with_checks, _), base in zip(times, plain, strict=True)),
        "control": statistics.median(first / second for first, _, second in times),
    }


def main() -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["mnist", "adult"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = {name: measured(MODELS[name], chosen.rounds, chosen.steps) for name in chosen.models}
    print(f"{'model':10} {'without ms':>10} {'ratio':>7} {'control':>8}")
    for name, row in rows.items():
        print(f"{name:10} {row['milliseconds']:10.2f} {row['ratio']:7.3f} {row['control']:8.3f}")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
