"""Processes that reserve, release and settle, killed at any time: what the registry holds against what was released.

    python -m tests.budget.kills --kills 500 --save benchmarks/results/reservation_kills.json

Each process reserves, writes the identity of the reservation down as if it released something, and settles, again and
again until SIGKILL. A release without a reservation, or a reservation that is lost, is a fault.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from tacit.budget import Registry
from tacit.mechanisms import Gaussian
from tacit.serialization import json_text, write_text

SETTLED = {"block": "", "head": {"standing": "proven", "assumptions": [], "unsafe": [], "facts": []}}
_IDENTITY = 32  # characters


def work(file: Path, log: Path) -> None:
    """Reserve, write the identity down as told, release, settle; again and again until killed."""
    dataset = Registry(file).dataset("patients")
    with log.open("a") as told:
        while True:
            reservation = dataset.reserve(Gaussian(5.0), label="run")
            told.write(f"{reservation.id}\n")  # the release: from here on somebody may have seen it
            told.flush()
            os.fsync(told.fileno())
            dataset.append(reservation.id, "settle", SETTLED)


def survive(folder: Path, kills: int, chance: random.Random) -> dict[str, int]:
    """Kill so many processes one after the other, and count.

    Returns:
        kills; entries of the registry, all of them verified; reservations; releases; releases without a reservation
        ("unreserved"); reservations missing from the total ("lost"); reservations at work when killed ("stranded").
    """
    file, log = folder / "budget.sqlite", folder / "released"
    Registry.create(file).declare("patients")
    log.touch()
    context = multiprocessing.get_context("fork")
    for _ in range(kills):
        child = context.Process(target=work, args=(file, log))
        child.start()
        wanted = log.stat().st_size + (_IDENTITY + 1) * chance.randrange(3)
        deadline = time.monotonic() + 20
        while log.stat().st_size < wanted and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.01)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    registry = Registry(file)
    held = registry.dataset("patients").known.held
    released = [each for each in log.read_text().split("\n") if len(each) == _IDENTITY]
    return {
        "kills": kills,
        "entries": registry.verify(),
        "reservations": len(held),
        "releases": len(released),
        "unreserved": len(set(released) - set(held)),
        "lost": len(held) - registry.dataset("patients").total().steps,
        "stranded": len(held) - len(released),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="file for the counts")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        os.environ["XDG_CONFIG_HOME"] = f"{root}/configuration"
        found = survive(Path(root), given.kills, random.Random(given.seed))
    print(json.dumps(found))
    if given.save is not None:
        write_text(given.save, json_text(found))
    raise SystemExit(bool(found["unreserved"] or found["lost"]))


if __name__ == "__main__":
    main()
