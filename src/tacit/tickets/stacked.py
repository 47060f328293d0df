"""The tickets of several seeds at once: networks of one architecture, trained as one stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit import check
from tacit.tickets.generate import Accuracy, Progress, Rounds, Search
from tacit.tickets.ticket import Ticket

_REPORT = 50


def stacked_tickets(
    models: Sequence[nn.Module],
    inputs: Tensor,
    targets: Tensor,
    *,
    provenance: str,
    accuracy: Accuracy,
    seeds: Sequence[int],
    source: str = "",
    rounds: int = 12,
    iterations: int = 5000,
    learning_rate: float = 0.1,
    batch_size: int = 400,
    shares: Mapping[str, float] | None = None,
    patterns: Sequence[str] = ("*.weight", "weight"),
    folder: str | Path | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[list[Ticket]]:
    """`iterative_tickets` of every model with its seed, up to rounding, all trained in step.

    Small networks cost more in calls than in arithmetic, so that a stack of them takes hardly longer than one; large
    ones gain nothing. The rounds of every seed are kept in a folder of its own and go on where they were.

    Args:
        models: of one architecture, each at its start.
        seeds: one a model.
        others: as in `iterative_tickets`.
    """
    if not models or len(models) != len(seeds):
        raise check.fail("seeds", "one for every model, and at least one", len(seeds))
    plan = Rounds(provenance, source, rounds, iterations, learning_rate, batch_size, shares, tuple(patterns))
    places = [None if folder is None else Path(folder) / f"seed-{seed}" for seed in seeds]
    searches = [Search(model, plan, seed, place) for model, seed, place in zip(models, seeds, places, strict=True)]
    while not all(search.over for search in searches):
        round_ = min(search.round for search in searches)
        behind = [place for place, search in enumerate(searches) if search.round == round_]
        _train(
            [models[place] for place in behind],
            [searches[place] for place in behind],
            inputs,
            targets,
            plan,
            lambda done, before=round_ * iterations: on_progress(before + done, (rounds + 1) * iterations),
        )
        for place in behind:
            searches[place].finish(accuracy)
    return [search.found for search in searches]


def _train(
    models: Sequence[nn.Module],
    searches: Sequence[Search],
    inputs: Tensor,
    targets: Tensor,
    plan: Rounds,
    on_progress: Callable[[int], None],
) -> None:
    """`train_masked` of every search's ticket in its model."""
    tickets = [search.tickets[-1] for search in searches]
    masks = {name: torch.stack([ticket.masks[name] for ticket in tickets]) for name in tickets[0].masks}
    values = {name: torch.stack([ticket.start[name] for ticket in tickets]) for name in tickets[0].start}
    values = {name: value * masks[name] if name in masks else value for name, value in values.items()}
    generators = [search.generator() for search in searches]
    size = (min(plan.batch_size, len(targets)),)

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(models[0], parameters, (x,)), y)

    slopes = vmap(grad(loss))
    for done in range(1, plan.iterations + 1):
        chosen = torch.stack([torch.randint(len(targets), size, generator=each) for each in generators])
        found = slopes(values, inputs[chosen], targets[chosen])
        for name, value in values.items():
            value.sub_(found[name], alpha=plan.learning_rate)
            if name in masks:
                value.mul_(masks[name])
        if done % _REPORT == 0 or done == plan.iterations:
            on_progress(done)
    with torch.no_grad():
        for place, model in enumerate(models):
            for name, value in values.items():
                model.get_parameter(name).copy_(value[place])
