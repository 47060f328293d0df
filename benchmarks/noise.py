"""What exact noise costs: draws, releases, and whole steps as ratios to noise in floating point.

    python benchmarks/noise.py [--rounds 15] [--steps 10] [--json FILE]

The floating-point way draws float32 normals by the same stream, adds them and rounds nothing: its low-order bits tell
what was added to, so that no guarantee covers it. Both ways take turns within every round, on one thread of torch, with
noise drawn ahead where there is a processor for it; ratios are medians over rounds of wall time. "control" is the ratio
of two equal floating-point ways.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.optim import SGD

from tacit.noise import NormalDraw, SecureStream, Stream, rounded_gaussian
from tacit.training import private_step, release

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS, Case

VALUES = 266_610  # weights of 784-300-100-10
STEPS = {"mnist": 1.02, "mlp784": 1.15}  # goals of the ratio of a whole step


class FloatDraw:
    """Float32 normals in the place of `NormalDraw`."""

    def __init__(self, values: np.ndarray):
        self.guesses = values

    @classmethod
    def of(cls, stream: Stream, size: int) -> FloatDraw:
        """Draw `size` normals."""
        return cls(stream.normal(size, np.float32))


def float_release(values: np.ndarray, stream: Stream, *, std: float, draw: FloatDraw) -> np.ndarray:
    """The sum and its noise in floating point."""
    return values + draw.guesses * values.dtype.type(std)


@contextmanager
def floating() -> Iterator[None]:
    """Context in which steps take floating-point noise."""
    kept = release.NormalDraw, release.rounded_gaussian
    release.NormalDraw, release.rounded_gaussian = FloatDraw, float_release  # type: ignore[assignment]
    try:
        yield
    finally:
        release.NormalDraw, release.rounded_gaussian = kept


def step_of(case: Case) -> Callable[[], Any]:
    """A private step of a benchmark model on one batch."""
    torch.manual_seed(0)
    model, inputs = case.build(), case.inputs(case.batch)
    targets = torch.randint(0, case.classes, (case.batch,))
    step = private_step(
        model,
        SGD(model.parameters(), lr=0.01),
        lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"),
        clip_norm=1.0,
        noise_multiplier=1.0,
        expected_batch_size=case.batch,
    )
    return lambda: step(inputs, targets)


def seconds(run: Callable[[], Any], times: int) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def step_ratio(case: Case, rounds: int, steps: int) -> dict[str, float]:
    """Ratio of exact to floating-point steps, and of two floating-point ways."""
    exact = step_of(case)
    with floating():
        first, second = step_of(case), step_of(case)
    ways = [(exact, False), (first, True), (second, True)]

    def timed(place: int) -> float:
        run, floats = ways[place]
        if not floats:
            return seconds(run, steps)
        with floating():
            return seconds(run, steps)

    for place in range(3):
        timed(place)
    times = []
    for number in range(rounds):
        found = {place: timed(place) for place in ((number + shift) % 3 for shift in range(3))}
        times.append([found[place] for place in range(3)])
    return {
        "float_ms": 1000 * statistics.median(one for _, one, _ in times),
        "ratio": statistics.median(ours / ((one + two) / 2) for ours, one, two in times),
        "control": statistics.median(one / two for _, one, two in times),
    }


def values_cost(rounds: int) -> dict[str, float]:
    """Ratio of the two draws, and nanoseconds a value of the release beside its draw."""
    stream, sums = SecureStream(), np.random.default_rng(0).normal(size=VALUES).astype(np.float32)
    draws = []
    releases = []
    for _ in range(rounds):
        ours = seconds(lambda: NormalDraw.of(stream, VALUES), 3)
        plain = seconds(lambda: stream.normal(VALUES, np.float32), 3)
        draw = NormalDraw.of(stream, VALUES)
        draws.append(ours / plain)
        releases.append(seconds(lambda draw=draw: rounded_gaussian(sums, stream, std=1.0, draw=draw), 3))
    return {"draw_ratio": statistics.median(draws), "release_ns": 1e9 * statistics.median(releases) / VALUES}


def main() -> None:
    """Print draws and releases, then a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = {"values": values_cost(chosen.rounds)}
    values = found["values"]
    print(f"draw: {values['draw_ratio']:.2f} of a float32 draw (goal 1.05)")
    print(f"release: {values['release_ns']:.2f} ns a value (goal 3)")
    for name, goal in STEPS.items():
        found[name] = row = step_ratio(MODELS[name], chosen.rounds, chosen.steps)
        print(
            f"{name}: {row['float_ms']:.2f} ms in floating point, ratio {row['ratio']:.3f} (goal {goal}), "
            f"control {row['control']:.3f}"
        )
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
