"""Table of raw models under `make_private`: python -m benchmarks.architectures [part of a name ...] [--show].

Every row is one architecture of `tests/architectures/zoo.py` with random weights: the error of one clipped sum against
a float64 loop over its records, relative to the longest there can be; private steps with noise; how many on empty
batches; and whether the engine captured all operations. Rows that ran replace those of their name in
`benchmarks/results/architectures.json`, the table of which `--show` prints.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.architectures.compare import compare
from tests.architectures.zoo import ARCHITECTURES, define_torchvision_operators, installed

RESULTS = Path(__file__).parent / "results" / "architectures.json"
# Largest relative error of a clipped sum in float32 that counts as right.
_ALLOWED = 1e-5


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    engine = "captured" if row["engine"] == "captured" else "slower method for a part"
    told = row["refused"] or f"{row['error']:.0e} | {row['steps']} ({row['empty']}) | {engine}"
    return f"| {row['name']} | {row['library']} | {told} |"


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table, and how many models ran right."""
    print("| model | library | error | steps (empty) | engine |\n|---|---|---|---|---|")
    print("\n".join(map(line, rows)))
    ran = [row for row in rows if not row["refused"]]
    right = [row for row in ran if row["error"] <= _ALLOWED]
    print(f"\n{len(ran)} of {len(rows)} ran, {len(right)} within {_ALLOWED:.0e} of the float64 loop.")


def main() -> None:
    """Run the architectures whose name holds one of the parts, and store their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    stored = {row["name"]: row for row in json.loads(RESULTS.read_text("utf-8"))} if RESULTS.exists() else {}
    if given.show:
        show(list(stored.values()))
        return
    define_torchvision_operators()
    for one in ARCHITECTURES:
        if not installed(one.library) or (given.parts and not any(part in one.name for part in given.parts)):
            continue
        row = asdict(compare(one))
        stored[one.name] = row | {"error": float(f"{row['error']:.2g}"), "seconds": round(row["seconds"], 1)}
        print(line(row), flush=True)
        ordered = [stored[each.name] for each in ARCHITECTURES if each.name in stored]
        RESULTS.write_text(json.dumps(ordered, indent=1, allow_nan=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
