"""Lottery tickets by iterative magnitude pruning with rewinding (Frankle & Carbin 2019).

`iterative_tickets` finds those of one network; `stacked_tickets` those of several seeds, whose networks of one
architecture are trained as one stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit import check
from tacit.errors import InvalidInput
from tacit.tickets.pruning import by_magnitude, dense_masks, paper_shares
from tacit.tickets.ticket import WEIGHTS, Ticket, prunable

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
    harmless; with private data the tickets are the paper's ("paper"), whose claimed protection is refuted.

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
    plan = PruningPlan(provenance, source, rounds, iterations, learning_rate, batch_size, shares, tuple(patterns))
    search = Search(model, plan, seed, folder)
    while not search.over:
        train_masked(
            model,
            search.tickets[-1],
            inputs,
            targets,
            iterations,
            learning_rate,
            batch_size,
            search.generator(),
            on_progress=plan.progress_of(search.round, on_progress),
        )
        search.finish(accuracy)
    return search.found


@dataclass(frozen=True)
class PruningPlan:
    """Settings of all rounds of a search; see `iterative_tickets` for each of them."""

    provenance: str
    source: str
    rounds: int
    iterations: int
    learning_rate: float
    batch_size: int
    shares: Mapping[str, float] | None
    patterns: tuple[str, ...]

    def __post_init__(self) -> None:
        check.choice("provenance", self.provenance, ("public", "paper"))
        for name in ("rounds", "iterations", "batch_size"):
            check.count(name, getattr(self, name))
        check.positive("learning_rate", self.learning_rate)

    def progress_of(self, round_: int, on_progress: Progress) -> Callable[[int], None]:
        """`on_progress` over all rounds, for the iterations done in round `round_`."""
        return lambda done: on_progress(round_ * self.iterations + done, (self.rounds + 1) * self.iterations)


class Search:
    """The tickets of one network and seed: train `tickets[-1]` in its model, `finish`, and so on until `over`.

    Args:
        model: the network, at its initial weights.
        plan: rounds, shares and settings of the pruning.
        seed: of the batches, kept in the tickets.
        folder: where tickets are saved; None to keep them in memory.
    """

    def __init__(self, model: nn.Module, plan: PruningPlan, seed: int, folder: str | Path | None):
        self.model, self._plan, self._seed, self._folder = model, plan, seed, folder
        names = prunable(model, plan.patterns)
        self._shares = dict(plan.shares) if plan.shares is not None else paper_shares(names)
        start = {name: value.detach().clone() for name, value in model.named_parameters()}
        settings = (
            f"{plan.iterations} iterations a round, batch {plan.batch_size}, rate {plan.learning_rate:g}, seed {seed}"
        )
        note = f"magnitude pruning{plan.source and ' on '}{plan.source}, {settings}"
        self._fresh = Ticket(dense_masks(model, names), start, plan.provenance, note)
        self.tickets = _finished(folder, self._fresh)

    @property
    def round(self) -> int:
        """The round whose training is next."""
        return len(self.tickets) - 1

    @property
    def over(self) -> bool:
        """Whether all rounds are finished; the last one is trained only to be measured."""
        return self.round > self._plan.rounds

    @property
    def found(self) -> list[Ticket]:
        """The pruned tickets, densest first."""
        return self.tickets[1 : self._plan.rounds + 1]

    def generator(self) -> torch.Generator:
        """The generator of the next round's batches."""
        return torch.Generator().manual_seed(_SEED_STRIDE * self._seed + self.round)

    def finish(self, accuracy: Accuracy) -> None:
        """Measure the trained model, prune it, and keep both."""
        now, round_ = self.tickets[-1], self.round
        reached = float(accuracy(self.model))
        masks = by_magnitude({name: self.model.get_parameter(name) for name in now.masks}, now.masks, self._shares)
        self.tickets[-1] = replace(now, measured=dict(now.measured) | {"accuracy": reached})
        self.tickets.append(replace(now, masks=masks, measured={"before": reached}))
        _keep(self._folder, self.tickets, round_)


def train_masked(
    model: nn.Module,
    ticket: Ticket,
    inputs: Tensor,
    targets: Tensor,
    iterations: int,
    learning_rate: float,
    batch_size: int,
    generator: torch.Generator,
    *,
    on_progress: Callable[[int], None] = lambda done: None,
) -> None:
    """SGD without privacy on the cross-entropy from the ticket's start; pruned weights stay zero.

    Args:
        model: of the ticket's architecture; trained in place.
        ticket: where it starts.
        inputs: data (n, ...).
        targets: labels (n,).
        iterations: steps.
        learning_rate: > 0.
        batch_size: records of a batch, drawn uniformly with replacement.
        generator: of the batches.
        on_progress: called with the iterations done.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2))
        >>> start = {name: value.detach().clone() for name, value in model.named_parameters()}
        >>> ticket = Ticket({"0.weight": torch.eye(2)}, start, "public")
        >>> train_masked(model, ticket, torch.ones(4, 2), torch.arange(4) % 2, 3, 0.1, 2, torch.Generator())
        >>> bool(model[0].weight[0, 1] == 0)
        True
    """
    named = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in ticket.start.items():
            named[name].copy_(value * ticket.masks[name] if name in ticket.masks else value)
    values = list(named.values())
    masks: list[Tensor | None] = [ticket.masks.get(name) for name in named]
    for done in range(1, iterations + 1):
        chosen = torch.randint(len(targets), (min(batch_size, len(targets)),), generator=generator)
        loss = nn.functional.cross_entropy(model(inputs[chosen]), targets[chosen])
        gradients = torch.autograd.grad(loss, values)
        with torch.no_grad():
            for value, gradient, mask in zip(values, gradients, masks, strict=True):
                value.sub_(gradient, alpha=learning_rate)
                if mask is not None:
                    value.mul_(mask)
        if done % _REPORT == 0 or done == iterations:
            on_progress(done)


