"""White-box audit of one run with each kind of correlated noise and each sampler of known steps.

    python benchmarks/correlated_audits.py [--only tree random_allocation ...]

Every mechanism trains the preset `digits` for four epochs at epsilon 4, and `tacit audit --attack white_box` repeats it
with 2,000 canaries: the same noise, sampling and steps. The largest of its lower bounds counts. Stored in
benchmarks/results/correlated_audits.json; the table stands in docs/correlated_noise.md. With `--only` the rows of
other noises and samplings stay as they are stored.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tacit.serialization import write_text

RESULTS = Path(__file__).parent / "results" / "correlated_audits.json"
MECHANISMS = (
    ("independent", "poisson"),
    ("independent", "random_allocation"),
    ("independent", "balanced_iteration"),
    ("independent", "balls_and_bins"),
    ("banded:4", "cyclic_poisson"),
    ("banded:4", "cyclic_allocation"),
    ("banded:4", "balls_and_bins"),
    ("blt:4", "balls_and_bins"),
    ("square_root", "balls_and_bins"),
    ("tree", "balls_and_bins"),
)


def main() -> None:
    """Train and audit each, print the table and store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted({name for mechanism in MECHANISMS for name in mechanism})
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    asked = parser.parse_args().only
    kept = {(row["noise"], row["sampling"]): row for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]}
    for noise, sampling in MECHANISMS:
        if noise in asked or sampling in asked:
            kept[noise, sampling] = {"noise": noise, "sampling": sampling} | audited(noise, sampling)
            print(kept[noise, sampling], flush=True)
    rows = [kept[mechanism] for mechanism in MECHANISMS]
    write_text(
        RESULTS, json.dumps({"command": "python benchmarks/correlated_audits.py", "rows": rows}, indent=1) + "\n"
    )
    print(table(rows))


def audited(noise: str, sampling: str) -> dict[str, Any]:
    """What a run states and what its audit found."""
    with tempfile.TemporaryDirectory() as place:
        run = f"{place}/run"
        given = ("--epochs", "4", "--noise", noise, "--sampling", sampling, "--epsilon", "4", "--out", run)
        _tacit("train", "digits", *given, "--json")
        found = json.loads(_tacit("audit", run, "--attack", "white_box", "--json", codes=(0, 3)))
    bounds = [audit["epsilon_lower"] for audit in found["audits"]]
    return {
        "epsilon": round(found["claim"]["epsilon"], 3),
        "standing": found["claim"]["standing"],
        "epsilon_lower": round(max(bounds), 3),
        "bounds": len(bounds),
        "monitors": found["monitors"],
        "refuted": found["refuted"],
    }


def _tacit(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([sys.executable, "-m", "tacit", *arguments], env=os.environ, capture_output=True, text=True)
    if done.returncode not in codes:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each mechanism."""
    lines = ["| noise | sampling | epsilon, certified | epsilon, at least (95 %) | monitors | refuted |"]
    lines.append("|---|---|---:|---:|---|---|")
    for row in rows:
        monitors = ", ".join(f"{name} {state}" for name, state in row["monitors"].items())
        refuted = "yes" if row["refuted"] else "no"
        certified, found = f"{row['epsilon']:.2f} {row['standing']}", f"{row['epsilon_lower']:.2f}"
        lines.append(f"| `{row['noise']}` | `{row['sampling']}` | {certified} | {found} | {monitors} | {refuted} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
