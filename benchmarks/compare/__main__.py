"""Compare tacit with Opacus, dp-accounting, jax-privacy, diffprivlib and riskcal, all in one run.

    python -m benchmarks.compare                measure every cell, store and print the table
    python -m benchmarks.compare show           print the stored table
    python -m benchmarks.compare show --short   the rows of README.md
    python -m benchmarks.compare --path diffprivlib=FOLDER    rows of diffprivlib with FOLDER before all other packages

diffprivlib 0.6.6 cannot be imported beside scikit-learn 1.9: FOLDER is `pip install --no-deps --target FOLDER
diffprivlib==0.6.6 scikit-learn==1.5.2`, and the versions that ran are stored.

The store is benchmarks/results/compare.json. A library that is not installed has "not installed" in its column. A dash
means that there is no program here for that library: it says nothing about it. An exception is a result too, and stands
there by its name. The peers: `pip install opacus==1.6.0 diffprivlib==0.6.6 riskcal==1.5.1 jax-privacy==2.0.0
dp-accounting==0.6.0`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import warnings
from typing import Any

from benchmarks.compare.features import FEATURES, Program
from benchmarks.compare.seconds import SECONDS, measured
from benchmarks.compare.soundness import CASES
from benchmarks.compare.table import LIBRARIES, SHORT, STORED, table


def _version(library: str, folder: str | None) -> str:
    if folder is not None:
        (found,) = importlib.metadata.distributions(name=library, path=[folder])
        return found.version
    if library == "tacit":
        import tacit

        return tacit.__version__
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _run(program: Program) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return program()
    except Exception as error:  # what a library raises is its cell of the table
        return f"{type(error).__name__}: {str(error).splitlines()[0][:60] if str(error) else ''}"


def _cell(library: str, row: str, folder: str | None) -> str:
    """One cell, in a process of its own where its library has a folder of packages of its own."""
    if folder is None:
        return cell(library, row)
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compare", "cell", library, row],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 else f"exit code {done.returncode}"


def cell(library: str, row: str) -> str:
    """What the program of `row` for `library` returns, or the seconds that it takes."""
    if row in SECONDS:
        return _run(lambda: measured({library: SECONDS[row][library]()})[library])
    return _run((FEATURES | CASES)[row][library])


def measure(folders: dict[str, str]) -> dict[str, Any]:
    """The versions, the machine and every cell, row by row; timed calls of one process take turns."""
    versions = {library: _version(library, folders.get(library)) for library in LIBRARIES}
    rows: dict[str, dict[str, str]] = {}
    for row, programs in (FEATURES | CASES | SECONDS).items():
        here = [library for library in programs if versions[library] != "not installed"]
        together = [library for library in here if library not in folders] if row in SECONDS else []
        rows[row] = measured({library: SECONDS[row][library]() for library in together})
        rows[row] |= {library: _cell(library, row, folders.get(library)) for library in here if library not in together}
        print(row, rows[row], file=sys.stderr, flush=True)
    where = f"python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    return {"command": "python -m benchmarks.compare", "machine": where, "versions": versions, "rows": rows}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["cell"]:
        print(cell(*arguments[1:]))
        return
    if "show" not in arguments:
        folders = dict(each.split("=", 1) for each in arguments if "=" in each)
        STORED.write_text(json.dumps(measure(folders), indent=1) + "\n", encoding="utf-8")
    print(table(json.loads(STORED.read_text(encoding="utf-8")), SHORT if "--short" in arguments else None))


if __name__ == "__main__":
    main(sys.argv[1:])
