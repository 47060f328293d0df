"""How many of our own privacy bugs are noticed by tests, by checks at run time and by the audit.

    python -m benchmarks.mutants                 every bug and every wrong loop (about an hour on two cores)
    python -m benchmarks.mutants --quick         25 bugs, for continuous integration
    python -m benchmarks.mutants --only NAME     one bug, or several
    python -m benchmarks.mutants --table         the table of what is stored

Every bug is a patch of a temporary copy of the package. Results are kept in benchmarks/results/mutants.json.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.mutants.patches import Patch, patches
from benchmarks.mutants.run import ROOT, judge
from tacit.serialization import write_text

RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
QUICK = (
    "noise-three-percent-short",
    "noise-divided-by-sqrt-threads",
    "noise-second-half-repeats-first",
    "graphs-clip-ten-percent-long",
    "embedding-duplicates-not-summed",
    "recorded-noise-ninety-percent-short",
    "padding-counts",
    "empty-batch-not-charged",
    "checkpoint-does-not-reserve",
    "replace-one-sensitivity-of-one",
    "noise-missing",
    "noise-uniform-of-right-variance",
    "secure-key-constant",
    "norms-after-bfloat16",
    "bias-left-out-of-norm",
    "tied-weights-counted-apart",
    "sum-divided-by-drawn-size",
    "every-second-step-charged",
    "poisson-record-twice",
    "second-backward-allowed",
    "physical-batch-left-out",
    "fixed-size-with-replacement",
    "renyi-conversion-wrong-sign",
    "edited-ledger-loads",
    "rows-not-shortened",
)
"""Bugs of every kind, two or three of the most common."""


def main() -> int:
    """Run what was asked for; 1 where a bug of the quick part is noticed by no test."""
    given = _arguments()
    if given.table:
        print(table(stored()["patches"]))
        return 0
    chosen = _chosen(given)
    parts = ("tests", "product") if given.part is None else (given.part,)
    rows = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for verdict in pool.map(lambda patch: judge(patch, parts), chosen):
            print(_line(verdict.row()), flush=True)
            rows.append(verdict.row())
            if not given.quick:
                _store(verdict.row(), parts)
    print(f"\n{summary(rows)}")
    missed = [row["name"] for row in rows if "tests" in parts and not row["tests"]]
    print(*(f"no test notices {name}" for name in missed), sep="\n")
    return 1 if missed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these patches alone")
    parser.add_argument("--quick", action="store_true", help="25 patches, nothing stored")
    parser.add_argument("--part", choices=("tests", "product"), help="only the tests, or only checks and audit")
    parser.add_argument("--missing", action="store_true", help="only what is not stored yet")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--table", action="store_true", help="print what is stored")
    return parser.parse_args()


def _chosen(given: argparse.Namespace) -> list[Patch]:
    known = {patch.name: patch for patch in patches()}
    names: Iterable[str] = given.only or (QUICK if given.quick else known)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"--only must name patches of benchmarks/mutants/patches; got {', '.join(unknown)}.")
    asked = {"tests", "product"} if given.part is None else {given.part}
    done = {row["name"] for row in stored()["patches"] if asked <= set(row["parts"])} if given.missing else set()
    return [known[name] for name in names if name not in done]


def stored() -> dict[str, Any]:
    """What earlier runs found."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"patches": [], "loops": []}


def _store(row: dict[str, Any], parts: Sequence[str]) -> None:
    """Keep `row`; a part that was not asked keeps what is stored of it."""
    with locked():
        _merge(row, parts)


@contextmanager
def locked() -> Iterator[None]:
    """One process at a time reads and writes the results."""
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _merge(row: dict[str, Any], parts: Sequence[str]) -> None:
    kept = stored()
    rows = {each["name"]: each for each in kept["patches"]}
    asked = {"name", "breaks", "releases", *(["tests"] if "tests" in parts else [])}
    asked |= {"check", "audit", "cells"} if "product" in parts else set()
    kept_parts = sorted({*rows.get(row["name"], {}).get("parts", []), *parts})
    rows[row["name"]] = rows.get(row["name"], row) | {key: row[key] for key in asked} | {"parts": kept_parts}
    kept["patches"] = [rows[patch.name] for patch in patches() if patch.name in rows]
    names = ("torch", "numpy", "scipy", "pytest")
    kept["versions"] = {"python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in names
    }
    write_text(RESULTS, json.dumps(kept, indent=1) + "\n")


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Totals in three lines."""
    changing = [row for row in rows if row["releases"]]
    product = [row for row in changing if row["check"] or row["audit"]]
    anything = [row for row in rows if row["tests"] or row["check"] or row["audit"]]
    return (
        f"{len(rows)} bugs: {sum(bool(row['tests']) for row in rows)} noticed by tests, {len(anything)} by anything\n"
        f"{len(changing)} of them change what is released: {len(product)} noticed by the product alone "
        f"({sum(bool(row['check']) for row in changing)} by checks at run time, "
        f"{sum(bool(row['audit']) for row in changing)} by the audit)"
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results as a Markdown table, with the totals below."""
    lines = ["| bug | released differently | tests | run-time checks | audit |", "|---|---|---|---|---|"]
    for row in rows:
        marks = ["yes" if row[key] else "" for key in ("tests", "check", "audit")]
        lines.append(f"| {row['breaks']} | {row['releases']} | {' | '.join(marks)} |")
    return "\n".join([*lines, "", *summary(rows).splitlines()])


def _line(row: dict[str, Any]) -> str:
    found = {"tests": row["tests"], "check": row["check"], "audit": row["audit"]}
    said = "; ".join(f"{key}: {str(value)[:90]}" for key, value in found.items() if value)
    return f"{row['name']}{' (release)' if row['releases'] else ''}: {said or 'NOTHING'}"


if __name__ == "__main__":
    sys.exit(main())
