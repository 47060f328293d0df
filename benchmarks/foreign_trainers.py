"""Replay of foreign trainers: known violations found, and false alarms in 1,000 runs of correct ones.

    python benchmarks/foreign_trainers.py [--runs 1000]

Each correct run draws its noise, rate, clipping norm, relation and seed anew. The result is kept in
benchmarks/results/foreign_trainers.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from tests.audit.foreign import VIOLATIONS, Correct

from tacit.audit import replay_trainer

RESULTS = Path(__file__).parent / "results" / "foreign_trainers.json"
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
    runs = parser.parse_args().runs
    draw = np.random.default_rng(20)
    alarms = [run for run in range(runs) if replay_trainer(Correct(run), **claim(draw)).refuted]
    fixed = {"noise_multiplier": 1.3, "sample_rate": 0.08}
    found = {kind.__name__: replay_trainer(kind(0), **fixed).refuted for kind in VIOLATIONS}
    result = {"runs": runs, "false_alarms": len(alarms), "violations": len(found), "found": sum(found.values())}
    RESULTS.write_text(json.dumps(result | {"missed": [name for name, seen in found.items() if not seen]}, indent=1))
    print(result)


if __name__ == "__main__":
    main()
