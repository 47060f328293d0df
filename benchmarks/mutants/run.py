"""One bug at a time in a copy of the package: what the tests, the checks at run time and the audit say of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from benchmarks.mutants.patches import PACKAGE, Patch
from benchmarks.mutants.product import WRONG_LOOPS
from benchmarks.mutants.rooms import first_of, selection_of
from benchmarks.mutants.warm_pytest import run_pytest

ROOT = PACKAGE.parents[1]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Before anything is forked: tests run on one thread.
os.environ |= dict.fromkeys(THREADS, "1")
# Seconds of wall time for the tests of one bug, or for one run of the product with its audit; a shared machine is slow.
LIMIT = 600


@dataclass
class Verdict:
    """What noticed one bug.

    Attributes:
        name: of the patch.
        breaks: the bug in a sentence.
        releases: what is released differently; empty where nothing is.
        tests: the test that failed first; None where all passed.
        check: what a check at run time said; None where none did.
        audit: what the audit refuted; None where nothing.
        cells: the same by engine and number of threads.
    """

    name: str
    breaks: str
    releases: str
    tests: str | None = None
    check: str | None = None
    audit: str | None = None
    cells: dict[str, dict[str, str | None]] = field(default_factory=dict)

    @property
    def by_product(self) -> bool:
        """Whether the shipped product alone notices it."""
        return bool(self.check or self.audit)

    def row(self) -> dict[str, object]:
        """JSON form."""
        return asdict(self)


def judge(patch: Patch, parts: Sequence[str] = ("tests", "product")) -> Verdict:
    """Apply `patch` to a temporary copy of the package and ask everything that could notice it."""
    verdict = Verdict(patch.name, patch.breaks, patch.releases)
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        # With the compiled files beside the sources, so that only what changed is compiled again.
        package = Path(shutil.copytree(PACKAGE, Path(folder) / "tacit"))
        shutil.copytree(PACKAGE.parent / "tacit_papers", Path(folder) / "tacit_papers")
        patch.apply(package)
        if "tests" in parts:
            selections = [first_of(patch.name), selection_of(patch.file)]
            found = (noticing_test(selection, Path(folder)) for selection in selections if selection)
            verdict.tests = next((test for test in found if test), None)
        # A bug of claims alone leaves nothing to see in what is released.
        if "product" in parts and patch.releases:
            for engine in patch.engines:
                for threads in patch.threads:
                    cell = product(patch.scenario, engine, threads, Path(folder))
                    wrong = patch.scenario in WRONG_LOOPS
                    if any(cell.values()) and not wrong and any(_unpatched(patch.scenario, engine, threads).values()):
                        raise RuntimeError(f"{patch.scenario} must pass without the bug; it does not, on {engine}.")
                    verdict.cells[f"{engine}, {threads} thread{'s' * (threads > 1)}"] = cell
            verdict.check = next((cell["check"] for cell in verdict.cells.values() if cell["check"]), None)
            verdict.audit = next((cell["audit"] for cell in verdict.cells.values() if cell["audit"]), None)
    return verdict


def noticing_test(files: Sequence[str], source: Path) -> str | None:
    """The first test that fails with the package in `source` and not with the one of the checkout; None for none."""
    broken: list[str] = []
    while (test := failing_test([*files, *(f"--deselect={name}" for name in broken)], source)) is not None:
        if not _fails_anyway(test):
            return test
        broken.append(test)
    return None


@cache
def _fails_anyway(test: str) -> bool:
    return failing_test([test], PACKAGE.parent) is not None


@cache
def _unpatched(scenario: str, engine: str, threads: int) -> dict[str, str | None]:
    return product(scenario, engine, threads, PACKAGE.parent)


def failing_test(files: Sequence[str], source: Path) -> str | None:
    """The first test of `files` that fails with the package in `source`; None where all pass.

    Args:
        files: test files, or other arguments of pytest.
        source: folder that holds the package.

    Raises:
        RuntimeError: pytest ran no test.
    """
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-o", f"pythonpath={source}"]
    done = run_pytest([*options, *files], source, LIMIT)
    if done is None:
        return f"no end within {LIMIT} s"
    # 5: everything that was collected has been left out.
    if done.returncode in (0, 5):
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode not in (1, 2) or found is None:
        raise RuntimeError(f"pytest must run the tests; got exit code {done.returncode}.\n{done.stdout[-2000:]}")
    return found[1]


def product(scenario: str, engine: str, threads: int, source: Path) -> dict[str, str | None]:
    """What `benchmarks.mutants.product` prints with the package in `source`."""
    done = _python(["-m", "benchmarks.mutants.product", scenario, engine], source, threads)
    if done is None:
        return {"check": f"no end within {LIMIT} s", "audit": None}
    if done.returncode:
        return {"check": f"exit code {done.returncode}: {done.stderr[-200:]}", "audit": None}
    return json.loads(done.stdout.strip().splitlines()[-1])


def _python(arguments: Sequence[str], source: Path, threads: int) -> subprocess.CompletedProcess[str] | None:
    """A finished Python process in the root of the checkout; None for one that took too long."""
    environment = os.environ | dict.fromkeys(THREADS, str(threads)) | {"PYTHONPATH": str(source), "MPLBACKEND": "Agg"}
    try:
        return subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return None
