"""Time and memory of one private step, as ratios to plain PyTorch on the same batch, all measured in one run.

    python benchmarks/training.py [--models NAME ...] [--ways NAME ...] [--rounds 5] [--threads 1] [--device cuda]
                                  [--json benchmarks/results/training.json]

Every way runs in a process of its own, as the heap that one way leaves in pieces slows down the next. Every round
runs each way once, one after the other, so that a slow spell of the machine hits all of them. A ratio is the median
over rounds of the time of a way over that of the plain step in the same round. Private steps clip at 1, update by SGD
and run every check of the product. Their noise is exact. "float" ways add floating-point normals of the same secure
stream instead, drawn in the step on its one thread: processor time counts. "eager quarters" lets a quarter of the
batch through the model at a time. Memory is what a process of its own holds at most during steps, beyond what two
steps of another small model left, imports above all. "first" is the seconds that the first step takes, of the
compiled way with an empty cache of compiled graphs.

With --json, rows of an earlier run stay in the file unless their model is measured again; every row has its own date.
With --check FILE nothing is stored: it fails where a way takes more than 1.3 times its stored ratio of processor time
in each of three measurements by new processes; one alone can fall into a slow spell of the machine.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.pool import ThreadPool
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS
from benchmarks.training_ways import ENGINES, WAYS, Step, prepared

_WARM = 4  # steps before measuring, besides the first
_ROUND_SECONDS = 0.3  # of plain steps in one round
_MOST_SECONDS = 2.0  # of another way's steps in one round
_SLOWER = 1.3  # times the stored ratio, from which --check fails
_TRIES = 3  # measurements that --check takes of what looks slower


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


class Worker:
    """A process that takes steps of one way when it is asked.

    Attributes:
        refused: why the way cannot run; "" where it can.
        timing: what it took so far.
    """

    def __init__(self, name: str, way: str, options: argparse.Namespace):
        own = ["--device", options.device, "--threads", str(options.threads), "--serve", name, way]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, __file__, *own], text=True, **pipes)

    def started(self) -> Worker:
        """This worker, after its first steps."""
        ready = self._answer() or {"refused": "the process ended"}
        self.refused: str = ready.get("refused", "")
        self.timing = Timing(ready.get("first", 0.0))
        return self

    def seconds(self, repeats: int) -> tuple[float, float]:
        """Seconds a step by the clock, and of processor time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{repeats}\n")
        self._process.stdin.flush()
        return tuple(self._answer()["seconds"])

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate()

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {}


def serve(name: str, way: str, device: str) -> None:
    """The other side of a `Worker`: the first step, then as many as each line of the standard input says."""
    # Libraries print where they like; answers have a stream of their own.
    answers, sys.stdout = sys.stdout, sys.stderr
    try:
        start = time.perf_counter()
        step = prepared(name, way, device)
        step()
        ready: dict[str, object] = {"first": time.perf_counter() - start}
        for _ in range(_WARM):
            step()
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else ""
        print(json.dumps({"refused": f"{type(error).__name__}: {reason[:100]}"}), file=answers, flush=True)
        return
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"seconds": _seconds(step, int(line), device)}), file=answers, flush=True)


def timings(name: str, options: argparse.Namespace) -> tuple[dict[str, Timing], dict[str, str]]:
    """Times of the ways that run, and why each other way cannot."""
    ways = ["plain", *(way for way in options.ways if way != "plain")]
    if options.device == "cuda":  # Steps of another process do not slow the imports of this one there.
        spawned = [Worker(name, way, options) for way in ways]
        workers = {way: worker.started() for way, worker in zip(ways, spawned, strict=True)}
    else:
        workers = {way: Worker(name, way, options).started() for way in ways}
    refused = {way: worker.refused for way, worker in workers.items() if worker.refused}
    for way, reason in refused.items():
        print(f"  {name}: {way} cannot run: {reason}", file=sys.stderr)
        workers.pop(way).end()
    repeats = max(1, int(_ROUND_SECONDS / workers["plain"].seconds(2)[0]))
    most = {way: max(1, int(_MOST_SECONDS / worker.seconds(1)[0])) for way, worker in workers.items()}
    for _ in range(options.rounds):
        for way, worker in workers.items():
            clock, processor = worker.seconds(min(repeats, most[way]))
            worker.timing.clock.append(clock)
            worker.timing.processor.append(processor)
    for worker in workers.values():
        worker.end()
    return {way: worker.timing for way, worker in workers.items()}, refused


def memory(name: str, way: str, device: str) -> float | None:
    """MB that steps hold at most, in a process of their own; None where they cannot run."""
    command = [sys.executable, __file__, "--device", device, "--measure-memory", name, way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 and done.stdout.strip() else None


def _measure_memory(name: str, way: str, device: str) -> float:
    if way.startswith("opacus"):
        importlib.import_module("opacus.optimizers")
    MODELS[name].build()
    other = prepared("logistic" if name == "adult" else "adult", way, device)
    for _ in range(2):
        other()
    del other
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


def row(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Everything about one model: milliseconds of the plain step, ratios by way, goals."""
    case = MODELS[name]
    found, refused = timings(name, options)
    with ThreadPool(len(found) if options.device == "cuda" else 1) as pool:
        measured = [] if options.no_memory else pool.map(lambda way: memory(name, way, options.device), found)
    megabytes = dict(zip(found, measured, strict=False))
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


def check(path: str, options: argparse.Namespace) -> list[str]:
    """Ways whose processor time, as a ratio to the plain step, is far above the stored one, each in words."""
    stored = {row["model"]: row["processor_time"] for row in json.loads(Path(path).read_text())["rows"]}
    slower: list[str] = []
    for name in options.models:
        for _ in range(_TRIES):
            found = _slower_ways(name, stored[name], options)
            if not found:
                break
        slower += found
    return slower


def _slower_ways(name: str, stored: dict[str, float], options: argparse.Namespace) -> list[str]:
    """Ways of a model that one measurement finds far above their stored ratios, each in words."""
    found, _ = timings(name, options)
    slower = []
    for way in (way for way in found if way != "plain" and way in stored):
        now, before = _ratio(found, way, clock=False), stored[way]
        print(f"{name:20s} {way:10s} {now:.2f} of a plain step, stored {before:.2f}", flush=True)
        if now > _SLOWER * before:
            slower.append(f"{name} {way}: {now:.2f}, more than {_SLOWER} times {before:.2f}")
    return slower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=[way for way in WAYS if way != "plain"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="also store everything there")
    parser.add_argument("--check", metavar="FILE", help="compare processor time with the ratios stored there")
    parser.add_argument("--measure-memory", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    if options.measure_memory:
        print(_measure_memory(*options.measure_memory, options.device))
        return
    if options.serve:
        serve(*options.serve, options.device)
        return
    if options.check:
        sys.exit("\n".join(check(options.check, options)) or None)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        for name in options.models:
            found = row(name, options)
            _print(found)
            if options.json:
                _store(options.json, [found])


if __name__ == "__main__":
    main()
