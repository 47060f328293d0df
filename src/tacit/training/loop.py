"""The training loop of `fit`: steps, epochs, callbacks and interruption; and `fit_nonprivate`, without privacy."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit.errors import BudgetExceeded
from tacit.gradients.inputs import Loss, call, check_losses, weights_written
from tacit.noise import SecureStream, Stream
from tacit.sampling import PoissonSampler
from tacit.training.callbacks import Callback, Row
from tacit.training.data import batch_size_of, check_callbacks, check_scheduler, validate_inputs
from tacit.training.plan import resolve_sample_rate, resolve_steps
from tacit.training.private_step import check_mode, computed_in
from tacit.training.ranks import Ranks

Evaluate = Callable[[nn.Module], dict[str, float]]


@dataclass
class Loop:
    """Training loop: takes steps until all are taken, a callback ends the run, or the privacy budget does.

    Attributes:
        model: in train mode before every step.
        optimizer: its learning rate goes to the history.
        step: takes one step; raises `BudgetExceeded` instead of taking one that must not be.
        sample_rate: epoch k ends with step round(k / sample_rate).
        evaluate: measures the model in evaluation mode, without gradients, after every epoch.
        steps: number of planned steps.
        scheduler: learning-rate schedule.
        scheduler_per: how often `scheduler` steps, once per "epoch" or "step".
        callbacks: called in order.
        spent: privacy spent so far, as further numbers for every row of the history.
        stop_at_budget: whether running out of budget ends the run in order instead of raising.
        save: called with `finished` whenever the state is complete: before the first step and after every step.
        watching: context in which callbacks run.
        ranks: the processes that take the steps together; None where this one does alone. Rank 0 measures.
        taken: number of steps taken.
        history: one row for every epoch.
        stopped: why the run ended early; empty when it did not.
        stopped_by: the callback that ended it; None where none did.
    """

    model: nn.Module
    optimizer: Optimizer
    step: Callable[[], None]
    sample_rate: float
    steps: int
    evaluate: Evaluate | None
    scheduler: LRScheduler | None
    scheduler_per: str
    callbacks: Sequence[Callback]
    spent: Callable[[], Row] = dict
    stop_at_budget: bool = False
    save: Callable[[bool], None] = lambda finished: None
    watching: Callable[[], AbstractContextManager[object]] = nullcontext
    ranks: Ranks | None = None
    taken: int = 0
    history: list[Row] = field(default_factory=list)
    stopped: str = ""
    stopped_by: Callback | None = None

    def run(self) -> None:
        """Run to the end; Ctrl-C ends it after the step in progress."""
        try:
            if not self.finished:
                self.save(False)
            with Interrupt() as interrupt:
                while not self.finished:
                    self._advance()
                    if self.ranks is not None:  # All of them stop after the same step.
                        interrupt.requested = any(self.ranks.everyone(interrupt.requested))
                    self.save(self.finished or interrupt.requested)
                    if interrupt.requested:
                        raise KeyboardInterrupt
        finally:
            with self.watching():
                for callback in self.callbacks:
                    callback.on_end()

    @property
    def finished(self) -> bool:
        """Whether no step is left to take."""
        return bool(self.stopped) or self.taken >= self.steps

    def _advance(self) -> None:
        check_mode(self.model)
        try:
            self.step()
        except BudgetExceeded as error:
            if not self.stop_at_budget:
                self.save(True)
                raise
            self.stopped = str(error)
            if self.taken and not self._epoch_ended:
                self._end_epoch()
            return
        self.taken += 1
        if self.callbacks:
            with weights_written(self.model), self.watching():
                for callback in self.callbacks:
                    callback.on_step(self.taken, self.steps)
        if self._epoch_ended or self.taken == self.steps:
            self._end_epoch()
        if self.scheduler is not None and (self._epoch_ended or self.scheduler_per == "step"):
            self.scheduler.step()

    @property
    def _epoch_ended(self) -> bool:
        """Whether the last step was the last of an epoch."""
        epochs = round(self.taken * self.sample_rate)
        return epochs > 0 and round(epochs / self.sample_rate) == self.taken

    def _end_epoch(self) -> None:
        self.history.append(self._measured() if self.ranks is None else self.ranks.decided(self._measured, _as_numbers))
        with weights_written(self.model), self.watching():
            reasons = [(callback.on_epoch(self.history[-1]), callback) for callback in self.callbacks]
        ended = [(reason, callback) for reason, callback in reasons if reason]
        if ended and not self.stopped:
            self.stopped, self.stopped_by = ended[0]

    def _measured(self) -> Row:
        row = {"epoch": round(self.taken * self.sample_rate, 6), "steps": float(self.taken)}
        row |= {"learning_rate": float(self.optimizer.param_groups[0]["lr"])} | self.spent()
        if self.evaluate is None:
            return row
        self.model.eval()
        try:
            with torch.no_grad():
                return row | self.evaluate(self.model)
        finally:
            self.model.train()


def _as_numbers(row: Row) -> Row:
    """A row of the history without the standings of its answers."""
    return {name: float(value) for name, value in row.items()}


class Interrupt:
    """Context in which Ctrl-C waits for the end of the step in progress; a second Ctrl-C interrupts at once.

    Python delivers signals to the main thread only; in any other thread nothing changes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self.__exit__()


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
    records, count = validate_inputs(model, inputs, targets, loss, optimizer, precision, device, private=False)
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
