"""What the run-time checks cost at each door: steps with all checks as a ratio to the same steps without any.

    python benchmarks/checks.py [--models mnist adult transformer] [--rounds 20] [--steps 20] [--json FILE]

`fit` and `private_step` replay whole steps, `private.model` the passes of a loop whose loss is the user's Python, and
"eager loop" is that loop with engine="eager". The way without checks runs the same passes, exact noise and update, with
no guard, trace, probe or monitor. "filled up" is a replayed step on 17/16 of a batch, which is filled up to the next
eighth, beside one that is recorded for its own size; "slots" is a step on as many rows as a Poisson batch has but once
in 1e9 draws, beside one on the expected number: the price of places drawn at random in batches of a public size; "fit,
step" is `fit` beside `private_step` on batches that the caller draws by the same law. The two ways and a second run of
the first take turns within every round, in thread CPU time; the ratio of the two equal ways is the control. The first
steps, which are always probed and timed, are left out; probed later steps count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import torch
from scipy.stats import binom
from torch import Tensor
from torch.nn import functional as F
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger
from tacit.clipping import FlatClip
from tacit.noise import SecureStream
from tacit.sampling.poisson import FixedSizeSampler
from tacit.training import Functions, Private, fit, make_private, private_step
from tacit.training.batch_session import PhysicalBatch
from tacit.training.compile import CompiledSum
from tacit.training.fit_facts import FitChecks
from tacit.training.private_step import PrivateUpdate, apply_release
from tacit.training.release_monitor import ReleaseMonitor

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.training_models import MODELS, Case, Transformer

Steps = Callable[[int], float]
"""Takes so many steps and gives the thread CPU seconds of one."""
RECORDS = 20_000
WARM_UP = 65  # The sum of step 64 is compared with another way.
CASES = MODELS | {
    "transformer": Case(
        lambda: Transformer(words=1000, width=64, layers=2, length=32),
        lambda count: torch.randint(1000, (count, 32)),
        *(10, 32, 0.0, 0.0, 0.0),
    )
}
_CHECKS = {
    FitChecks: ("before_release", "released"),
    ReleaseMonitor: ("issued", "charged", "summed", "released", "taken"),
    CompiledSum: ("changed",),
}


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def records(case: Case, count: int) -> tuple[Tensor, Tensor]:
    inputs = case.inputs(count)
    assert isinstance(inputs, Tensor)
    return inputs, torch.randint(0, case.classes, (count,))


def private_parts(case: Case, engine: str) -> Private:
    """A private run of a benchmark model on made-up records."""
    model = case.build()
    loader = DataLoader(TensorDataset(*records(case, RECORDS)), batch_size=case.batch)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 10**6, "engine": engine}
    return make_private(model, SGD(model.parameters(), lr=0.01), loader, **settings)


@contextmanager
def without_checks():
    """Checks of whole runs do nothing inside."""
    with ExitStack() as patches:
        for kind, names in _CHECKS.items():
            for name in names:
                patches.enter_context(patch.object(kind, name, lambda *_, **__: False))
        yield


def timed(run: Callable[[int], object]) -> Steps:
    def seconds(steps: int) -> float:
        start = time.thread_time()
        run(steps)
        return (time.thread_time() - start) / steps

    return seconds


def user_loop(private: Private) -> Callable[[int], None]:
    """The loop that a user writes."""

    def batches():
        while True:
            yield from private.loader

    source = batches()

    def run(steps: int) -> None:
        for _ in range(steps):
            x, y = next(source)
            losses(private.model(x), y).backward()
            private.optimizer.step()

    return run


def loop(case: Case, checks: bool, engine: str = "auto") -> Steps:
    """A loop of the user's own, or the parts under it."""
    private = private_parts(case, engine)
    session, clipped = private.model.session, private.model.clipped
    checked = user_loop(private)
    checked(WARM_UP)
    if checks:
        return timed(checked)
    passes = private.model._engine._passes

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = session.open()
            session.issue(PhysicalBatch(len(batch), last=True))
            x, y = private.loader.batch_of(batch.indices)
            recording = clipped.record((x,)) if passes is None else passes.record((x,), len(x))
            root = recording.outputs.requires_grad_()
            (cotangents,) = torch.autograd.grad(losses(root, y).sum(), root)
            session.record(*clipped.release(recording, cotangents))
            released = session.release()
            assert released is not None
            apply_release(clipped.trainable, private.optimizer.original, released)

    def unchecked(steps: int) -> float:
        with without_checks():
            return timed(run)(steps)

    unchecked(WARM_UP)
    return unchecked


