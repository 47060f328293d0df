"""Kill points: runs of every training method, killed at random events and resumed, none understated, all with a card.

`python -m tests.runs.kill_points --runs 1000` takes hours on one core; tests/runs/test_kill_points.py runs a few.
A child process ends without any clean-up (os._exit) at its k-th event: a write, a rename, a record in a ledger or a
draw from the stream. What it released is counted in a file outside of the run's folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import traceback
from pathlib import Path

from tacit.accounting import Ledger
from tacit.noise import SecureStream
from tacit.runs import read_config, resume, train
from tacit.runs.resumption import SavedLedger
from tacit.training.plan import PrivateRun

SHORT = {"dataset": "iris", "epochs": 2.0, "batch_size": 30, "attacks": (), "delta": 1e-3}
METHODS = {
    "gradient": SHORT | {"epsilon": 4.0},
    "gradient with noise": SHORT | {"noise_multiplier": 1.0, "checkpoint_every": 2},
    "ticket": SHORT | {"method": "ticket", "epsilon": 4.0, "ticket": {"search_epochs": 1.0, "densities": (0.5,)}},
    "vi": SHORT | {"method": "vi", "epsilon": 4.0},
    "vi with noise": SHORT | {"method": "vi", "noise_multiplier": 1.0},
    "input": SHORT | {"method": "input", "epsilon": 4.0},
    "objective": SHORT | {"method": "objective", "epsilon": 4.0},
    "output": SHORT | {"method": "output", "epsilon": 4.0},
}
KILLED, FINISHED, FAILED = 17, 0, 1
_MOST_EVENTS = 150  # a run has between 30 and 150


def attempt(method: str, folder: Path, released: Path, events: int) -> int:
    """Run, or go on, in a child that dies at event number `events`; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        _count_events(events)
        _count_releases(released)
        if (folder / "config.json").exists():
            resume(folder)
        else:
            train(read_config("digits", METHODS[method]), out=folder)
    except BaseException:
        traceback.print_exc()
        os._exit(FAILED)
    os._exit(FINISHED)


def _count_events(most: int) -> None:
    left = [most]

    def dying(function):
        def wrapper(*args, **kwargs):
            left[0] -= 1
            if left[0] <= 0:
                os._exit(KILLED)
            return function(*args, **kwargs)

        return wrapper

    os.replace, os.fsync = dying(os.replace), dying(os.fsync)
    Ledger.add = dying(Ledger.add)
    SecureStream.bits = dying(SecureStream.bits)


def _count_releases(path: Path) -> None:
    """Append a byte for each release that is about to be made, once it is recorded."""

    def counted(function):
        def wrapper(*args, **kwargs):
            result = function(*args, **kwargs)
            with path.open("ab") as file:
                file.write(b".")
            return result

        return wrapper

    PrivateRun.charge = counted(PrivateRun.charge)
    SavedLedger.add = counted(SavedLedger.add)


def survive(method: str, folder: Path, chance: random.Random) -> str:
    """What went wrong with one run that is killed up to three times; empty where nothing did."""
    released = folder.with_suffix(".released")
    for _ in range(chance.randint(1, 3)):
        ended = attempt(method, folder, released, chance.randint(1, _MOST_EVENTS))
        if ended == FAILED:
            return "an attempt failed"
        if ended == FINISHED:
            break
    if not (folder / "card.json").exists() and attempt(method, folder, released, 10**9) != FINISHED:
        return "the last attempt failed"
    card = json.loads((folder / "card.json").read_text())
    recorded = sum(row["steps"] for row in card["mechanisms"])
    made = released.stat().st_size if released.exists() else 0
    if recorded < made:
        return f"{made} releases, {recorded} recorded"
    if not (folder / "model.safetensors").exists():
        return "no model"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance, wrong = random.Random(given.seed), 0
    with tempfile.TemporaryDirectory() as root:
        for number in range(given.runs):
            method = list(METHODS)[number % len(METHODS)]
            fault = survive(method, Path(root) / f"run-{number}", chance)
            wrong += bool(fault)
            print(f"{number + 1}/{given.runs} {method}: {fault or 'ends in a card, nothing understated'}", flush=True)
    print(f"{wrong} of {given.runs} runs went wrong")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
