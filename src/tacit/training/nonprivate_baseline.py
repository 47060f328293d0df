"""`fit_nonprivate`: the loop of `fit` without privacy, to compare with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit.gradients.inputs import Loss, call, check_losses
from tacit.noise import SecureStream, Stream
from tacit.sampling import PoissonSampler
from tacit.training.callbacks import Callback, Functions, Row
from tacit.training.loop import Evaluate, Loop, check_watchers
from tacit.training.private_step import computed_in
from tacit.training.resolve_plan import sample_rate_of, steps_of
from tacit.training.validate_inputs import batch_size_of, validate_inputs, watchers_of


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
    on_step: Callable[[int, int], object] | None = None,
    on_epoch: Callable[[Row], object] | None = None,
    progress: bool = False,
    precision: str = "float32",
    device: str | torch.device | None = None,
) -> list[Row]:
    """The same loop WITHOUT clipping, noise or any privacy: the baseline that `fit` is compared with.

    Arguments as in `fit`; returns the history.
    """
    records, count = validate_inputs(model, inputs, targets, loss, optimizer, precision, device)
    watchers = watchers_of(callbacks, Functions(None, on_step, on_epoch), progress)
    schedule = check_watchers(optimizer, scheduler, scheduler_per, watchers)
    rate = sample_rate_of(count, sample_rate, batch_size_of(inputs, batch_size, sample_rate))
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

    planned = steps_of(rate, steps, epochs)
    loop = Loop(model, optimizer, step, rate, planned, evaluate, schedule, scheduler_per, watchers)
    loop.run()
    return loop.history
