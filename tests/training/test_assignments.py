"""What may be assigned to a private optimizer."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit import make_private
from tacit.errors import TrainingMisuse


def test_the_divisor_of_a_run_cannot_be_assigned():
    model = torch.nn.Linear(3, 2)
    loader = DataLoader(TensorDataset(torch.zeros(100, 3), torch.zeros(100, dtype=torch.long)), batch_size=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = make_private(model, optimizer, loader, clip_norm=1.0, noise_multiplier=1.0, epochs=1)
    with pytest.raises(TrainingMisuse, match="expected_batch_size must stay 10, which the run was planned with"):
        private.optimizer.expected_batch_size = 20
    assert private.optimizer.expected_batch_size == 10
