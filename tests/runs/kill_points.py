"""Kill points: runs of every training method, killed at random events and resumed, none understated, all with a card.

    python -m tests.runs.kill_points --runs 1000 --log kills.jsonl --save benchmarks/results/kill_points.json

takes about an hour on one core; `--log` keeps what is done, so that it can be stopped, and `--part 0/2` leaves every
second run to another process; `--first N` adds to the counts of the first N runs that `--save` holds.
tests/runs/test_kill_points.py runs a few.

A child process ends without any clean-up (os._exit) at its k-th event: a write, a rename, a removal, a record in a
ledger or a draw from the stream; k is uniform over the events of a whole run, or over those of its files alone. What it
released is written to a file outside of the run's folder and compared with the card, mechanism by mechanism. All
accountants but one, and the card's pictures, are left out: they only read the ledger.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tacit.reports.card
import tacit.runs.run
import tacit.tickets.private
from tacit.accounting import Ledger, account
from tacit.errors import InvalidInput
from tacit.mechanisms import Mechanism
from tacit.noise import SecureStream
from tacit.runs import read_config, resume, train
from tacit.runs.methods.base import SavedLedger
from tacit.runs.run_signature import origin_of_run
from tacit.serialization import json_text, write_text
from tacit.training.private_run import PrivateRun

SHORT = {"dataset": "iris", "epochs": 2.0, "batch_size": 30, "attacks": (), "delta": 1e-3}
METHODS: dict[str, dict[str, Any]] = {
    "gradient": SHORT | {"epsilon": 4.0},
    "gradient with noise": SHORT | {"noise_multiplier": 1.0, "checkpoint_every": 2},
    "gradient, shuffled": SHORT | {"noise_multiplier": 1.0, "checkpoint_every": 3, "sampling": {"type": "shuffled"}},
    "ticket": SHORT | {"method": "ticket", "epsilon": 4.0, "ticket": {"search_epochs": 1.0, "densities": (0.5,)}},
    "vi": SHORT | {"method": "vi", "epsilon": 4.0},
    "vi with noise": SHORT | {"method": "vi", "noise_multiplier": 1.0},
    "objective": SHORT | {"method": "objective", "epsilon": 4.0},
}
KILLED, FINISHED, FAILED = 17, 0, 1
NEVER = 10**9
LEFTOVERS = (".part", ".lock", "checkpoint.safetensors", "trained.json")


def attempt(
    method: str, folder: Path, released: Path, events: int, *, files_only: bool = False, counted: Path | None = None
) -> int:
    """Run, or go on, in a child that dies at an event; its exit status.

    Args:
        method: a name of `METHODS`.
        folder: of the run.
        released: file to which the mechanism of every release is appended.
        events: number of the event at which it dies.
        files_only: whether only writes, renames and removals count.
        counted: file for the number of events of every kind and of those of files, once the run is finished.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        seen = _die_at(events, files_only)
        _write_releases(released)
        _leave_out_what_only_reads()
        if (folder / "config.json").exists():
            _go_on(folder)
        else:
            train(read_config("digits", METHODS[method]), out=folder)
        if counted is not None:
            counted.write_text(json.dumps(seen))
    except BaseException:
        traceback.print_exc()
        os._exit(FAILED)
    os._exit(FINISHED)


def _go_on(folder: Path) -> None:
    """Resume the run; one that was killed after its card was signed says that it is finished."""
    try:
        resume(folder)
    except InvalidInput as error:
        if "This one is finished" not in str(error):
            raise


def _die_at(event: int, files_only: bool) -> list[int]:
    """Let this process die at that event; the numbers of all events and of those of files so far."""
    seen = [0, 0]

    def dying(function: Callable[..., Any], of_files: bool) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            seen[0] += 1
            seen[1] += of_files
            if seen[files_only] >= event and (of_files or not files_only):
                os._exit(KILLED)
            return function(*args, **kwargs)

        return wrapper

    for name in ("replace", "fsync", "unlink"):
        setattr(os, name, dying(getattr(os, name), True))
    Path.unlink = dying(Path.unlink, True)
    Ledger.add = dying(Ledger.add, False)
    SecureStream.bits = dying(SecureStream.bits, False)
    return seen


def _write_releases(path: Path) -> None:
    """Append the mechanism of each release that is about to be made, once it is recorded."""

    def made(mechanism: Mechanism, steps: int = 1) -> None:
        with path.open("a") as file:
            for part, inner in mechanism.parts():
                if steps:
                    file.write(json.dumps([_name(part.spec()), inner * steps]) + "\n")

    def after(owner: Any, name: str, mechanism: Callable[..., tuple[Mechanism, int]]) -> None:
        function = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            made(*mechanism(*args, **kwargs))
            return result

        setattr(owner, name, wrapper)

    after(PrivateRun, "charge", lambda run, batch: (run.plan.mechanism_at(run.taken - 1), 1))
    # While it absorbs what an earlier attempt recorded, it has no path: that is no release.
    after(SavedLedger, "add", lambda ledger, mechanism, steps=1, note="": (mechanism, steps if ledger._path else 0))
    private = tacit.tickets.private
    after(private, "choose", lambda scores, epsilon, *_, method="exponential", **__: (_choice(method, epsilon), 1))


def _choice(method: str, epsilon: float) -> Mechanism:
    return tacit.tickets.private.choice_mechanism(epsilon, method=method)


