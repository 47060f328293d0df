"""Section 4's leads of tickets over dense networks: after the last epoch, and where epsilon .3 is spent (Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.lottery_ticket.choice import NUMBERS
from tacit_papers.lottery_ticket.mask_attack import KEY
from tacit_papers.lottery_ticket.study import DATA, DENSE, PAPER, Cell, cell_tasks, cells

_PUBLISHED = NUMBERS["margin"]
_BATCH, _EPOCHS, _DELTA = 400, 50, 1e-5
_RECORDS = {"mnist": 60000, "fashion_mnist": 60000, "kmnist": 8000, "isolet": 6238, "har": 7352}
"""Training records; KMNIST's are the first of its test images."""
_LEAD = f"{PAPER}: points ahead of the dense network"


def stop_epochs(records: int, epsilon: float, spent: float, choice: float) -> dict[str, int]:
    """Last epochs after which the dense network, and a ticket, have spent at most `spent` of a plan for `epsilon`.

    The ticket pays the share `choice` of `epsilon` for its choice before the first epoch, as in Algorithm 1.

    Args:
        records: that are trained on.
        epsilon: of 50 epochs, at delta 1e-5.
        spent: where training stops.
        choice: share of `epsilon`, in (0, 1).

    Example:
        >>> stop_epochs(6238, 1.0, 0.3, 0.1)
        {'dense': 5, 'ticket': 3}
    """
    paid = choice * epsilon
    return {"dense": _stop(records, epsilon, spent), "ticket": _stop(records, epsilon - paid, spent - paid)}


def _stop(records: int, epsilon: float, spent: float) -> int:
    from tacit import calibration
    from tacit.mechanisms import Gaussian
    from tacit.tradeoff import Epsilon

    rate = _BATCH / records
    each = round(1 / rate)  # steps in an epoch, as training counts them
    steps = _EPOCHS * each
    noise = calibration.noise_multiplier(Epsilon(epsilon, _DELTA), sample_rate=rate, steps=steps).value
    step = Gaussian(noise).poisson(rate)
    taken = calibration.largest_steps(Epsilon(spent, _DELTA), lambda count: step * count, limit=steps)
    return int(taken.value) // each


def _runs(size: str) -> list[tuple[str, Cell, Task]]:
    """The runs of the paper's mode and of the dense network, which the tables of the data sets share; full size."""
    return [
        (dataset, cell, task)
        for dataset in DATA
        for cell in (cells(size) if size == "full" else ())
        if cell.variant in (DENSE, PAPER)
        for task in cell_tasks(dataset, cell, size)
    ]


def _stop_tasks(size: str) -> list[Task]:
    settings = {"epsilon": 1.0, "spent": _PUBLISHED["spent"], "choice": _PUBLISHED["choice"]}
    named = DATA if size == "full" else ()
    return [Task(f"{__name__}:stop_epochs", {"records": _RECORDS[name]} | settings, 2.0) for name in named]


def _tasks(size: str) -> list[Task]:
    return [*(task for _, _, task in _runs(size)), *_stop_tasks(size)]


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Averages over the data sets (and epsilons) of which both networks have run."""
    if size != "full":
        return []
    runs = _runs(size)
    found: dict[tuple[str, float | None], dict[str, list[list[float]]]] = {}
    for (dataset, cell, _), value in zip(runs, values, strict=False):
        if value is not None:
            found.setdefault((dataset, cell.epsilon), {}).setdefault(cell.variant, []).append(value["test"])
    both = {where: courses for where, courses in found.items() if courses.keys() == {PAPER, DENSE}}
    stops = dict(zip(DATA, values[len(runs) :], strict=True))
    last = {where: _ahead(courses, -1, -1) for where, courses in both.items()}
    return [
        _row("over all epsilons, last epoch", list(last.values()), _PUBLISHED["figure_1"]),
        _row("at epsilon 1, last epoch", [points for (_, epsilon), points in last.items() if epsilon == 1.0]),
        *_early_rows(both, stops),
    ]


def _ahead(courses: Mapping[str, list[list[float]]], ticket: int, dense: int) -> float:
    """Points between the mean accuracies after the epochs with these places in the courses."""
    own, other = ([course[place] for course in courses[name]] for name, place in ((PAPER, ticket), (DENSE, dense)))
    return 100 * (mean(own) - mean(other))


def _early_rows(
    both: Mapping[tuple[str, float | None], Mapping[str, list[list[float]]]], stops: Mapping[str, Any]
) -> list[Row]:
    """Leads and epochs where epsilon .3 of 1 is spent: the points that Figure 2 marks."""
    leads = {
        dataset: _ahead(both[dataset, 1.0], stop["ticket"] - 1, stop["dense"] - 1)
        for dataset, stop in stops.items()
        if stop is not None and (dataset, 1.0) in both
    }
    where = f"at epsilon 1 where {_PUBLISHED['spent']:g} is spent"
    isolet = leads.get("isolet")
    allowed, known = _PUBLISHED["tolerance"], [stop for stop in stops.values() if stop is not None]
    rows = [
        _row(where, list(leads.values()), _PUBLISHED["figure_2"], at_least=True),
        Row(
            *(KEY, "margins", f"{_LEAD}, ISOLET, {where}", _PUBLISHED["isolet"]),
            *(None if isolet is None else round(isolet, 2), allowed["isolet"]),
            repeats=int(isolet is not None),
            at_least=True,
        ),
    ]
    for name, words in (("dense", "the dense network"), ("ticket", "the ticket")):
        ours = mean(stop[name] for stop in known) if known else None
        quantity = f"epochs until {words} has spent {_PUBLISHED['spent']:g} of epsilon 1, average over the data sets"
        rows.append(Row(KEY, "margins", quantity, None, ours))
    return rows


def _row(where: str, leads: Sequence[float], published: float | None = None, *, at_least: bool = False) -> Row:
    ours = round(mean(leads), 2) if leads else None
    allowed = None if published is None else _PUBLISHED["tolerance"]["points"]
    quantity = f"{_LEAD}, average over the data sets, {where}"
    return Row(KEY, "margins", quantity, published, ours, allowed, repeats=len(leads), at_least=at_least)


ITEM = Item("margins", "average lead of the paper's tickets over dense networks", _tasks, _rows, partial=True)
