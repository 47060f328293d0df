"""`fit`: a whole private training run on arrays, and its non-private twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit import check
from tacit.accounting import Accountant, Ledger
from tacit.clipping import Clip
from tacit.gradients import examine
from tacit.gradients.batch import Inputs, Loss, call, per_example, rows
from tacit.noise import SecureStream, Stream
from tacit.sampling import PoissonSampler, Sampling
from tacit.tradeoff import Target
from tacit.training.dataset import as_inputs, as_targets, check_data
from tacit.training.plan import Plan, PrivateRun, members_of
from tacit.training.schedules import Noise
from tacit.training.settle import sample_rate_of, settle, steps_of
from tacit.training.step import ENGINES, PrivateUpdate, check_mode, check_optimizer

Evaluate = Callable[[nn.Module], dict[str, float]]


@dataclass(frozen=True)
class Fit:
    """What a private run leaves behind besides the trained model.

    Attributes:
        plan: what was planned.
        ledger: what ran.
        history: for every epoch its number, the steps so far, and what `evaluate` measured.
    """

    plan: Plan
    ledger: Ledger
    history: list[dict[str, float]] = field(default_factory=list)


def fit(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    loss: Loss,
    optimizer: Optimizer,
    clip_norm: float | None = None,
    clipping: Clip | None = None,
    sampling: str | Sampling = "poisson",
    noise_multiplier: Noise | None = None,
    target: Target | None = None,
    accountant: Accountant | str = "pld",
    sample_rate: float | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    delta: float | None = None,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
    evaluate: Evaluate | None = None,
    on_plan: Callable[[Plan], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    engine: str = "auto",
    max_physical_batch: int | None = None,
    unsafe_no_noise: bool = False,
) -> Fit:
    """Train `model` in place by DP-SGD (or DP-Adam, by the optimizer given) and record every step in the ledger.

    Every step draws a Poisson sample, clips each record's gradient, adds noise, divides by the expected batch size and
    lets `optimizer` step; see `Plan` for the formula. Nothing that depends on the private data is returned but
    through that noise: `evaluate` must look at public or held-out data.

    Args:
        model: in train mode; no layer may mix examples.
        inputs: array or tensor (n, ...), or a tuple or dict of them for models with several arguments; finite.
        targets: array or tensor (n, ...).
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        optimizer: any `torch.optim` optimizer of the model's trainable parameters.
        clip_norm: bound on the L2 norm of one record's gradient, > 0; or give `clipping`.
        clipping: another way to bound contributions, such as `PerLayerClip(1.0)`; its sensitivity is clip_norm below.
        sampling: how batches are drawn: a name such as "poisson", "fixed_size" or "shuffled", or a `Sampling`.
        noise_multiplier: noise std / clip_norm, one for all steps, a list of one for each, or a `NoiseSchedule`; None
            to calibrate it to `target`.
        target: with `noise_multiplier`, a budget: the step that would cross it is not taken. Without, what to meet.
        accountant: the accountant that measures `target`.
        sample_rate, batch_size: probability of each record in a batch, or the expected size of a batch.
        epochs, steps: number of steps, round(epochs / sample_rate) in the first case.
        delta: warned about when >= 1/n (read off an `Epsilon` target).
        ledger: continued if given; a new one otherwise.
        stream: source of sampling and noise; a new `SecureStream` by default.
        evaluate: called in evaluation mode without gradients after every epoch; its numbers go to the history.
        on_plan: called with the settled plan before the first step, e.g. to write down what is about to be spent.
        on_step, on_epoch: progress, called with (steps taken, steps planned) and with the newest history row.
        engine, max_physical_batch: as in `private_step`.
        unsafe_no_noise: allows noise_multiplier 0; written in the ledger.

    Raises:
        InvalidInput, UnsupportedModel, TrainingMisuse: before any step, when an argument breaks its rule.
        BudgetExceeded: before the step that would cross `target`; the ledger records what ran.

    Source: Abadi et al. 2016, Algorithm 1; Bu et al. 2020, Algorithms NoisySGD and NoisyAdam.
    """
    check.choice("engine", engine, ENGINES)
    x, y, records = _ready(model, inputs, targets, loss, optimizer)
    book = ledger if ledger is not None else Ledger()
    plan = settle(
        records,
        clip_norm=clip_norm,
        clipping=clipping,
        sampling=sampling,
        noise_multiplier=noise_multiplier,
        target=target,
        accountant=accountant,
        sample_rate=sample_rate,
        batch_size=batch_size,
        steps=steps,
        epochs=epochs,
        delta=delta,
        ledger=book,
        unsafe_no_noise=unsafe_no_noise,
    )
    if on_plan is not None:
        on_plan(plan)
    run = PrivateRun(plan, stream=stream, ledger=book, budget=target, using=accountant)
    private_update = PrivateUpdate(
        model,
        optimizer,
        loss,
        clip=plan.clip,
        expected_batch_size=plan.expected_batch_size,
        engine=engine,
        stream=run.stream,
        max_physical_batch=max_physical_batch,
    )

    def step() -> None:
        batch = run.issue()
        index = torch.from_numpy(batch.indices)
        noise = run.charge(batch)
        private_update(rows(x, index), y[index], noise, members_of(batch))

    history: list[dict[str, float]] = []
    result = Fit(plan, book, history)
    _loop(model, step, plan.sample_rate, plan.steps, history, evaluate, on_step, on_epoch)
    return result


def fit_nonprivate(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    loss: Loss,
    optimizer: Optimizer,
    sample_rate: float | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    stream: Stream | None = None,
    evaluate: Evaluate | None = None,
    on_step: Callable[[int, int], None] | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
) -> list[dict[str, float]]:
    """The same loop WITHOUT clipping, noise or any privacy: the baseline that `fit` is compared with.

    Arguments as in `fit`; returns the history.
    """
    x, y, records = _ready(model, inputs, targets, loss, optimizer)
    rate = sample_rate_of(records, sample_rate, batch_size)
    sampler = PoissonSampler(records, rate, stream if stream is not None else SecureStream())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def step() -> None:
        batch = sampler.issue()
        sampler.redeem(batch)
        index = torch.from_numpy(batch.indices)
        losses = per_example(loss(call(model, rows(x, index)), y[index]), len(batch))
        gradients = torch.autograd.grad(losses.sum() / sampler.expected_size, trained, allow_unused=True)
        for parameter, gradient in zip(trained, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    history: list[dict[str, float]] = []
    _loop(model, step, rate, steps_of(rate, steps, epochs), history, evaluate, on_step, on_epoch)
    return history


def _ready(model: nn.Module, inputs: Any, targets: Any, loss: Loss, optimizer: Optimizer) -> tuple[Inputs, Tensor, int]:
    examine(model)
    check_mode(model)
    check_optimizer(model, optimizer)
    x, y = as_inputs(inputs), as_targets(targets)
    return x, y, check_data(model, loss, x, y)


def _loop(
    model: nn.Module,
    step: Callable[[], None],
    sample_rate: float,
    steps: int,
    history: list[dict[str, float]],
    evaluate: Evaluate | None,
    on_step: Callable[[int, int], None] | None,
    on_epoch: Callable[[dict[str, float]], None] | None,
) -> None:
    per_epoch = max(1, round(1 / sample_rate))
    for taken in range(1, steps + 1):
        step()
        if on_step is not None:
            on_step(taken, steps)
        if taken % per_epoch == 0 or taken == steps:
            row = {"epoch": round(taken * sample_rate, 6), "steps": float(taken)}
            history.append(row | (_evaluated(model, evaluate) if evaluate is not None else {}))
            if on_epoch is not None:
                on_epoch(history[-1])


def _evaluated(model: nn.Module, evaluate: Evaluate) -> dict[str, float]:
    model.eval()
    try:
        with torch.no_grad():
            return evaluate(model)
    finally:
        model.train()
