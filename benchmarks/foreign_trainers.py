"""Replay of foreign trainers: known violations found, and false alarms in 1,000 runs of correct ones.

    python -m benchmarks.foreign_trainers [--runs 1000]
    python -m benchmarks.foreign_trainers --libraries

Each correct run draws its noise, rate, clipping norm, relation and seed anew. The result is kept in
benchmarks/results/foreign_trainers.json. With --libraries, the steps of Opacus and JAX Privacy in
benchmarks/library_trainers.py are replayed instead, as far as they are installed; what contradicts their claim is kept
in benchmarks/results/foreign_libraries.json.
"""

import argparse
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from tests.audit.foreign import VIOLATIONS, Correct

from benchmarks.library_trainers import LIBRARIES
from tacit.audit import replay_trainer

RESULTS = Path(__file__).parent / "results" / "foreign_trainers.json"
LIBRARY_RESULTS = RESULTS.with_name("foreign_libraries.json")
RELATIONS = ("add_remove", "replace_one", "zero_out")


def claim(draw):
    """A claim that DP-SGD is run with: noise .5 to 8, rate .01 to 1, clipping norm .01 to 100."""
    return {
        "noise_multiplier": float(np.exp(draw.uniform(np.log(0.5), np.log(8)))),
        "sample_rate": float(np.exp(draw.uniform(np.log(0.01), 0))),
        "clip_norm": float(10 ** draw.uniform(-2, 2)),
        "relation": RELATIONS[draw.integers(3)],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--libraries", action="store_true")
    given = parser.parse_args()
    if given.libraries:
        replay_libraries()
    else:
        replay_made(given.runs)


def replay_libraries():
    """Replay the trainers of the installed libraries at one claim; print and keep what contradicts it."""
    claim, rows = {"noise_multiplier": 1.3, "sample_rate": 0.1, "clip_norm": 1.0}, []
    for package, trainers in LIBRARIES.items():
        try:
            release = version(package)
        except PackageNotFoundError:
            print(f"{package}: not installed")
            continue
        for trainer in trainers:
            found = replay_trainer(trainer, **claim)
            said = [{"part": part, "says": says} for part, says in found.violations]
            rows.append({"package": package, "version": release, "trainer": trainer.__name__} | {"found": said})
            print(f"{package} {release}, {trainer.__name__}: {found.checked} checks, {len(said)} contradictions")
            for each in said:
                print(f"  {each['part']}: {each['says']}")
    LIBRARY_RESULTS.write_text(json.dumps({"claim": claim, "trainers": rows}, indent=1) + "\n")


def replay_made(runs):
    """Count false alarms on correct trainers and known violations that are found; print and keep both."""
    draw = np.random.default_rng(20)
    alarms = [run for run in range(runs) if replay_trainer(Correct(run), **claim(draw)).refuted]
    fixed = {"noise_multiplier": 1.3, "sample_rate": 0.08}
    found = {kind.__name__: replay_trainer(kind(0), **fixed).refuted for kind in VIOLATIONS}
    result = {"runs": runs, "false_alarms": len(alarms), "violations": len(found), "found": sum(found.values())}
    RESULTS.write_text(json.dumps(result | {"missed": [name for name, seen in found.items() if not seen]}, indent=1))
    print(result)


if __name__ == "__main__":
    main()