def step(case: Case, checks: bool) -> Steps:
    """`private_step` by the recorded engine, or its parts."""
    model, (x, y) = case.build(), records(case, case.batch)
    update = PrivateUpdate(
        model, SGD(model.parameters(), lr=0.01), losses, FlatClip(1.0), case.batch, "recorded", SecureStream()
    )
    update(x, y, 1.0)
    recorded = update._compiled
    assert recorded is not None

    def unchecked() -> None:
        total = recorded(x, y)
        assert total is not None
        released = update._noisy_mean(update.clipped.clip, total, update._no_norms, 1.0, case.batch)
        apply_release(update.clipped.trainable, update.optimizer, released)

    return timed(lambda steps: [update(x, y, 1.0) if checks else unchecked() for _ in range(steps)])


def whole(case: Case, checks: bool) -> Steps:
    """`fit` by the recorded engine, on batches of one size, or with its checks replaced by nothing."""
    x, y = records(case, RECORDS)

    def seconds(steps: int) -> float:
        at: dict[int, float] = {}
        model, last = case.build(), WARM_UP + 5 * steps
        settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "batch_size": case.batch, "engine": "recorded"}
        settings |= {"sampling": "fixed_size", "ledger": Ledger(relation="replace_one"), "steps": last}
        told = Functions(on_step=lambda taken, _: at.__setitem__(taken, time.thread_time()))
        with nullcontext() if checks else without_checks():
            fit(model, x, y, loss=losses, optimizer=SGD(model.parameters(), lr=0.01), callbacks=[told], **settings)
        return (at[last] - at[WARM_UP]) / (last - WARM_UP)

    return seconds


def filled(case: Case, checks: bool) -> Steps:
    """A replayed step on a batch that is filled up (in place of "with checks"), or recorded for its own size."""
    model, (x, y) = case.build(), records(case, case.batch * 17 // 16)
    update = PrivateUpdate(
        model, SGD(model.parameters(), lr=0.01), losses, FlatClip(1.0), case.batch, "recorded", SecureStream(),
        None if checks else len(x),
    )  # fmt: skip
    return timed(lambda steps: [update(x, y, 1.0) for _ in range(steps)])


def slots(case: Case, checks: bool) -> Steps:
    """A replayed step on as many rows as a Poisson batch has but once in 1e9 draws (in place of "with checks")."""
    rows = int(binom.isf(1e-9, RECORDS, case.batch / RECORDS)) if checks else case.batch
    model, (x, y) = case.build(), records(case, rows)
    update = PrivateUpdate(
        model, SGD(model.parameters(), lr=0.01), losses, FlatClip(1.0), case.batch, "recorded", SecureStream()
    )
    return timed(lambda steps: [update(x, y, 1.0) for _ in range(steps)])


def drawn(case: Case, checks: bool) -> Steps:
    """`fit` (in place of "with checks"), or `private_step` on batches that the caller draws and gathers."""
    if checks:
        return whole(case, True)
    model, (x, y) = case.build(), records(case, RECORDS)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "expected_batch_size": case.batch, "engine": "recorded"}
    take = private_step(model, SGD(model.parameters(), lr=0.01), losses, **settings)
    sampler = FixedSizeSampler(RECORDS, case.batch)

    def run(steps: int) -> None:
        for _ in range(steps):
            index = torch.from_numpy(sampler.draw().indices)
            take(x[index], y[index])

    run(WARM_UP)
    return timed(run)


DOORS: dict[str, Callable[[Case, bool], Steps]] = {
    "fit": whole,
    "private_step": step,
    "private.model": loop,
    "eager loop": lambda case, checks: loop(case, checks, "eager"),
    "filled up": filled,
    "slots": slots,
    "fit, step": drawn,
}


def measured(case: Case, door: str, rounds: int, steps: int) -> dict[str, float]:
    """Milliseconds of a step without checks, the ratio with them, and the ratio of two equal ways."""
    torch.manual_seed(0)
    ways = [DOORS[door](case, checks) for checks in (False, True, False)]
    for way in ways:
        way(steps)
    times: list[list[float]] = []
    for number in range(rounds):
        # Each way follows each other one equally often, as what ran before decides what is in the caches.
        order = [(number + place) % 3 for place in range(3)]
        found = {place: ways[place](steps) for place in order}
        times.append([found[place] for place in range(3)])
    plain = [(first + second) / 2 for first, _, second in times]
    return {
        "milliseconds": 1000 * statistics.median(plain),
        "ratio": statistics.median(with_checks / base for (_, with_checks, _), base in zip(times, plain, strict=True)),
        "control": statistics.median(first / second for first, _, second in times),
    }


def main() -> None:
    """Print one line for each model and door."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=["mnist", "adult", "transformer"])
    parser.add_argument("--doors", nargs="+", choices=list(DOORS), default=list(DOORS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':12} {'door':14} {'without ms':>10} {'ratio':>7} {'control':>8}")
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name in chosen.models:
        for door in chosen.doors:
            row = measured(CASES[name], door, chosen.rounds, chosen.steps)
            rows.setdefault(name, {})[door] = row
            print(
                f"{name:12} {door:14} {row['milliseconds']:10.2f} {row['ratio']:7.3f} {row['control']:8.3f}", flush=True
            )
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
