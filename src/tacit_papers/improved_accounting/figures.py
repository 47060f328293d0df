"""Figures 1 to 3: what the accountants say of the MNIST run, by epoch and by the order of the moment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian
from tacit.standing import Standing
from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.drawing import lines_svg
from tacit_papers.improved_accounting.counterexamples import KEY
from tacit_papers.improved_accounting.mnist import reported_epochs
from tacit_papers.improved_accounting.mnist import tasks as observed_tasks
from tacit_papers.improved_accounting.table_1 import NUMBERS

_MNIST = NUMBERS["table_1"]["mnist"]
_RATE, _SIGMA = _MNIST["batch_size"] / _MNIST["records"], _MNIST["sigma"]
_STANDINGS = {"moments": Standing.PROVEN, "generic": Standing.CLAIMED, "pld": Standing.PROVEN}
_WORDS = {"moments": "moments accountant", "generic": "generic accountant", "pld": "exact"}
_AT_PUBLISHED = f"delta at epsilon {_MNIST['generic']:g}"
_BAYESIAN = "Bayesian accountant"
# A smaller delta is not drawn: it would leave the others no room.
_LEAST = 1e-40
_ORDERS = (1.0, 2.0, 4.0, 8.0, 14.7, 32.0)


def spent(epoch: float) -> dict[str, dict[str, float]]:
    """Epsilon at delta 1e-5, and delta at the moments accountant's epsilon of the whole run, after `epoch` epochs."""
    ran = Ledger.of(Gaussian(_SIGMA).poisson(_RATE) * round(epoch / _RATE))
    curves = {name: accountant(name)(ran) for name in _WORDS}
    return {
        "epsilon": {name: float(found.epsilon(1e-5)) for name, found in curves.items()},
        "delta": {name: float(found.delta(_MNIST["moments"])) for name, found in curves.items()},
    }


def by_order(epoch: float, order: float) -> float:
    """Epsilon of the generic accountant at one order: q^2 T (order + 1) / (2 sigma^2) + log(1 / delta) / order."""
    steps = round(epoch / _RATE)
    return _RATE**2 * steps * (order + 1) / (2 * _SIGMA**2) + math.log(1e5) / order


def _epochs(size: str) -> tuple[int, ...]:
    return (1, 10, 100) if size == "quick" else reported_epochs(size)


def _tasks(size: str) -> list[Task]:
    return [*(Task(f"{__name__}:spent", {"epoch": epoch}, 0.5) for epoch in _epochs(size)), *observed_tasks(size)]


def _rows(item: str, quantity: str, size: str, values: Sequence[Any]) -> list[Row]:
    where = "" if quantity == "epsilon" else f" at epsilon {_MNIST['moments']:g}"
    make, (*accounted, run) = partial(Row, KEY, item), values
    rows = [
        make(f"{epoch} epochs: {quantity}{where}, {words}", None, value[quantity][name], None, _STANDINGS[name])
        for epoch, value in zip(_epochs(size), accounted, strict=True)
        for name, words in _WORDS.items()
        if value is not None
    ]
    return rows + [
        make(f"{epoch} epochs: {quantity}{where}, {_BAYESIAN}", None, found[quantity], None, Standing.BAYESIAN)
        for epoch, found in zip(reported_epochs(size), run["course"] if run else (), strict=False)
    ]


def _drawing(item: str, quantity: str, size: str, values: Sequence[Any]) -> Mapping[str, str]:
    *accounted, run = values
    done = [(epoch, value) for epoch, value in zip(_epochs(size), accounted, strict=True) if value is not None]
    lines = {
        words: [(epoch, value[quantity][name]) for epoch, value in done if value[quantity][name] > _LEAST]
        for name, words in _WORDS.items()
    }
    if run:
        lines[_BAYESIAN] = [(found["epoch"], found[quantity]) for found in run["course"]]
    points = {label: ([x for x, _ in line], [y for _, y in line]) for label, line in lines.items() if line}
    return {item: lines_svg(points, across="epoch", up=quantity, log_up=quantity == "delta")}


def _order_epochs(size: str) -> tuple[int, ...]:
    return (1, 10, 100) if size == "quick" else (1, 10, 30, 60, 100)


def _order_tasks(size: str) -> list[Task]:
    return [
        Task(f"{__name__}:by_order", {"epoch": epoch, "order": order}, 0.01)
        for epoch in _order_epochs(size)
        for order in _ORDERS
    ]


def _order_rows(size: str, values: Sequence[Any]) -> list[Row]:
    return [
        Row(
            KEY,
            "figure-3",
            f"{task.settings['epoch']} epochs, lambda {task.settings['order']:g}: epsilon, generic accountant",
            None,
            value,
            None,
            Standing.CLAIMED,
        )
        for task, value in zip(_order_tasks(size), values, strict=True)
    ]


def _order_drawing(size: str, values: Sequence[Any]) -> Mapping[str, str]:
    """Epsilon at delta 1e-5, and delta at the published epsilon: the bound of an order holds for every pair."""
    width, drawn = len(_ORDERS), {}
    epochs = enumerate(_order_epochs(size))
    lines = {f"epoch {epoch}": values[width * k : width * (k + 1)] for k, epoch in epochs}
    for name, up, of in (("epsilon", "epsilon", lambda epsilon, order: epsilon), ("delta", _AT_PUBLISHED, _delta)):
        points = {label: (_ORDERS, list(map(of, found, _ORDERS))) for label, found in lines.items()}
        drawn[f"figure-3-{name}"] = lines_svg(points, across="lambda", up=up, log_across=True, log_up=True)
    return drawn


def _delta(epsilon: float, order: float) -> float:
    """Delta at the published epsilon by the order whose epsilon at delta 1e-5 is known: log delta is linear in both."""
    return min(1.0, 1e-5 * math.exp(min(order * (epsilon - _MNIST["generic"]), 700.0)))


ITEMS = (
    *(
        Item(item, title, _tasks, partial(_rows, item, quantity), partial(_drawing, item, quantity), partial=True)
        for item, quantity, title in (
            ("figure-1", "epsilon", "MNIST: epsilon by epoch"),
            ("figure-2", "delta", "MNIST: delta by epoch at a fixed epsilon"),
        )
    ),
    Item(
        "figure-3",
        "MNIST: epsilon and delta of the generic accountant by lambda",
        _order_tasks,
        _order_rows,
        _order_drawing,
    ),
)
