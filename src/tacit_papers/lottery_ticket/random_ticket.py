"""Table 2's two columns on the same tickets: Algorithm 1's choice among them, and a uniform draw."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from tacit.sweeps import Task
from tacit_papers.base import Item, Row
from tacit_papers.lottery_ticket.choice import NUMBERS, explain
from tacit_papers.lottery_ticket.mask_attack import KEY
from tacit_papers.lottery_ticket.study import PAPER, settings_of

if TYPE_CHECKING:
    from tacit.data import Dataset
    from tacit.runs.config import Config
    from tacit.tickets import Ticket

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


def _tasks(size: str) -> list[Task]:
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


def _rows(size: str, values: Sequence[Any]) -> list[Row]:
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


ITEM = Item(NAME, "Table 2's random ticket as a uniform draw among the tickets", _tasks, _rows, partial=True)
