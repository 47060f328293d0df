"""How close records must lie for the published Bayesian epsilons of Table 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.improved_accounting.counterexamples import KEY
from tacit_papers.improved_accounting.table_1 import NUMBERS

_ROWS = {"mnist": ("MNIST", 1e-5), "abalone": ("Abalone", 1e-5), "adult": ("Adult", 1e-5)}


def needed_distance(bayesian: float, generic: float, delta: float) -> float:
    """Distance of two records' contributions, in units of the bound, that turns the generic epsilon into the Bayesian.

    Where all pairs that are observed lie r apart, the cost of a step is r^2 times the generic one, so that

        epsilon(r) = (r x)^2 / 2 + r x sqrt(2 log(1 / delta)),    x = q sqrt(T) / sigma,

    with epsilon(1) the generic accountant's value. Any spread of the distances, and any allowance for the finite number
    of pairs, makes the Bayesian value larger at the same mean square.

    Args:
        bayesian: published epsilon of the Bayesian accountant, > 0.
        generic: that of the generic one for the same run, > 0.
        delta: of both, in (0, 1).

    Example:
        >>> round(needed_distance(0.95, 1.62, 1e-5), 3)
        0.594
    """
    slope = math.sqrt(2 * math.log(1 / delta))
    return _reach(bayesian, slope) / _reach(generic, slope)


def _reach(epsilon: float, slope: float) -> float:
    """The x with x^2 / 2 + slope x = epsilon."""
    return 2 * epsilon / (slope + math.sqrt(slope**2 + 2 * epsilon))


def _tasks(size: str) -> list[Task]:
    published = NUMBERS["table_1"]
    return [
        Task(
            f"{__name__}:needed_distance",
            {"bayesian": published[key]["bayesian"], "generic": published[key]["generic"], "delta": delta},
            0.1,
        )
        for key, (_, delta) in _ROWS.items()
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    make = partial(Row, KEY, "needed-distance")
    return [
        make(
            f"{title}: distance of every pair of records, of the bound, that gives the published Bayesian", None, value
        )
        for (title, _), value in zip(_ROWS.values(), values, strict=True)
    ]


ITEM = Item("needed-distance", "how close records must lie for the published Bayesian epsilons", _tasks, _rows)
