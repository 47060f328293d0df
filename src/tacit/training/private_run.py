"""`PrivateRun`: the running plan, which couples sampler, noise and ledger."""

import warnings
from dataclasses import fields, replace
from typing import Any

from torch import Tensor

from tacit import accounting, check
from tacit.accounting import DECLARED_SIZE, PUBLIC_SIZE, Accountant, Fact, How, Ledger, common_facts, exact_steps
from tacit.accounting.adaptivity import CHANGED_NOISE, EARLY, NOT_TAKEN, PAST_PLAN, RESUMED
from tacit.budget.shared_ledger import SharedLedger
from tacit.errors import BudgetExceeded, PrivacyWarning, TrainingMisuse
from tacit.gradients import FlatGradient, UnitIds
from tacit.mechanisms import Compose, Mechanism, Parallel
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.relation import Relation
from tacit.root_finding import bisect_integers
from tacit.sampling import Batch
from tacit.standing import Standing
from tacit.tradeoff import Target, check_target
from tacit.training.plan import Plan, ledger_after
from tacit.training.release import Correlation, NoisyMean, Release
from tacit.training.release_monitor import ReleaseMonitor
from tacit.training.release_statistics import check_draws
from tacit.training.sharded import WholeModel

WHAT_IS_LEFT = "a run spends what earlier runs left of a target (natural filter); reserve slots, or declare the scope"


