"""Which learning rate drew Figure 4: the caption's .15 starts as the lower panel does, not as the upper one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import Any

from tacit.papers.base import Item, Row
from tacit.papers.drawing import lines_svg
from tacit.papers.gaussian_dp.tables import KEY, NUMBERS
from tacit.papers.runs import history_task
from tacit.sweeps import Task

_FIGURE = NUMBERS["figure_4"]
_EPOCHS, _SEEDS = 2, (0, 1)
_SETTINGS = (("top", "moments", 0.15), ("top", "moments", 0.5), ("bottom", "moments", 0.15), ("bottom", "clt", 0.15))
_LONG_RATE = 0.5


def _sigma(panel: str, curve: str) -> float:
    return _FIGURE[panel]["sigma" if curve == "moments" else "matched_sigma"]


def _tasks(size: str) -> list[Task]:
    """The first epochs at several rates, and the whole upper curve at the rate that fits; none at quick size."""
    if size == "quick":
        return []
    runs = [(panel, curve, rate, _EPOCHS, seed, "eager") for panel, curve, rate in _SETTINGS for seed in _SEEDS]
    runs.append(("top", "moments", _LONG_RATE, _FIGURE["top"]["epochs"], 0, "compiled"))
    return [
        history_task(
            "mnist",
            seed,
            seconds=6.0 * epochs,
            noise_multiplier=_sigma(panel, curve),
            learning_rate=rate,
            clip_norm=_FIGURE["clip_norm"],
            epochs=epochs,
            engine=engine,
        )
        for panel, curve, rate, epochs, seed, engine in runs
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    make, rows = partial(Row, KEY, "figure-4-rate"), []
    if not values:
        return []
    for index, (panel, curve, rate) in enumerate(_SETTINGS):
        runs = [run for run in values[index * len(_SEEDS) : (index + 1) * len(_SEEDS)] if run is not None]
        for epoch in range(1, _EPOCHS + 1):
            ours = round(100 * mean(run["test"][epoch - 1] for run in runs), 2) if runs else None
            words = f"{panel}, {curve}, learning rate {rate:g}: test accuracy % after epoch {epoch}"
            rows.append(make(words, _FIGURE[panel][curve][epoch - 1], ours, repeats=len(runs)))
    long, published = values[-1], _FIGURE["top"]["moments"]
    last = len(published)
    ours = round(100 * long["test"][last - 1], 2) if long else None
    words = f"top, moments, learning rate {_LONG_RATE:g}: test accuracy % after epoch {last}"
    return [*rows, make(words, published[-1], ours, _FIGURE["tolerance"]["accuracy"], repeats=int(long is not None))]


def _drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    if not values or values[-1] is None:
        return {}
    epochs, published = range(1, _FIGURE["top"]["epochs"] + 1), _FIGURE["top"]["moments"]
    lines = {
        f"learning rate {_LONG_RATE:g}": (list(epochs), [100 * x for x in values[-1]["test"][: len(epochs)]]),
        "paper": (list(epochs)[: len(published)], published),
    }
    return {"figure-4-rate": lines_svg(lines, across="epoch", up="test accuracy %", dashed="paper")}


ITEM = Item("figure-4-rate", "the learning rate of Figure 4", _tasks, _rows, _drawings, partial=True)
