"""Time and memory of one private step, as ratios to plain PyTorch on the same batch, all measured in one run.

    python benchmarks/training.py [--models NAME ...] [--rounds 5] [--threads 1] [--json FILE]

Every round runs each way once, one after the other, so that a slow spell of the machine hits all of them; the printed
ratio is the median over rounds of process CPU time. Steps draw noise from the secure stream, clip at 1 and update by
SGD. Memory is what a process of its own holds at most during steps, beyond its imports. "compile" is the seconds that
the first step of the compiled way takes with an empty cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tacit.training import private_step

sys.path.insert(0, str(Path(__file__).parent))
from training_models import MODELS, Batch, Case

Step = Callable[[], object]


def plain(case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Ordinary training: mean loss, backward, SGD."""
    model = case.build()
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    given = inputs if isinstance(inputs, tuple) else (inputs,)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(*given), targets).backward()
        optimizer.step()

    return step


def plain_compiled(case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Ordinary training under torch.compile."""
    model = case.build()
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    loss = torch.compile(lambda: F.cross_entropy(model(*given), targets))

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def tacit(engine: str, case: Case, inputs: Batch, targets: Tensor) -> Step:
    """The private step of this library."""
    model = case.build()
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "expected_batch_size": case.batch, "engine": engine}
    step = private_step(model, optimizer, _losses, **settings)
    return lambda: step(inputs, targets)


def opacus(mode: str, case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Opacus with hooks or ghost clipping, its accountant and data loader left out."""
    from opacus.grad_sample.utils import wrap_model
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    given = inputs if isinstance(inputs, tuple) else (inputs,)
    common = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": case.batch}
    built = case.build()
    sgd = SGD([p for p in built.parameters() if p.requires_grad], lr=0.1)
    if mode == "hooks":
        model = wrap_model(built, "hooks")
        optimizer = DPOptimizer(sgd, **common)
        criterion = nn.CrossEntropyLoss()
    else:
        model = wrap_model(built, "ghost", max_grad_norm=1.0, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(sgd, **common)
        criterion = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss(), "mean")

    def step() -> None:
        optimizer.zero_grad()
        criterion(model(*given), targets).backward()
        optimizer.step()

    return step


WAYS: dict[str, Callable[[Case, Batch, Tensor], Step]] = {
    "plain": plain,
    "plain compiled": plain_compiled,
    "eager": lambda *given: tacit("eager", *given),
    "recorded": lambda *given: tacit("recorded", *given),
    "compiled": lambda *given: tacit("compiled", *given),
    "opacus hooks": lambda *given: opacus("hooks", *given),
    "opacus ghost": lambda *given: opacus("ghost", *given),
}


def prepared(name: str, way: str) -> Step:
    """One way to take a step of a model, on its batch."""
    case = MODELS[name]
    torch.manual_seed(0)
    inputs, targets = case.inputs(case.batch), torch.randint(case.classes, (case.batch,))
    torch.manual_seed(0)
    return WAYS[way](case, inputs, targets)


def times(name: str, rounds: int, ways: list[str]) -> tuple[dict[str, float], float | None]:
    """Median seconds of CPU time a step, by way that runs; and the seconds of the compiled way's first step."""
    steps: dict[str, Step] = {}
    first = None
    for way in ways:
        start = time.perf_counter()
        try:
            steps[way] = prepared(name, way)
            steps[way]()
            first = time.perf_counter() - start if way == "compiled" else first
            steps[way]()
        except Exception as error:
            print(f"  {name}: {way} cannot run: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
            steps.pop(way, None)
    found: dict[str, list[float]] = {way: [] for way in steps}
    repeats = max(1, int(0.3 / _seconds(steps["plain"], 2)))
    for _ in range(rounds):
        for way, step in steps.items():
            most = max(1, int(2.0 / _seconds(step, 1)))
            found[way].append(_seconds(step, min(repeats, most)))
    return {way: statistics.median(values) for way, values in found.items()}, first


def memory(name: str, way: str) -> float | None:
    """MB that steps hold at most, beyond the imports, in a process of their own; None where they cannot run."""
    command = [sys.executable, __file__, "--measure-memory", name, way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 and done.stdout.strip() else None


def _measure_memory(name: str, way: str) -> float:
    if way.startswith("opacus"):
        import opacus.optimizers  # noqa: F401
    if "compiled" in way:
        prepared("adult", way)()
    else:
        prepared("adult", "plain")()
    before = _resident("VmRSS")
    step = prepared(name, way)
    for _ in range(2):
        step()
    # Forget the peak of compilation; what it left behind still counts.
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        step()
    return _resident("VmHWM") - before


def _resident(field: str) -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(field)).split()[1]) / 1024


def _seconds(step: Step, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        step()
    return (time.process_time() - start) / repeats


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def row(name: str, rounds: int, ways: list[str], with_memory: bool) -> dict[str, object]:
    """Everything about one model: milliseconds of the plain step, ratios by way, goals."""
    case = MODELS[name]
    seconds, first = times(name, rounds, ways)
    ratios = {way: round(value / seconds["plain"], 3) for way, value in seconds.items()}
    megabytes = {way: memory(name, way) for way in seconds} if with_memory else {}
    base = megabytes.get("plain")
    return {
        "model": name,
        "batch": case.batch,
        "plain_ms": round(seconds["plain"] * 1e3, 3),
        "time": ratios,
        "compile_seconds": None if first is None else round(first, 1),
        "megabytes": megabytes,
        "memory": {way: round(value / base, 3) for way, value in megabytes.items() if value and base},
        "goals": {"eager": case.eager, "compiled": case.compiled, "memory": case.memory},
    }


def _print(found: dict[str, object]) -> None:
    goals, peers = found["goals"], [found["time"].get(f"opacus {mode}") for mode in ("hooks", "ghost")]
    best = min((value for value in peers if value), default=None)
    parts = [f"{found['model']:17s} plain {found['plain_ms']:9.2f} ms "]
    for way, goal in (("eager", goals["eager"]), ("recorded", goals["eager"]), ("compiled", goals["compiled"])):
        if way in found["time"]:
            parts.append(f"{way} {found['time'][way]:5.2f} (goal {goal})")
    if "plain compiled" in found["time"]:
        parts.append(f"plain compiled {found['time']['plain compiled']:5.2f}")
    if best:
        parts.append(f"opacus {best:6.2f}")
    if found["compile_seconds"] is not None:
        parts.append(f"compile {found['compile_seconds']:.0f} s")
    if found["memory"]:
        shown = ", ".join(f"{way} {value:.2f}" for way, value in found["memory"].items() if way != "plain")
        parts.append(f"memory: {shown} (goal {goals['memory']})")
    print("  ".join(parts), flush=True)


def _store(path: str, rows: list[dict[str, object]], threads: int) -> None:
    versions = {name: version(name) for name in ("torch", "numpy", "opacus")}
    facts = {
        "command": " ".join(["python", "benchmarks/training.py", *sys.argv[1:]]),
        "versions": versions | {"python": platform.python_version(), "machine": platform.machine()},
        "cores": os.cpu_count(),
        "threads": threads,
        "rows": rows,
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(facts, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=[way for way in WAYS if way != "plain"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="also store everything there")
    parser.add_argument("--measure-memory", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.measure_memory:
        print(_measure_memory(*options.measure_memory))
        return
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for name in options.models:
            ways = ["plain", *(way for way in options.ways if way != "plain")]
            rows.append(row(name, options.rounds, ways, not options.no_memory))
            _print(rows[-1])
            if options.json:
                _store(options.json, rows, options.threads)


if __name__ == "__main__":
    main()
