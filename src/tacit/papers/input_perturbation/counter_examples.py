"""Claimed against exact epsilon of the published calibration, on a loss that the theorem covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from tacit.erm import refutation
from tacit.papers.base import Item, Row
from tacit.standing import Standing
from tacit.sweeps import Task

KEY = "input-perturbation"


def exact(records: int, claimed: float) -> dict[str, float]:
    """`tacit.erm.refutation.Refutation` of n = `records` and the epsilon `claimed`, as plain numbers."""
    (found,) = refutation.counter_examples([(records, claimed)])
    return asdict(found)


def _tasks(size: str) -> list[Task]:
    return [
        Task(f"{__name__}:exact", {"records": records, "claimed": epsilon}, 0.1) for records, epsilon in refutation.ROWS
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    make, rows = partial(Row, KEY, "counter-examples"), []
    for value in values:
        prefix = f"n {value['records']}, claimed {value['claimed']:g}: "
        rows += [
            make(f"{prefix}epsilon as claimed", None, value["claimed"], standing=Standing.CLAIMED),
            make(f"{prefix}epsilon, exact", None, value["epsilon"], standing=Standing.PROVEN),
            make(f"{prefix}mu, exact", None, value["mu"], standing=Standing.PROVEN),
            make(f"{prefix}constant c that would make it true", None, value["constant"], standing=Standing.PROVEN),
            make(f"{prefix}that c over n", None, value["constant"] / value["records"], standing=Standing.PROVEN),
            make(f"{prefix}mu of a perturbed record itself", None, value["local_mu"], standing=Standing.PROVEN),
        ]
    return rows


ITEM = Item("counter-examples", "what the published calibration really costs", _tasks, _rows)
