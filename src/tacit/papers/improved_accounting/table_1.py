"""Table 1: MNIST with DP-SGD by the moments, generic and Bayesian accountants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian
from tacit.papers.base import Item, Row, published
from tacit.papers.improved_accounting.counterexamples import KEY
from tacit.standing import Standing
from tacit.sweeps import Task

NUMBERS = published("tacit.papers.improved_accounting")


def costs(sigma: float, sample_rate: float, steps: int, delta: float) -> dict[str, float]:
    """epsilon by every accountant of the table, and exactly."""
    ran = Ledger.of(Gaussian(sigma).poisson(sample_rate) * steps)
    return {
        name: float(accountant(name)(ran).epsilon(delta)) for name in ("moments", "generic", "generic_sound", "pld")
    }


def _tasks(size: str) -> list[Task]:
    row = NUMBERS["table_1"]["mnist"]
    rate = row["batch_size"] / row["records"]
    settings = {"sigma": row["sigma"], "sample_rate": rate, "steps": round(row["epochs"] / rate), "delta": 1e-5}
    return [Task(f"{__name__}:costs", settings, 0.5)]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    row, (value,), make = NUMBERS["table_1"]["mnist"], values, partial(Row, KEY, "table-1")
    return [
        make("MNIST: epsilon, moments accountant", row["moments"], value["moments"], row["tolerance"], Standing.PROVEN),
        make(
            "MNIST: epsilon, generic accountant", row["generic"], value["generic"], row["tolerance"], Standing.CLAIMED
        ),
        make("MNIST: epsilon, exact", None, value["pld"], None, Standing.PROVEN),
        make(
            "MNIST: epsilon, sound form of the generic accountant", None, value["generic_sound"], None, Standing.PROVEN
        ),
    ]


ITEM = Item("table-1", "MNIST with DP-SGD: what each accountant says", _tasks, _rows)
