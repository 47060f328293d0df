"""What may be assigned to a private optimizer."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit import Standing, make_private
from tacit.errors import TrainingMisuse


def test_the_divisor_of_a_run_cannot_be_assigned():
    model = torch.nn.Linear(3, 2)
    loader = DataLoader(TensorDataset(torch.zeros(100, 3), torch.zeros(100, dtype=torch.long)), batch_size=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(model, optimizer, loader, clip_norm=1.0, noise_multiplier=1.0, epochs=1)
    with pytest.raises(TrainingMisuse, match="expected_batch_size must stay 10, which the run was planned with"):
        private.optimizer.expected_batch_size = 20
    assert private.optimizer.expected_batch_size == 10


def trained(assign, **given):
    """A run of four steps, with `assign(optimizer, exact norm)` before each."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    data = TensorDataset(torch.randn(100, 3), torch.zeros(100, dtype=torch.long))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(
        model, optimizer, DataLoader(data, batch_size=10), clip_norm=1.0, noise_multiplier=1.0, epochs=1
    )
    for fact, sentence in given.items():
        private.declare(fact, sentence)
    for number, (x, y) in enumerate(private.loader):
        if number == 4:
            break
        assign(private.optimizer, float(data.tensors[0].norm(dim=1).median()) * (1 + number))
        torch.nn.functional.cross_entropy(private.model(x), y, reduction="none").backward()
        private.optimizer.step()
        private.optimizer.zero_grad()
    return private


@pytest.mark.parametrize("name", ["max_grad_norm", "noise_multiplier"])
def test_a_setting_that_is_assigned_in_mid_run_is_not_proven(name):
    private = trained(lambda optimizer, value: setattr(optimizer, name, value))
    (fact,) = [fact for fact in private.ledger.facts.assumed if fact.id == "settings"]
    assert f"{name} was assigned in mid-run" in fact.says
    assert private.ledger.standing is not Standing.PROVEN


@pytest.mark.parametrize("name", ["max_grad_norm", "noise_multiplier"])
def test_a_setting_of_a_schedule_or_a_declaration_stays_as_it_was(name):
    kept = trained(lambda optimizer, value: setattr(optimizer, name, getattr(optimizer, name)))
    scheduled = trained(lambda optimizer, value: optimizer.schedule(name, 1.5))
    declared = trained(lambda optimizer, value: setattr(optimizer, name, 1.5), settings="fixed beforehand")
    for private in (kept, scheduled, declared):
        assert "settings" not in [fact.id for fact in private.ledger.facts.assumed]


@pytest.mark.parametrize("name", ["param_groups", "state"])
def test_groups_and_state_of_the_optimizer_cannot_be_assigned(name):
    """They would stand on the wrapper alone, and a rate set in them would never be used."""

    def assign(optimizer, _):
        setattr(optimizer, name, [])

    with pytest.raises(AttributeError, match=name):
        trained(assign)
