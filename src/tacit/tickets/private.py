"""A ticket found, chosen and trained, with one ledger for all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.noise import SecureStream, Stream
from tacit.standing import Standing
from tacit.tickets.budget import Phase, Spending, spend
from tacit.tickets.prune import by_magnitude, paper_shares, whole
from tacit.tickets.select import Scores, choice_mechanism, choose, count_scores, paper_scores
from tacit.tickets.ticket import Ticket, prunable, solid
from tacit.tradeoff import Epsilon
from tacit.training import fit

Data = tuple[Tensor, Tensor]
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class TicketPlan:
    """Settings of the private phases; the defaults are the paper's.

    Attributes:
        mode: see `spend`.
        epsilon, delta: target of everything together.
        batch_size: expected size of a Poisson batch of the training part.
        epochs: of the final training; `search_epochs` of the dense one whose weights T2 to T4 prune.
        densities: shares of weights that T2 to T4 choose from.
        penalty: accuracy points (of 1) that a ticket with all its weights loses to an empty one in the sound score.
        public_size: declared number of records behind those points; not the private count.
        validation_share: part of the records that T3 and T4 keep for the choice.
        split_seed: public; a record's part depends on its position and this alone.
    """

    mode: str = "T2"
    epsilon: float = 1.0
    delta: float = 1e-5
    batch_size: float = 400
    epochs: float = 50
    search_epochs: float = 10
    clip_norm: float = 1.0
    learning_rate: float = 0.1
    densities: tuple[float, ...] = (0.5, 0.25, 0.1, 0.05, 0.02)
    penalty: float = 0.0
    public_size: int = 10_000
    validation_share: float = 0.2
    split_seed: int = 0
    selection: str = "exponential"

    def __post_init__(self) -> None:
        Epsilon(self.epsilon, self.delta)
        for name in ("batch_size", "epochs", "search_epochs", "clip_norm", "learning_rate"):
            check.positive(name, getattr(self, name))
        if not self.densities:
            raise check.fail("densities", "a list with at least one value", self.densities)
        for density in self.densities:
            check.probability("density", density, open_low=True)
        check.probability("validation_share", self.validation_share, open_low=True, open_high=True)


@dataclass
class TicketRun:
    """What a run leaves: the trained sparse network, the ticket, what it cost, and how it went."""

    model: nn.Module
    ticket: Ticket
    ledger: Ledger
    spending: Spending
    history: Sequence[Any] = field(default_factory=list)


class PrivateTicket:
    """One run of one mode.

    Args:
        build: a network at its start, drawn from a public seed; the same at every call.
        data: private training inputs (n, ...) and labels (n,).
        plan: see `TicketPlan`.
        candidates: for "T1" the one ticket of public origin; for "paper" the tickets of the private data. None else.
        ledger: where everything is recorded.
        stream: source of sampling, choice and noise.
        loss: one value per example.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        data: Data,
        plan: TicketPlan,
        *,
        candidates: Sequence[Ticket] = (),
        ledger: Ledger | None = None,
        stream: Stream | None = None,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    ):
        self.build, self.plan = build, plan
        self.candidates = _checked(plan.mode, candidates)
        self.ledger = ledger if ledger is not None else Ledger()
        self.stream = stream if stream is not None else SecureStream()
        self.loss = loss if loss is not None else _cross_entropy
        self.train, self.validation = self._split(data)
        rate = check.real("batch_size", plan.batch_size, low=0.0, high=len(self.train[1])) / len(self.train[1])
        phases = [Phase(rate, max(1, round(epochs / rate))) for epochs in (plan.search_epochs, plan.epochs)]
        self.spending = spend(
            plan.mode,
            Epsilon(plan.epsilon, plan.delta),
            search=phases[0],
            training=phases[1],
            relation=self.ledger.relation,
            selection=plan.selection,
        )

    def run(
        self,
        *,
        evaluate: Callable[[nn.Module], dict[str, float]] | None = None,
        on_step: Callable[[str, int, int], None] = lambda stage, done, total: None,
    ) -> TicketRun:
        """Find, choose and train; every release is in the ledger before it is made."""
        if self.plan.mode == "paper":
            self.ledger.mark_unsafe("unsafe_ticket_of_private_data", Standing.CLAIMED)
        inner = Ledger(relation=self.ledger.relation) if self.plan.mode == "T4" else self.ledger
        if self.plan.mode == "T4":
            self.ledger.add(self.spending.mechanism, note="planned: ticket, choice and training")
        ticket = self.find(inner, on_step)
        model = ticket.apply(self.build())
        fitted = self._fit(model, self.plan.epochs, self.spending.training, inner, "training", evaluate, on_step)
        return TicketRun(solid(model), ticket, self.ledger, self.spending, history=fitted.history)

    def find(
        self, ledger: Ledger, on_step: Callable[[str, int, int], None] = lambda stage, done, total: None
    ) -> Ticket:
        """The chosen ticket alone, its releases in `ledger`; `run` goes on to train it."""
        if self.plan.mode == "T1":
            return self.candidates[0]
        if self.plan.mode == "paper":
            accuracies = [ticket.measured["accuracy"] for ticket in self.candidates]
            scores = paper_scores(accuracies, [ticket.density for ticket in self.candidates])
            return self.candidates[self._chosen(scores, ledger)]
        found = self._pruned(ledger, on_step)
        counts = [self._correct(weights) for _, weights in found]
        densities = [ticket.density for ticket, _ in found]
        scores = count_scores(counts, densities, penalty=self.plan.penalty, size=self.plan.public_size)
        return found[self._chosen(scores, ledger)][0]

    def _chosen(self, scores: Scores, ledger: Ledger) -> int:
        epsilon = self.spending.choice
        assert epsilon is not None
        if self.plan.mode != "T4":
            ledger.add(choice_mechanism(epsilon, method=self.plan.selection), note="choice of the ticket")
        relation = self.ledger.relation
        return choose(scores, epsilon, self.stream, relation=relation, method=self.plan.selection)

    def _pruned(self, ledger: Ledger, on_step: Any) -> list[tuple[Ticket, dict[str, Tensor]]]:
        """A ticket for every density, by the magnitudes of a privately trained dense network, which are released."""
        model = self.build()
        start = {name: value.detach().clone() for name, value in model.named_parameters()}
        noise = self.spending.search
        assert noise is not None
        self._fit(model, self.plan.search_epochs, noise, ledger, "search", None, on_step)
        trained = {name: value.detach().clone() for name, value in model.named_parameters()}
        names = prunable(model)
        found = []
        for density in self.plan.densities:
            masks = by_magnitude(trained, whole(model, names), _to_density(names, density))
            note = f"magnitudes after {self.plan.search_epochs:g} private epochs"
            found.append((Ticket(masks, start, "private", note), trained | _masked(trained, masks)))
        return found

    def _fit(
        self, model: nn.Module, epochs: float, noise: float, ledger: Ledger, stage: str, evaluate: Any, on_step: Any
    ) -> Any:
        inputs, targets = self.train
        return fit(
            model,
            inputs,
            targets,
            loss=self.loss,
            optimizer=torch.optim.SGD(model.parameters(), lr=self.plan.learning_rate),
            clip_norm=self.plan.clip_norm,
            noise_multiplier=noise,
            batch_size=self.plan.batch_size,
            epochs=epochs,
            delta=self.plan.delta,
            ledger=ledger,
            stream=self.stream,
            evaluate=evaluate,
            on_step=lambda done, total: on_step(stage, done, total),
        )

    def _correct(self, weights: dict[str, Tensor]) -> int:
        """How many records of the choosing part the released network `weights` classifies right."""
        inputs, targets = self.validation or self.train
        model = self.build().eval()
        model.load_state_dict(weights, strict=False)
        with torch.no_grad():
            parts = zip(inputs.split(_ROWS_AT_ONCE), targets.split(_ROWS_AT_ONCE), strict=True)
            return sum(int((model(x).argmax(1) == y).sum()) for x, y in parts)

    def _split(self, data: Data) -> tuple[Data, Data | None]:
        """Training and choosing part; a record's place is decided by its position and a public seed."""
        inputs, targets = data
        if len(inputs) != len(targets) or not len(targets):
            raise InvalidInput(f"data must be as many inputs as labels; got {len(inputs)} and {len(targets)}.")
        if self.plan.mode not in ("T3", "T4"):
            return data, None
        draws = np.random.default_rng(self.plan.split_seed).random(len(targets))
        held = torch.from_numpy(draws < self.plan.validation_share)
        return (inputs[~held], targets[~held]), (inputs[held], targets[held])


def _checked(mode: str, candidates: Sequence[Ticket]) -> Sequence[Ticket]:
    wanted = {"T1": "public", "paper": "paper"}.get(mode)
    if wanted is None:
        if candidates:
            raise check.fail("candidates", f"left out in mode {mode}, which finds its own", len(candidates))
    elif not candidates or (mode == "T1" and len(candidates) != 1):
        raise check.fail("candidates", "one ticket" if mode == "T1" else "at least one ticket", len(candidates))
    elif {ticket.provenance for ticket in candidates} != {wanted}:
        rule = f"of {wanted} provenance in mode {mode}"
        raise check.fail("candidates", rule, ", ".join(sorted({ticket.provenance for ticket in candidates})))
    return candidates


def _to_density(names: Sequence[str], density: float) -> dict[str, float]:
    """Shares that leave `density` of each hidden layer and sqrt(density) of the last, which has few weights."""
    return paper_shares(names, hidden=1 - density, last=1 - density**0.5)


def _masked(weights: dict[str, Tensor], masks: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weights[name] * mask for name, mask in masks.items()}


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")
