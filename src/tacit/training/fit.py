"""`fit`: a whole private training run on data in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit import accounting, check
from tacit.accounting import Accountant, Ledger
from tacit.clipping import Clip
from tacit.errors import Refused
from tacit.gradients.inputs import Loss
from tacit.noise import Stream
from tacit.sampling import Sampling
from tacit.tradeoff import Epsilon, Target
from tacit.training.callbacks import Callback, Functions, Row
from tacit.training.collation import assumptions_of, collation_of
from tacit.training.loop import Evaluate, Loop, check_watchers
from tacit.training.plan import Plan, PrivateRun, members_of
from tacit.training.private_step import ENGINES, PrivateUpdate, computed_in
from tacit.training.resolve_plan import resolve_plan
from tacit.training.resume import Keeper, mark_of, opened
from tacit.training.run_fingerprint import check_same, run_fingerprint
from tacit.training.schedules import Noise
from tacit.training.validate_inputs import batch_size_of, validate_inputs, watchers_of


@dataclass(frozen=True)
class Fit:
    """What a private run leaves behind besides the trained model.

    Attributes:
        plan: what was planned.
        ledger: what ran.
        history: for every epoch its number, the steps so far, the learning rate, what `evaluate` measured and, where
            a delta is known, `epsilon`: what the ledger costs so far by the run's accountant, with its standing.
        stopped: why the run ended before its last planned step; empty when it did not.
    """

    plan: Plan
    ledger: Ledger
    history: list[Row] = field(default_factory=list)
    stopped: str = ""


def fit(
    model: nn.Module,
    inputs: Any,
    targets: Any = None,
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
    scheduler: LRScheduler | None = None,
    scheduler_per: str = "epoch",
    callbacks: Sequence[Callback] = (),
    on_plan: Callable[[Plan], object] | None = None,
    on_step: Callable[[int, int], object] | None = None,
    on_epoch: Callable[[Row], object] | None = None,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    stop_at_budget: bool = False,
    engine: str = "auto",
    max_physical_batch_size: int | None = None,
    precision: str = "float32",
    device: str | torch.device | None = None,
    unsafe_no_noise: bool = False,
) -> Fit:
    """Train `model` in place by DP-SGD (or DP-Adam, by the optimizer given) and record every step in the ledger.

    Every step draws a Poisson sample, clips each record's gradient, adds noise, divides by the expected batch size and
    lets `optimizer` step; see `Plan` for the formula. Nothing that depends on the private data is returned but
    through that noise: `evaluate` must look at public or held-out data.

    Args:
        model: in train mode; no layer may mix examples.
        inputs: array, data frame or tensor (n, ...), or a tuple or dict of them for models with several arguments;
            finite. Or a `torch.utils.data` data set or loader, read into memory once.
        targets: array or tensor (n, ...); left out for a data set.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        optimizer: any `torch.optim` optimizer of the model's trainable parameters.
        clip_norm: bound on the L2 norm of one record's gradient, > 0; or give `clipping`.
        clipping: another way to bound contributions, such as `PerLayerClip(1.0)`; its sensitivity is clip_norm below.
        sampling: how batches are drawn: a name such as "poisson", "fixed_size" or "shuffled", or a `Sampling`.
        noise_multiplier: noise std / clip_norm, one for all steps, a list of one for each, or a `NoiseSchedule`; None
            to calibrate it to `target`.
        target: with `noise_multiplier`, a budget: the step that would cross it is not taken. Without, what to meet.
        accountant: the accountant that measures `target`, and the epsilon in the history.
        sample_rate, batch_size: probability of each record in a batch, or the expected size of a batch (that of the
            loader by default, where one is given).
        epochs, steps: number of steps, round(epochs / sample_rate) in the first case.
        delta: warned about when >= 1/n (read off an `Epsilon` target).
        ledger: continued if given; a new one otherwise.
        stream: source of sampling and noise; a new `SecureStream` by default.
        evaluate: called in evaluation mode without gradients after every epoch; its numbers go to the history.
        scheduler: learning-rate schedule of `optimizer`, stepped once per "epoch" or "step", as `scheduler_per` says.
        callbacks: see `Callback`; `EarlyStopping` and `TensorBoard` are some.
        on_plan: called with the settled plan before the first step, e.g. to write down what is about to be spent.
        on_step, on_epoch: called with (steps taken, steps planned), and with the newest history row.
        progress: show a progress bar.
        checkpoint: file that keeps everything the run needs to go on; see `read_checkpoint`.
        checkpoint_every: steps between checkpoints; an epoch by default.
        resume: go on from `checkpoint` if it is there. Steps that an earlier process may have taken after it are in
            the ledger as lost, so that nothing is understated. A secure stream draws from a new key.
        stop_at_budget: end in order when the next step would cross `target`, instead of raising.
        engine, max_physical_batch_size: as in `private_step`.
        precision: "float32", or "bfloat16" for the forward and backward pass only.
        device: that of the model, to have each batch moved there; by default data must lie there already.
        unsafe_no_noise: allows noise_multiplier 0; written in the ledger.

    Raises:
        InvalidInput, UnsupportedModel, TrainingMisuse: before any step, when an argument breaks its rule, a checkpoint
            of another run or an unreadable one among them.
        BudgetExceeded: before the step that would cross `target`; the ledger records what ran.
        KeyboardInterrupt: after the step in progress, and a last checkpoint.

    Source: Abadi et al. 2016, Algorithm 1; Bu et al. 2020, Algorithms NoisySGD and NoisyAdam.
    """
    check.choice("engine", engine, ENGINES)
    records, count = validate_inputs(model, inputs, targets, loss, optimizer, precision, device)
    watchers = watchers_of(callbacks, Functions(on_plan, on_step, on_epoch), progress)
    schedule = check_watchers(optimizer, scheduler, scheduler_per, watchers)
    mark, saved = mark_of(checkpoint), opened(checkpoint, resume)
    book = ledger if ledger is not None else Ledger()
    before = saved.before if saved is not None else book.copy()
    plan = resolve_plan(
        count,
        clip_norm=clip_norm,
        clipping=clipping,
        sampling=sampling,
        noise_multiplier=noise_multiplier,
        target=target,
        accountant=accountant,
        sample_rate=sample_rate,
        batch_size=batch_size_of(inputs, batch_size, sample_rate),
        steps=steps,
        epochs=epochs,
        delta=delta,
        ledger=before,
        unsafe_no_noise=unsafe_no_noise,
    )
    setting = run_fingerprint(plan, model, optimizer, schedule, watchers)
    if saved is not None:
        check_same(saved, setting)
    run = PrivateRun(plan, stream=stream, ledger=book, budget=target, accountant=accountant)
    for sentence in assumptions_of(collation_of(inputs)):
        book.assume(sentence)
    private_update = PrivateUpdate(
        model,
        optimizer,
        loss,
        clip=plan.clip,
        expected_batch_size=plan.expected_batch_size,
        engine=engine,
        stream=run.stream,
        max_physical_batch_size=max_physical_batch_size,
    )

    def step() -> None:
        batch = run.issue()
        noise = run.charge(batch)
        x, y = records.batch(batch)
        # The audit compares with float64: in full precision, where rounding hides nothing.
        private_update.audit_once(x, y)
        with computed_in(model, precision):
            private_update(x, y, noise, members_of(batch))

    loop = Loop(model, optimizer, step, plan.sample_rate, plan.steps, evaluate, schedule, scheduler_per, watchers)
    loop.stop_at_budget = stop_at_budget
    loop.spent = Spent(book, accountant, target.delta if isinstance(target, Epsilon) else delta)
    if checkpoint is not None:
        epoch = max(1, round(1 / plan.sample_rate))
        every = epoch if checkpoint_every is None else check.count("checkpoint_every", checkpoint_every)
        keeper = Keeper(checkpoint, every, mark, before, setting, run, private_update, loop)
        if saved is not None:
            keeper.restore(saved)
        loop.save = keeper.save
    for watcher in watchers:
        watcher.on_plan(run.plan)
    loop.run()
    return Fit(run.plan, book, loop.history, loop.stopped)


class Spent:
    """What `ledger` costs by `accountant` at `delta`, as a number of a history row; none without a delta.

    A row need not be exact where the noise changes from step to step: there it is a little more than the account says.
    """

    def __init__(self, ledger: Ledger, accountant: Accountant | str, delta: float | None):
        self._ledger, self._delta = ledger, delta
        self._judge = accounting.accountant(accountant).rough()

    def __call__(self) -> Row:
        if self._delta is None:
            return {}
        try:
            return {"epsilon": self._judge(self._ledger).epsilon(self._delta)}
        except Refused:
            return {}
