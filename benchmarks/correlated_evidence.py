"""Test accuracy with independent and with correlated noise at equal epsilon.

    python benchmarks/correlated_evidence.py run [--presets imdb ...] [--epsilons 0.5 1 2 4 8] [--seeds 0 1 2]
        --data-dir DATA
    python benchmarks/correlated_evidence.py show
    python benchmarks/correlated_evidence.py units [--epsilons 8] [--seeds 0 2] --data-dir DATA

Two arms: independent noise with Poisson sampling, and `banded:auto` with cyclic Poisson sampling. Presets, epochs and
batch sizes are in `SETTINGS`. Each arm takes the learning rate out of `RATES` with the best mean test accuracy over the
tuning seeds at its epsilon; so both choices saw test records, alike. The first tuning seed tries every rate, the others
those within `_CLOSE` of its best. Seeds repeat noise, batches and initial weights. `run` measures the cells that
benchmarks/results/correlated_evidence.json lacks, one after the other, and may be stopped; `show` prints the table of
docs/correlated_noise.md and draws its picture. `units` trains `imdb` with banded noise at the rate chosen, and prints
for how many test records a hidden unit is above 0.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tacit.locking import writing
from tacit.runs import read_config, train
from tacit.runs.builders import dataset_of, network_of, predictor
from tacit.runs.config import Config
from tacit.runs.run_signature import MODEL
from tacit.serialization import write_text
from tacit.training import load_model

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "correlated_evidence.json"
PICTURE = ROOT / "docs" / "pictures" / "correlated_evidence.svg"
ARMS = {
    "independent": {"noise": "independent", "sampling": "poisson"},
    "banded:auto": {"noise": "banded:auto", "sampling": "cyclic_poisson"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "adult": {"epochs": 4, "batch_size": 512},
    "cifar100": {"epochs": 5, "batch_size": 1024, "momentum": 0.0},
    "mnist": {"epochs": 3, "batch_size": 1024, "model": "mlp", "hidden": (128,)},
    "imdb": {"epochs": 2, "batch_size": 512},
}
RATES = {
    "adult": (1.0, 2.0, 4.0, 8.0),
    "cifar100": (4.0, 8.0, 16.0),
    "mnist": (1.0, 2.0, 4.0, 8.0, 16.0),
    "imdb": (0.02, 0.04, 0.08, 0.16, 0.32),
}
TUNING_SEEDS = {"imdb": (100, 101, 102)}
"""Of presets of which some runs collapse; one seed, 100, chooses for the others."""
_ONE = (100,)
_CLOSE = 0.05


def main() -> None:
    """Measure missing cells, or print and draw what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show", "units"))
    parser.add_argument("--presets", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--data-dir", type=Path)
    given = parser.parse_args()
    if given.what == "show":
        print(table())
        draw()
        return
    if given.what == "units":
        for epsilon, seed in itertools.product(given.epsilons, given.seeds):
            print(
                f"imdb, epsilon {epsilon:g}, seed {seed}: {active_share(epsilon, seed, given.data_dir):.2%}", flush=True
            )
        return
    for preset in given.presets:
        for epsilon in given.epsilons:
            for arm in ARMS:
                rate = best_rate(preset, arm, epsilon, given.data_dir)
                for seed in given.seeds:
                    measured(preset, arm, epsilon, rate, seed, given.data_dir)


def best_rate(preset: str, arm: str, epsilon: float, data_dir: Path | None) -> float:
    """The learning rate with the best mean accuracy of the tuning seeds."""
    first, *others = TUNING_SEEDS.get(preset, _ONE)
    tried = {rate: [measured(preset, arm, epsilon, rate, first, data_dir)] for rate in RATES[preset]}
    for rate in _close(tried):
        tried[rate] += [measured(preset, arm, epsilon, rate, seed, data_dir) for seed in others]
    return _best(tried)


def _close(tried: dict[float, list[float]]) -> list[float]:
    """The rates whose first accuracy is within `_CLOSE` of the best one."""
    least = max(accuracies[0] for accuracies in tried.values()) - _CLOSE
    return [rate for rate, accuracies in tried.items() if accuracies[0] >= least]


def _best(tried: dict[float, list[float]]) -> float:
    return max(_close(tried), key=lambda rate: statistics.mean(tried[rate]))


def measured(preset: str, arm: str, epsilon: float, rate: float, seed: int, data_dir: Path | None) -> float:
    """Test accuracy of one run, from the store where it is there."""
    cell = {"preset": preset, "arm": arm, "epsilon": epsilon, "learning_rate": rate, "seed": seed}
    for row in stored():
        if all(row[name] == value for name, value in cell.items()):
            return row["accuracy"]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        config = config_of(preset, arm, epsilon, rate, seed)
        card = train(config, data_dir=data_dir, out=f"{place}/run").card
    row = cell | {"accuracy": round(float(card.metrics["test"] or 0.0), 4)}
    row |= {"seconds": round(time.perf_counter() - started)}
    with writing("results", RESULTS):
        write_text(RESULTS, json.dumps([*stored(), row], indent=1) + "\n")
    print(row, flush=True)
    return row["accuracy"]


def config_of(preset: str, arm: str, epsilon: float, rate: float, seed: int) -> Config:
    """The settings of one run."""
    changes = SETTINGS[preset] | ARMS[arm] | {"epsilon": epsilon, "learning_rate": rate, "noise_multiplier": None}
    return read_config(preset, changes | {"unsafe_seed": seed, "init_seed": seed, "attacks": ()})


def active_share(epsilon: float, seed: int, data_dir: Path | None) -> float:
    """Share of the test records of `imdb` for which a hidden unit is above 0 after a run with banded noise."""
    rate = best_rate("imdb", "banded:auto", epsilon, data_dir)
    config = config_of("imdb", "banded:auto", epsilon, rate, seed)
    dataset = dataset_of(config, data_dir)
    model = network_of(config, dataset)
    outputs: list[torch.Tensor] = []
    relu = next(module for module in model.modules() if isinstance(module, torch.nn.ReLU))
    relu.register_forward_hook(lambda module, given, output: outputs.append((output > 0).any(dim=1)))
    with tempfile.TemporaryDirectory() as place:
        run = train(config, data_dir=data_dir, out=f"{place}/run")
        load_model(model, run.folder / MODEL)
    predictor(model, dataset)(dataset.x_test)
    return float(torch.cat(outputs).double().mean())


def stored() -> list[dict[str, Any]]:
    """Every cell that was measured."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []


def summary() -> list[dict[str, Any]]:
    """Mean and standard error of every arm at its learning rate, by preset and epsilon, where all arms were run."""
    found = []
    for preset, epsilon in dict.fromkeys((row["preset"], row["epsilon"]) for row in stored()):
        values = {arm: _of_seeds(preset, epsilon, arm) for arm in ARMS}
        seeds = min(map(len, values.values()))
        if seeds >= 2:
            arms = {arm: (statistics.mean(of), statistics.stdev(of) / len(of) ** 0.5) for arm, of in values.items()}
            found.append({"preset": preset, "epsilon": epsilon, "seeds": seeds, "arms": arms})
    return sorted(found, key=lambda row: (list(SETTINGS).index(row["preset"]), row["epsilon"]))


def _of_seeds(preset: str, epsilon: float, arm: str) -> list[float]:
    """Accuracies of the seeds that count, at the learning rate that the tuning seeds chose."""
    rows = [row for row in stored() if (row["preset"], row["epsilon"], row["arm"]) == (preset, epsilon, arm)]
    known = {(row["learning_rate"], row["seed"]): row["accuracy"] for row in rows}
    seeds = TUNING_SEEDS.get(preset, _ONE)
    tried = {rate: [known[rate, seed] for seed in seeds if (rate, seed) in known] for rate in RATES[preset]}
    if not all(tried.values()) or any(len(tried[rate]) < len(seeds) for rate in _close(tried)):
        return []
    rate = _best(tried)
    return [row["accuracy"] for row in rows if row["seed"] not in seeds and row["learning_rate"] == rate]


def table() -> str:
    """One line for each preset and epsilon: accuracies with standard errors, and the difference."""
    lines = [f"| preset | epsilon | seeds | {' | '.join(ARMS)} | difference |", "|---|---:|---:|---:|---:|---:|"]
    for row in summary():
        first, second = (row["arms"][arm] for arm in ARMS)
        error = (first[1] ** 2 + second[1] ** 2) ** 0.5
        arms = " | ".join(f"{mean:.4f} +- {of:.4f}" for mean, of in (first, second))
        difference = f"{second[0] - first[0]:+.4f} +- {error:.4f}"
        lines.append(f"| {row['preset']} | {row['epsilon']:g} | {row['seeds']} | {arms} | {difference} |")
    return "\n".join(lines)


def draw() -> None:
    """Accuracy by epsilon, one panel for each preset, with standard errors."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same bytes whenever the figures are the same.
    mpl.rcParams["svg.hashsalt"] = "tacit"
    import matplotlib.pyplot as plt

    rows = summary()
    presets = [preset for preset in SETTINGS if any(row["preset"] == preset for row in rows)]
    figure, panels = plt.subplots(
        1, len(presets), figsize=(3.1 * len(presets), 3.3), squeeze=False, layout="constrained"
    )
    for axes, preset in zip(panels[0], presets, strict=True):
        of_preset = sorted((row for row in rows if row["preset"] == preset), key=lambda row: row["epsilon"])
        epsilons = [row["epsilon"] for row in of_preset]
        for arm, marker in zip(ARMS, ("o", "s"), strict=True):
            means, errors = zip(*(row["arms"][arm] for row in of_preset), strict=True)
            axes.errorbar(epsilons, means, errors, marker=marker, markersize=4, capsize=3, label=arm)
        axes.set_xscale("log", base=2)
        axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axes.set_title(preset)
        axes.set_xlabel("epsilon")
    panels[0][0].set_ylabel("test accuracy")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(ARMS))
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
