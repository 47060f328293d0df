"""What the text reads off Figures 1 and 2: by how much tickets are ahead of dense networks on average."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from tacit.papers.base import Item, Row
from tacit.papers.lottery_ticket import study
from tacit.papers.lottery_ticket.choice import NUMBERS
from tacit.papers.lottery_ticket.mask_attack import KEY
from tacit.papers.lottery_ticket.variants import DENSE, PAPER
from tacit.sweeps import Task

_STATED = ((None, "figure_1", "over all epsilons"), (1.0, "figure_2", "at epsilon 1"))


def _runs(size: str) -> list[tuple[str, study.Cell, Task]]:
    """The runs of the paper's mode and of the dense network, which the tables of the data sets share; full size."""
    return [
        (dataset, cell, task)
        for dataset in study.DATA
        for cell in (study.cells(size) if size == "full" else ())
        if cell.variant in (DENSE, PAPER)
        for task in study.cell_tasks(dataset, cell, size)
    ]


def _tasks(size: str) -> list[Task]:
    return [task for _, _, task in _runs(size)]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Averages over the data sets (and epsilons) of which both networks have run."""
    found: dict[tuple[str, float | None], dict[str, list[float]]] = {}
    for (dataset, cell, _), value in zip(_runs(size), values, strict=True):
        if value is not None:
            last = 100 * value["test"][-1]
            found.setdefault((dataset, cell.epsilon), {}).setdefault(cell.variant, []).append(last)
    ahead = {
        where: mean(means[PAPER]) - mean(means[DENSE])
        for where, means in found.items()
        if PAPER in means and DENSE in means
    }
    rows = []
    for epsilon, name, words in _STATED if size == "full" else ():
        own = [points for (_, at), points in ahead.items() if epsilon in (None, at)]
        quantity = f"{PAPER}: points ahead of the dense network, average over the data sets, {words}"
        ours = round(mean(own), 2) if own else None
        rows.append(Row(KEY, "margins", quantity, NUMBERS["margin"][name], ours, repeats=len(own)))
    return rows


ITEM = Item("margins", "average lead of the paper's tickets over dense networks", _tasks, _rows, partial=True)
