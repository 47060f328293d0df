"""What exact noise costs, as nanoseconds a value and as ratios of whole steps; and what its first tier rests on.

    python benchmarks/noise.py [--rounds 15] [--steps 10]
    python benchmarks/noise.py --errors 2048     errors of the compiled normals over every word, minutes
    python benchmarks/noise.py --draws 1e9       moments and tails of that many draws, as z-scores

The floating-point way adds float32 normals of the same stream and rounds nothing: its low-order bits tell what was
added to, so that no guarantee covers it. Both ways take turns within every round, on one thread of torch; ratios are
medians over rounds of wall time. "control" is the ratio of two equal floating-point ways.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import stats
from torch.nn import functional as F
from torch.optim import SGD

from tacit.noise import SecureStream, Stream, compiled, rounded_gaussian
from tacit.noise.device import rounded_gaussian_
from tacit.training import private_step, release

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS, Case

SIZES = (1_700, 26_010, 266_610)  # weights of small networks, of the MNIST network, of 784-300-100-10
ONE_RADIUS = 2**30 - 1  # word of U of a radius near 1.18


def _moments() -> dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]]:
    """Statistics of the rounded normal on a grid of 1/16: function, exact mean and variance of one value."""
    places = np.arange(-16 * 40, 16 * 40 + 1) / 16
    masses = stats.norm.cdf(places + 1 / 32) - stats.norm.cdf(places - 1 / 32)
    masses[places > 0] = masses[places < 0][::-1]
    functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "mean": lambda x: x,
        "second moment": lambda x: x**2,
        "third moment": lambda x: x**3,
        "fourth moment": lambda x: x**4,
        **{f"share beyond {k}": partial(lambda x, k: np.abs(x) > k, k=k) for k in (1, 3, 5)},
    }
    found = {}
    for name, function in functions.items():
        values = function(places).astype(float)
        mean = float(values @ masses)
        found[name] = (function, mean, float((values - mean) ** 2 @ masses))
    return found


MOMENTS = _moments()
STEPS = {"mnist": 1.02, "mlp784": 1.15}  # goals of the ratio of a whole step


def float_release(values: np.ndarray, stream: Stream, *, std: float, out: np.ndarray) -> np.ndarray:
    """The sum and its noise in floating point."""
    return np.add(values, stream.normal(values.size, np.float32) * values.dtype.type(std), out=out)


@contextmanager
def floating() -> Iterator[None]:
    """Context in which steps take floating-point noise."""
    kept = release.rounded_gaussian
    release.rounded_gaussian = float_release  # type: ignore[assignment]
    try:
        yield
    finally:
        release.rounded_gaussian = kept


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


def nanoseconds(rounds: int, size: int) -> dict[str, float]:
    """Processor nanoseconds a value: random bits alone, float32 normals, and the exact release by both ways."""
    stream, sums = SecureStream(), np.random.default_rng(0).normal(size=size).astype(np.float32)
    repeats, engine = max(1, 2**18 // size), compiled.engine()
    ways: dict[str, Callable[[], Any]] = {
        "bits": lambda: (stream.bits((size + 1) // 2), stream.bits((size + 3) // 4)),
        "float32 normals": lambda: stream.normal(size, np.float32),
        engine: lambda: rounded_gaussian(sums, stream, std=1.0, out=sums),
    }
    times: dict[str, list[float]] = {way: [] for way in (*ways, "numpy")}

    def seconds_of(run: Callable[[], Any]) -> float:
        start = time.process_time()
        for _ in range(repeats):
            run()
        return (time.process_time() - start) / repeats / size

    for _ in range(rounds):
        for way, run in ways.items():
            times[way].append(seconds_of(run))
        with mock.patch.object(compiled, "first_tier", new=_absent):
            times["numpy"].append(seconds_of(ways[engine]))
    return {way: round(1e9 * statistics.median(found), 2) for way, found in times.items()}


def _absent() -> None:
    """No compiled code; a mock would take longer than what is measured."""


def largest_errors(blocks: int) -> dict[str, float]:
    """Largest errors of the compiled radius and of its sines and cosines, each over the whole cell of its word.

    Args:
        blocks: of 2^20 words at even distances, the ends among them; 2^11 take every word of U and, in the quadrant
            about zero, of V.
    """
    decide = compiled.first_tier()
    if decide is None:
        raise SystemExit("tacit-noise is not installed, or does not fit this version.")
    places, worst = np.arange(2**20), {"radius": 0.0, "sine and cosine": 0.0}
    for number in range(blocks):
        shift = number * (2**11 // blocks) + (2**11 // blocks - 1 if number == blocks - 1 else 0)
        u = (places << 11) + shift
        with np.errstate(divide="ignore"):
            ends = [np.sqrt(np.abs(2 * np.log((u + end) * 2.0**-31))) for end in (0, 1)]
        cosines, _ = guesses(decide, u.astype(np.uint64) << np.uint64(33), np.zeros(2**20, np.int32))
        known = np.isfinite(cosines)
        worst["radius"] = max(worst["radius"], *(float(np.abs(cosines - end)[known].max()) for end in ends))
        v = (places << 10) + shift // 2 - 2**29
        both = guesses(decide, np.full(2**20, ONE_RADIUS << 33, np.uint64), v.astype(np.int32))
        radius = math.sqrt(-2 * math.log((ONE_RADIUS + 0.5) * 2.0**-31))
        for turns in ((v + end) * (math.pi * 2.0**-31) for end in (0, 1)):
            for guess, exact in zip(both, (np.cos(turns), np.sin(turns)), strict=True):
                error = float(np.abs(guess - radius * exact).max()) / radius
                worst["sine and cosine"] = max(worst["sine and cosine"], error)
    return worst


def guesses(
    decide: compiled.FirstTier, radius_words: np.ndarray, angle_words: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The float32 normals themselves: released in float64 on a grid of 2^-40 they change by less; NaN where none is."""
    zeros, out = np.zeros(2 * len(radius_words)), np.empty(2 * len(radius_words))
    out[decide(zeros, out, radius_words, angle_words, 2.0**-40, 2.0**40, 1.0)] = np.nan
    return out[: len(radius_words)], out[len(radius_words) :]


