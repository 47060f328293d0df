"""Checks of `fit` and `fit_nonprivate` before the first step: model, data, optimizer, callbacks and schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.gradients import examine
from tacit.gradients.inputs import Loss
from tacit.training.callbacks import Callback
from tacit.training.data import Records, check_data
from tacit.training.private_step import check_mode, check_optimizer, computed_in

SCHEDULER_PERIODS = ("epoch", "step")


def validate_inputs(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    loss: Loss,
    optimizer: Optimizer,
    precision: str,
    device: str | torch.device | None,
    public: Iterable[object] = (),
) -> tuple[Records, int]:
    """The records as tensors and their number, after the checks of `fit`.

    Args:
        model: in train mode; no layer may mix examples.
        inputs: array, tensor, tuple or dict of them, or a `torch.utils.data` data set or loader.
        targets: array or tensor; None for a data set.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        optimizer: of exactly the trainable parameters of `model`.
        precision: "float32" or "bfloat16".
        device: that of the model, to have each batch moved there; None when the data lie there.
        public: what the data set reads and was declared public.

    Raises:
        InvalidInput: data, loss, optimizer, precision or device break their rule.
        UnsupportedModel: a layer cannot be trained privately.
        TrainingMisuse: `model` is in eval mode, or `optimizer` is not one of all its trainable parameters.
    """
    examine(model)
    check_mode(model)
    check_optimizer(model, optimizer)
    records = Records.of(model, inputs, targets, device, public)
    with computed_in(model, precision):
        return records, check_data(model, loss, records)


def check_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    """`callbacks`, if each is one."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise check.fail("callbacks", "made of tacit.training.Callback objects", type(callback).__name__)
    return list(callbacks)


def check_scheduler(optimizer: Optimizer, scheduler: object, scheduler_per: str) -> LRScheduler | None:
    """`scheduler`, if it is a schedule of `optimizer` that needs no metric."""
    check.choice("scheduler_per", scheduler_per, SCHEDULER_PERIODS)
    if scheduler is None:
        return None
    if isinstance(scheduler, ReduceLROnPlateau) or not isinstance(scheduler, LRScheduler):
        hint = "Step one that looks at a held-out metric in on_epoch."
        raise check.fail("scheduler", "a torch.optim schedule of the step counter", type(scheduler).__name__, hint)
    if scheduler.optimizer is not optimizer:
        raise TrainingMisuse("scheduler must be one of this optimizer; got one of another. Build it from optimizer.")
    return scheduler


def batch_size_of(inputs: Any, batch_size: float | None, sample_rate: float | None) -> float | None:
    """The batch size that is given, or that of a loader when neither size nor rate is."""
    given = batch_size is not None or sample_rate is not None
    return inputs.batch_size if isinstance(inputs, DataLoader) and not given else batch_size
