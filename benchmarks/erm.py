"""Adult logistic regression: accuracy of every method, time of one fit, and diffprivlib at the same guarantee.

    python benchmarks/erm.py [--data-dir DIR] [--repeats 3] [--features plain|centred] [--relation replace_one]
    python benchmarks/erm.py --solver                      500,000 rows x 100 columns
    python benchmarks/erm.py --write FOLDER                the splits as .npz, for --peer
    python benchmarks/erm.py --peer FOLDER                 diffprivlib on them, in an environment that has it

"plain" are the declared columns as they are; "centred" subtracts public constants (1 / m from a one-hot group of m, 1/2
from a scaled number) and takes logarithms of the two capital columns. diffprivlib gets unit rows with the constant
inside and data_norm=1: with longer rows its volume term takes ||x|| for ||x||^2, so its stated epsilon is not met.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

EPSILONS = (0.01, 0.05, 0.1, 0.25, 1.0, 10.0)
CONSTANT = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--features", choices=("plain", "centred"), default="plain")
    parser.add_argument("--relation", default="add_remove")
    parser.add_argument("--solver", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--peer", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.solver:
        return solver()
    if given.peer is not None:
        return peer(given.peer)
    dataset = adult(given.data_dir, centred=given.features == "centred")
    if given.write is not None:
        return write(dataset, given.write, given.repeats)
    return table(dataset, given.repeats, given.relation)


def adult(data_dir, *, centred):
    """The 45,222 complete rows of Adult."""
    from tacit.data import load

    dataset = load("adult_complete", data_dir=data_dir)
    return centre(dataset) if centred else dataset


def centre(dataset):
    """The "centred" features; every constant is declared."""
    names = dataset.feature_names
    groups = [name.partition("=")[0] if "=" in name else None for name in names]
    shift = np.array([1 / groups.count(group) if group else 0.5 for group in groups])
    top = {"capital-gain": 99_999.0, "capital-loss": 5_000.0}

    def moved(x):
        x = x.astype(float)
        for column, high in top.items():
            place = names.index(column)
            x[:, place] = np.log1p(x[:, place] * high) / np.log1p(high)
        return (x - shift).astype(np.float32)

    bounds = (-shift, 1 - shift)
    return replace(dataset, x_train=moved(dataset.x_train), x_test=moved(dataset.x_test), bounds=bounds)


def norm_of(dataset):
    """The longest row: a group of m has norm^2 (1 - s)^2 + (m - 1) s^2, s what was subtracted."""
    low, high = (np.broadcast_to(end, dataset.x_train.shape[1:]) for end in dataset.bounds)
    total, groups = 0.0, {}
    for place, name in enumerate(dataset.feature_names):
        groups.setdefault(name.partition("=")[0], []).append(place)
    for places in groups.values():
        rest = float((low[places] ** 2).sum())
        total += max(rest - low[p] ** 2 + max(high[p] ** 2, low[p] ** 2) for p in places)
    return float(np.sqrt(total))


def table(dataset, repeats, relation):
    from tacit.erm import METHODS, DPLogisticRegression
    from tacit.erm.compare import best_logistic

    splits = [dataset.resplit(seed=seed) for seed in range(repeats)]
    print(f"without privacy {np.mean([100 * best_logistic(split) for split in splits]):.2f}")
    print(f"{'method':28s}" + "".join(f"{epsilon:>8g}" for epsilon in EPSILONS) + "   CPU s")
    for method, known in METHODS.items():
        for variant, kind in known.items():
            cells, times = [], []
            for epsilon in EPSILONS:
                scores = []
                for seed, split in enumerate(splits):
                    model = DPLogisticRegression(
                        method=method,
                        variant=variant,
                        epsilon=epsilon,
                        delta=0.0 if kind.pure else 1e-6,
                        relation="replace_one" if kind.pure else relation,
                        data_bounds=split.bounds,
                        norm_bound=norm_of(split),
                        intercept_scale=CONSTANT,
                        classes=[0, 1],
                        unsafe_seed=seed,
                    )
                    start = time.process_time()
                    model.fit(split.x_train, split.y_train)
                    times.append(time.process_time() - start)
                    scores.append(100 * model.score(split.x_test, split.y_test))
                cells.append(f"{np.mean(scores):8.2f}")
            mark = "" if kind.standing == "proven" else " (claimed)"
            print(f"{method + ' ' + variant + mark:28s}" + "".join(cells) + f"{np.median(times):8.2f}", flush=True)


def solver():
    from tacit.erm.losses import Logistic
    from tacit.erm.problem import Problem
    from tacit.erm.solver import minimise

    rng = np.random.default_rng(0)
    x = rng.normal(size=(500_000, 100))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (x @ rng.normal(size=100) * 10 + rng.normal(size=500_000) > 0).astype(float)
    start = time.perf_counter()
    found = minimise(Problem(x, y, Logistic(), 50.0))
    print(f"{time.perf_counter() - start:.2f} s, gradient norm {found.gradient_norm:.1e}")


def write(dataset, folder, repeats):
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(repeats):
        split = dataset.resplit(seed=seed)
        scale = norm_of(split) * np.hypot(1, CONSTANT)
        rows = [
            np.hstack([x / scale, np.full((len(x), 1), CONSTANT / np.hypot(1, CONSTANT))])
            for x in (split.x_train, split.x_test)
        ]
        np.savez(folder / f"{seed}.npz", x=rows[0], x_test=rows[1], y=split.y_train, y_test=split.y_test)


def peer(folder):
    from diffprivlib.models import LogisticRegression

    cells = []
    for epsilon in EPSILONS:
        scores = []
        for seed, path in enumerate(sorted(folder.glob("*.npz"))):
            data = np.load(path)
            model = LogisticRegression(
                epsilon=epsilon, data_norm=1.0, fit_intercept=False, max_iter=1000, random_state=seed
            ).fit(data["x"], data["y"])
            scores.append(100 * model.score(data["x_test"], data["y_test"]))
        cells.append(f"{np.mean(scores):8.2f}")
    print(f"{'diffprivlib (pure)':28s}" + "".join(cells))


if __name__ == "__main__":
    main()
