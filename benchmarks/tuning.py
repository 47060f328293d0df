"""Mean test accuracy of a tuned preset and of the preset itself at the same total epsilon.

    python benchmarks/tuning.py adult --seeds 3 --data-dir DATA [--epochs 6] [--trials 20] [--epsilon 3]

Seeds repeat the search and the initial weights; a seeded search is not private, and its number of trials is printed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean

from tacit.runs import read_config, train
from tacit.tradeoff import Epsilon
from tacit.tuning import tune


def main() -> None:
    """Print one line for each seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--trials", type=float, default=20)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    common = {"attacks": ()} | ({"epochs": given.epochs} if given.epochs else {})
    delta = read_config(given.preset, {}).delta
    tuned, fixed = [], []
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        settings = common | {"unsafe_seed": seed, "init_seed": seed}
        with tempfile.TemporaryDirectory() as place:
            started = time.perf_counter()
            config = read_config(given.preset, settings | {"epsilon": given.epsilon})
            fixed.append(train(config, data_dir=given.data_dir, out=f"{place}/fixed").card.metrics["test"])
            found = tune(
                given.preset,
                target=Epsilon(given.epsilon, delta),
                trials=given.trials,
                data_dir=given.data_dir,
                out=f"{place}/tuned",
                overrides=settings,
            )
            tuned.append(found.run.card.metrics["test"])
            seconds = time.perf_counter() - started
        print(
            f"seed {seed}: preset {fixed[-1]:.4f}, tuned {tuned[-1]:.4f} with {found.settings}, {seconds:.0f} s",
            flush=True,
        )
    print(f"mean of {given.seeds} seeds: preset {mean(fixed):.4f}, tuned {mean(tuned):.4f}")


if __name__ == "__main__":
    main()
