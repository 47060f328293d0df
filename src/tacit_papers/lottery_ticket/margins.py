"""Section 4's leads of tickets over dense networks: after the last epoch, and where epsilon .3 is spent (Figure 2).

Table 2's two columns on the same tickets: Algorithm 1's choice among them, and a uniform draw.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.lottery_ticket.mechanism import KEY, NUMBERS, explain
from tacit_papers.lottery_ticket.study import DATA, DENSE, PAPER, Cell, cell_tasks, cells, settings_of

if TYPE_CHECKING:
    from tacit.data import Dataset
    from tacit.runs.config import Config
    from tacit.tickets import Ticket

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


NAME = "random-ticket"
_DATA = {"har": 500.0, "isolet": 800.0, "kmnist": 900.0, "mnist": 1800.0, "fashion_mnist": 1800.0}
"""Seconds of one search and the trainings of all its tickets, the quickest first."""
_REPEATS = 10
_ROUNDS, _ITERATIONS = 12, 5000
_EPSILON, _CHOICE = NUMBERS["table_2"]["epsilon"], NUMBERS["margin"]["choice"]


def every_ticket(
    dataset: str,
    epsilon: float,
    seed: int,
    rounds: int,
    iterations: int,
    *,
    epochs: int = 50,
    data_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """One search for tickets, and the test accuracy of each of them after the private training.

    Each is trained at the paper's settings and at the noise level of Algorithm 1's plan, so that what either draw
    gives on average needs no draw: it is the mean of these accuracies, weighted by the draw's probabilities. The noise
    is seeded, hence nothing is private.

    Args:
        dataset: its name.
        epsilon: of choice and training together, > 0.
        seed: of the weights, the search and the noise.
        rounds: of magnitude pruning; as many tickets.
        iterations: SGD steps of a round.
        epochs: of the private training.
        data_dir: folder of the data files.

    Returns:
        For every ticket, densest first: "densities", "accuracies" without privacy, by which Algorithm 1 chooses,
        "probabilities" with which it does, and "tests", the accuracies in [0, 1] after the private training.
    """
    import torch

    from tacit.relation import Relation
    from tacit.runs import read_config
    from tacit.runs.builders import dataset_of, evaluator, network_of
    from tacit.tickets import iterative_tickets, paper_scores

    given = settings_of(PAPER, dataset, epsilon) | {"epochs": epochs, "hidden": (300, 100), "init_seed": seed}
    config = read_config("mnist", given | {"unsafe_seed": seed})
    data = dataset_of(config, data_dir)
    measure = evaluator(data)
    tickets = iterative_tickets(
        network_of(config, data),
        torch.from_numpy(data.x_train),
        torch.from_numpy(data.y_train),
        provenance="paper",
        source=dataset,
        accuracy=lambda model: measure(model)["test"],
        rounds=rounds,
        iterations=iterations,
        seed=seed,
    )
    densities = [ticket.density for ticket in tickets]
    accuracies = [ticket.measured["accuracy"] for ticket in tickets]
    share = _CHOICE * epsilon
    choice = explain(paper_scores(accuracies, densities), densities, share, Relation.REPLACE_ONE)
    return {
        "densities": densities,
        "accuracies": accuracies,
        "probabilities": choice.probabilities.tolist(),
        "tests": [_trained(config, data, ticket, epsilon) for ticket in tickets],
    }


def _trained(config: Config, data: Dataset, ticket: Ticket, epsilon: float) -> float:
    """Last test accuracy of a run of the paper's mode that has `ticket` alone to choose from."""
    import torch

    from tacit.accounting import Ledger
    from tacit.runs.builders import evaluator, network_of, stream_of
    from tacit.tickets import PrivateTicket, TicketPlan

    plan = TicketPlan(
        "paper",
        epsilon=epsilon,
        delta=config.delta,
        batch_size=config.batch_size,
        epochs=config.epochs,
        clip_norm=config.clip_norm,
        learning_rate=config.learning_rate,
    )
    run = PrivateTicket(
        partial(network_of, config, data),
        (torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)),
        plan,
        candidates=[ticket],
        ledger=Ledger(relation=config.relation),
        stream=stream_of(config),
    ).run(evaluate=evaluator(data))
    return float(run.history[-1]["test"])


def _random_tasks(size: str) -> list[Task]:
    """Ten repeats as in the paper, each with its own search, one data set after the other; none at quick size."""
    return [
        Task(
            f"{__name__}:every_ticket",
            {"dataset": dataset, "epsilon": _EPSILON, "seed": seed, "rounds": _ROUNDS, "iterations": _ITERATIONS},
            seconds,
            reads_data=True,
        )
        for dataset, seconds in _DATA.items()
        for seed in (range(_REPEATS) if size == "full" else ())
    ]


def _random_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """What each draw gives on average on each data set, and how far apart the draws are."""
    if size != "full":
        return []
    return [
        row
        for place, dataset in enumerate(_DATA)
        for row in _rows_of(dataset, [v for v in values[place * _REPEATS :][:_REPEATS] if v is not None])
    ]


def _rows_of(dataset: str, found: Sequence[Mapping[str, Any]]) -> list[Row]:
    make, table = partial(Row, KEY, NAME, repeats=len(found)), NUMBERS["table_2"]
    chosen = [100 * _expected(value) for value in found]
    uniform = [100 * mean(value["tests"]) for value in found]
    ahead = [own - other for own, other in zip(chosen, uniform, strict=True)]
    start = f"{dataset}, epsilon {_EPSILON:g}, "
    return [
        make(f"{start}Algorithm 1's ticket: test accuracy %", None, _mean(chosen)),
        make(f"{start}uniformly drawn ticket: test accuracy %", None, _mean(uniform)),
        make(
            f"{start}points that Algorithm 1's ticket is ahead (published value derived)",
            100 * table["lead"][dataset],
            _mean(ahead),
        ),
        make(f"{start}worst ticket: test accuracy %", None, _mean([100 * min(value["tests"]) for value in found])),
        make(f"{start}best ticket: test accuracy %", None, _mean([100 * max(value["tests"]) for value in found])),
        make(
            f"{start}Algorithm 1's choice: distance from a uniform draw", None, max(map(_distance, found), default=None)
        ),
    ]


def _expected(value: Mapping[str, Any]) -> float:
    """Test accuracy of Algorithm 1's ticket, averaged over its draw."""
    return sum(chance * test for chance, test in zip(value["probabilities"], value["tests"], strict=True))


def _distance(value: Mapping[str, Any]) -> float:
    """Total variation between Algorithm 1's choice and a uniform draw."""
    share = 1 / len(value["probabilities"])
    return sum(abs(each - share) for each in value["probabilities"]) / 2


def _mean(points: Sequence[float]) -> float | None:
    return round(mean(points), 4) if points else None


RANDOM_TICKET = Item(
    NAME, "Table 2's random ticket as a uniform draw among the tickets", _random_tasks, _random_rows, partial=True
)
