"""Figure 2: epsilon by epochs, delta by epsilon and the reverse, and the noise that is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.gaussian_dp.privacy import COLUMNS, curve_task, deltas_task, matched_task, standing
from tacit_papers.gaussian_dp.tables import KEY

_SIGMA, _EPOCHS = 0.7, 100


def _epochs(size: str) -> list[int]:
    return list(range(10, _EPOCHS + 1, 10 if size == "full" else 30))


def _epsilons(size: str) -> list[float]:
    return [float(epsilon) for epsilon in np.linspace(0.0, 20.0, 41 if size == "full" else 5)]


def _deltas(size: str) -> list[float]:
    count = 9 if size == "full" else 3
    # Not by numpy, whose powers end in another digit on other processors: settings name the stored runs.
    return [10.0 ** (-6 + 2 * place / (count - 1)) for place in range(count)]


def _sigmas(size: str) -> list[float]:
    return [float(sigma) for sigma in np.linspace(0.7, 3.0, 8 if size == "full" else 3)]


def _tasks(size: str) -> list[Task]:
    return [
        curve_task(_SIGMA, _epochs(size)),
        deltas_task(_SIGMA, _EPOCHS, _epsilons(size)),
        *(curve_task(_SIGMA, [_EPOCHS], delta) for delta in _deltas(size)),
        *(matched_task(sigma, _EPOCHS) for sigma in _sigmas(size)),
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """The figure stores no values; ours are shown at its ends."""
    make, epochs = partial(Row, KEY, "figure-2"), _epochs(size)
    return [
        make(f"sigma 0.7, {epochs[k]} epochs: epsilon, {words}", None, values[0][name][k], standing=standing(name))
        for k in (0, -1)
        for name, words in COLUMNS.items()
    ]


def _drawings(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    by_epoch, by_epsilon, *rest = values
    count = len(_deltas(size))
    by_delta, matched = rest[:count], rest[count:]
    epsilons = [value["epsilon"] for value in matched]
    return {
        "figure-2a": lines_svg(
            {words: (_epochs(size), by_epoch[name]) for name, words in COLUMNS.items()},
            across="epochs",
            up="epsilon at delta 1e-5",
        ),
        "figure-2b": lines_svg(
            {words: (_epsilons(size), by_epsilon[name]) for name, words in COLUMNS.items()},
            across="epsilon",
            up="delta after 100 epochs",
            log_up=True,
        ),
        "figure-2c": lines_svg(
            {words: (_deltas(size), [value[name][0] for value in by_delta]) for name, words in COLUMNS.items()},
            across="delta",
            up="epsilon after 100 epochs",
            log_across=True,
        ),
        "figure-2d": lines_svg(
            {
                "unchanged (moments accountant)": (epsilons, _sigmas(size)),
                "exact": (epsilons, [value["exact"] for value in matched]),
                "CLT": (epsilons, [value["clt"] for value in matched]),
            },
            across="the moments accountant's epsilon",
            up="noise multiplier that is enough",
        ),
    }


ITEM = Item(
    "figure-2", "epsilon by epochs, delta against epsilon, and the noise that is enough", _tasks, _rows, _drawings
)
