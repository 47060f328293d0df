"""Tests of one bug, in a fork of a process that holds torch and the other libraries, and nothing of tacit.

A start of pytest costs 12 s of processor time for imports alone, a fork 1 s. This file imports no module of tacit,
because a fork must take the package from the copy that holds the bug.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pytest

_LIBRARIES = ["torch._dynamo", "scipy.stats", "scipy.optimize", "sklearn.linear_model", "hypothesis", __name__]
"""Imported once, for all forks."""


@dataclass(frozen=True)
class Ended:
    """Exit code of pytest, and what it printed."""

    returncode: int
    stdout: str


def run_pytest(arguments: Sequence[str], source: Path, limit: float) -> Ended | None:
    """Result of pytest with the package in `source`; None where it takes more than `limit` seconds."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_LIBRARIES)
    with tempfile.TemporaryDirectory(prefix="mutant-tests-") as folder:
        printed = Path(folder) / "printed"
        process = context.Process(target=_pytest, args=(list(arguments), source, printed))
        process.start()
        process.join(limit)
        if process.exitcode is None:
            process.kill()
            process.join()
            return None
        return Ended(process.exitcode, printed.read_text(encoding="utf-8", errors="replace"))


def _pytest(arguments: list[str], source: Path, printed: Path) -> None:
    assert "tacit" not in sys.modules, "tests of a bug must import the package from its copy"
    # For processes that tests start.
    os.environ |= {"PYTHONPATH": str(source), "MPLBACKEND": "Agg"}
    with printed.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = pytest.main(arguments)
    sys.stdout.flush()
    # At once: threads that a failed test left may wait for ever.
    os._exit(int(code))
