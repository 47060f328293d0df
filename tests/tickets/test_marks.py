"""Marks of every phase reach the ledger that the user holds, and `find` records all that it costs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import alternatives
from tacit.noise import SecureStream, SeededStream
from tacit.noise.discrete import log_probabilities
from tacit.relation import Relation
from tacit.signing import Origin
from tacit.standing import Standing
from tacit.tickets import PrivateTicket, TicketPlan, count_scores
from tests.tickets.test_private import SMALL, paper_tickets
from tests.tickets.test_tickets import data, network, ticket

CANDIDATES = {"T1": lambda: [ticket()], "paper": paper_tickets}
MODES = ["paper", "T1", "T2", "T3", "T4"]


def made(mode, stream, **settings):
    plan = TicketPlan(mode, **(SMALL | {"epochs": 1, "search_epochs": 1} | settings))
    candidates = CANDIDATES.get(mode, list)()
    return PrivateTicket(network, data(600), plan, candidates=candidates, stream=stream)


@pytest.mark.slow_cases
@pytest.mark.parametrize("mode", MODES)
def test_a_ticket_found_with_a_seed_is_proven_in_no_mode(mode):
    ledger = Ledger()
    made(mode, SeededStream(1)).find(ledger)
    assert "unsafe_seeded_stream" in ledger.unsafe
    assert ledger.standing is Standing.CLAIMED


@pytest.mark.slow
def test_assumptions_of_every_phase_reach_the_ledger():
    one_after_another, parallel = (made(mode, SecureStream()).run().ledger for mode in ("T3", "T4"))
    assert set(one_after_another.assumptions) == set(parallel.assumptions)
    assert parallel.standing is one_after_another.standing


def test_marks_reach_the_ledger_when_training_breaks_off():
    run, ledger = made("T4", SeededStream(1)), Ledger()
    run.ledger = ledger

    def break_off(stage, done, total):
        if stage == "training":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run(on_step=break_off)
    assert ledger.standing is Standing.CLAIMED
    assert ledger.steps == 1


def test_a_ticket_of_private_data_is_never_proven():
    ledger = Ledger()
    made("paper", SecureStream()).find(ledger)
    assert ledger.standing is Standing.CLAIMED
    assert "unsafe_ticket_of_private_data" in ledger.unsafe


@pytest.mark.slow
@pytest.mark.parametrize(("share", "epsilon"), [(0.2, 1.0), (0.9, 1.0), (0.99, 3.0)])
def test_what_find_records_in_parallel_covers_the_choice(share, epsilon):
    """Enumeration: one record more in the choosing part moves every count but the first by one."""
    ledger = Ledger()
    settings = {"epsilon": epsilon, "validation_share": share, "densities": (0.5, 0.4, 0.3, 0.2), "batch_size": 5}
    run = made("T4", SecureStream(), **settings)
    run.find(ledger)
    counts = np.array([5, 5, 5, 5])
    more = np.array([5, 6, 6, 6])
    spent = run.spending.choice
    assert spent is not None
    chances = [
        np.exp(log_probabilities(count_scores(each, (0.5, 0.4, 0.3, 0.2)), spent, Relation.ADD_REMOVE))
        for each in (counts, more)
    ]
    curve = accountant("pld")(ledger)
    for at in (0.0, epsilon / 2, epsilon - 1e-3):
        worst = max(float(np.maximum(p - math.exp(at) * q, 0).sum()) for p, q in (chances, chances[::-1]))
        assert curve.delta(at) >= worst * (1 - 1e-9)


def test_what_find_records_in_parallel_is_the_worse_of_search_and_choice():
    ledger, run = Ledger(), made("T4", SecureStream())
    run.find(ledger)
    search, choice = alternatives(ledger.mechanism)
    assert run.spending.search in {part.spec()["noise_multiplier"] for part, _ in search.parts()}
    assert choice.steps[0][0].spec()["epsilon"] == run.spending.choice


def test_find_refuses_a_ledger_of_another_relation():
    """The rate of the choice follows from the relation: half of it under replace_one."""
    with pytest.raises(InvalidInput, match="ledger must be of relation add_remove"):
        made("T2", SecureStream()).find(Ledger(relation="replace_one"))


def test_a_ticket_that_nobody_vouches_for_makes_its_run_claimed():
    """Its provenance, no private data, is what T1 rests on, and anybody can write it into a file."""
    ledger, plan = Ledger(), TicketPlan("T1", **(SMALL | {"epochs": 1}))
    foreign = replace(ticket(), origin=Origin.FOREIGN)
    PrivateTicket(network, data(600), plan, candidates=[foreign], stream=SecureStream()).find(ledger)
    assert ledger.standing is Standing.CLAIMED
    assert "unsafe_ticket_of_unknown_origin" in ledger.unsafe
