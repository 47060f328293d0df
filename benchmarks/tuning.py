"""Mean test accuracy of a tuned preset and of the preset itself at the same total epsilon.

    python benchmarks/tuning.py run adult --seed 0 --data-dir DATA [--epochs 6] [--trials 20] [--epsilon 3]
    python benchmarks/tuning.py show

`run` adds one row to `benchmarks/results/tuning.json`; `show` prints the table of docs/tune.md from it. A seed repeats
the search and the initial weights; a seeded search is not private.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

from tacit.locking import writing
from tacit.runs import read_config, train
from tacit.serialization import write_text
from tacit.tradeoff import Epsilon
from tacit.tuning import tune

RESULTS = Path(__file__).parent / "results" / "tuning.json"
_SIZE = ("preset", "epochs", "trials", "epsilon", "delta")


def main() -> None:
    """Run one seed of one preset, or print the table of what is stored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("preset", nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--trials", type=float, default=20)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--store", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.what == "show":
        _show(_stored(given.store))
        return
    row = _measured(given)
    with writing("results", given.store):
        rows = [each for each in _stored(given.store) if _key(each) != _key(row)]
        write_text(given.store, json.dumps(sorted([*rows, row], key=_key), indent=1) + "\n")
    print(row)


def _measured(given: argparse.Namespace) -> dict[str, Any]:
    """Test accuracy of the preset and of the winner of a search, at the same total epsilon."""
    common = {"attacks": (), "unsafe_seed": given.seed, "init_seed": given.seed}
    common |= {"epochs": given.epochs} if given.epochs else {}
    config = read_config(given.preset, common | {"epsilon": given.epsilon})
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        fixed = train(config, data_dir=given.data_dir, out=f"{place}/fixed").card.metrics["test"]
        found = tune(
            given.preset,
            target=Epsilon(given.epsilon, config.delta),
            trials=given.trials,
            data_dir=given.data_dir,
            out=f"{place}/tuned",
            overrides=common,
        )
    return {
        "preset": given.preset,
        "epochs": config.epochs,
        "trials": given.trials,
        "epsilon": given.epsilon,
        "delta": config.delta,
        "seed": given.seed,
        "preset_test": round(float(fixed or 0.0), 4),
        "tuned_test": round(float(found.run.card.metrics["test"] or 0.0), 4),
        "settings": dict(found.settings),
        "seconds": round(time.perf_counter() - started),
    }


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*(row[name] for name in _SIZE), row["seed"])


def _stored(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def _show(rows: list[dict[str, Any]]) -> None:
    print("| preset | epochs | mean trials | total epsilon | seeds | preset's settings | tuned |")
    print("|---|---|---|---|---|---|---|")
    for size, group in groupby(sorted(rows, key=_key), key=lambda row: tuple(row[name] for name in _SIZE)):
        each = list(group)
        told = [
            f"{mean(row[name] for row in each):.4f} ({_list(each, name)})" for name in ("preset_test", "tuned_test")
        ]
        preset, epochs, trials, epsilon, _ = size
        print(f"| {preset} | {epochs:g} | {trials:g} | {epsilon:g} | {len(each)} | {' | '.join(told)} |")


def _list(rows: list[dict[str, Any]], name: str) -> str:
    return ", ".join(f"{row[name]:.4f}" for row in rows)


if __name__ == "__main__":
    main()
