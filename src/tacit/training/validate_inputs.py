"""What `fit` and its non-private twin check and prepare alike before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit.gradients import examine
from tacit.gradients.inputs import Loss
from tacit.training.callbacks import Callback, ProgressBar
from tacit.training.data import Records, check_data
from tacit.training.private_step import check_mode, check_optimizer, computed_in


def validate_inputs(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    loss: Loss,
    optimizer: Optimizer,
    precision: str,
    device: str | torch.device | None,
) -> tuple[Records, int]:
    """The records and their number, checked with all that is given."""
    examine(model)
    check_mode(model)
    check_optimizer(model, optimizer)
    records = Records.of(model, inputs, targets, device)
    with computed_in(model, precision):
        return records, check_data(model, loss, records)


def watchers_of(callbacks: Sequence[Callback], functions: Callback, progress: bool) -> list[Callback]:
    """Everything that looks on: the plain functions first, the progress bar last."""
    return [functions, *callbacks, *([ProgressBar()] if progress else [])]


def batch_size_of(inputs: Any, batch_size: float | None, sample_rate: float | None) -> float | None:
    """The batch size that is given, or that of a loader when neither size nor rate is."""
    given = batch_size is not None or sample_rate is not None
    return inputs.batch_size if isinstance(inputs, DataLoader) and not given else batch_size
