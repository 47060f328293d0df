"""Private modes: what runs is what the ledger says, and it meets the target."""

import functools

import pytest
import torch

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import Compose, Parallel, alternatives
from tacit.noise import SeededStream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tickets import PrivateTicket, Ticket, TicketPlan, iterative_tickets
from tacit.tickets.budget import Phase, spend
from tacit.tickets.iterative_pruning import data_free_ticket
from tacit.tradeoff import Epsilon
from tests.tickets.test_tickets import accuracy_of, data, network, ticket

SMALL = {"epsilon": 2.0, "batch_size": 60, "epochs": 4, "search_epochs": 2, "densities": (0.5, 0.2)}


def planned(mode, *, candidates=(), **settings):
    """What a run would spend, without running it."""
    plan = TicketPlan(mode, **(SMALL | settings))
    return PrivateTicket(network, data(600), plan, candidates=candidates, ledger=Ledger(), stream=SeededStream(1))


def run(mode, **settings):
    accuracy = accuracy_of(*data(600))
    return planned(mode, **settings).run(evaluate=lambda model: {"test": accuracy(model)})


@functools.cache
def seeded_run(mode):
    """A run that several tests look at and none changes."""
    return run(mode)


def paper_tickets():
    x, y = data(600)
    return iterative_tickets(
        network(), x, y, provenance="paper", accuracy=accuracy_of(x, y), rounds=2, iterations=50, batch_size=50
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["T2", pytest.param("T3", marks=pytest.mark.slow), "T4"])
def test_sound_modes_meet_their_target_and_leave_a_sparse_network(mode):
    done = seeded_run(mode)
    epsilon = accountant("pld")(done.ledger).epsilon(1e-5)
    assert epsilon <= 2.0
    assert epsilon == pytest.approx(2.0, rel=1e-4)
    assert done.ticket.provenance == "private"
    for name, mask in done.ticket.masks.items():
        assert not done.model.get_parameter(name)[mask == 0].any()
    assert done.ticket.density == pytest.approx(0.5, abs=0.1) or done.ticket.density == pytest.approx(0.2, abs=0.1)


def test_the_ledger_holds_every_phase_in_order():
    notes = [entry.note for entry in seeded_run("T2").ledger.entries]
    assert notes == ["training", "choice of the ticket", "training"]
    parallel = seeded_run("T4").ledger
    assert [type(entry.mechanism) for entry in parallel.entries] == [Parallel]
    assert len(run("T1", candidates=[ticket()]).ledger.entries) == 1


def test_what_ran_in_parallel_is_what_was_planned():
    done = seeded_run("T4")
    (entry,) = done.ledger.entries
    assert entry.mechanism == done.spending.mechanism


def test_parallel_composition_leaves_less_noise_than_one_after_another():
    assert planned("T4").spending.training < planned("T3").spending.training


def test_a_public_ticket_costs_nothing():
    phase = Phase(0.1, 40)
    spent = spend("T1", Epsilon(1.0, 1e-5), search=phase, training=phase, relation=Relation.ADD_REMOVE)
    assert spent.choice is None
    assert spent.search is None
    assert accountant("pld")(phase.mechanism(spent.training)).epsilon(1e-5) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.slow
def test_the_papers_mode_is_only_claimed():
    done = run("paper", candidates=paper_tickets())
    assert done.ledger.standing is Standing.CLAIMED
    assert accountant("pld")(done.ledger).standing is Standing.CLAIMED
    assert "unsafe_ticket_of_private_data" in done.ledger.unsafe
    assert done.spending.choice == pytest.approx(0.2)


@pytest.mark.slow
def test_seeded_runs_are_repeatable():
    one, two = seeded_run("T3"), run("T3")
    assert one.ledger.hash == two.ledger.hash
    for left, right in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(left, right)


def test_who_chooses_depends_on_no_record():
    x, y = data(600)
    plan = TicketPlan("T3", **SMALL)
    shifted = PrivateTicket(network, (x + 1, (y + 1) % 3), plan, stream=SeededStream(4))
    one, other = (PrivateTicket(network, (x, y), plan, stream=SeededStream(seed)) for seed in (4, 5))
    assert torch.equal(one.selection_data[0] + 1, shifted.selection_data[0])
    assert not torch.equal(one.selection_data[0], other.selection_data[0])
    # Deviation of a binomial number of 600 at .2: 9.8.
    assert len(one.selection_data[1]) == pytest.approx(120, abs=5 * 9.8)
    assert torch.equal(torch.cat([x[trained_on(one)], one.selection_data[0]]).sort(0).values, x.sort(0).values)


