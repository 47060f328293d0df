"""n against n + 1 through every door: what is released tells the number only where the relation is not add_remove."""

import itertools

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import PLACES, Ledger, accountant
from tacit.opacus import PrivacyEngine
from tacit.relation import Relation
from tacit.runs import Config, train
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.training import StreamedRecords, fit, make_private
from tests.training.cases import cross_entropy, small_model

TARGET = Epsilon(2.0, 1e-4)


def rows(n):
    """Records without a gradient: the noise of the release is the same whatever their number."""
    return torch.zeros(n, 4), torch.zeros(n, dtype=torch.long)


def by_fit(n, **given):
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = fit(model, *rows(n), loss=cross_entropy, optimizer=optimizer, clip_norm=1.0, **given)
    plan = found.plan
    return found.ledger, (plan.noise_multiplier, plan.sample_rate, plan.steps, plan.expected_batch_size)


def by_loop(n, batch_size=20, data=None, **given):
    model = small_model()
    loader = DataLoader(data or TensorDataset(*rows(n)), batch_size=batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(model, optimizer, loader, clip_norm=1.0, **given)
    plan = private.model.session.run.plan
    return private.ledger, (
        *(private.loader.batches, private.loader.sample_rate, plan.noise_multiplier, plan.steps),
        *(private.optimizer.expected_batch_size, len(list(private.epochs))),
    )


def by_engine(n, **given):
    model, engine = small_model(), PrivacyEngine()
    loader = DataLoader(TensorDataset(*rows(n)), batch_size=20)
    named = {"target_epsilon": 2.0, "target_delta": 1e-4, "epochs": 2, "max_grad_norm": 1.0}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _, private, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, **named, **given
    )
    return engine.ledger, (private.noise_multiplier, private.expected_batch_size, loader.sample_rate, loader.batches)


DOORS = {
    "fit": lambda n, **given: by_fit(n, target=TARGET, batch_size=20, epochs=1, **given),
    "loop": lambda n, **given: by_loop(n, target=TARGET, epochs=1, **given),
    "table": lambda n, **given: by_loop(n, batch_size=given.get("public_size", n), target=TARGET, epochs=3, **given),
    "engine": by_engine,
}


@pytest.mark.parametrize("door", DOORS)
def test_line_7_settings_that_follow_the_number_of_records_are_stated_as_zero_out(door):
    (ledger, one), (_, other) = (DOORS[door](n) for n in (200, 201))
    assert one != other or door == "table"
    assert ledger.relation is Relation.ZERO_OUT
    assert PLACES in ledger.assumptions
    assert door != "fit" or ledger.standing is Standing.PROVEN  # No step was taken by the others.
    assert Ledger.from_spec(ledger.spec()).relation is Relation.ZERO_OUT
    assert accountant("pld")(ledger).relation is Relation.ZERO_OUT


@pytest.mark.parametrize("door", DOORS)
def test_a_declared_size_keeps_add_remove_and_tells_no_number(door):
    (ledger, one), (more, other) = (DOORS[door](n, public_size=190) for n in (200, 201))
    assert one == other
    assert ledger.spec() == more.spec()
    assert ledger.relation is Relation.ADD_REMOVE
    assert door != "fit" or ledger.standing is Standing.PROVEN  # No step was taken by the others.
    assert not any("training records" in sentence for sentence in ledger.assumptions)


GIVEN = [
    {"batch_size": 20},
    {"batch_size": 20, "public_size": 190},
    {"sample_rate": 0.1},
    {"sample_rate": 0.1, "public_size": 190},
    {"sample_rate": 0.1, "expected_batch_size": 25.0},
]
SAMPLINGS = ["poisson", "random_allocation", "balls_and_bins", "balanced_iteration"]
"""Those that take any number of records; batches of an exact size are tested with replace_one."""


@pytest.mark.parametrize(
    ("given", "sampling", "length"),
    list(itertools.product(GIVEN, SAMPLINGS, [{"epochs": 0.1}, {"steps": 1}])),
)
def test_where_add_remove_is_stated_one_record_more_changes_no_setting(given, sampling, length):
    (ledger, one), (more, other) = (
        by_fit(n, sampling=sampling, noise_multiplier=9.0, **given, **length) for n in (200, 201)
    )
    assert ledger.relation in (Relation.ADD_REMOVE, Relation.ZERO_OUT)
    if ledger.relation is Relation.ADD_REMOVE:
        assert one == other
        assert ledger.spec() == more.spec()
    assert (ledger.relation is Relation.ADD_REMOVE) == (len(given) == 2)


def test_a_stream_has_a_declared_size():
    ledger, _ = by_loop(0, data=StreamedRecords([(torch.zeros(4), 0)] * 30, public_size=40), target=TARGET, epochs=1)
    assert ledger.relation is Relation.ADD_REMOVE


def test_replace_one_stays():
    ledger, _ = by_fit(200, ledger=Ledger(relation="replace_one"), batch_size=20, steps=2, noise_multiplier=9.0)
    assert ledger.relation is Relation.REPLACE_ONE
    assert PLACES not in ledger.assumptions


def test_a_run_states_its_relation_in_ledger_card_and_statement(tmp_path):
    settings = {"name": "n", "epsilon": 2.0, "delta": 1e-4, "epochs": 0.1, "attacks": ()}
    for size, relation in ((None, "zero_out"), (1200, "add_remove")):
        run = train(Config(**settings, public_size=size), out=tmp_path / relation)
        assert run.card.ledger.relation == relation
        assert {each.tradeoff.relation.value for each in run.account.results} == {relation}
        assert run.account.results[0].tradeoff.standing is Standing.PROVEN
        assert run.card.records == (size or run.card.records)
        page = (tmp_path / relation / "card.html").read_text()
        assert ("the number of records is public" in page) == (size is None)
