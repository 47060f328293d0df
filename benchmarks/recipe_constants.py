"""Constants of the recipes of images and text, chosen on KMNIST, CIFAR-100 and a part of IMDb's training reviews alone.

    python benchmarks/recipe_constants.py run --data-dir DATA [--sets kmnist] [--seeds 3]
    python benchmarks/recipe_constants.py show

`run` adds the cells that `benchmarks/results/recipe_constants.json` lacks; `show` prints for each setting how far its
test accuracy is below the best of its data set and epsilon, and the mean over the data sets of its kind.

Of KMNIST's test set 8,000 images are trained on and 2,000 tested, divided anew by each seed; of CIFAR-100, in its
twenty superclasses, the 15,000 training images of the pixel subset and 5,000 test images; of the training reviews of
IMDb 20,000 and 5,000, divided anew by each seed. All are fewer than the 60,000 records of a common data set of images
and the 25,000 reviews, so the noise is that of as many: batches hold the same share of the records, and the noise on a
mean gradient has the same deviation. The model is the recipe's: softmax regression on its features from zero, momentum
.9, a running mean of the weights. The records are public here, so noise comes from NumPy's generator.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import scipy.sparse
from PIL import Image
from scipy.special import softmax

from tacit import calibration
from tacit.data import load
from tacit.data.words import COLUMNS
from tacit.features import computed
from tacit.runs.builders import features_of
from tacit.serialization import write_text
from tacit.tradeoff.target import Epsilon

RESULTS = Path(__file__).parent / "results" / "recipe_constants.json"
DELTA, MOMENTUM, AVERAGE = 1e-5, 0.9, 0.95
EPSILONS = (0.5, 1.0, 3.0, 8.0)


@dataclass(frozen=True)
class Kind:
    """Data sets of one recipe, the number of records whose noise they get, and the settings that are tried."""

    sets: tuple[str, ...]
    records: int
    settings: tuple[dict[str, float], ...]


def _images() -> tuple[dict[str, float], ...]:
    """Epochs and rates at a clip norm of .1, then other clip norms at as large a step."""
    share, rates = 4096 / 60_000, (1.0, 2.0, 4.0, 8.0)
    grid = [{"epochs": epochs, "rate": rate, "clip": 0.1, "share": share} for epochs in (10, 20, 40) for rate in rates]
    grid += [{"epochs": 40, "rate": r * 0.1 / c, "clip": c, "share": share} for c in (0.05, 0.2) for r in rates]
    return tuple(grid)


def _words() -> tuple[dict[str, float], ...]:
    rates, epochs, shares = (10.0, 20.0, 40.0, 80.0), (10, 20, 40), (0.1, 0.25)
    return tuple({"epochs": e, "rate": r, "clip": 0.5, "share": s} for s in shares for e in epochs for r in rates)


KINDS = (Kind(("kmnist", "cifar100"), 60_000, _images()), Kind(("imdb",), 25_000, _words()))
FEATURES = {"kmnist": "scattering", "cifar100": "mirrored_scattering+patches"}
TRAINED = {"kmnist": 8000, "cifar100": 15_000, "imdb": 20_000}
COARSE = (
    "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 "
    "12 14 16 9 11 5 5 19 8 8 15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 "
    "9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 8 19 18 1 2 15 6 0 17 8 14 13"
)
"""Superclass of each of CIFAR-100's classes (Krizhevsky 2009)."""

Rows = Any  # an array or a sparse matrix, a row for each record


