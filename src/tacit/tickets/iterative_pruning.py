"""Lottery tickets by iterative magnitude pruning with rewinding (Frankle & Carbin 2019).

Tickets of public origin for a private task: data-free ones, and ones transferred from public data.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit import check
from tacit.errors import InvalidInput
from tacit.tickets import pruning
from tacit.tickets.ticket import WEIGHTS, Ticket, prunable, solid, transfer

Progress = Callable[[int, int], None]
Accuracy = Callable[[nn.Module], float]
# Iterations from one call of `on_progress` to the next: often enough for a display, too seldom to slow a step.
_REPORT = 50
# Distance of the generator seeds of neighbouring public seeds, so that no two rounds share their batches.
_SEED_STRIDE = 1_000_003


def iterative_tickets(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    *,
    provenance: str,
    accuracy: Accuracy,
    source: str = "",
    rounds: int = 12,
    iterations: int = 5000,
    learning_rate: float = 0.1,
    batch_size: int = 400,
    shares: Mapping[str, float] | None = None,
    patterns: Sequence[str] = WEIGHTS,
    seed: int = 0,
    folder: str | Path | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[Ticket]:
    """Train the masked network from its start, prune by magnitude, rewind, again (Frankle & Carbin 2019).

    Nothing here is private: the masks depend on `inputs` and `targets` without any noise. With public data that is
    harmless; with private data the tickets are the paper's ("paper"), whose claim is refuted if `start` is known.

    Args:
        model: at its start; used as workspace.
        inputs: data (n, ...).
        targets: labels (n,).
        provenance: "public" or "paper".
        accuracy: of a trained network, in [0, 1], e.g. on test data.
        source: name of the data, for the tickets' notes.
        rounds: T >= 1; as many prunings and tickets.
        iterations: SGD steps of each training.
        learning_rate: > 0, of SGD.
        batch_size: records of a batch, drawn uniformly with replacement.
        shares: share of each layer's surviving weights that a round prunes; the paper's 30/30/20 % by default.
        patterns: names of the weights that may be pruned; biases never are.
        seed: public seed of the batches.
        folder: keeps every finished round; a stopped generation goes on there, and a finished one is read from there.
            Refused if it holds tickets of another start, source or settings.
        on_progress: called with (iterations done, iterations in all).

    Returns:
        The tickets, densest first. `measured` has "accuracy", that of the network trained with exactly this mask, and
        "before", that of the network whose weights the last pruning ranked.

    Raises:
        InvalidInput: an argument is out of range, or the folder holds other tickets.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> x, y = torch.randn(30, 4), torch.arange(30) % 3
        >>> short = {"rounds": 2, "iterations": 5, "batch_size": 10}
        >>> found = iterative_tickets(model, x, y, provenance="public", accuracy=lambda network: 0.5, **short)
        >>> [round(ticket.density, 1) for ticket in found]
        [0.7, 0.5]
    """
    check.choice("provenance", provenance, ("public", "paper"))
    for name, count in (("rounds", rounds), ("iterations", iterations), ("batch_size", batch_size)):
        check.count(name, count)
    check.positive("learning_rate", learning_rate)
    names = prunable(model, tuple(patterns))
    pruned = dict(shares) if shares is not None else pruning.paper_shares(names)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    settings = f"{iterations} iterations a round, batch {batch_size}, rate {learning_rate:g}, seed {seed}"
    note = f"magnitude pruning{source and ' on '}{source}, {settings}"
    tickets = _finished(folder, Ticket(pruning.dense_masks(model, names), start, provenance, note))

    def batches(round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(_SEED_STRIDE * seed + round_)
        for done in range(1, iterations + 1):
            chosen = torch.randint(len(targets), (min(batch_size, len(targets)),), generator=generator)
            yield inputs[chosen], targets[chosen]
            if done % _REPORT == 0 or done == iterations:
                on_progress(round_ * iterations + done, (rounds + 1) * iterations)

    for round_ in range(len(tickets) - 1, rounds + 1):  # The last round is trained only to be measured.
        train_masked(model, tickets[-1], batches(round_), learning_rate)
        now, reached = tickets[-1], float(accuracy(model))
        masks = pruning.by_magnitude({name: model.get_parameter(name) for name in now.masks}, now.masks, pruned)
        tickets[-1] = replace(now, measured=dict(now.measured) | {"accuracy": reached})
        tickets.append(replace(now, masks=masks, measured={"before": reached}))
        if folder is not None:
            # The next round's ticket first: a round counts as finished when its own file has an accuracy.
            for at in (round_ + 1, round_):
                tickets[at].save(_path(folder, at))
    return tickets[1 : rounds + 1]


def train_masked(
    model: nn.Module, ticket: Ticket, batches: Iterable[tuple[Tensor, Tensor]], learning_rate: float
) -> None:
    """SGD without privacy on the cross-entropy from the ticket's start; pruned weights stay zero.

    Args:
        model: of the ticket's architecture; trained in place.
        ticket: where it starts.
        batches: inputs (b, ...) and labels (b,) of every step.
        learning_rate: > 0.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> start = {name: value.detach().clone() for name, value in model.named_parameters()}
        >>> ticket = Ticket({"0.weight": torch.eye(2)}, start, "public")
        >>> train_masked(model, ticket, [(torch.ones(4, 2), torch.arange(4) % 2)] * 3, 0.1)
        >>> bool(model[0].weight[0, 1] == 0)
        True
    """
    optimizer = torch.optim.SGD(ticket.apply(model).parameters(), lr=learning_rate)
    for inputs, targets in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    solid(model)


def _path(folder: str | Path, round_: int) -> Path:
    return Path(folder) / f"ticket-{round_:02d}.safetensors"


def _finished(folder: str | Path | None, fresh: Ticket) -> list[Ticket]:
    """The tickets in `folder` up to the first that is not measured, or the fresh one; of the same start only."""
    found: list[Ticket] = []
    while folder is not None and _path(folder, len(found)).exists():
        ticket = Ticket.load(_path(folder, len(found)))
        described = (ticket.provenance, ticket.note, ticket.start.keys())
        same = described == (fresh.provenance, fresh.note, fresh.start.keys())
        if not same or not all(torch.equal(value, fresh.start[name]) for name, value in ticket.start.items()):
            raise InvalidInput(f"folder must hold tickets of this model and these data; got {str(folder)!r} of others.")
        found.append(ticket)
        if "accuracy" not in ticket.measured:
            return found
    return found or [fresh]


def winning(tickets: Sequence[Ticket], reference: float, *, largest_density: float = 0.1) -> Ticket:
    """The smallest ticket among those nearest in accuracy to `reference`, density <= `largest_density` (section 4.5).

    "Nearest" is by whole percentage points, so that a slightly worse but smaller ticket wins.

    Args:
        tickets: with a measured "accuracy".
        reference: accuracy to be near to, in [0, 1].
        largest_density: in (0, 1].

    Raises:
        InvalidInput: no ticket is sparse enough.

    Example:
        >>> start = {"w": torch.ones(2, 2)}
        >>> masks = [{"w": torch.eye(2)}, {"w": torch.ones(2, 2)}]
        >>> tickets = [Ticket(mask, start, "public", measured={"accuracy": 0.9}) for mask in masks]
        >>> winning(tickets, 0.9, largest_density=0.6).density
        0.5
    """
    small = [ticket for ticket in tickets if ticket.density <= largest_density]
    if not small:
        least = min(ticket.density for ticket in tickets)
        raise check.fail("largest_density", f"at least {least:.3g}, the sparsest ticket's", largest_density)
    return min(small, key=lambda ticket: (round(100 * abs(ticket.measured["accuracy"] - reference)), ticket.density))


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
    model: nn.Module, origin: str, *, density: float, shape: Sequence[int], seed: int, patterns: Sequence[str] = WEIGHTS
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
    if origin == "random":
        masks = pruning.random_masks(model, kept, torch.Generator().manual_seed(seed))
    elif origin == "start_magnitude":
        masks = pruning.start_magnitude_masks(model, kept)
    else:
        masks = pruning.synflow_masks(model, density, torch.zeros(tuple(shape)), names)
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
    seed: int = 0,
    **settings: Any,
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
        seed: public, of projection and batches.
        settings: rounds, iterations, folder and on_progress of `iterative_tickets`.

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
        accuracy=lambda network: right_answers(network, x_test, y_test) / len(y_test),
        patterns=patterns,
        seed=seed,
        **settings,
    )
    chosen = winning(tickets, tickets[0].measured["before"], largest_density=largest_density)
    return transfer(chosen if same else _without_projection(chosen), build(classes))


def _without_projection(ticket: Ticket) -> Ticket:
    def own(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name.removeprefix(_BODY): value for name, value in values.items() if name.startswith(_BODY)}

    return replace(ticket, masks=own(dict(ticket.masks)), start=own(dict(ticket.start)))


def right_answers(model: nn.Module, inputs: Tensor, targets: Tensor) -> int:
    """How many records `model` classifies right, in evaluation mode."""
    training = model.training
    model.eval()
    with torch.no_grad():
        parts = zip(inputs.split(_ROWS_AT_ONCE), targets.split(_ROWS_AT_ONCE), strict=True)
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in parts)
    model.train(training)
    return right
