"""`fit_nonprivate`: the same training as `fit` without privacy, as the baseline to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit.gradients.inputs import Loss, call, check_losses
from tacit.noise import SecureStream, Stream
from tacit.sampling import PoissonSampler
from tacit.training.callbacks import Callback, Row
from tacit.training.loop import Evaluate, Loop
from tacit.training.private_step import computed_in
from tacit.training.resolve_plan import resolve_sample_rate, resolve_steps
from tacit.training.validate_inputs import batch_size_of, check_callbacks, check_scheduler, validate_inputs


def fit_nonprivate(
    model: nn.Module,
    inputs: Any,
    targets: Any = None,
    *,
    loss: Loss,
    optimizer: Optimizer,
    sample_rate: float | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    stream: Stream | None = None,
    evaluate: Evaluate | None = None,
    scheduler: LRScheduler | None = None,
    scheduler_per: str = "epoch",
    callbacks: Sequence[Callback] = (),
    precision: str = "float32",
    device: str | torch.device | None = None,
) -> list[Row]:
    """Train `model` in place WITHOUT clipping, noise or any privacy: the baseline that `fit` is compared with.

    Args:
        model: in train mode.
        inputs: as in `fit`.
        targets: array or tensor (n, ...); left out for a data set.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        optimizer: any `torch.optim` optimizer of the model's trainable parameters.
        sample_rate: probability of each record in a batch, in (0, 1]; or give `batch_size`.
        batch_size: expected number of records in a batch, in (0, n].
        epochs: expected passes over the data, > 0; or give `steps`.
        steps: number of steps, >= 1.
        stream: source of the Poisson samples; a new `SecureStream` by default.
        evaluate: called in evaluation mode without gradients after every epoch; its numbers go to the history.
        scheduler: learning-rate schedule of `optimizer`.
        scheduler_per: how often `scheduler` steps, once per "epoch" or "step".
        callbacks: see `Callback`.
        precision: "float32" or "bfloat16".
        device: that of the model, to have each batch moved there.

    Returns:
        The history, one row for every epoch.

    Raises:
        InvalidInput: an argument breaks its rule.
        TrainingMisuse: the model is in eval mode, or the optimizer or scheduler belongs to another model.

    Example:
        >>> import torch
        >>> from torch.nn.functional import cross_entropy
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(100, 3)
        >>> history = fit_nonprivate(
        ...     model, x, (x[:, 0] > 0).long(), loss=lambda out, y: cross_entropy(out, y, reduction="none"),
        ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.5), batch_size=20, epochs=1)
        >>> history[-1]["steps"]
        5.0
    """
    records, count = validate_inputs(model, inputs, targets, loss, optimizer, precision, device)
    callbacks = check_callbacks(callbacks)
    schedule = check_scheduler(optimizer, scheduler, scheduler_per)
    rate = resolve_sample_rate(count, sample_rate, batch_size_of(inputs, batch_size, sample_rate))
    sampler = PoissonSampler(count, rate, stream if stream is not None else SecureStream())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def step() -> None:
        batch = sampler.issue()
        sampler.redeem(batch)
        x, y = records.batch(batch)
        with computed_in(model, precision):
            outputs = call(model, x)
        losses = check_losses(loss(outputs, y), len(batch))
        gradients = torch.autograd.grad(losses.sum() / sampler.expected_size, trained, allow_unused=True)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    planned = resolve_steps(rate, steps, epochs)
    loop = Loop(model, optimizer, step, rate, planned, evaluate, schedule, scheduler_per, callbacks)
    loop.run()
    return loop.history
