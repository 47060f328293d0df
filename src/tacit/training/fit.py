"""`fit`: a whole private training run on data in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit import accounting, check
from tacit.accounting import Accountant, Ledger
from tacit.errors import Refused
from tacit.gradients.inputs import Loss
from tacit.noise import Stream
from tacit.standing import Standing
from tacit.training.callbacks import Callback, Row
from tacit.training.data import batch_size_of, check_callbacks, check_scheduler, validate_inputs
from tacit.training.execution_record import ExecutionRecord, check_same_run, plan_in_words, run_fingerprint
from tacit.training.fit_facts import FitChecks
from tacit.training.holdout import PrivateHoldout
from tacit.training.loop import Evaluate, Loop
from tacit.training.plan import Plan, resolve_plan
from tacit.training.plan_options import PlanFields, PlanOptions, options_of
from tacit.training.private_run import PrivateRun, unit_ids_of
from tacit.training.private_step import PrivateUpdate, computed_in, mean_of_copies
from tacit.training.ranks import Ranks, check_processes, note_processes, start_run
from tacit.training.records import with_units
from tacit.training.resume import CheckpointWriter, file_identity, open_checkpoint


@dataclass(frozen=True)
class Fit:
    """Result of `fit` besides the trained model.

    Attributes:
        plan: the plan of the run.
        ledger: the steps that ran.
        history: for every epoch its number, the steps so far, the learning rate, what `evaluate` measured and, where
            a delta is known, `epsilon`: what the ledger costs so far by the run's accountant, with its standing.
        stopped: why the run ended before its last planned step; empty when it did not.
        taken: steps taken. Where a callback ended the run, the ledger holds the whole plan: what was released decided
            when to stop, so the steps taken alone are no guarantee.
        execution: by what the run was computed.

    Example:
        >>> from tacit.training import Plan
        >>> from tacit.accounting import Ledger
        >>> result = Fit(Plan(100, 0.1, 1.0, 1.0, steps=5), Ledger())
        >>> result.stopped, result.history
        ('', [])
    """

    plan: Plan
    ledger: Ledger
    history: list[Row] = field(default_factory=list)
    stopped: str = ""
    taken: int = 0
    execution: ExecutionRecord | None = None


def fit(
    model: nn.Module,
    inputs: Any,
    targets: Any = None,
    *,
    loss: Loss,
    optimizer: Optimizer,
    options: PlanOptions | None = None,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
    evaluate: Evaluate | None = None,
    holdout: PrivateHoldout | None = None,
    scheduler: LRScheduler | None = None,
    scheduler_per: str = "epoch",
    callbacks: Sequence[Callback] = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    stop_at_budget: bool = False,
    device: str | torch.device | None = None,
    public: Mapping[str, object] | None = None,
    distributed: bool = False,
    **named: Unpack[PlanFields],
) -> Fit:
    """Train `model` in place by DP-SGD (or DP-Adam, by the optimizer given) and record every step in the ledger.

    Every step draws a Poisson sample, clips each record's gradient, adds noise, divides by the expected batch size and
    lets `optimizer` step; see `Plan` for the formula. Every returned value depends on the private data only through
    that noise, provided that `evaluate` measures on public or held-out data.

    Args:
        model: in train mode; no layer may mix examples.
        inputs: array, data frame or tensor (n, ...), or a tuple or dict of them for models with several arguments;
            finite. Or a `torch.utils.data` data set or loader, read into memory once.
        targets: array or tensor (n, ...); left out for a data set.
        loss: `loss(outputs, targets)` gives one value per example, shape (batch,).
        optimizer: any `torch.optim` optimizer of the model's trainable parameters.
        options: clip, noise, batches, length, target and engine of the run; or its fields as keywords.
        ledger: continued if given; a new one otherwise.
        stream: source of sampling and noise; a new `SecureStream` by default.
        evaluate: called in evaluation mode without gradients after every epoch; its numbers go to the history.
        holdout: private records that no step trains on, to end the run or to choose its weights by; the ledger holds
            the plan and what is told of them as parallel branches. Pass the same one to resume.
        scheduler: learning-rate schedule of `optimizer`.
        scheduler_per: how often `scheduler` steps, once per "epoch" or "step".
        callbacks: see `Callback`; `Functions`, `EarlyStopping`, `ProgressBar` and `TensorBoard` are some.
        checkpoint: file that keeps everything the run needs to go on; see `read_checkpoint`.
        checkpoint_every: steps between checkpoints, >= 1; an epoch by default.
        resume: go on from `checkpoint` if it is there. Steps that an earlier process may have taken after it are in
            the ledger as lost, so that nothing is understated. A secure stream draws from a new key.
        stop_at_budget: end in order when the next step would cross `target`, instead of raising.
        engine: "eager", "recorded" or "compiled", as in `private_step`; or "auto", which is recorded where one
            recording stands for all steps and was measured to pay, once in a run without a seed, and eager otherwise.
        max_physical_batch_size: records that go through the model at a time, >= 1; the result does not depend on it.
            "auto" takes as many as half of the free memory holds, see `private_step`.
        precision: "float32", or "bfloat16" for the forward and backward pass only.
        device: that of the model, to have each batch moved there; by default data must lie there already.
        public: name -> tensor, array or module that `loss` reads besides its arguments and that does not follow the
            private records, such as class weights; without it the guarantee is conditional on that.
        distributed: this process is one of the initialised process group, as in `make_private`: each holds all records
            and the whole model, and clips its part of a batch. Rank 0 evaluates and writes the checkpoint. Not with
            `holdout`, and by the eager engine.
        **named: fields of `PlanOptions`, in place of those of `options`.

    Returns:
        The plan, the ledger and the history of the run.

    Raises:
        InvalidInput: before any step, when an argument breaks its rule or a checkpoint is unreadable or of another run.
        UnsupportedModel: before any step, when a layer cannot be trained privately.
        TrainingMisuse: the model is in eval mode, or the optimizer or scheduler belongs to another model.
        BudgetExceeded: before the step that would cross `target`; the ledger records what ran.
        KeyboardInterrupt: after the step in progress, and a last checkpoint. Whatever ends the run early, the ledger
            counts the whole plan.

    Example:
        >>> import torch
        >>> from torch.nn.functional import cross_entropy
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(100, 3)
        >>> result = fit(
        ...     model, x, (x[:, 0] > 0).long(), loss=lambda out, y: cross_entropy(out, y, reduction="none"),
        ...     optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        ...     clip_norm=1.0, noise_multiplier=2.0, batch_size=20, steps=3)
        >>> result.ledger.steps
        3

    Source: Abadi et al. 2016, Algorithm 1; Bu et al. 2020, Algorithms NoisySGD and NoisyAdam.
    """
    options = with_units(options_of(options, named, fit), inputs)
    augment, augmentations = options.augment, options.augmentations
    options = replace(options, augment=None, augmentations=1)
    with mean_of_copies(model, loss, augment, augmentations, options.engine) as loss:
        options = replace(options, batch_size=batch_size_of(inputs, options.batch_size, options.sample_rate))
        ranks = Ranks() if distributed else None
        check_processes(model, 1 if ranks is None else ranks.size)
        if ranks is not None:
            options = _checked_for_ranks(options, holdout)
        records, count = validate_inputs(
            model, inputs, targets, loss, optimizer, options.precision, device, list((public or {}).values())
        )
        callbacks = check_callbacks(callbacks)
        schedule = check_scheduler(optimizer, scheduler, scheduler_per)
        identity, saved = file_identity(checkpoint), open_checkpoint(checkpoint, resume)
        ledger = (ledger if ledger is not None else Ledger()) if ranks is None else ranks.ledger(ledger)
        before = saved.before if saved is not None else ledger.copy()
        plan = resolve_plan(options, count, before)
        fingerprint = run_fingerprint(plan, model, optimizer, schedule, callbacks)
        if augment is not None:
            fingerprint["augmentations"] = str(augmentations)
        if holdout is not None:
            fingerprint["holdout"] = holdout.identity()
            if checkpoint is not None and plan.sampling.type not in ("poisson", "grouped_poisson"):
                raise check.fail("sampling", "poisson for a run with a holdout and a checkpoint", plan.sampling.type)
        if saved is not None:
            check_same_run(saved, plan, fingerprint)
        if ranks is not None:
            ranks.replicate(model)
            ranks.check_same(plan_in_words(plan) | {"checkpoint": "none" if saved is None else f"of step {saved.step}"})
        run = start_run(options, plan, ledger, stream, ranks, goes_on=saved is not None)
        if holdout is not None and saved is None:
            _reserve_holdout(run, holdout)
        parts = model, optimizer, loss, plan.clip, plan.expected_batch_size, options.engine, run.stream
        update = PrivateUpdate(*parts, options.max_physical_batch_size, run.correlation)
        run.cover_rounding(update.clipped.slack)
        update.full_precision = options.precision == "float32"
        checks = FitChecks(update, ledger, (inputs, targets), public, records.doubt, augment)
        note_processes(run)
        evaluate = checks.watched(_with_holdout(evaluate, holdout), callbacks, schedule)

        def step() -> None:
            batch = run.issue()
            x, y = records.batch(batch)
            with computed_in(model, options.precision):
                checks.before_release(run.taken + 1, x, y)
            if ranks is not None:
                with computed_in(model, options.precision):
                    total, norms = update.summed(x, y, unit_ids_of(batch), run.drawn(batch))
                update.apply(run.release(batch, total, norms))
                checks.stepped()
                return
            if run.stream.secure and unit_ids_of(batch) is None:
                # A seeded run repeats itself bit by bit, and must not follow a clock.
                update.choose_engine(x, y, run.left)
            noise = run.charge(batch)
            # The first-batch check compares with float64: in full precision, where rounding hides nothing.
            update.check_first_batch(x, y)
            with computed_in(model, options.precision):
                update(x, y, noise, unit_ids_of(batch), run.monitor)
            run.monitor.taken()
            checks.stepped()

        loop = Loop(model, optimizer, step, plan.sample_rate, plan.steps, evaluate, schedule, scheduler_per, callbacks)
        loop.stop_at_budget = stop_at_budget
        loop.ranks, loop.watching = ranks, checks.watching
        loop.spent = partial(
            _epsilon_so_far, ledger, accounting.accountant(options.accountant).rough(), options.reported_delta
        )
        if checkpoint is not None:
            epoch = max(1, round(1 / plan.sample_rate))
            every = epoch if checkpoint_every is None else check.count("checkpoint_every", checkpoint_every)
            file = checkpoint, run, before, fingerprint, identity
            writer = CheckpointWriter(*file, every=every, update=update, loop=loop, holdout=holdout)
            if saved is not None:
                writer.restore(saved)
                checks.restored()
            loop.save = writer.save if run.writes else loop.save
            if not loop.finished:
                # Before `on_plan` writes anything down: what is written has a checkpoint from which to go on.
                loop.save(False)
        for callback in callbacks:
            callback.on_plan(run.plan)
        try:
            loop.run()
        except BaseException:
            # Whoever interrupts may have seen the history, and what is raised may follow it; a checkpoint goes on.
            run.open_ended = checkpoint is not None
            if checkpoint is None and run.taken:
                run.record_plan()
            raise
        finally:
            checks.after_run()
        if loop.stopped:
            run.record_plan()
            checks.stopped(loop.stopped, loop.stopped_by)
        if holdout is not None:
            holdout.restore_chosen(model)
        size = None if options.max_physical_batch_size == "auto" else options.max_physical_batch_size
        ran: dict[str, Any] = {"engine": update.engine, "precision": options.precision, "max_physical_batch_size": size}
        execution = ExecutionRecord.of(model, **ran, scheduler=schedule, scheduler_per=scheduler_per)
        return Fit(run.plan, ledger, loop.history, loop.stopped, loop.taken, execution)


def _checked_for_ranks(options: PlanOptions, holdout: PrivateHoldout | None) -> PlanOptions:
    """`options` with the engine of several processes; raises `InvalidInput` for what they cannot do."""
    if holdout is not None:
        raise check.fail("holdout", "None with distributed=True", type(holdout).__name__)
    if options.engine not in ("auto", "eager"):
        raise check.fail("engine", "eager with distributed=True", options.engine)
    return replace(options, engine="eager")


def _reserve_holdout(run: PrivateRun, holdout: PrivateHoldout) -> None:
    run.reserve_beside(holdout.mechanism(run.plan, run.ledger.relation), "training, and a private holdout beside it")
    run.ledger.assume(holdout.assumption)
    if not holdout.secure:
        run.ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)


def _with_holdout(evaluate: Evaluate | None, holdout: PrivateHoldout | None) -> Evaluate | None:
    """`evaluate` and the look at the holdout after each epoch."""
    if holdout is None:
        return evaluate
    return lambda model: (evaluate(model) if evaluate is not None else {}) | holdout.look(model)


def _epsilon_so_far(ledger: Ledger, accountant: Accountant, delta: float | None) -> Row:
    """Epsilon of `ledger` at `delta`, as a number of a history row; none without a delta.

    A row need not be exact where the noise changes from step to step: there it may exceed the final account slightly.
    """
    if delta is None:
        return {}
    try:
        return {"epsilon": accountant(ledger).epsilon(delta)}
    except Refused:
        return {}
