"""Where a private step spends its time: python benchmarks/training_phases.py [MODEL ...] [--json FILE].

Every phase of the eager step is timed by itself, as a share of the plain step on the same batch, which runs in turn
with it on one thread. What a phase calls that is a phase of its own counts there.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import statistics
import sys
import time
import warnings
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS
from benchmarks.training_ways import prepared

# Owner, function and what the page calls it.
PHASES = (
    ("tacit.gradients.clipped", "capture_gradients", "forward pass under capture"),
    ("torch.autograd", "grad", "backward pass to layer outputs"),
    ("tacit.gradients.engine", "gradients_of_uses", "norms"),
    ("tacit.gradients.clipped", "ClippedSum.factors", "clipping factors"),
    ("tacit.gradients.engine", "CapturedGradients.weighted_sum", "weighted sum"),
    ("tacit.gradients.clipped", "ClippedSum.__call__", "checks and the rest of the sum"),
    ("tacit.training.release", "rounded_gaussian", "exact noise"),
    ("tacit.training.release", "NoisyMean.__call__", "the rest of the release"),
    ("tacit.training.private_step", "apply_release", "update"),
)
_ROUNDS, _SECONDS = 7, 0.15


class Clock:
    """Own seconds of every phase."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inner: list[float] = []

    def watch(self, module: str, path: str, phase: str) -> None:
        """Time every call of a function; its own name stays."""
        owner = functools.reduce(getattr, path.split(".")[:-1], importlib.import_module(module))
        name = path.rpartition(".")[2]
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args, **kwargs):
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.perf_counter() - start
                self.seconds[phase] += taken - self._inner.pop()
                if self._inner:
                    self._inner[-1] += taken

        setattr(owner, name, timed)


def budget(name: str, clock: Clock) -> dict[str, float]:
    """Share of the plain step's time that each phase takes, median over rounds."""
    plain, private = prepared(name, "plain"), prepared(name, "eager")
    for _ in range(3):
        plain()
        private()
    count = max(1, int(_SECONDS / _timed(plain, 2)))
    shares: dict[str, list[float]] = {phase: [] for *_, phase in PHASES} | {"whole step": []}
    for _ in range(_ROUNDS):
        base = _timed(plain, count)
        clock.seconds.clear()
        shares["whole step"].append(_timed(private, count) / base)
        for *_, phase in PHASES:
            shares[phase].append(clock.seconds[phase] / count / base)
    return {phase: round(statistics.median(values), 3) for phase, values in shares.items()}


def _timed(step, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["adult", "mlp784", "mnist", "imdb", "mlp256", "llama"])
    parser.add_argument("--json", metavar="FILE", help="also store everything there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    clock = Clock()
    for phase in PHASES:
        clock.watch(*phase)
    rows = {}
    for name in options.models:
        rows[name] = budget(name, clock) | {"batch": MODELS[name].batch}
        print(name, rows[name], flush=True)
    if options.json:
        facts = {
            "command": "python benchmarks/training_phases.py --json benchmarks/results/training_phases.json",
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
            "rounds": _ROUNDS,
            "shares_of_plain": rows,
        }
        Path(options.json).write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
