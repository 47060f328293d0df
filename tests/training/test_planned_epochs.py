"""A loop over `private.epochs` takes every step that its plan pays for, and no other."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from tacit import Epsilon, make_private


@pytest.mark.parametrize("length", [{"epochs": 3}, {"steps": 25}, {"steps": 3}, {"epochs": 0.5}])
@pytest.mark.parametrize("noise", [{"noise_multiplier": 2.0}, {"target": Epsilon(2.0, 1e-4)}])
def test_the_epochs_of_a_loop_are_the_steps_that_are_charged(length, noise):
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Linear(3, 2)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=10)
    private = make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, clip_norm=1.0, **noise, **length)
    for _ in private.epochs:
        for inputs, targets in private.loader:
            cross_entropy(private.model(inputs), targets, reduction="none").backward()
            private.optimizer.step()
    assert private.ledger.steps == length.get("steps", round(10 * length.get("epochs", 0)))
    assert not private.ledger.not_taken
    assert list(private.epochs) == []
