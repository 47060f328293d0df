"""Table 1: epsilon by the moments, generic and Bayesian accountants, of MNIST with DP-SGD and of the regressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian
from tacit.papers.base import Item, Row, published
from tacit.papers.improved_accounting.counterexamples import KEY
from tacit.papers.improved_accounting.inference import DELTA, SETTINGS
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


# The least noise of the published grids, exp(linspace(...)); which of it the table's rows had could not be recovered.
_TABLES = {"abalone": ("abalone_over9", 0.2), "adult": ("adult", -0.3)}


def _inference_tasks(size: str) -> list[Task]:
    tasks = []
    for dataset, log_sigma in _TABLES.values():
        sigma, setting = math.exp(log_sigma), SETTINGS[dataset]
        given = {"sigma": sigma, "sample_rate": setting.sample_rate, "steps": setting.steps, "delta": DELTA}
        tasks.append(Task(f"{__name__}:costs", given, 0.5))
        watched = {"dataset": dataset, "sigma": sigma, "seed": 0}
        tasks.append(Task("tacit.papers.improved_accounting.inference:observed", watched, 10.0, reads_data=True))
    return tasks


def _inference_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Shown, not compared: noise, delta and clip of the published values were not recovered."""
    make, rows = partial(Row, KEY, "table-1-inference"), []
    for k, (key, (dataset, log_sigma)) in enumerate(_TABLES.items()):
        found, watched, row = values[2 * k], values[2 * k + 1], NUMBERS["table_1"][key]
        prefix = f"{SETTINGS[dataset].title}, sigma {math.exp(log_sigma):.3g}: epsilon, "
        rows += [
            make(f"{prefix}moments accountant", row["moments"], found["moments"], None, Standing.PROVEN),
            make(f"{prefix}generic accountant", row["generic"], found["generic"], None, Standing.CLAIMED),
            make(f"{prefix}Bayesian accountant", row["bayesian"], watched["epsilon"], None, Standing.BAYESIAN),
            make(f"{prefix}exact", None, found["pld"], None, Standing.PROVEN),
        ]
    return rows


ITEMS = (
    Item("table-1", "MNIST with DP-SGD: what each accountant says", _tasks, _rows),
    Item("table-1-inference", "Logistic regression on Abalone and Adult", _inference_tasks, _inference_rows),
)
