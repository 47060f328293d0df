"""The loop that `fit` and its non-private twin share: steps, epochs, schedules, callbacks and clean interruption."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from tacit import check
from tacit.errors import BudgetExceeded, TrainingMisuse
from tacit.training.callbacks import Callback, Row
from tacit.training.private_step import check_mode

Evaluate = Callable[[nn.Module], dict[str, float]]
PACES = ("epoch", "step")


@dataclass
class Loop:
    """Take `step` until all are taken, a callback ends the run, or the budget does.

    Attributes:
        step: takes one step; raises `BudgetExceeded` instead of taking one that must not be.
        sample_rate: epoch k ends with step round(k / sample_rate).
        evaluate: measures the model in evaluation mode, without gradients, after every epoch.
        scheduler, scheduler_per: learning-rate schedule and what it counts, "epoch" or "step".
        spent: further numbers for every row of the history.
        stop_at_budget: whether running out of budget ends the run in order instead of raising.
        save: called with (whether the run is over) whenever the state is whole: before the first step and after each.
        taken, history, stopped: how far the run is, a row for every epoch, and why it ended early.
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
    save: Callable[[bool], None] = lambda over: None
    taken: int = 0
    history: list[Row] = field(default_factory=list)
    stopped: str = ""

    def run(self) -> None:
        """Run to the end; Ctrl-C ends it after the step in progress."""
        try:
            if not self.over:
                self.save(False)
            with Interrupt() as interrupt:
                while not self.over:
                    self._advance()
                    self.save(self.over or interrupt.asked)
                    interrupt.obey()
        finally:
            for callback in self.callbacks:
                callback.on_end()

    @property
    def over(self) -> bool:
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
            if self.taken and not self._whole:
                self._end_epoch()
            return
        self.taken += 1
        for callback in self.callbacks:
            callback.on_step(self.taken, self.steps)
        if self._whole or self.taken == self.steps:
            self._end_epoch()
        if self.scheduler is not None and (self._whole or self.scheduler_per == "step"):
            self.scheduler.step()

    @property
    def _whole(self) -> bool:
        """Whether the last step was the last of an epoch."""
        epochs = round(self.taken * self.sample_rate)
        return epochs > 0 and round(epochs / self.sample_rate) == self.taken

    def _end_epoch(self) -> None:
        row = {"epoch": round(self.taken * self.sample_rate, 6), "steps": float(self.taken)}
        row |= {"learning_rate": float(self.optimizer.param_groups[0]["lr"])} | self.spent()
        self.history.append(row | (_evaluated(self.model, self.evaluate) if self.evaluate is not None else {}))
        reasons = [callback.on_epoch(self.history[-1]) for callback in self.callbacks]
        self.stopped = self.stopped or next((reason for reason in reasons if reason), "")


class Interrupt:
    """Inside, Ctrl-C is only noted, so that no step is cut in half; a second one is not waited for.

    Signals reach the main thread only; in any other nothing changes.
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back()

    def obey(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self.asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._put_back()

    def _put_back(self) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None


def check_watchers(
    optimizer: Optimizer, scheduler: object, scheduler_per: str, callbacks: Sequence[object]
) -> LRScheduler | None:
    """The scheduler, after checking that it and the callbacks fit the run."""
    check.choice("scheduler_per", scheduler_per, PACES)
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise check.fail("callbacks", "made of tacit.training.Callback objects", type(callback).__name__)
    if scheduler is None:
        return None
    if isinstance(scheduler, ReduceLROnPlateau) or not isinstance(scheduler, LRScheduler):
        hint = "Step one that looks at a held-out metric in on_epoch."
        raise check.fail("scheduler", "a torch.optim schedule of the step counter", type(scheduler).__name__, hint)
    if scheduler.optimizer is not optimizer:
        raise TrainingMisuse("scheduler must be one of this optimizer; got one of another. Build it from optimizer.")
    return scheduler


def _evaluated(model: nn.Module, evaluate: Evaluate) -> dict[str, float]:
    model.eval()
    try:
        with torch.no_grad():
            return evaluate(model)
    finally:
        model.train()
