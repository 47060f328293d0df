"""Figures 2 and 4: accuracy and optimality gap of logistic regression, proven methods beside the claimed ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from statistics import mean
from typing import Any

from tacit.erm.compare import EPSILONS, compare
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import Panel, panels_svg
from tacit_papers.input_perturbation.counter_examples import KEY
from tacit_papers.input_perturbation.tables import IRIS, LARGE, SMALL, TITLES, load_table
from tacit_papers.input_perturbation.theory import NUMBERS

DATA = {"quick": tuple(IRIS), "full": (*SMALL, *LARGE)}
_SEEDS = {"quick": 2, "full": 10}
# A split of a large table takes minutes.
_LARGE_SEEDS = 3
_QUICK_EPSILONS = (0.1, 0.25, 10.0)
_TABLED = (0.1, 0.25, 10.0)
# In the order of the paper's legend, and the best of the proven modes; tables have every method.
_PAPERS = {
    "objective kifer": "Kifer, objective perturbation",
    "output zhang": "Zhang, output perturbation",
    "gradient sgd": "Bassily, noisy SGD",
    "gradient descent": "Wang, gradient perturbation",
    "claimed: input paper": "input perturbation (claimed)",
}
_OURS = {"objective exact": "objective perturbation, exact", "input aggregate": "noisy sums of statistics"}
_BARE = {"without privacy": "without privacy"}
_HIGHEST = 0.25
_COLUMNS = 4

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
    rows = compare(
        {dataset: load_table(dataset, data_dir)}, epsilons=epsilons, models=[model], repeats=1, first_seed=seed
    )
    return [asdict(row) for row in rows]


def _cells(size: str) -> list[tuple[str, int]]:
    """One split of every data set before the next, small sets first, so that a stopped run has all of the figures."""
    repeats = {dataset: _LARGE_SEEDS if dataset in LARGE else _SEEDS[size] for dataset in DATA[size]}
    return [(dataset, seed) for seed in range(max(repeats.values())) for dataset in repeats if seed < repeats[dataset]]


def _tasks(size: str) -> list[Task]:
    epsilons = _QUICK_EPSILONS if size == "quick" else EPSILONS
    return [
        Task(
            f"{__name__}:compared",
            {"dataset": dataset, "model": "logistic", "seed": seed, "epsilons": list(epsilons)},
            _seconds(dataset, len(epsilons)),
            reads_data=dataset not in IRIS,
        )
        for dataset, seed in _cells(size)
    ]


def _seconds(dataset: str, epsilons: int) -> float:
    """Fifteen methods of up to a second for 50,000 rows each."""
    records = 150 if dataset in IRIS else NUMBERS["sizes"][dataset]
    return epsilons * (0.3 + records / 50_000 * 15.0)


def _lines(size: str, values: Sequence[Any], quantity: str) -> dict[str, dict[str, dict[float, float]]]:
    """Dataset -> method -> epsilon -> mean over the seeds; epsilon 0 stands for the fit without privacy."""
    found: dict[str, dict[str, dict[float, list[float]]]] = {}
    for (dataset, _), rows in zip(_cells(size), values, strict=True):
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


def _rows(item: str, quantity: str, words: str, size: str, values: Sequence[Any]) -> list[Row]:
    """Means over the splits at a few epsilons; the figures store no values to compare with."""
    make, rows, scale = partial(Row, KEY, item), [], _SCALES[quantity]
    ran = Counter(dataset for (dataset, _), found in zip(_cells(size), values, strict=True) if found)
    for dataset, methods in _lines(size, values, quantity).items():
        for name, at in methods.items():
            for epsilon in at:
                if epsilon in (0.0, *_TABLED):
                    where = f", epsilon {epsilon:g}" if epsilon else ""
                    rows.append(
                        make(f"{dataset}{where}, {name}: {words}", None, scale * at[epsilon], repeats=ran[dataset])
                    )
    return rows


def _drawings(item: str, quantity: str, words: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """One figure of the paper's epsilons and methods, and one of all epsilons with the best proven modes."""
    found = _lines(size, values, quantity)
    if not found:
        return {}
    wide = partial(_panels, found, quantity, words)
    draw = partial(panels_svg, columns=_COLUMNS, across="epsilon", dashed=[_PAPERS["claimed: input paper"]])
    return {
        item: draw(wide({**_PAPERS, **_BARE}, _HIGHEST)),
        f"{item}-all-epsilons": draw(wide({**_PAPERS, **_OURS, **_BARE}, EPSILONS[-1]), log_across=True),
    }


def _panels(
    found: Mapping[str, Mapping[str, Mapping[float, float]]],
    quantity: str,
    words: str,
    labels: Mapping[str, str],
    highest: float,
) -> list[Panel]:
    panels = []
    for dataset, methods in found.items():
        lines, epsilons = {}, sorted({epsilon for at in methods.values() for epsilon in at if 0 < epsilon <= highest})
        for name in (name for name in labels if name in methods):
            at = methods[name]
            own = [epsilon for epsilon in epsilons if epsilon in at] or epsilons
            lines[labels[name]] = (own, [_SCALES[quantity] * at[epsilon if epsilon in at else 0.0] for epsilon in own])
        panels.append(Panel(TITLES[dataset], lines, words, log_up=quantity == "gap"))
    return panels


def _item(item: str, quantity: str, words: str) -> Item:
    return Item(
        item,
        f"{words} against epsilon, logistic regression",
        _tasks,
        partial(_rows, item, quantity, words),
        partial(_drawings, item, quantity, words),
        partial=True,
    )


ITEMS = {
    "figure-2": _item("figure-2", "accuracy", "test accuracy %"),
    "figure-4": _item("figure-4", "gap", "optimality gap"),
}
