"""Private modes: what runs is what the ledger says, and it meets the target."""

import pytest
import torch

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import Parallel
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tickets import PrivateTicket, Ticket, TicketPlan, iterative_tickets, spend
from tacit.tickets.budget import Phase
from tacit.tradeoff import Epsilon
from tests.tickets.test_tickets import accuracy_of, data, network, ticket

SMALL = {"epsilon": 2.0, "batch_size": 60, "epochs": 4, "search_epochs": 2, "densities": (0.5, 0.2)}


def run(mode, *, candidates=(), seed=1, relation="add_remove", **settings):
    x, y = data(600)
    ledger = Ledger(relation=relation)
    plan = TicketPlan(mode, **(SMALL | settings))
    made = PrivateTicket(network, (x, y), plan, candidates=candidates, ledger=ledger, stream=SeededStream(seed))
    return made.run(evaluate=lambda model: {"test": accuracy_of(x, y)(model)})


def paper_tickets():
    x, y = data(600)
    return iterative_tickets(
        network(), x, y, provenance="paper", accuracy=accuracy_of(x, y), rounds=2, iterations=50, batch_size=50
    )


@pytest.mark.parametrize("mode", ["T2", "T3", "T4"])
def test_sound_modes_meet_their_target_and_leave_a_sparse_network(mode):
    done = run(mode)
    epsilon = accountant("pld")(done.ledger).epsilon(1e-5)
    assert epsilon <= 2.0
    assert epsilon == pytest.approx(2.0, rel=1e-4)
    assert done.ticket.provenance == "private"
    for name, mask in done.ticket.masks.items():
        assert not done.model.get_parameter(name)[mask == 0].any()
    assert done.ticket.density == pytest.approx(0.5, abs=0.1) or done.ticket.density == pytest.approx(0.2, abs=0.1)


def test_the_ledger_holds_every_phase_in_order():
    notes = [entry.note for entry in run("T2").ledger.entries]
    assert notes == ["training", "choice of the ticket", "training"]
    parallel = run("T4").ledger
    assert [type(entry.mechanism) for entry in parallel.entries] == [Parallel]
    assert len(run("T1", candidates=[ticket()]).ledger.entries) == 1


def test_what_ran_in_parallel_is_what_was_planned():
    done = run("T4")
    (entry,) = done.ledger.entries
    assert entry.mechanism == done.spending.mechanism


def test_parallel_composition_leaves_less_noise_than_one_after_another():
    assert run("T4").spending.training < run("T3").spending.training


def test_a_public_ticket_costs_nothing():
    phase = Phase(0.1, 40)
    spent = spend("T1", Epsilon(1.0, 1e-5), search=phase, training=phase, relation=Relation.ADD_REMOVE)
    assert spent.choice is None
    assert spent.search is None
    assert accountant("pld")(phase.mechanism(spent.training)).epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)


def test_the_papers_mode_is_only_claimed():
    done = run("paper", candidates=paper_tickets())
    assert done.ledger.standing is Standing.CLAIMED
    assert accountant("pld")(done.ledger).standing is Standing.CLAIMED
    assert "unsafe_ticket_of_private_data" in done.ledger.unsafe
    assert done.spending.choice == pytest.approx(0.2)


def test_seeded_runs_are_repeatable():
    one, two = run("T3"), run("T3")
    assert one.ledger.hash == two.ledger.hash
    for left, right in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(left, right)


def test_a_record_keeps_its_part_when_the_last_one_leaves():
    x, y = data(600)
    plan = TicketPlan("T3", **SMALL)
    whole, fewer = PrivateTicket(network, (x, y), plan), PrivateTicket(network, (x[:-1], y[:-1]), plan)
    assert abs(len(whole.train[1]) - len(fewer.train[1])) <= 1
    assert torch.equal(whole.train[0][: len(fewer.train[1])], fewer.train[0])


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: run("T5"), "mode must be one of paper, T1"),
        (lambda: run("T1"), "candidates must be one ticket"),
        (lambda: run("T1", candidates=[ticket(provenance="paper")]), "candidates must be of public provenance"),
        (lambda: run("paper", candidates=[ticket()]), "candidates must be of paper provenance"),
        (lambda: run("T2", candidates=[ticket()]), "candidates must be left out in mode T2"),
        (lambda: run("T2", epsilon=-1.0), "epsilon must be in"),
        (lambda: run("T2", densities=()), "densities must be a list"),
        (lambda: run("T2", batch_size=10_000), "batch_size must be in"),
        (lambda: run("T3", validation_share=1.0), "validation_share must be in"),
    ],
)
def test_bad_input(act, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        act()
    assert isinstance(ticket(), Ticket)
