"""Mean test accuracy of a tuned preset and of the preset itself at the same total epsilon.

    python benchmarks/tuning.py run adult --seed 0 --data-dir DATA [--epochs 3] [--trials 20] [--law geometric]
        [--rates 0.5 1 2 4] [--clips 0.5 1] [--selection permute_and_flip] [--share 0.1]
    python benchmarks/tuning.py show

`run` adds one row to `benchmarks/results/tuning.json`; `show` prints the table of docs/tune.md from it. `--rates` and
`--clips` are factors of the preset's learning rate and clipping bound; without them the space is that of `tacit tune`.
A seed repeats the search and the initial weights; a seeded search is not private.
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
from tacit.runs import Config, read_config, train
from tacit.serialization import write_text
from tacit.tradeoff import Epsilon
from tacit.tuning import tune

RESULTS = Path(__file__).parent / "results" / "tuning.json"
_RUN = ("preset", "epochs", "epsilon", "delta")
_SEARCH = ("trials", "law", "selection", "rates", "clips", "share")


def main() -> None:
    """Run one seed of one preset, or print the table of what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("preset", nargs="?")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--trials", type=float, default=20)
    parser.add_argument("--law", default="logarithmic")
    parser.add_argument("--selection", default="random_trials")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 1, 2, 4])
    parser.add_argument("--clips", type=float, nargs="+", default=[0.5, 1])
    parser.add_argument("--share", type=float, default=0.1)
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
    run = {"preset": given.preset, "epochs": config.epochs, "epsilon": given.epsilon, "delta": config.delta}
    search = {name: getattr(given, name) for name in _SEARCH}
    rates = [config.learning_rate * factor for factor in given.rates]
    clips = [config.clip_norm * factor for factor in given.clips]
    with tempfile.TemporaryDirectory() as place:
        found = tune(
            given.preset,
            {"learning_rate": rates, "clip_norm": clips},
            target=Epsilon(given.epsilon, config.delta),
            trials=given.trials,
            law=given.law,
            selection=given.selection,
            validation_share=given.share,
            data_dir=given.data_dir,
            out=f"{place}/tuned",
            overrides=common,
        )
        preset = _known(given, run)
        preset = _preset(config, given.data_dir, f"{place}/preset") if preset is None else preset
    tuned = round(float(found.run.card.metrics["test"] or 0.0), 4)
    measured = {"seed": given.seed, "preset_test": preset, "tuned_test": tuned, "settings": dict(found.settings)}
    return run | search | measured | {"seconds": round(time.perf_counter() - started)}


def _preset(config: Config, data_dir: Path | None, out: str) -> float:
    return round(float(train(config, data_dir=data_dir, out=out).card.metrics["test"] or 0.0), 4)


def _known(given: argparse.Namespace, run: dict[str, Any]) -> float | None:
    """The accuracy of the same run of the preset, which another search was compared with."""
    for row in _stored(given.store):
        if row["seed"] == given.seed and all(row[name] == value for name, value in run.items()):
            return row["preset_test"]
    return None


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*_size(row), row["seed"])


def _size(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*_RUN, *_SEARCH))


def _stored(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def _show(rows: list[dict[str, Any]]) -> None:
    print("| preset | epochs | search | seeds | preset's settings | tuned |")
    print("|---|---|---|---|---|---|")
    for _, group in groupby(sorted(rows, key=_key), key=_size):
        each = list(group)
        told = [
            f"{mean(row[name] for row in each):.4f} ({_list(each, name)})" for name in ("preset_test", "tuned_test")
        ]
        first = each[0]
        law = first["law"] if first["selection"] == "random_trials" else first["selection"]
        factors = f"rates x {_plain(first['rates'])}, bounds x {_plain(first['clips'])}"
        search = f"{law}, {first['trials']:g} trials, {factors}" + (
            "" if first["share"] == 0.1 else f", {first['share']:g} set aside"
        )
        print(f"| {first['preset']} | {first['epochs']:g} | {search} | {len(each)} | {' | '.join(told)} |")


def _plain(factors: list[float]) -> str:
    return ", ".join(f"{factor:g}" for factor in factors)


def _list(rows: list[dict[str, Any]], name: str) -> str:
    return ", ".join(f"{row[name]:.4f}" for row in rows)


if __name__ == "__main__":
    main()
