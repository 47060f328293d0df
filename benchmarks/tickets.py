"""Seconds of a private step of masked networks, as ratios to the dense one in the same run.

    python benchmarks/tickets.py [--repeats 15] [--steps 5] [--threads 1]

The network is the paper's 784-300-100-10 at batch 400. Kinds of step take turns, so that a busy machine slows them
alike; every ratio is the median over the repeats. "dead" tickets keep as many weights, but a share of the inputs and
hidden neurons is read by none, and `compact` removes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from tacit import models
from tacit.tickets import Ticket, compact, prunable, random_masks
from tacit.training import private_step

LOSS = nn.CrossEntropyLoss(reduction="none")
BATCH, INPUTS, HIDDEN, CLASSES = 400, 784, (300, 100), 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    steps = {"dense": stepper(network())}
    for density in (0.5, 0.24, 0.083, 0.02):
        steps[f"masked, density {density:g}"] = stepper(ticket(density).apply(network()))
    for dead in (0.25, 0.5):
        made = ticket(0.083, dead=dead)
        steps[f"masked, density 0.083, dead {dead:g}"] = stepper(made.apply(network()))
        steps[f"compact, density 0.083, dead {dead:g}"] = stepper(compact(made, network()))
    taken = {name: [] for name in steps}
    for _ in range(given.repeats):
        for name, step in steps.items():
            taken[name].append(seconds(step, given.steps))
    print(json.dumps(summary(taken, given), indent=2))


def summary(taken: dict[str, list[float]], given: argparse.Namespace) -> dict[str, object]:
    rows = [
        {
            "step": name,
            "milliseconds": round(1e3 * statistics.median(values), 3),
            "ratio_to_dense": round(statistics.median(v / d for v, d in zip(values, taken["dense"], strict=True)), 3),
        }
        for name, values in taken.items()
    ]
    return {"batch": BATCH, "threads": given.threads, "repeats": given.repeats, "steps": given.steps, "rows": rows}


def network() -> nn.Module:
    torch.manual_seed(0)
    return models.mlp(INPUTS, CLASSES, hidden=HIDDEN)


def ticket(density: float, *, dead: float = 0.0) -> Ticket:
    """Random masks that keep `density` of every layer; the first share `dead` of its inputs is read by no weight."""
    model = network()
    kept = dict.fromkeys(prunable(model), density / (1 - dead))
    masks = random_masks(model, kept, torch.Generator().manual_seed(0))
    for mask in masks.values():
        mask[:, : round(dead * mask.shape[1])] = 0
    return Ticket(masks, {name: value.detach().clone() for name, value in model.named_parameters()}, "public")


def stepper(model: nn.Module | None) -> Callable[[], None]:
    """A private step of `model` on a fixed batch, with everything that only the first step does done."""
    assert model is not None
    x, y = torch.rand(BATCH, INPUTS), torch.randint(CLASSES, (BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = private_step(model, optimizer, LOSS, clip_norm=1.0, noise_multiplier=1.0, expected_batch_size=BATCH)
    step(x, y)
    return lambda: step(x, y)


def seconds(step: Callable[[], None], steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) / steps


if __name__ == "__main__":
    main()
