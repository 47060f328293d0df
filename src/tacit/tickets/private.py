"""`PrivateTicket`: a private search, choice and training of a ticket, recorded in one ledger."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tacit import check
from tacit.accounting import Ledger, one_shot_facts
from tacit.errors import InvalidInput, Refused
from tacit.losses import sequence_classification
from tacit.mechanisms import Mechanism, Parallel
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import Scores, choice_mechanism, choose
from tacit.sampling import PoissonSampling, Sampling
from tacit.standing import Standing
from tacit.tickets.budget import Phase, Spending, TicketPlan, spend
from tacit.tickets.iterative_pruning import right_answers
from tacit.tickets.pruning import PartSampling, by_magnitude, compact, dense_masks, paper_shares
from tacit.tickets.ticket import Ticket, count_scores, paper_scores, prunable, solid
from tacit.tradeoff import Epsilon
from tacit.training import Fit, Functions, fit

Data = tuple[Tensor, Tensor]
Evaluate = Callable[[nn.Module], dict[str, float]]
OnStep = Callable[[str, int, int], None]
"""Called after each step with the name of the phase, the steps done and all steps of it."""
# Splits are numbered by 53 random bits, all that a double of the stream holds.
_SPLITS = 2**53


@dataclass
class TicketRun:
    """A finished run.

    Attributes:
        model: the trained sparse network.
        ticket: the chosen ticket.
        ledger: the privacy cost.
        spending: division of the target among the phases.
        history: rows of the final training.

    Example:
        >>> [name for name in TicketRun.__dataclass_fields__][:3]
        ['model', 'ticket', 'ledger']
    """

    model: nn.Module
    ticket: Ticket
    ledger: Ledger
    spending: Spending
    history: Sequence[Any] = field(default_factory=list)


class PrivateTicket:
    """One private run of one mode.

    Args:
        build: a network at its start, drawn from a public seed; the same at every call.
        data: private training inputs (n, ...) and labels (n,).
        plan: see `TicketPlan`.
        candidates: for "T1" the one ticket of public origin; for "paper" the tickets of the private data. None else.
        ledger: where everything is recorded.
        stream: source of sampling, choice and noise.

    Attributes:
        selection_data: the records whose right classifications count for the choice.
        spending: division of the target among the phases.

    Raises:
        InvalidInput: data, plan and candidates do not fit together.

    Example:
        >>> def build():
        ...     with torch.random.fork_rng():
        ...         torch.manual_seed(0)
        ...         return nn.Sequential(nn.Linear(4, 3))
        >>> plan = TicketPlan("T1", epsilon=8.0, batch_size=20, epochs=1)
        >>> start = {name: value.detach() for name, value in build().named_parameters()}
        >>> public = Ticket({"0.weight": torch.eye(3, 4)}, start, "public")
        >>> data = (torch.randn(40, 4), torch.arange(40) % 3)
        >>> PrivateTicket(build, data, plan, candidates=[public]).run().ticket.density
        0.25
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
    ):
        self.build, self.plan = build, plan
        self.candidates = _checked(plan.mode, candidates)
        self.ledger = ledger if ledger is not None else Ledger()
        self.stream = stream if stream is not None else SecureStream()
        self.data = data
        self.sampling, self.selection_data = self._partition()
        self._check_parts()
        units = self.sampling.units(len(data[1]))
        rate = check.real("batch_size", plan.batch_size, low=0.0, high=units) / units
        epochs = {"search": plan.search_epochs, "training": plan.epochs}
        self._phases = {stage: Phase(rate, max(1, round(n / rate))) for stage, n in epochs.items()}
        target, relation = Epsilon(plan.epsilon, plan.delta), self.ledger.relation
        self.spending = spend(plan.mode, target, **self._phases, relation=relation, selection=plan.selection)
        if isinstance(self.spending.mechanism, Parallel):
            # The partition has a number of its own, other than that of any run in the same ledger.
            split = int(self.stream.uniform(1)[0] * _SPLITS)
            self.spending = replace(self.spending, mechanism=replace(self.spending.mechanism, split=split))

    def run(self, *, evaluate: Evaluate | None = None, on_step: OnStep = lambda *_: None) -> TicketRun:
        """Find, choose and train; every release is in the ledger before it is made."""
        with self._recording(self.ledger, self.spending.mechanism, "planned: ticket, choice and training") as inner:
            ticket = self._found(inner, on_step)
            small = compact(ticket, self.build())
            model = ticket.apply(self.build()) if small is None else small
            fitted = self._fit(model, "training", inner, on_step, evaluate)
        whole_again = solid(model) if small is None else small.scattered(self.build())
        return TicketRun(whole_again, ticket, self.ledger, self.spending, fitted.history)

    def find(self, ledger: Ledger, on_step: OnStep = lambda *_: None) -> Ticket:
        """The chosen ticket alone, all that it costs in `ledger`; `run` finds one of its own and trains it.

        Raises:
            InvalidInput: `ledger` has another relation than that of the plan, under which the choice was calibrated.
        """
        if ledger.relation is not self.ledger.relation:
            raise check.fail("ledger", f"of relation {self.ledger.relation.value}", ledger.relation.value)
        with self._recording(ledger, self._finding(), "planned: ticket and choice") as inner:
            return self._found(inner, on_step)

    @contextmanager
    def _recording(self, ledger: Ledger, planned: Mechanism, note: str) -> Iterator[Ledger]:
        """The ledger that the phases write to: `ledger`, or in T4 an inner one, whose cost is `planned` in `ledger`.

        Phases on different parts of the records are one parallel mechanism, recorded before the first of them runs.
        Marks, assumptions and standing of the phases reach `ledger` however they end.
        """
        if not self.stream.secure:
            ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        if self.plan.mode == "paper":
            ledger.mark_unsafe("unsafe_ticket_of_private_data", Standing.CLAIMED)
        if not all(ticket.trusted for ticket in self.candidates):
            # Its provenance, on which the guarantee rests, is the word of whoever wrote the file.
            ledger.mark_unsafe("unsafe_ticket_of_unknown_origin", Standing.CLAIMED)
        if self.plan.mode != "T4":
            with ledger.planned():
                yield ledger
            return
        ledger.add(planned, note=note)
        inner = Ledger(relation=ledger.relation, unit=ledger.unit)
        try:
            with inner.planned():
                yield inner
        finally:
            ledger.absorb_marks(inner)

    def _finding(self) -> Mechanism:
        """Search and choice of T4, on different parts of the records; of no use in another mode."""
        if not isinstance(self.spending.mechanism, Parallel):
            return self.spending.mechanism
        assert self.spending.search is not None
        assert self.spending.choice is not None
        search = self._phases["search"].mechanism(self.spending.search)
        choice = choice_mechanism(self.spending.choice, method=self.plan.selection)
        return replace(Parallel.of(search, choice), split=self.spending.mechanism.split)

    def _found(self, ledger: Ledger, on_step: OnStep) -> Ticket:
        """The chosen ticket; its releases are in `ledger`, or in T4 in the one that plans them."""
        if self.plan.mode == "T1":
            (public,) = self.candidates
            ledger.assume(f"The origin of the ticket ({public.note}) shares no record with the training data.")
            return public
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
        ledger.begin(*one_shot_facts(unit=ledger.unit, secure=self.stream.secure, exact=True))
        ledger.add(choice_mechanism(epsilon, method=self.plan.selection), note="choice of the ticket")
        relation = self.ledger.relation
        return choose(scores, epsilon, self.stream, relation=relation, method=self.plan.selection)

    def _pruned(self, ledger: Ledger, on_step: OnStep) -> list[tuple[Ticket, dict[str, Tensor]]]:
        """A ticket for every density, by the magnitudes of a privately trained dense network, which are released."""
        model = self.build()
        start = {name: value.detach().clone() for name, value in model.named_parameters()}
        self._fit(model, "search", ledger, on_step)
        trained = {name: value.detach().clone() for name, value in model.named_parameters()}
        names = prunable(model, self.plan.patterns)
        tickets = []
        for density in self.plan.densities:
            # The last layer has few weights.
            shares = paper_shares(names, hidden=1 - density, last=1 - density**0.5)
            masks = by_magnitude(trained, dense_masks(model, names), shares)
            note = f"magnitudes after {self.plan.search_epochs:g} private epochs"
            pruned = {name: trained[name] * mask for name, mask in masks.items()}
            tickets.append((Ticket(masks, start, "private", note), trained | pruned))
        return tickets

    def _fit(
        self, model: nn.Module, stage: str, ledger: Ledger, on_step: OnStep, evaluate: Evaluate | None = None
    ) -> Fit:
        (inputs, targets), phase = self.data, self._phases[stage]
        return fit(
            model,
            inputs,
            targets,
            loss=sequence_classification,
            optimizer=torch.optim.SGD(model.parameters(), lr=self.plan.learning_rate),
            clip_norm=self.plan.clip_norm,
            sampling=self.sampling,
            noise_multiplier=getattr(self.spending, stage),
            sample_rate=phase.sample_rate,
            expected_batch_size=self.plan.batch_size,
            steps=phase.steps,
            delta=self.plan.delta if evaluate is not None else None,
            ledger=ledger,
            stream=self.stream,
            evaluate=evaluate,
            callbacks=[Functions(on_step=partial(on_step, stage))],
        )

    def _correct(self, weights: dict[str, Tensor]) -> int:
        """Number of selection records that the released network `weights` classifies right."""
        model = self.build()
        model.load_state_dict(weights, strict=False)
        return right_answers(model, *self.selection_data)

    def _partition(self) -> tuple[Sampling, Data]:
        """Sampling of the training batches, and the records for the choice.

        In T3 and T4 a coin for each record, drawn from the stream and never released, puts it into the selection part
        or the training part. So one record more or less changes one part, by that record alone. With parts of fixed
        sizes it would push another record from one into the other.
        """
        inputs, targets = self.data
        if len(inputs) != len(targets) or not len(targets):
            raise InvalidInput(f"data must be as many inputs as labels; got {len(inputs)} and {len(targets)}.")
        if self.plan.mode not in ("T3", "T4"):
            return PoissonSampling(), self.data
        selected = self.stream.uniform(len(targets)) < self.plan.validation_share
        expected = max(1, round((1 - self.plan.validation_share) * len(targets)))
        chosen = torch.from_numpy(selected)
        return PartSampling(~selected, expected), (inputs[chosen], targets[chosen])

    def _check_parts(self) -> None:
        """Every record is in one part, as parallel composition takes it; in modes without parts in the only one."""
        if isinstance(self.sampling, PartSampling):
            training, choice = int(self.sampling.part.sum()), len(self.selection_data[1])
            if training + choice != len(self.data[1]):
                raise Refused("the records of training and of the choice must be disjoint; some would be in both.")


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