def _leave_out_what_only_reads() -> None:
    tacit.runs.run.account = lambda ledger, delta, check_brackets: account(ledger, delta=delta, accountants=["naive"])
    tacit.reports.card._figures = lambda drawn, card: {
        "errors": "",
        "detections": "",
        "training": None,
        "calibration": None,
    }


def _name(row: dict[str, Any]) -> str:
    return json.dumps({key: row[key] for key in row if key not in ("steps", "note", "hash")}, sort_keys=True)


def survive(method: str, folder: Path, chance: random.Random, events: tuple[int, int]) -> tuple[str, int]:
    """What went wrong with one run that is killed up to three times, empty where nothing did, and how often it died.

    Args:
        method: a name of `METHODS`.
        folder: of the run, new.
        chance: where kills are drawn from.
        events: numbers of events of a whole run and of those of files.
    """
    released, kills = folder.with_suffix(".released"), 0
    ended = KILLED
    for _ in range(chance.randint(1, 3)):
        files_only = chance.random() < 0.5
        ended = attempt(method, folder, released, chance.randint(1, events[files_only]), files_only=files_only)
        if ended == FAILED:
            return "an attempt failed", kills
        if ended == FINISHED:
            break
        kills += 1
    if ended == KILLED and attempt(method, folder, released, NEVER) != FINISHED:
        return "the last attempt failed", kills
    return _fault(folder, released), kills


def _fault(folder: Path, released: Path) -> str:
    card = json.loads((folder / "card.json").read_text())
    recorded, made = Counter(), Counter()
    for row in card["mechanisms"]:
        recorded[_name(row)] += row["steps"]
    for line in released.read_text().splitlines() if released.exists() else ():
        name, steps = json.loads(line)
        made[name] += steps
    if made - recorded:
        return f"{(made - recorded).total()} of {made.total()} releases are not recorded"
    if not made and not any("stopped" in line for line in card["settings"]):
        return "no release was seen"
    if not (folder / "model.safetensors").exists():
        return "no model"
    left = [path.name for path in folder.iterdir() if path.name.endswith(LEFTOVERS)]
    if left:
        return f"left over: {left}"
    origin = origin_of_run(folder)
    if not (origin.signature.trusted and Ledger.load(folder / "ledger.json").origin.trusted) or any(
        origin.of(name).refused for name in origin.files
    ):
        return "the signature does not hold"
    return ""


def events_of(method: str, folder: Path) -> tuple[int, int]:
    """The numbers of events of a run that is not killed: all, and those of files."""
    counted = folder.with_suffix(".counted")
    if attempt(method, folder, folder.with_suffix(".released"), NEVER, counted=counted) != FINISHED:
        raise RuntimeError(f"{method} does not finish")
    every, files = json.loads(counted.read_text())
    return every, files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first run; `--save` holds the counts of those before")
    parser.add_argument("--part", default="0/1", help="k/n: only every n-th run, from the k-th on")
    parser.add_argument("--log", type=Path, help="file of finished runs, which are not run again")
    parser.add_argument("--save", type=Path, help="file for the counts of every method")
    given = parser.parse_args()
    first, every = map(int, given.part.split("/"))
    done: dict[int, list[Any]] = {}
    if given.log is not None and given.log.exists():
        done = {row[0]: row for row in map(json.loads, given.log.read_text().splitlines())}
    events: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_CONFIG_HOME"] = f"{root}/configuration"
        for number in range(first, given.runs, every):
            if number in done or number < given.first:
                continue
            method = list(METHODS)[number % len(METHODS)]
            if method not in events:
                _warm_up(method, Path(root) / "warm" / str(number))
                events[method] = events_of(method, Path(root) / f"whole-{number}")
            chance = random.Random(f"{given.seed} {number}")
            fault, kills = survive(method, Path(root) / f"run-{number}", chance, events[method])
            done[number] = [number, method, kills, fault]
            print(f"{number} {method}, killed {kills} times: {fault or 'a card, nothing understated'}", flush=True)
            if given.log is not None:
                with given.log.open("a") as log:
                    log.write(json.dumps(done[number]) + "\n")
    rows = counts([row for row in done.values() if given.first <= row[0] < given.runs])
    if given.first:
        earlier = json.loads(given.save.read_text())
        if earlier["runs"] != given.first:
            raise SystemExit(f"--first must be {earlier['runs']}, the number of runs in --save")
        for method, row in earlier["methods"].items():
            rows[method] = {name: rows[method][name] + count for name, count in row.items()}
    for method, row in rows.items():
        print(f"{method}: {row['runs']} runs, {row['kills']} kills, {row['wrong']} went wrong")
    if given.save is not None:
        write_text(
            given.save,
            json_text({"runs": sum(row["runs"] for row in rows.values()), "seed": given.seed, "methods": rows}),
        )
    raise SystemExit(any(row["wrong"] for row in rows.values()))


def counts(done: list[list[Any]]) -> dict[str, dict[str, int]]:
    """Runs, kills and runs that went wrong, by method."""
    found = {method: {"runs": 0, "kills": 0, "wrong": 0} for method in METHODS}
    for _, method, kills, fault in done:
        found[method]["runs"] += 1
        found[method]["kills"] += kills
        found[method]["wrong"] += bool(fault)
    return found


def _warm_up(method: str, folder: Path) -> None:
    """Import and calibrate once in this process, from which every attempt is forked."""
    train(read_config("digits", METHODS[method]), out=folder)


if __name__ == "__main__":
    main()
