"""Figure 2 at epsilon 10, where noise is small: what more steps give to the methods that take a number of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.input_perturbation.counter_examples import KEY
from tacit_papers.input_perturbation.cross_validation import METHODS, method_at
from tacit_papers.input_perturbation.tables import declared, load_table, optimality_gap, resplit

NAME = "figure-2-convergence"
_STEPS = {"quick": (50,), "full": (50, 500, 3000)}
_DATA = {"quick": "iris_setosa", "full": "adult_complete"}
_EPSILON = 10.0


def converged(
    dataset: str, method: str, steps: int | None, epsilon: float, *, data_dir: str | os.PathLike[str] | None = None
) -> dict[str, float]:
    """Test accuracy and optimality gap of logistic regression by one method after so many steps, split 0.

    Args:
        dataset: its name.
        method: "paper", "kifer", "zhang" or "wang".
        steps: number of full-batch steps; None for "kifer", which is solved to its minimum.
        epsilon: > 0, under replace-one, delta = min(1e-5, n^-1.1).
        data_dir: folder of the data files.
    """
    from tacit.erm import DPLogisticRegression
    from tacit.erm.base import default_delta
    from tacit.errors import LeakWarning

    data = resplit(load_table(dataset, data_dir), seed=0)
    model = DPLogisticRegression(
        method=method_at(method, steps),
        epsilon=epsilon,
        delta=default_delta(len(data.y_train)),
        relation="replace_one",
        unsafe_seed=0,
        **declared(data),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeakWarning)
        model.fit(data.x_train, data.y_train)
    accuracy = float(model.score(data.x_test, data.y_test))
    return {"accuracy": accuracy, "gap": float(optimality_gap(model, data.x_train, data.y_train))}


def _cells(size: str) -> list[tuple[str, int | None]]:
    return [(method, steps) for method in METHODS for steps in (_STEPS[size] if method != "kifer" else (None,))]


def _tasks(size: str) -> list[Task]:
    return [
        Task(
            f"{__name__}:converged",
            {"dataset": _DATA[size], "method": method, "steps": steps, "epsilon": _EPSILON},
            1.0 + 0.02 * (steps or 0) if size == "full" else 0.5,
            reads_data=size == "full",
        )
        for method, steps in _cells(size)
    ]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Accuracy and gap of one fit each; the paper has curves alone."""
    make, rows = partial(Row, KEY, NAME, repeats=1), []
    for (method, steps), value in zip(_cells(size), values, strict=True):
        if value is None:
            continue
        after = f", {steps} steps" if steps else ""
        start = f"{_DATA[size]}, epsilon {_EPSILON:g}, {METHODS[method]}{after}"
        rows.append(make(f"{start}: test accuracy %", None, round(100 * value["accuracy"], 3)))
        rows.append(make(f"{start}: optimality gap", None, value["gap"]))
    return rows


ITEM = Item(NAME, "Figure 2 at epsilon 10 with more steps, logistic regression on Adult", _tasks, _rows, partial=True)
