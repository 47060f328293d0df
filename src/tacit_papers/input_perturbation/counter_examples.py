"""Claimed against exact epsilon of the published calibration, on a loss that the theorem covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tacit.erm import refutation
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row, unpublished_rows

KEY = "input-perturbation"


def exact(records: int, claimed: float) -> dict[str, float]:
    """`tacit.erm.refutation.Refutation` of n = `records` and the epsilon `claimed`, as plain numbers."""
    (found,) = refutation.counter_examples([(records, claimed)])
    return asdict(found)


def _tasks(size: str) -> list[Task]:
    return [
        Task(f"{__name__}:exact", {"records": records, "claimed": epsilon}, 0.1) for records, epsilon in refutation.ROWS
    ]


_WORDS = {
    "claimed": ("epsilon as claimed", Standing.CLAIMED),
    "epsilon": ("epsilon, exact", Standing.PROVEN),
    "mu": ("mu, exact", Standing.PROVEN),
    "constant": ("constant c that would make it true", Standing.PROVEN),
    "constant_over_n": ("that c over n", Standing.PROVEN),
    "local_mu": ("mu of a perturbed record itself", Standing.PROVEN),
}


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    rows = []
    for value in values:
        prefix = f"n {value['records']}, claimed {value['claimed']:g}: "
        value = value | {"constant_over_n": value["constant"] / value["records"]}
        rows += unpublished_rows(KEY, "counter-examples", prefix, value, _WORDS)
    return rows


ITEM = Item("counter-examples", "claimed and exact epsilon of the published calibration", _tasks, _rows)
