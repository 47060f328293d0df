"""How long the moments accountant takes beside the generic one, for the same run: the paper's own comparison."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.improved_accounting.counterexamples import KEY
from tacit_papers.improved_accounting.table_1 import NUMBERS

_ROW = NUMBERS["table_1"]["mnist"]
_REPEATS = 5


def seconds(name: str) -> float:
    """Of one epsilon of the MNIST run, the least of five after one that warms up."""
    rate = _ROW["batch_size"] / _ROW["records"]
    ran = Ledger.of(Gaussian(_ROW["sigma"]).poisson(rate) * round(_ROW["epochs"] / rate))
    asked, found = accountant(name), []
    for _ in range(_REPEATS + 1):
        started = time.perf_counter()
        asked(ran).epsilon(1e-5)
        found.append(time.perf_counter() - started)
    return min(found[1:])


def _tasks(size: str) -> list[Task]:
    return [Task(f"{__name__}:seconds", {"name": name}, 1.0) for name in ("moments", "generic")]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    moments, generic = values
    make = partial(Row, KEY, "timing")
    return [
        make("moments accountant: milliseconds", None, 1e3 * moments),
        make("generic accountant: milliseconds", None, 1e3 * generic),
        make("moments over generic", None, moments / generic),
    ]


ITEMS = (Item("timing", "MNIST: time of the moments accountant over that of the generic one", _tasks, _rows),)