def moments(draws: float) -> dict[str, float]:
    """z-scores of what was named beforehand: mean, square, cube, fourth power, and shares beyond 1, 3 and 5."""
    stream, size = SecureStream(), 2**22
    sums = dict.fromkeys(MOMENTS, 0.0)
    count = 0
    while count < draws:
        noise = rounded_gaussian(np.zeros(size, np.float32), stream, std=1.0).astype(np.float64)
        for name, (function, _, _) in MOMENTS.items():
            sums[name] += float(function(noise).sum())
        count += size
    return {
        name: (sums[name] / count - mean) / math.sqrt(variance / count) for name, (_, mean, variance) in MOMENTS.items()
    }


def device_milliseconds(device: str, size: int) -> float:
    """Time by the clock of the noise of `size` values on their device, the least of five, compilation left out."""
    values, stream, found = torch.zeros(size, device=device), SecureStream(), []
    rounded_gaussian_(values, stream, std=1.0)
    for _ in range(5):
        values.zero_()
        _wait(device)
        start = time.perf_counter()
        rounded_gaussian_(values, stream, std=1.0)
        _wait(device)
        found.append(time.perf_counter() - start)
    return min(found) * 1e3


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Print what was asked for; by default the cost of a value, then a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--errors", type=int, metavar="BLOCKS", help="errors over so many of 2048 blocks of words")
    parser.add_argument("--draws", type=float, help="test the law with so many draws")
    parser.add_argument("--device", help='milliseconds of the noise of a tensor there, such as "cuda"')
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.device:
        for size in (10**4, 10**6, 10**8 if chosen.device == "cuda" else 10**7):
            print(f"{size} values on {chosen.device}: {device_milliseconds(chosen.device, size):.2f} ms")
        return
    if chosen.errors:
        for name, error in largest_errors(chosen.errors).items():
            print(f"{name}: largest error 2^{math.log2(error):.2f}")
    if chosen.draws:
        for name, score in moments(chosen.draws).items():
            print(f"{name}: z = {score:+.2f}")
    if chosen.errors or chosen.draws:
        return
    for size in SIZES:
        found = nanoseconds(chosen.rounds, size)
        print(f"{size} values, ns of processor time each: " + ", ".join(f"{way} {ns}" for way, ns in found.items()))
    for name, goal in STEPS.items():
        row = step_ratio(MODELS[name], chosen.rounds, chosen.steps)
        print(
            f"{name}: {row['float_ms']:.2f} ms in floating point, ratio {row['ratio']:.3f} (goal {goal}), "
            f"control {row['control']:.3f}"
        )


if __name__ == "__main__":
    main()
