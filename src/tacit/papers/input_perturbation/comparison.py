"""Figures 2 to 4: accuracy and optimality gap against epsilon, proven methods beside the claimed ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from statistics import mean
from typing import Any

from tacit.erm.compare import EPSILONS, compare
from tacit.papers.base import Item, Row
from tacit.papers.drawing import lines_svg
from tacit.papers.input_perturbation.counter_examples import KEY
from tacit.papers.input_perturbation.theory import NUMBERS
from tacit.sweeps import Task

# The paper's Iris is binary, in a way that it does not say.
_IRIS = {"iris_setosa": ("setosa", ()), "iris_virginica": ("virginica", ("setosa",))}
_LARGE = ("bank_marketing", "adult_complete", "kddcup99")
DATA = {
    "quick": {"logistic": ("iris_setosa", "iris_virginica"), "mlp": ("iris_setosa",)},
    "full": {"logistic": ("breast_cancer_wisconsin", "creditcard", *_IRIS, *_LARGE), "mlp": _LARGE},
}
_SEEDS = {"quick": 2, "full": 10}
# A split of a large table takes minutes.
_LARGE_SEEDS = 3
_QUICK_EPSILONS = (0.1, 0.25, 10.0)
_TABLED = (0.1, 0.25, 10.0)
# The paper's four baselines, its own method, and the best of the proven modes; tables have every method.
_DRAWN = ("paper", "kifer", "zhang", "sgd", "descent", "exact", "aggregate", "privacy")
_MODELS = {"logistic": "logistic regression", "mlp": "network"}

_SCALES = {"accuracy": 100, "gap": 1}

Line = Mapping[str, Any]


def compared(
    dataset: str, model: str, seed: int, epsilons: Sequence[float], *, data_dir: str | os.PathLike[str] | None = None
) -> list[dict[str, Any]]:
    """`tacit.erm.compare.compare` on the split of one seed, replace-one, as plain rows.

    Args:
        dataset: its name.
        model: name of the convex model.
        seed: of the split and the noise.
        epsilons: targets, each > 0.
        data_dir: folder of the data files.
    """
    rows = compare({dataset: _load(dataset, data_dir)}, epsilons=epsilons, models=[model], repeats=1, first_seed=seed)
    return [asdict(row) for row in rows]


def _load(name: str, data_dir: str | os.PathLike[str] | None) -> Any:
    """A data set of `tacit.data`, or one of the two binary readings of Iris."""
    import numpy as np

    from tacit.data import load

    if name not in _IRIS:
        return load(name, data_dir=data_dir)
    whole, (positive, left_out) = load("iris"), _IRIS[name]
    kept = [index for index, label in enumerate(whole.classes) if label not in left_out]
    train, test = np.isin(whole.y_train, kept), np.isin(whole.y_test, kept)
    one = whole.classes.index(positive)
    return replace(
        whole,
        name=name,
        x_train=whole.x_train[train],
        y_train=(whole.y_train[train] == one).astype(np.int64),
        x_test=whole.x_test[test],
        y_test=(whole.y_test[test] == one).astype(np.int64),
        classes=("rest", positive),
    )


def _cells(size: str, model: str) -> list[tuple[str, int]]:
    """One split of every data set before the next, small sets first, so that a stopped run has all of the figures."""
    repeats = {dataset: _LARGE_SEEDS if dataset in _LARGE else _SEEDS[size] for dataset in DATA[size][model]}
    return [(dataset, seed) for seed in range(max(repeats.values())) for dataset in repeats if seed < repeats[dataset]]


def _tasks(model: str, size: str) -> list[Task]:
    epsilons = _QUICK_EPSILONS if size == "quick" else EPSILONS
    return [
        Task(
            f"{__name__}:compared",
            {"dataset": dataset, "model": model, "seed": seed, "epsilons": list(epsilons)},
            _seconds(dataset, model, len(epsilons)),
            reads_data=dataset not in _IRIS,
        )
        for dataset, seed in _cells(size, model)
    ]


def _seconds(dataset: str, model: str, epsilons: int) -> float:
    """Fifteen logistic methods of up to a second for 50,000 rows each; networks by DP-SGD."""
    records = 150 if dataset in _IRIS else NUMBERS["sizes"][dataset]
    return epsilons * (0.3 + records / 50_000 * 15.0 if model == "logistic" else 1.2 + records / 50_000 * 10.0)


def _lines(size: str, model: str, values: Sequence[Any], quantity: str) -> dict[str, dict[str, dict[float, float]]]:
    """Dataset -> method -> epsilon -> mean over the seeds; epsilon 0 stands for the fit without privacy."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (dataset, _), rows in zip(_cells(size, model), values, strict=True):
        for row in rows or ():
            if row[quantity] is not None:
                at = found.setdefault(dataset, {}).setdefault(_label(row), {})
                at.setdefault(row["epsilon"] or 0.0, []).append(row[quantity])
    return {
        dataset: {name: {epsilon: mean(cell) for epsilon, cell in at.items()} for name, at in methods.items()}
        for dataset, methods in found.items()
    }


def _label(row: Line) -> str:
    if row["epsilon"] is None:
        return "without privacy"
    return f"{'claimed: ' if row['standing'] == 'claimed' else ''}{row['method']} {row['variant']}"


def _rows(item: str, model: str, quantity: str, words: str, size: str, values: Sequence[Any]) -> list[Row]:
    """Means over the splits at a few epsilons; the figures store no values to compare with."""
    make, rows, scale = partial(Row, KEY, item), [], _SCALES[quantity]
    ran = Counter(dataset for (dataset, _), found in zip(_cells(size, model), values, strict=True) if found)
    for dataset, methods in _lines(size, model, values, quantity).items():
        for name, at in methods.items():
            for epsilon in at:
                if epsilon in (0.0, *_TABLED):
                    where = f", epsilon {epsilon:g}" if epsilon else ""
                    rows.append(
                        make(f"{dataset}{where}, {name}: {words}", None, scale * at[epsilon], repeats=ran[dataset])
                    )
    return rows


def _drawings(item: str, model: str, quantity: str, words: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    drawn = {}
    for dataset, methods in _lines(size, model, values, quantity).items():
        lines, epsilons = {}, sorted({epsilon for at in methods.values() for epsilon in at if epsilon})
        for name, at in methods.items():
            if model == "logistic" and name.split()[-1] not in _DRAWN:
                continue
            own = [epsilon for epsilon in epsilons if epsilon in at] or epsilons
            lines[name] = (own, [_SCALES[quantity] * at[epsilon if epsilon in at else 0.0] for epsilon in own])
        drawn[f"{item}-{dataset}"] = lines_svg(
            lines,
            across="epsilon at which each method was run",
            up=words,
            log_across=True,
            log_up=quantity == "gap",
            dashed="claimed",
        )
    return drawn


def _item(item: str, model: str, quantity: str, words: str) -> Item:
    return Item(
        item,
        f"{words} against epsilon, {_MODELS[model]}",
        partial(_tasks, model),
        partial(_rows, item, model, quantity, words),
        partial(_drawings, item, model, quantity, words),
        partial=True,
    )


ITEMS = (
    _item("figure-2", "logistic", "accuracy", "test accuracy %"),
    _item("figure-3", "mlp", "accuracy", "test accuracy %"),
    _item("figure-4", "logistic", "gap", "optimality gap"),
)