def trained_on(made):
    """Which records batches are drawn from."""
    return made.sampling.sampler(600, 1.0, SeededStream(0)).draw().indices


@pytest.mark.parametrize("seed", range(4))
def test_a_further_record_moves_no_other(seed):
    x, y = data(600)
    fewer, all_of_them = (
        PrivateTicket(network, (x[:n], y[:n]), TicketPlan("T4", **SMALL), stream=SeededStream(seed)) for n in (599, 600)
    )
    new = 599 in trained_on(all_of_them)
    assert trained_on(all_of_them).tolist() == [*trained_on(fewer).tolist(), *([599] if new else [])]
    assert torch.equal(
        all_of_them.selection_data[0], fewer.selection_data[0] if new else torch.cat([fewer.selection_data[0], x[599:]])
    )


@pytest.mark.parametrize("seed", range(8))
def test_sizes_follow_from_the_number_of_all_records(seed):
    made = PrivateTicket(network, data(600), TicketPlan("T4", **SMALL), stream=SeededStream(seed))
    assert made.sampling.units(600) == 480
    training, _ = made.spending.mechanism.branches
    assert {part.sample_rate for part, _ in training.parts()} == {60 / 480}
    assert made.sampling.sampler(600, 60 / 480, SeededStream(0)).expected_size == 60


@pytest.mark.parametrize(("seed", "asked"), [(0, 0), (1, 1)])
def test_a_part_may_be_empty(seed, asked):
    plan = TicketPlan("T4", **(SMALL | {"batch_size": 1, "epochs": 1, "search_epochs": 1, "validation_share": 0.5}))
    made = PrivateTicket(network, data(1), plan, stream=SeededStream(seed))
    assert len(made.selection_data[1]) == asked
    assert made.run().ticket.provenance == "private"


def test_two_runs_in_one_ledger_divide_the_records_each_their_way():
    """A record may be trained on by one run and asked by the other."""
    runs = [PrivateTicket(network, data(600), TicketPlan("T4", **SMALL), stream=SeededStream(seed)) for seed in (1, 2)]
    first, second = (made.spending.mechanism for made in runs)
    assert first.branches == second.branches
    assert len(alternatives(Compose.of((first, 1), (second, 1)))) == 3


def test_a_public_origin_is_an_assumption():
    said = run("T1", candidates=[ticket()]).ledger.assumptions
    assert any("shares no record with the training data" in sentence for sentence in said)


@pytest.mark.parametrize("mode", ["T1", pytest.param("T2", marks=pytest.mark.slow)])
def test_any_module_can_be_pruned_by_the_names_of_its_layers(mode):
    """A convolutional network of which only the convolutions are pruned."""

    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, stride=2), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(36, 3)
        )

    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(120, 1, 8, 8, generator=generator), torch.randint(3, (120,), generator=generator)
    plan = TicketPlan(mode, epsilon=4.0, batch_size=30, epochs=2, search_epochs=1, densities=(0.4,), patterns=("0.*",))
    candidates = []
    if mode == "T1":
        candidates = [data_free_ticket(build(), "random", density=0.4, shape=(1, 8, 8), seed=1, patterns=("0.*",))]
    done = PrivateTicket(build, (x, y), plan, candidates=candidates, stream=SeededStream(1)).run()
    (name,) = done.ticket.masks
    assert name == "0.weight"
    assert not done.model.get_parameter(name)[done.ticket.masks[name] == 0].any()
    assert bool(done.model.get_parameter("3.weight").all())


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


def test_a_record_in_both_parts_is_refused(monkeypatch):
    partition = PrivateTicket._partition
    monkeypatch.setattr(PrivateTicket, "_partition", lambda self: (partition(self)[0], self.data))
    with pytest.raises(Refused, match="disjoint"):
        PrivateTicket(network, data(), TicketPlan("T4", epsilon=8.0, batch_size=20))
