"""A loop over `private.epochs` takes every step that its plan pays for; one that leaves steps out says so."""

import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from tacit import Epsilon, make_private
from tacit.accounting import Ledger, accountant
from tacit.errors import PrivacyWarning
from tacit.reports.card import ledger_table
from tacit.reports.words import fact_rows


def begun(**given):
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Linear(3, 2)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=10)
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, clip_norm=1.0, **given)


def one_pass(private):
    for inputs, targets in private.loader:
        cross_entropy(private.model(inputs), targets, reduction="none").backward()
        private.optimizer.step()


@pytest.mark.parametrize("length", [{"epochs": 3}, {"steps": 25}, {"steps": 3}, {"epochs": 0.5}])
@pytest.mark.parametrize("noise", [{"noise_multiplier": 2.0}, {"target": Epsilon(2.0, 1e-4)}])
def test_the_epochs_of_a_loop_are_the_steps_that_are_charged(length, noise):
    private = begun(**noise, **length)
    for _ in private.epochs:
        one_pass(private)
    assert private.ledger.steps == length.get("steps", round(10 * length.get("epochs", 0)))
    assert not private.ledger.not_taken
    assert list(private.epochs) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        accountant("zcdp")(private.ledger)
    assert "planned steps taken" not in private.facts["steps"].says


def test_a_plan_left_unfinished_says_so_read_saved_and_carded(tmp_path):
    private = begun(noise_multiplier=2.0, epochs=3)
    one_pass(private)
    with pytest.warns(PrivacyWarning, match="10 of 30 planned steps taken, 30 charged"):
        accountant("zcdp")(private.ledger)
    private.ledger.save(tmp_path / "ledger.json")
    saved = Ledger.load(tmp_path / "ledger.json")
    assert accountant("zcdp")(saved).epsilon(1e-5) == accountant("zcdp")(begun_whole()).epsilon(1e-5)
    for table in (saved.facts.spec(), ledger_table(private.ledger)["facts"]):
        assert any("10 of 30 planned steps taken, 30 charged" in fact["says"] for fact in table)
    assert any("10 of 30" in known for _, _, known in fact_rows(private.facts))


def begun_whole():
    private = begun(noise_multiplier=2.0, epochs=3)
    for _ in private.epochs:
        one_pass(private)
    return private.ledger


def test_saving_warns_too_and_reading_within_the_loop_does_not(tmp_path):
    private = begun(noise_multiplier=2.0, epochs=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        for number in private.epochs:
            one_pass(private)
            accountant("zcdp")(private.ledger)
            if number == 1:
                break
    with pytest.warns(PrivacyWarning, match="20 of 30"):
        private.ledger.save(tmp_path / "ledger.json")


def test_a_declared_end_costs_the_steps_taken():
    private = begun(noise_multiplier=2.0, epochs=3)
    one_pass(private)
    private.declare("steps", "the hour for which the machine was booked had passed")
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        mechanism = private.ledger.mechanism
    assert sum(steps for _, steps in mechanism.parts()) == 10
    assert private.facts["steps"].says == "the hour for which the machine was booked had passed"
