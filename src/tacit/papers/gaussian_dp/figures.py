"""Figures 2 to 4: epsilon against epochs, trade-off curves, accuracy at matched noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tacit.papers.base import Item, Row
from tacit.papers.drawing import lines_svg
from tacit.papers.gaussian_dp.tables import KEY, NUMBERS
from tacit.papers.runs import history_task
from tacit.standing import Standing
from tacit.sweeps import Task

_N, _B = 60000, 256
_RATE = _B / _N
_HERE = "tacit.papers.gaussian_dp"
_COLUMNS = {"moments": "moments accountant", "exact": "exact", "clt": "CLT"}
_PANELS = ("top", "bottom")
_QUICK_EPOCHS = 2


def _steps(epochs: float) -> int:
    return round(epochs / _RATE)


def _curve_task(sigma: float, epochs: Sequence[int], delta: float = 1e-5) -> Task:
    settings = {"sigma": sigma, "sample_rate": _RATE, "steps": [_steps(epoch) for epoch in epochs], "delta": delta}
    return Task(f"{_HERE}.privacy:curve", settings, 0.3 * len(epochs))


def _figure_2_epochs(size: str) -> list[int]:
    return list(range(10, 101, 10 if size == "full" else 30))


def _figure_2_tasks(size: str) -> list[Task]:
    deltas = np.geomspace(1e-6, 1e-4, 9 if size == "full" else 3)
    sigmas = np.linspace(0.7, 3.0, 8 if size == "full" else 3)
    return [
        _curve_task(0.7, _figure_2_epochs(size)),
        *(_curve_task(0.7, [100], float(delta)) for delta in deltas),
        *(Task(f"{_HERE}.privacy:matched", _matched_settings(float(sigma), 100), 1.0) for sigma in sigmas),
    ]


def _matched_settings(sigma: float, epochs: int) -> dict[str, Any]:
    return {"sigma": sigma, "sample_rate": _RATE, "steps": _steps(epochs), "delta": 1e-5}


def _figure_2_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """The figure stores no values; ours are shown at its ends."""
    make, epochs = partial(Row, KEY, "figure-2"), _figure_2_epochs(size)
    return [
        make(f"sigma 0.7, {epochs[k]} epochs: epsilon, {words}", None, values[0][name][k], standing=_standing(name))
        for k in (0, -1)
        for name, words in _COLUMNS.items()
    ]


def _figure_2_drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    by_epoch, rest = values[0], values[1:]
    by_delta = [value for value in rest if isinstance(value.get("exact"), list)]
    matched = [value for value in rest if not isinstance(value.get("exact"), list)]
    deltas = np.geomspace(1e-6, 1e-4, len(by_delta))
    sigmas = np.linspace(0.7, 3.0, len(matched))
    return {
        "figure-2a": lines_svg(
            {words: (_figure_2_epochs(size), by_epoch[name]) for name, words in _COLUMNS.items()},
            across="epochs",
            up="epsilon at delta 1e-5",
        ),
        "figure-2c": lines_svg(
            {words: (deltas, [value[name][0] for value in by_delta]) for name, words in _COLUMNS.items()},
            across="delta",
            up="epsilon after 100 epochs",
            log_across=True,
        ),
        "figure-2d": lines_svg(
            {
                "unchanged (moments accountant)": ([row["epsilon"] for row in matched], sigmas),
                "exact": ([row["epsilon"] for row in matched], [row["exact"] for row in matched]),
                "CLT": ([row["epsilon"] for row in matched], [row["clt"] for row in matched]),
            },
            across="the moments accountant's epsilon",
            up="noise multiplier that is enough",
        ),
    }


def _figure_4_tasks(size: str) -> list[Task]:
    tasks: list[Task] = []
    for panel in _PANELS:
        numbers = NUMBERS["figure_4"][panel]
        epochs = list(range(1, numbers["epochs"] + 1, 1 if size == "full" else numbers["epochs"] - 1))
        tasks.append(Task(f"{_HERE}.privacy:matched", _matched_settings(numbers["sigma"], numbers["epochs"]), 1.0))
        tasks += [_curve_task(sigma, epochs) for sigma in (numbers["sigma"], numbers["matched_sigma"])]
    panels = _PANELS if size == "full" else _PANELS[:1]
    return tasks + [task for panel in panels for task in _figure_4_runs(panel, size)]


def _figure_4_runs(panel: str, size: str) -> list[Task]:
    figure = NUMBERS["figure_4"]
    numbers = figure[panel]
    epochs = numbers["epochs"] if size == "full" else _QUICK_EPOCHS
    common = {"learning_rate": figure["learning_rate"], "clip_norm": figure["clip_norm"], "epochs": epochs}
    run = partial(history_task, "mnist", 0, **common)
    if size == "quick":
        return [run(seconds=7.0 * epochs, noise_multiplier=numbers["sigma"])]
    sigmas = (numbers["sigma"], numbers["matched_sigma"])
    noisy = [run(seconds=4.0 * epochs, noise_multiplier=sigma, engine="compiled") for sigma in sigmas]
    return [*noisy, run(seconds=2.6 * epochs, private=False)]


def _figure_4_rows(size: str, values: Sequence[Any]) -> list[Row]:
    figure, make = NUMBERS["figure_4"], partial(Row, KEY, "figure-4")
    rows: list[Row] = []
    for index, panel in enumerate(_PANELS):
        numbers, tolerance = figure[panel], figure["tolerance"]
        prefix, matched = f"{panel}, sigma {numbers['sigma']}: ", values[3 * index]
        if matched is not None:
            claimed, proven = "noise that the CLT allows", "noise that is proven enough"
            words, allowed = f"{prefix}{claimed} at the same epsilon", tolerance["matched_sigma"]
            rows += [
                make(words, numbers["matched_sigma"], matched["clt"], allowed, Standing.ASYMPTOTIC),
                make(f"{prefix}{proven} at the same epsilon", None, matched["exact"], None, Standing.PROVEN),
            ]
        runs = _runs_of(size, index, values)
        for name, run in zip(("moments", "clt", "nonprivate"), runs, strict=False):
            compared = tolerance["accuracy"] if size == "full" else None
            test = run["test"] if run is not None else None
            rows += _accuracy_rows(make, f"{panel}, {name}: ", numbers[name], test, compared)
    return rows


def _accuracy_rows(
    make: Any, prefix: str, curve: list[float], test: list[float] | None, tolerance: float | None
) -> list[Row]:
    """Some epochs of a run; the first ones, at quick size, are shown and not compared."""
    marks = sorted({min(epoch, len(curve)) for epoch in (_QUICK_EPOCHS, 10, 30, 70)} if tolerance else {_QUICK_EPOCHS})
    return [
        make(
            f"{prefix}test accuracy % after epoch {epoch}",
            curve[epoch - 1],
            round(100 * test[epoch - 1], 2) if test is not None else None,
            tolerance,
            repeats=int(test is not None),
        )
        for epoch in marks
    ]


def _figure_4_drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    if size == "quick":
        return {}
    drawings: dict[str, str] = {}
    for index, panel in enumerate(_PANELS):
        numbers = NUMBERS["figure_4"][panel]
        _, noisy, less = values[3 * index : 3 * index + 3]
        epochs = list(range(1, numbers["epochs"] + 1))
        runs = _runs_of(size, index, values)
        if any(value is None for value in (noisy, less, *runs)):
            continue
        labels = (f"sigma {numbers['sigma']}", f"sigma {numbers['matched_sigma']}", "no noise")
        accuracy = {
            label: (epochs, [100 * x for x in run["test"][: len(epochs)]])
            for label, run in zip(labels, runs, strict=True)
        }
        for name, label in (("moments", "paper, moments"), ("clt", "paper, CLT")):
            accuracy[label] = (epochs[: len(numbers[name])], numbers[name])
        drawings[f"figure-4-{panel}-accuracy"] = lines_svg(
            accuracy, across="epoch", up="test accuracy %", dashed="paper"
        )
        epsilons = {
            f"sigma {sigma}, {words}": (epochs, curve[name])
            for sigma, curve in ((numbers["sigma"], noisy), (numbers["matched_sigma"], less))
            for name, words in _COLUMNS.items()
        }
        drawings[f"figure-4-{panel}-epsilon"] = lines_svg(epsilons, across="epoch", up="epsilon at delta 1e-5")
    return drawings


def _runs_of(size: str, index: int, values: Sequence[Any]) -> Sequence[Any]:
    count = 3 if size == "full" else 1
    start = 3 * len(_PANELS) + index * count
    return values[start : start + count]


def _standing(name: str) -> Standing:
    return Standing.ASYMPTOTIC if name in ("clt", "mu") else Standing.PROVEN


ITEMS = (
    Item(
        "figure-2",
        "epsilon by epochs and delta, and the noise that is enough",
        _figure_2_tasks,
        _figure_2_rows,
        _figure_2_drawings,
    ),
    Item(
        "figure-4",
        "accuracy and epsilon by epoch at matched noise",
        _figure_4_tasks,
        _figure_4_rows,
        _figure_4_drawings,
        partial=True,
    ),
)
