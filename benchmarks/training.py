"""Time and memory of one private step, as ratios to plain PyTorch on the same batch, all measured in one run.

    python benchmarks/training.py [--models NAME ...] [--ways NAME ...] [--rounds 5] [--threads 1] [--device cuda]
                                  [--json benchmarks/results/training.json]

Every round runs each way once, one after the other, so that a slow spell of the machine hits all of them. A ratio is
the median over rounds of the time of a way over that of the plain step in the same round. Private steps clip at 1,
update by SGD and run every check of the product. Their noise is exact, its bits drawn ahead on a second thread where a
step has that many values: time on the clock counts. "float" ways add floating-point normals of the same secure stream
instead, drawn in the step on its one thread: processor time counts. Memory is what a process of its own holds at most
during steps, beyond its imports. "first" is the seconds that the first step takes, of the compiled way with an empty
cache of compiled graphs.

With --json, rows of an earlier run stay in the file unless their model is measured again; every row has its own date.
"""

from __future__ import annotations

import argparse
import importlib
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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tacit.clipping import clip_of
from tacit.noise import SecureStream
from tacit.training.private_step import PrivateUpdate
from tacit.training.release import NoisyMean

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS, Batch, Case

Step = Callable[[], object]
_WARM = 2  # steps before measuring, besides the first
_ROUND_SECONDS = 0.3  # of plain steps in one round
_MOST_SECONDS = 2.0  # of another way's steps in one round


class FloatNoise(NoisyMean):
    """Noisy means by floating-point normals: a comparison for this benchmark, not what the product releases."""

    def _add_noise(self, values: Tensor, std: float) -> None:
        noise = torch.from_numpy(self._stream.normal(values.numel(), np.float32))
        values.add_(noise.to(values.device), alpha=std)


def plain(case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Ordinary training: mean loss, backward, SGD."""
    model = case.build().to(targets.device)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    given = inputs if isinstance(inputs, tuple) else (inputs,)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(*given), targets).backward()
        optimizer.step()

    return step


def plain_compiled(case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Ordinary training under torch.compile."""
    model = case.build().to(targets.device)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    loss = torch.compile(lambda: F.cross_entropy(model(*given), targets))

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def tacit(engine: str, case: Case, inputs: Batch, targets: Tensor, *, exact: bool = True) -> Step:
    """The private step of this library, with exact noise as it is released, or with floating-point noise."""
    model = case.build().to(targets.device)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    stream = SecureStream()
    step = PrivateUpdate(model, optimizer, _losses, clip_of(1.0, None), case.batch, engine, stream)
    if not exact:
        step._noisy_mean = FloatNoise(stream)
    return lambda: step(inputs, targets, 1.0)


def opacus(mode: str, case: Case, inputs: Batch, targets: Tensor) -> Step:
    """Opacus with hooks or ghost clipping, its accountant and data loader left out."""
    from opacus.grad_sample.utils import wrap_model
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    given = inputs if isinstance(inputs, tuple) else (inputs,)
    common = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": case.batch}
    built = case.build().to(targets.device)
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


ENGINES = ("eager", "recorded", "compiled")
WAYS: dict[str, Callable[[Case, Batch, Tensor], Step]] = {
    "plain": plain,
    "plain compiled": plain_compiled,
    **{engine: partial(tacit, engine) for engine in ENGINES},
    **{f"{engine} float": partial(tacit, engine, exact=False) for engine in ENGINES},
    "opacus hooks": partial(opacus, "hooks"),
    "opacus ghost": partial(opacus, "ghost"),
}


def prepared(name: str, way: str, device: str = "cpu") -> Step:
    """One way to take a step of a model, on its batch."""
    case = MODELS[name]
    torch.manual_seed(0)
    inputs, targets = case.inputs(case.batch), torch.randint(case.classes, (case.batch,))
    inputs = tuple(each.to(device) for each in inputs) if isinstance(inputs, tuple) else inputs.to(device)
    torch.manual_seed(0)
    return WAYS[way](case, inputs, targets.to(device))


@dataclass
class Timing:
    """Seconds a step of one way, round by round.

    Attributes:
        first: seconds of the first step, with all that is made for it.
        clock: by the clock.
        processor: of all threads of this process.
    """

    first: float
    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def timings(name: str, rounds: int, ways: list[str], device: str) -> tuple[dict[str, Timing], dict[str, str]]:
    """Times of the ways that run, and why each other way cannot."""
    steps: dict[str, Step] = {}
    found: dict[str, Timing] = {}
    refused: dict[str, str] = {}
    for way in ways:
        start = time.perf_counter()
        try:
            step = prepared(name, way, device)
            step()
            first = time.perf_counter() - start
            for _ in range(_WARM):
                step()
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else ""
            refused[way] = f"{type(error).__name__}: {reason[:100]}"
            print(f"  {name}: {way} cannot run: {refused[way]}", file=sys.stderr)
            continue
        steps[way], found[way] = step, Timing(first)
    repeats = max(1, int(_ROUND_SECONDS / _seconds(steps["plain"], 2, device)[0]))
    most = {way: max(1, int(_MOST_SECONDS / _seconds(step, 1, device)[0])) for way, step in steps.items()}
    for _ in range(rounds):
        for way, step in steps.items():
            clock, processor = _seconds(step, min(repeats, most[way]), device)
            found[way].clock.append(clock)
            found[way].processor.append(processor)
    return found, refused


def memory(name: str, way: str, device: str) -> float | None:
    """MB that steps hold at most, beyond the imports, in a process of their own; None where they cannot run."""
    command = [sys.executable, __file__, "--device", device, "--measure-memory", name, way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 and done.stdout.strip() else None


def _measure_memory(name: str, way: str, device: str) -> float:
    if way.startswith("opacus"):
        importlib.import_module("opacus.optimizers")
    MODELS[name].build()
    prepared("adult", way if "compiled" in way else "plain", device)()
    before = _resident("VmRSS")
    step = prepared(name, way, device)
    for _ in range(2):
        step()
    # Forget the peak of compilation; what it left behind still counts.
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        step()
    return torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else _resident("VmHWM") - before


def _resident(field: str) -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(field)).split()[1]) / 1024