class PrivateRun:
    """A running plan: one object draws the batches, adds the noise and writes the ledger, so the three cannot disagree.

    Args:
        plan: what runs.
        stream: source of sampling and noise; a `SeededStream` marks the ledger as unsafe.
        ledger: where to record the steps (a new one by default).
        budget: no step is taken after which the whole ledger would miss this target.
        accountant: measures the budget; its name or itself.
        goes_on: whether `restore` follows, with a checkpoint of the run that `ledger` ended with.

    Attributes:
        clip: the clip of the next step.
        taken: steps taken so far.
        open_ended: whether something outside of this run decides when it ends, as a loop around `make_private` does.
        paid_whole: whether the ledger holds the whole plan as one entry, so that lost steps are not taken again.
        loops: how many loops over its batches or passes are going on.
        monitor: measures what is released against the ledger.
        processes, writes: how many train together, and whether this one writes the files of the run.
        whole: what a step computes with where parameters are sharded; None where they are not.

    Raises:
        InvalidInput: `ledger` has another relation or unit than the sampling of `plan`.

    Example:
        >>> from tacit.noise import SeededStream
        >>> run = PrivateRun(Plan(100, 0.1, clip=1.0, noise_multiplier=1.0, steps=5), stream=SeededStream(0))
        >>> run.charge(run.issue()), run.left, run.ledger.steps
        (1.0, 4, 1)
    """

    processes: int = 1
    writes: bool = True
    open_ended: bool = False
    paid_whole: bool = False
    loops: int = 0
    _warned: bool = False
    _rest: int = 0  # Steps not taken that the ledger holds.
    whole: WholeModel | None = None
    _planned_before: int = 0  # Steps that the run before this one planned, where this one goes on with it.

    def __init__(
        self,
        plan: Plan,
        *,
        stream: Stream | None = None,
        ledger: Ledger | None = None,
        budget: Target | None = None,
        accountant: Accountant | str = "pld",
        goes_on: bool = False,
    ):
        self.plan = plan
        self.clip = plan.clip
        self.ledger = ledger if ledger is not None else Ledger(unit=plan.sampling.unit)
        _check_ledger(plan, self.ledger)
        self.ledger.check_grouping(plan.sampling.grouping)
        for sentence in (PUBLIC_SIZE if plan.tells_records else DECLARED_SIZE, *plan.sampling.assumptions):
            self.ledger.assume(sentence)
        if plan.tells_records:
            self.ledger.leave_places()
        self.stream = stream if stream is not None else SecureStream()
        drawn = Fact("batches", How.ENFORCED, says="the private sampler draws each batch, and it is stepped on once")
        known = common_facts(unit=plan.sampling.unit, secure=self.stream.secure)
        length = Fact("steps", How.ENFORCED, says="as many as were planned, or all of them are charged")
        self.ledger.begin(drawn, length, *known, goes_on=goes_on)
        self._number = self.ledger.facts.runs
        self.ledger.facts.watch("steps", self._exceeds)
        self.ledger.facts.watch("steps", self._rest_in_words, How.ENFORCED)
        self.ledger.follow(self)
        self.sampler = plan.sampling.sampler(plan.records, plan.sample_rate, self.stream)
        self.correlation = None if plan.correlation is None else Correlation(plan.correlation)
        self._noisy_mean = NoisyMean(self.stream, correlation=self.correlation)
        self.monitor = ReleaseMonitor(
            self.ledger, plan.records, self.stream, uniform=plan.sampling.uniform, strategy=plan.correlation
        )
        self.taken = self._pass_start = 0
        self._ahead = 0  # Steps to come that are in the ledger already.
        self._owing = 0  # Steps to come that the ledger owes: an earlier run planned them.
        self._earlier = 0  # Steps of this plan that an earlier run took.
        self._limit = None if budget is None else (check_target(budget), accounting.accountant(accountant))
        if budget is not None and self.ledger.entries:
            self.ledger.chosen_after_outputs(WHAT_IS_LEFT)
        self._resolve_budget()
        if not self.stream.secure:
            self.ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        else:
            check_draws(plan.sampling, plan.records, plan.sample_rate)
        if plan.unsafe_no_noise:
            self.ledger.mark_unsafe("unsafe_no_noise")
        self._reserved = False

    @property
    def left(self) -> int:
        """How many of the planned steps may still be taken."""
        allowed = self.plan.steps if self._affordable is None else min(self.plan.steps, self._affordable)
        return allowed - self.taken

    def drawn(self, batch: Batch) -> int:
        """Number of records of the logical batch that `batch` is, or is this process's share of."""
        return len(batch)

    def stepped_on(self, trainable: dict[str, Any]) -> dict[str, Any]:
        """The tensors that the optimizer holds for the parameters `trainable`: those themselves, or their shards."""
        return trainable

    def cover_rounding(self, slack: float) -> None:
        """Record that the noise covers the rounding of the sums to come, `slack` times the sensitivity."""
        fact = exact_steps(slack if self.correlation is None else self.correlation.slack(slack))
        self.ledger.facts.note(fact.id, fact.how, fact.says)

    def reserve_beside(self, other: Mechanism, note: str) -> None:
        """Record the whole plan in parallel with `other`: all that records pay which no step trains on.

        Call it before the first step. The plan is spent from then on, wherever the run ends.

        Raises:
            BudgetExceeded: both together do not meet the target, or a cap of the data set would be crossed.
        """
        # Another run divides the records in another way: a record may meet the worst branch of each.
        divisions = sum(isinstance(entry.mechanism, Parallel) for entry in self.ledger.entries)
        branches = replace(Parallel.of(Compose.of(*self.plan.runs), other), split=divisions)
        ahead = self.ledger.resumable()
        ahead.add(branches, note=note)
        if not self._is_met(ahead):
            raise BudgetExceeded(f"{note} would cross the privacy budget; nothing was released. It needs more noise.")
        self.ledger.add(branches, note=note)
        self._ahead, self._reserved, self.paid_whole = self.plan.steps, True, True
        self._resolve_budget()

    def issue(self) -> Batch:
        """The next batch; raises `BudgetExceeded` when no further step may be taken."""
        self._check_budget()
        self.reserve()
        batch = self.sampler.issue()
        self.monitor.issued(batch, self.taken + 1)
        return batch

    def reserve(self) -> None:
        """Reserve the rest of the plan in the registry of the ledger, where it has one; once, before the first batch.

        Raises:
            BudgetExceeded: a cap of the data set would be crossed.
        """
        if not self._reserved and isinstance(self.ledger, SharedLedger):
            planned = Ledger(relation=self.ledger.relation, unit=self.ledger.unit)
            self.plan.record(planned, steps=self.plan.steps - self.taken, start=self.taken)
            self.ledger.prepare((entry.mechanism, entry.steps) for entry in planned.entries)
        self._reserved = True

    def charge(self, batch: Batch) -> float:
        """Redeem `batch` and record its step, before anything of it is released; its noise multiplier."""
        self._check_budget()
        if self.correlation is not None:
            self.correlation.charge()
        self.sampler.redeem(batch)
        step, before = self.taken, self.ledger.counted
        self.taken += 1
        self.count(step)
        noise = self.plan.noise_at(step)
        self.monitor.charged(batch, noise, self.clip, before)
        return noise

    def count(self, step: int) -> None:
        """Record step 0, 1, ... of the plan, before anything of it is released."""
        mechanism = self.plan.mechanism_at(step)
        if self._ahead:
            self._ahead -= 1
            self.ledger.take_paid(mechanism)
        else:
            if self._owing:
                self._owing -= 1
                self.ledger.owe(mechanism, -1)
            self.ledger.add(mechanism, note="training")
        self._known_steps = self.ledger.steps

    def release(self, batch: Batch, total: FlatGradient, norms: Tensor) -> Release:
        """Noisy mean of the clipped sum of `batch`, made in place after the charge; `clip` moves on."""
        noise_multiplier = self.charge(batch)
        self.monitor.summed(self.clip, total, len(norms))
        released = self._noisy_mean(self.clip, total, norms, noise_multiplier, self.plan.expected_batch_size)
        self.monitor.released(released, self.plan.expected_batch_size)
        self.clip = released.clip
        return released

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps besides the ledger; of the stream only the position of a seeded one."""
        stream = self.stream.state() if isinstance(self.stream, SeededStream) else None
        state = {"taken": self.taken, "series": self._series, "sampler": self.sampler.state(), "stream": stream}
        if self.correlation is not None and stream is not None:
            state["correlation"] = self.correlation.state()
        return state

    def restore(self, state: dict[str, Any], *, ledger: Ledger, spent: Ledger) -> None:
        """Continue where `state` was taken; a secure stream draws from its new key.

        Args:
            state: from `state` of a run of the same plan.
            ledger: what had run by then.
            spent: `ledger` and what a process that was killed may have run since, and shown in its logs. All of it
                counts, except for a seeded stream, which repeats those steps exactly: one release. Where the ledger
                held the whole plan, `state` has how many those are under "lost": they are not taken again.
        """
        if isinstance(self.stream, SeededStream) and state["stream"] is not None:
            self.stream.restore(state["stream"])
            self.monitor.resumed(self.stream.state() == state["stream"])
            self.ledger.advance(ledger)
        else:
            self.ledger.advance(spent)
        self.sampler.restore(state["sampler"])
        self.taken = state["taken"] + state.get("lost", 0)
        if "lost" in state:
            self._ahead, self._reserved, self.paid_whole = self.plan.steps - self.taken, True, True
        kept = isinstance(self.stream, SeededStream) and "correlation" in state
        if self.correlation is not None and kept:
            self.correlation.restore(state["correlation"])
            self.monitor.goes_on()
        if self.sampler.interrupted or (self.correlation is not None and not kept and self.taken):
            self._begin_new_pass()
        else:
            # Checkpoints from before batch series were numbered belong to the first series.
            self._enter(state.get("series", 0))
        self._resolve_budget()

    def goes_on(self, earlier: Ledger) -> None:
        """Record that this plan goes on with that of `earlier`; one of other steps may have been chosen after it."""
        planned = [_but_series(mechanism) for mechanism, _ in self.plan.runs]
        if any(_but_series(entry.mechanism) not in planned for entry in earlier.entries):
            self.ledger.may_follow_outputs(RESUMED)
        self._take_over()

    def _take_over(self) -> None:
        """Take the steps that the run before this one planned and did not take: each is a slot for an equal one."""
        self._resolve_budget()
        (step, _), *others = self.plan.runs
        same = [entry for entry in self.ledger.entries if entry.mechanism == step and not others]
        self._ahead = sum(entry.steps for entry in same if entry.note == NOT_TAKEN)
        self._owing = 0 if others else self.ledger.owed(step)
        if self._ahead or self._owing:
            self._earlier = sum(entry.steps for entry in same) - self._ahead - self.taken
            self._planned_before = self._earlier + self.taken + self._ahead + self._owing
            if self.plan.steps > self._planned_before:
                self.ledger.may_follow_outputs(RESUMED)

    def change_noise(self, noise_multiplier: float) -> None:
        """Use another noise multiplier from the next step on; refused where a budget was planned with this one."""
        now = self.plan.noise_at(self.taken)
        if noise_multiplier == now:
            return
        if self.plan.strategy is not None:
            raise TrainingMisuse(f"noise_multiplier must stay {now:g} with {self.plan.sampling.type} batches.")
        every, planned = self.plan.sampling.steps_alike(self.plan.records, self.plan.sample_rate), self._affordable
        if planned is not None or (self.taken - self._pass_start) % every:
            why = "which the budget was planned with" if planned is not None else f"for {every} steps (a pass)"
            raise TrainingMisuse(
                f"noise_multiplier must stay {now:g}, {why}; got {noise_multiplier!r}. "
                "Change it between passes, and give noise_multiplier instead of a target."
            )
        self.plan = replace(self.plan, noise_multiplier=noise_multiplier)
        if self.taken or self.ledger.entries:
            self.ledger.may_follow_outputs(CHANGED_NOISE)

    def record_plan(self) -> None:
        """Record the planned steps that were not taken: a run that may end by what it released costs its whole plan."""
        if self.left > self._ahead:
            start = self.taken + self._ahead
            self._rest = self.left - self._ahead
            self.plan.record(self.ledger, NOT_TAKEN, self._rest, start=start)

    @property
    def unfinished(self) -> int:
        """How many steps of the plan neither this run nor one that it goes on with has taken."""
        return max(0, self.plan.steps - self._earlier - self.taken)

    def not_taken(self) -> list[tuple[Mechanism, int]]:
        """Planned steps that count although they have not run, unless it is declared or paid for why the run ends."""
        paid, planned = self._ahead + self._owing, Ledger()
        left = self.left - paid - self._earlier
        if self.open_ended and self.taken and left > 0 and not self._may_end:
            self.plan.record(planned, steps=left, start=self.taken + paid)
        return [(entry.mechanism, entry.steps) for entry in planned.entries]

    def _rest_in_words(self) -> str:
        """How many planned steps were taken, where more are charged; else ""."""
        taken = self._earlier + self.taken
        rest = self._rest + self._ahead + self._owing + sum(steps for _, steps in self.not_taken())
        if not rest or not self.taken:
            return ""
        return f"{taken} of {max(self.plan.steps, taken + rest)} planned steps taken, {taken + rest} charged"

    @property
    def public_end(self) -> str:
        """The input that a loop makes which leaves out planned steps; "" where what was released pays for any end.

        Sizes of batches, which a loop may count, differ between neighbours of add_remove alone.
        """
        counted = self.open_ended and self.ledger.relation is Relation.ADD_REMOVE
        return EARLY if counted and self._rest_in_words() else ""

    def warn_of_rest(self) -> None:
        """Warn once where a loop has ended before the plan."""
        if not self.loops and not self._warned and self.not_taken():
            self._warned = True
            hint = (
                "Loop over private.epochs to take all, or, where no output decided the end, cut the charge to the "
                'steps taken: private.declare("steps", "why it ended").'
            )
            warnings.warn(f"{self._rest_in_words()}. {hint}", PrivacyWarning, stacklevel=4)

    def pay_ahead(self) -> None:
        """Take the steps to come from the ledger, which holds them now."""
        self._ahead += sum(steps for _, steps in self.not_taken()) + self._owing
        self._owing = 0
        self._known_steps = self.ledger.steps

    @property
    def _may_end(self) -> bool:
        """Whether the run may end at any time: a cover pays for that, or the user declared why."""
        return self.ledger.is_covered or self.ledger.facts.is_declared("steps", self._number)

    def _exceeds(self) -> str:
        """What is missing where more steps ran than were planned; "" where nothing is."""
        planned = max(self.plan.steps, self._planned_before)
        return PAST_PLAN if self._earlier + self.taken > planned and not self._may_end else ""

    def change_clip(self, clip_norm: float) -> None:
        """Clip at another bound from the next step on; the noise follows it, so the cost of a step is the same."""
        check.that(self.correlation is None, "clip_norm", "left as it is with correlated noise", clip_norm)
        if "clip_norm" not in {field.name for field in fields(self.clip)}:  # type: ignore[arg-type]
            raise check.fail("clip_norm", "left as it is for bounds by group", clip_norm)
        self.clip = replace(self.clip, clip_norm=clip_norm)  # type: ignore[type-var]

    def _begin_new_pass(self) -> None:
        """Count the steps to come as a series of their own, whose first pass begins here."""
        if len(self.plan.runs) > 1:
            raise check.fail("checkpoint", "at the end of a pass where noise_multiplier changes", f"step {self.taken}")
        if self.plan.strategy is not None and self.taken < self.plan.steps:
            left = self.plan.strategy.over(self.plan.steps - self.taken)
            self.plan = replace(self.plan, strategy=left)
            self.sampler = self.plan.sampling.sampler(self.plan.records, self.plan.sample_rate, self.stream)
            if self.correlation is not None:
                self.correlation.begin(left)
                self.monitor.begins(left)
        self._enter(self.ledger.free_series)
        self._pass_start = self.taken

    def _enter(self, series: int) -> None:
        """Record the steps to come in this series of batches."""
        self._series = series
        self.plan = replace(self.plan, sampling=self.plan.sampling.in_series(series))

    def _resolve_budget(self) -> None:
        """Find a series of its own for a run that has yet to begin, and count how far the budget reaches now."""
        if not self.taken:
            self._enter(self.ledger.free_series)
        self._advances = self.ledger.advances
        self._affordable = None if self._limit is None else self._affordable_steps(self.taken + self._ahead)
        self._known_steps = self.ledger.steps

    def _is_met(self, ledger: Ledger) -> bool:
        """Whether `ledger` meets the target, where there is one."""
        return self._limit is None or self._limit[0].met(self._limit[1](ledger))

    def _affordable_steps(self, taken: int) -> int:
        """How many steps of the plan keep the budget met, the `taken` ones that the ledger holds among them.

        The guarantee worsens with every step, so bisection finds it.
        """

        def met(steps: int) -> bool:
            return self._is_met(ledger_after(self.ledger, self.plan, steps - taken, start=taken))

        return self.plan.steps if met(self.plan.steps) else bisect_integers(met, taken, self.plan.steps)

    def _check_budget(self) -> None:
        if self.ledger.steps != self._known_steps:
            # Another run wrote into the same ledger, or a checkpoint was read.
            if self._limit is not None and self.ledger.advances == self._advances:
                self.ledger.chosen_after_outputs(WHAT_IS_LEFT)
            self._resolve_budget()
        if self.plan.strategy is not None and self.taken >= self.plan.steps:
            raise TrainingMisuse(
                f"a run with {self.plan.sampling.type} batches must end after the {self.plan.steps} steps that it was "
                "planned for; got another step. Plan more steps."
            )
        if self._affordable is not None and self.taken >= self._affordable:
            raise BudgetExceeded(
                f"step {self.taken + 1} would cross the privacy budget; it was not taken. It allows {self._affordable} "
                f"steps such as {self.plan.mechanism_at(self.taken)}; use more noise or fewer steps."
            )


def _but_series(mechanism: Mechanism) -> dict[str, Any]:
    """What a step is, whichever series of disjoint batches it belongs to."""
    return {name: value for name, value in mechanism.spec().items() if name != "series"}


def unit_ids_of(batch: Batch) -> UnitIds | None:
    """Privacy unit of every record of `batch`; None where every record is a unit of its own."""
    return None if batch.owners is None else UnitIds(batch.owners, average=batch.average)


def _check_ledger(plan: Plan, ledger: Ledger) -> None:
    """The ledger's relation and unit are those that the sampler's accounting is proven for."""
    plan.sampling.check_relation(ledger.relation)
    if ledger.unit != plan.sampling.unit:
        if ledger.entries or isinstance(ledger, SharedLedger):
            rule = f"{plan.sampling.unit!r} for {plan.sampling.type} sampling"
            raise check.fail("unit of ledger", rule, ledger.unit, "Start a new ledger.")
        ledger.unit = plan.sampling.unit