def _path(folder: str | Path, round_: int) -> Path:
    return Path(folder) / f"ticket-{round_:02d}.safetensors"


def _keep(folder: str | Path | None, tickets: Sequence[Ticket], round_: int) -> None:
    """The next round's ticket first: a round counts as finished when its own file has an accuracy."""
    if folder is not None:
        tickets[round_ + 1].save(_path(folder, round_ + 1))
        tickets[round_].save(_path(folder, round_))


def _finished(folder: str | Path | None, fresh: Ticket) -> list[Ticket]:
    """The tickets in `folder` up to the first that is not measured, or the fresh one; of the same start only."""
    found: list[Ticket] = []
    while folder is not None and _path(folder, len(found)).exists():
        ticket = Ticket.load(_path(folder, len(found)))
        described = (ticket.provenance, ticket.note) == (fresh.provenance, fresh.note)
        if not described or not _same(ticket.start, fresh.start):
            raise InvalidInput(f"folder must hold tickets of this model and these data; got {str(folder)!r} of others.")
        found.append(ticket)
        if "accuracy" not in ticket.measured:
            return found
    return found or [fresh]


def _same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


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
    patterns: Sequence[str] = WEIGHTS,
    folder: str | Path | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[list[Ticket]]:
    """`iterative_tickets` of every model with its seed, up to rounding, all trained in step.

    Small networks cost more in calls than in arithmetic, so that a stack of them takes hardly longer than one; large
    ones gain nothing. The rounds of every seed are kept in a folder of its own and go on where they were.

    Args:
        models: of one architecture, each at its start.
        inputs: data (n, ...).
        targets: labels (n,).
        provenance: "public" or "paper".
        accuracy: of a trained network, in [0, 1].
        seeds: one a model.
        source: name of the data.
        rounds: T >= 1.
        iterations: SGD steps of each training.
        learning_rate: > 0, of SGD.
        batch_size: records of a batch.
        shares: share of each layer's surviving weights that a round prunes.
        patterns: names of the weights that may be pruned.
        folder: keeps every finished round, in one folder a seed.
        on_progress: called with (iterations done, iterations in all).

    Raises:
        InvalidInput: an argument is out of range, or the folder holds other tickets.

    Example:
        >>> models = [nn.Sequential(nn.Linear(4, 3)) for _ in range(2)]
        >>> x, y = torch.randn(30, 4), torch.arange(30) % 3
        >>> short = {"rounds": 1, "iterations": 5, "batch_size": 10, "accuracy": lambda network: 0.5}
        >>> [len(found) for found in stacked_tickets(models, x, y, provenance="public", seeds=[0, 1], **short)]
        [1, 1]
    """
    if not models or len(models) != len(seeds):
        raise check.fail("seeds", "one for every model, and at least one", len(seeds))
    plan = PruningPlan(provenance, source, rounds, iterations, learning_rate, batch_size, shares, tuple(patterns))
    places = [None if folder is None else Path(folder) / f"seed-{seed}" for seed in seeds]
    searches = [Search(model, plan, seed, place) for model, seed, place in zip(models, seeds, places, strict=True)]
    while not all(search.over for search in searches):
        round_ = min(search.round for search in searches)
        behind = [search for search in searches if search.round == round_]
        _train_stack(behind, inputs, targets, plan, plan.progress_of(round_, on_progress))
        for search in behind:
            search.finish(accuracy)
    return [search.found for search in searches]


def _train_stack(
    searches: Sequence[Search],
    inputs: Tensor,
    targets: Tensor,
    plan: PruningPlan,
    on_progress: Callable[[int], None],
) -> None:
    """`train_masked` of every search's ticket in its model, all in one stack."""
    tickets = [search.tickets[-1] for search in searches]
    masks = {name: torch.stack([ticket.masks[name] for ticket in tickets]) for name in tickets[0].masks}
    values = {name: torch.stack([ticket.start[name] for ticket in tickets]) for name in tickets[0].start}
    values = {name: value * masks[name] if name in masks else value for name, value in values.items()}
    generators = [search.generator() for search in searches]
    size = (min(plan.batch_size, len(targets)),)

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(searches[0].model, parameters, (x,)), y)

    slopes = vmap(grad(loss))
    for done in range(1, plan.iterations + 1):
        chosen = torch.stack([torch.randint(len(targets), size, generator=generator) for generator in generators])
        found = slopes(values, inputs[chosen], targets[chosen])
        for name, value in values.items():
            value.sub_(found[name], alpha=plan.learning_rate)
            if name in masks:
                value.mul_(masks[name])
        if done % _REPORT == 0 or done == plan.iterations:
            on_progress(done)
    with torch.no_grad():
        for place, search in enumerate(searches):
            for name, value in values.items():
                search.model.get_parameter(name).copy_(value[place])