def _seconds(step: Step, repeats: int, device: str) -> tuple[float, float]:
    """Seconds a step by the clock, and of processor time."""
    _wait(device)
    clock, processor = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        step()
    _wait(device)
    return (time.perf_counter() - clock) / repeats, (time.process_time() - processor) / repeats


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def row(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Everything about one model: milliseconds of the plain step, ratios by way, goals."""
    case = MODELS[name]
    ways = ["plain", *(way for way in options.ways if way != "plain")]
    found, refused = timings(name, options.rounds, ways, options.device)
    megabytes = {} if options.no_memory else {way: memory(name, way, options.device) for way in found}
    base = megabytes.get("plain")
    return {
        "model": name,
        "batch": case.batch,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "rounds": options.rounds,
        "threads": options.threads,
        "device": _device(options.device),
        "plain_ms": round(statistics.median(found["plain"].clock) * 1e3, 3),
        "time": {way: _ratio(found, way) for way in found},
        "processor_time": {way: _ratio(found, way, clock=False) for way in found},
        "spread": {way: _spread(found, way) for way in found},
        "first_step_seconds": {way: round(timing.first, 2) for way, timing in found.items()},
        "megabytes": {way: value and round(value, 1) for way, value in megabytes.items()},
        "memory": {way: round(value / base, 3) for way, value in megabytes.items() if value and base},
        "cannot_run": refused,
        "goals": {"eager": case.eager, "compiled": case.compiled, "memory": case.memory},
    }


def _ratios(found: dict[str, Timing], way: str, clock: bool) -> list[float]:
    times = [each.clock if clock else each.processor for each in (found[way], found["plain"])]
    return [mine / plain for mine, plain in zip(*times, strict=True)]


def _ratio(found: dict[str, Timing], way: str, clock: bool | None = None) -> float:
    """Median ratio; float ways, and the plain one, by processor time unless `clock` says otherwise."""
    by_clock = not way.endswith("float") if clock is None else clock
    return round(statistics.median(_ratios(found, way, by_clock)), 3)


def _spread(found: dict[str, Timing], way: str) -> list[float]:
    """The least and the largest ratio of a round."""
    ratios = _ratios(found, way, not way.endswith("float"))
    return [round(min(ratios), 3), round(max(ratios), 3)]


def _device(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU, {platform.machine()}"


def _print(found: dict[str, object]) -> None:
    time_of, goals = found["time"], found["goals"]
    peers = [time_of.get(f"opacus {mode}") for mode in ("hooks", "ghost")]
    best = min((value for value in peers if value), default=None)
    parts = [f"{found['model']:20s} plain {found['plain_ms']:8.2f} ms"]
    for engine in ENGINES:
        shown = [f"{time_of[way]:.2f}" for way in (engine, f"{engine} float") if way in time_of]
        if shown:
            parts.append(f"{engine} {' / '.join(shown)} (goal {goals['eager' if engine == 'eager' else 'compiled']})")
    if "plain compiled" in time_of:
        parts.append(f"plain compiled {time_of['plain compiled']:.2f}")
    if best:
        parts.append(f"opacus {best:.2f}")
    if "compiled" in found["first_step_seconds"]:
        parts.append(f"first compiled step {found['first_step_seconds']['compiled']:.0f} s")
    if found["memory"]:
        shown = ", ".join(f"{way} {value:.2f}" for way, value in found["memory"].items() if way != "plain")
        parts.append(f"memory: {shown} (goal {goals['memory']})")
    print("  ".join(parts), flush=True)


def _store(path: str, rows: list[dict[str, object]]) -> None:
    file = Path(path)
    known = json.loads(file.read_text())["rows"] if file.exists() else []
    by_model = {(each["model"], each["device"]): each for each in (*known, *rows)}
    order = list(MODELS)
    facts = {
        "command": "python benchmarks/training.py --json benchmarks/results/training.json",
        "versions": {name: version(name) for name in ("torch", "numpy", "opacus", "transformers", "torchvision")}
        | {"python": platform.python_version()},
        "processors": os.cpu_count(),
        "rows": sorted(by_model.values(), key=lambda each: (each["device"], order.index(each["model"]))),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(facts, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=[way for way in WAYS if way != "plain"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="also store everything there")
    parser.add_argument("--measure-memory", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.measure_memory:
        print(_measure_memory(*options.measure_memory, options.device))
        return
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for name in options.models:
            found = row(name, options)
            _print(found)
            if options.json:
                _store(options.json, [found])


if __name__ == "__main__":
    main()