def kmnist(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All images of KMNIST's test set, (10000, 1, 28, 28) in [0, 1], and their classes."""
    found = load("kmnist", data_dir=folder)
    rows = np.concatenate([found.x_train, found.x_test]).reshape(-1, 1, 28, 28).astype(np.float32)
    return rows, np.concatenate([found.y_train, found.y_test]).astype(np.int64)


def cifar100(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """15,000 training and 5,000 test images of CIFAR-100, (20000, 3, 32, 32) in [0, 1], and their superclasses."""
    parts = [*(f"train_{each:03}" for each in range(15)), *(f"test_{each:03}" for each in range(5))]
    images = []
    for name in parts:
        with Image.open(folder / "cifar100" / f"{name}.webp") as mosaic:
            tiles = np.asarray(mosaic.convert("RGB")).reshape(25, 32, 40, 32, 3).transpose(0, 2, 4, 1, 3)
            images.append(tiles.reshape(1000, 3, 32, 32))
    with np.load(folder / "cifar100" / "cifar100_pca50.npz", allow_pickle=False) as file:
        labels = np.concatenate([file["y_train"][:15_000], file["y_test"][:5000]])
    return np.concatenate(images).astype(np.float32) / 255, np.array(COARSE.split(), np.int64)[labels]


def imdb(folder: Path) -> tuple[Rows, np.ndarray]:
    """Hashed words of the 25,000 training reviews of IMDb, sparse, and their classes."""
    found = load("imdb_words", data_dir=folder)
    codes = np.asarray(found.x_train)
    rows, places = np.nonzero(codes)
    values = codes[rows, places] - 1
    signs = 1.0 - 2.0 * (values % 2)
    table = scipy.sparse.csr_array((signs, (rows, values // 2)), shape=(len(codes), COLUMNS))
    norms = np.sqrt(table.power(2).sum(axis=1)).clip(1e-12)
    return scipy.sparse.csr_array(table.multiply(1 / norms[:, None])), np.asarray(found.y_train).astype(np.int64)


def features(name: str, folder: Path) -> tuple[Rows, np.ndarray]:
    """Features of the recipe, a one behind those of each record, and classes of all records of a data set."""
    if name == "imdb":
        rows, labels = imdb(folder)
        return scipy.sparse.csr_array(scipy.sparse.hstack([rows, np.ones((rows.shape[0], 1))])), labels
    rows, labels = {"kmnist": kmnist, "cifar100": cifar100}[name](folder)
    config, shape = SimpleNamespace(features=FEATURES[name]), SimpleNamespace(x_train=rows[:2])
    made = computed(features_of(cast(Any, config), cast(Any, shape)), rows)
    return np.concatenate([made, np.ones((len(made), 1), np.float32)], axis=1), labels


def divided(name: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of training and of test records."""
    order = np.arange(count) if name == "cifar100" else np.random.default_rng(seed).permutation(count)
    first, second = np.split(order, [TRAINED[name]])
    return first, second


def accuracy(train: list[Rows], test: list[Rows], setting: dict[str, float], records: int, seed: int) -> float:
    """Test accuracy of one run of DP-SGD with the noise of as many records."""
    rows, labels = train
    classes, share, clip = int(labels.max()) + 1, setting["share"], setting["clip"]
    steps = round(setting["epochs"] / share)
    rng = np.random.default_rng(seed)
    target = Epsilon(setting["epsilon"], DELTA)
    noise = calibration.noise_multiplier(target, sample_rate=share, steps=steps).value * clip / (share * records)
    weights = np.zeros((rows.shape[1], classes), np.float32)
    momentum, average = np.zeros_like(weights), np.zeros_like(weights)
    targets = np.eye(classes, dtype=np.float32)[labels]
    norms = np.sqrt((rows**2).sum(axis=1)) if scipy.sparse.issparse(rows) else np.linalg.norm(rows, axis=1)
    for _ in range(steps):
        drawn = np.flatnonzero(rng.random(len(labels)) < share)
        batch = rows[drawn]
        residuals = softmax(batch @ weights, axis=1) - targets[drawn]
        scale = clip / np.maximum(np.linalg.norm(residuals, axis=1) * norms[drawn], clip)
        gradient = batch.T @ (residuals * scale[:, None]).astype(np.float32) / (share * len(labels))
        gradient += noise * rng.standard_normal(weights.shape, dtype=np.float32)
        momentum = MOMENTUM * momentum + gradient
        weights = (weights - setting["rate"] * momentum).astype(np.float32)
        average = AVERAGE * average + (1 - AVERAGE) * weights
    return float(((test[0] @ average).argmax(axis=1) == test[1]).mean())


def run(arguments: argparse.Namespace) -> None:
    """Fill the cells that are missing."""
    for kind in KINDS:
        for name in (each for each in kind.sets if each in arguments.sets):
            rows, labels = features(name, arguments.data_dir)
            for seed, epsilon, setting in product(range(arguments.seeds), EPSILONS, kind.settings):
                key = "|".join([name, f"{epsilon:g}", *(f"{value:.3g}" for value in setting.values()), str(seed)])
                if key in stored():
                    continue
                parts = [[rows[each], labels[each]] for each in divided(name, len(labels), seed)]
                found = accuracy(parts[0], parts[1], setting | {"epsilon": epsilon}, kind.records, seed)
                write_text(RESULTS, json.dumps(stored() | {key: round(found, 4)}, indent=1) + "\n")
                print(key, f"{found:.4f}", flush=True)


def stored() -> dict[str, float]:
    """Accuracies by data set, epsilon, epochs, rate, clip norm, share of a batch and seed."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def show() -> None:
    """Print how far each setting is below the best of its data set and epsilon, in percent."""
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for key, value in stored().items():
        name, epsilon, *setting, _ = key.split("|")
        groups.setdefault((epsilon, name), {}).setdefault(" ".join(setting), []).append(value)
    below = {place: _below(cells) for place, cells in groups.items()}
    for kind, epsilon in product(KINDS, dict.fromkeys(each for each, _ in groups)):
        print(f"epsilon {epsilon}: epochs, rate, clip, share; below the best on {', '.join(kind.sets)}, mean")
        shown = [below[epsilon, name] for name in kind.sets if (epsilon, name) in below]
        rows = [(mean(each[setting] for each in shown), setting) for setting in (shown[0] if shown else ())]
        for value, setting in sorted(rows):
            print(f"  {setting:>18}", *(f"{each[setting]:6.2f}" for each in shown), f"{value:6.2f}")


def _below(cells: dict[str, list[float]]) -> dict[str, float]:
    best = max(mean(each) for each in cells.values())
    return {setting: 100 * (best - mean(each)) for setting, each in cells.items()}


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--sets", nargs="+", choices=list(TRAINED), default=list(TRAINED))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments)
    show()


if __name__ == "__main__":
    main()
