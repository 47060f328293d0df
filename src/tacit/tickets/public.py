"""Tickets of public origin for a private task: data-free ones, and ones transferred from public data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit import check
from tacit.tickets.iterative_pruning import Progress, iterative_tickets, winning
from tacit.tickets.pruning import Masks, random_masks, start_magnitude_masks, synflow_masks
from tacit.tickets.ticket import WEIGHTS, Ticket, prunable, transfer

ORIGINS = ("random", "start_magnitude", "synflow")
_BODY = "body."
# Rows of one forward pass while accuracies are measured.
_ROWS_AT_ONCE = 8192


class Projected(nn.Module):
    """A network behind a linear projection of other inputs to the shape that it takes (section 4.5 of the paper)."""

    def __init__(self, inputs: int, shape: Sequence[int], body: nn.Module):
        super().__init__()
        self.projection = nn.Linear(inputs, math.prod(shape))
        self.body = body
        self._shape = tuple(shape)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of `body` for projected inputs."""
        return self.body(self.projection(inputs.flatten(1)).unflatten(1, self._shape))


def data_free_ticket(
    model: nn.Module,
    origin: str,
    *,
    density: float,
    shape: Sequence[int],
    seed: int,
    patterns: Sequence[str] = WEIGHTS,
) -> Ticket:
    """A ticket of `model` at its start that no data have touched.

    Args:
        model: the network at its start; left alone.
        origin: "random" or "start_magnitude", which keep `density` of every layer; or "synflow", of all together.
        density: in (0, 1].
        shape: of one input.
        seed: public, of the random masks.
        patterns: names of the weights that may be pruned; see `prunable`.

    Raises:
        InvalidInput: the origin is unknown, or the density out of range.
    """
    check.choice("origin", origin, ORIGINS)
    names = prunable(model, patterns)
    kept = dict.fromkeys(names, check.probability("density", density, open_low=True))
    masks: Masks
    if origin == "random":
        masks = random_masks(model, kept, torch.Generator().manual_seed(seed))
    elif origin == "start_magnitude":
        masks = start_magnitude_masks(model, kept)
    else:
        masks = synflow_masks(model, density, torch.zeros(tuple(shape)), names)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    return Ticket(masks, start, "public", f"{origin} masks")


def transferred_ticket(
    build: Callable[[int], nn.Module],
    source: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    shape: Sequence[int],
    classes: int,
    name: str = "",
    largest_density: float = 0.1,
    rounds: int = 12,
    iterations: int = 5000,
    seed: int = 0,
    folder: str | Path | None = None,
    on_progress: Progress = lambda done, total: None,
) -> Ticket:
    """The winning ticket of a public data set, moved to a network for a private one.

    Where the inputs differ in shape, a linear projection stands before the body while tickets are found; it goes
    afterwards, and the output layer starts afresh and dense where the classes differ.

    Args:
        build: number of classes -> network for inputs of `shape`, from a public seed.
        source: public training inputs and labels, then test inputs and labels.
        shape: of one private input.
        classes: number of classes of the private task.
        name: of the public data.
        largest_density: of the winning ticket; see `winning`.
        rounds: of pruning; see `iterative_tickets`.
        iterations: SGD steps of each training.
        seed: public, of projection and batches.
        folder: keeps every finished round.
        on_progress: called with (iterations done, iterations in all).

    Raises:
        InvalidInput: no ticket is sparse enough, or an argument is out of range.
    """
    x, y, x_test, y_test = source
    body, same = build(int(y.max()) + 1), tuple(x.shape[1:]) == tuple(shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = body if same else Projected(math.prod(x.shape[1:]), shape, body)
    patterns = WEIGHTS if same else (f"{_BODY}*weight",)
    tickets = iterative_tickets(
        model,
        x,
        y,
        provenance="public",
        source=name,
        accuracy=lambda network: _accuracy(network, x_test, y_test),
        rounds=rounds,
        iterations=iterations,
        patterns=patterns,
        seed=seed,
        folder=folder,
        on_progress=on_progress,
    )
    chosen = winning(tickets, tickets[0].measured["before"], largest_density=largest_density)
    return transfer(chosen if same else _without_projection(chosen), build(classes))


def _without_projection(ticket: Ticket) -> Ticket:
    def own(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name.removeprefix(_BODY): value for name, value in values.items() if name.startswith(_BODY)}

    return replace(ticket, masks=own(dict(ticket.masks)), start=own(dict(ticket.start)))


def _accuracy(network: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    with torch.no_grad():
        batches = zip(inputs.split(_ROWS_AT_ONCE), targets.split(_ROWS_AT_ONCE), strict=True)
        return sum(int((network(x).argmax(1) == y).sum()) for x, y in batches) / len(targets)
