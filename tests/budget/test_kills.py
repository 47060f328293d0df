"""Processes that are killed at any time: no release without a reservation, and no reservation lost."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tacit.budget import Registry
from tacit.mechanisms import Gaussian

FORK = "fork" in multiprocessing.get_all_start_methods()


def run(file: Path, log: Path) -> None:
    """Reserve, write the identity down as told, release, settle; again and again until killed."""
    dataset = Registry(file).dataset("patients")
    with log.open("a") as told:
        while True:
            reservation = dataset.reserve(Gaussian(5.0), label="run")
            told.write(f"{reservation.id}\n")  # the release: from here on somebody may have seen it
            told.flush()
            os.fsync(told.fileno())
            dataset.append(reservation.id, "settle", SETTLED)


SETTLED = {"block": "", "head": {"standing": "proven", "assumptions": [], "unsafe": [], "facts": []}}


@pytest.mark.skipif(not FORK, reason="processes start too slowly without fork")
@pytest.mark.parametrize("kills", [12, pytest.param(500, marks=pytest.mark.slow)])
def test_killed_runs_stay_reserved_and_release_nothing_unreserved(tmp_path, kills):
    file, log = tmp_path / "budget.sqlite", tmp_path / "released"
    Registry.create(file).declare("patients")
    log.touch()
    context = multiprocessing.get_context("fork")
    for _ in range(kills):
        child = context.Process(target=run, args=(file, log))
        child.start()
        before = log.stat().st_size
        deadline = time.monotonic() + 20
        wanted = before + 33 * random.randrange(3)
        while log.stat().st_size < wanted and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(random.random() * 0.01)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    registry = Registry(file)
    assert registry.verify() == len(registry.store.rows)
    known = registry.dataset("patients").known.held
    released = log.read_text().split("\n")
    whole = [each for each in released if len(each) == 32]
    assert set(whole) <= set(known)  # no release without a reservation
    assert registry.dataset("patients").total().steps == len(known)  # and none is lost
    assert len(known) - len(whole) <= kills  # a kill strands at most the one at work
    assert len(whole) > kills / 4
