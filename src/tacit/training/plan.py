"""`Plan`: sampler, clip, noise and length of a private run, as one object that the accountants read.

`resolve_plan` makes the one that the options of a public call ask for.
"""

import warnings
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, groupby

from tacit import check
from tacit.accounting import Ledger
from tacit.calibration import smallest
from tacit.clipping import Clip, FlatClip, clip_of
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.mechanisms import Gaussian, MatrixGaussian, Mechanism, Strategy, ToeplitzStrategy
from tacit.noise.strategy import AUTO, banded, prefix_error, strategy_of
from tacit.sampling import PoissonSampling, Sampling, sampling_of
from tacit.training.plan_options import COPIES, PlanOptions, resolve_noise


@dataclass(frozen=True)
class Plan:
    """Plan of a private run: `steps` releases of a noisy clipped sum over private samples.

    One release is  (sum_{i in batch} clipped g_i + N(0, (noise_multiplier * sensitivity)^2 I)) / expected_batch_size,
    sensitivity that of `clip`; the divisor is the expected size, never the drawn one, so the release is
    post-processing of the noisy sum.

    Args:
        records: number of records n.
        sample_rate: in (0, 1]; probability of each unit (a record, or a user) in a batch.
        clip: bound on one unit's contribution; a plain number means flat clipping.
        noise_multiplier: noise std / sensitivity, > 0, or one for each step; zero only with `unsafe_no_noise`.
        steps: number of releases, >= 1.
        unsafe_no_noise: allows noise_multiplier 0; written in the ledger.
        sampling: how batches are drawn.
        divisor: of the noisy sum, a public number > 0; None for the mean number of units in a batch.
        strategy: C of noise that is correlated over the steps; None for independent noise. The sampling must keep a
            record's steps apart, and noise and clip stay the same: the run is one matrix mechanism.
        sized: whether rate, length and divisor derive from declared numbers, and not from `records`.

    Raises:
        InvalidInput: a field breaks its rule.

    Example:
        >>> plan = Plan(records=1000, sample_rate=0.05, clip=1.0, noise_multiplier=1.1, steps=40)
        >>> plan.expected_batch_size
        50.0
    """

    records: int
    sample_rate: float
    clip: Clip
    noise_multiplier: float | tuple[float, ...]
    steps: int
    unsafe_no_noise: bool = False
    sampling: Sampling = field(default_factory=PoissonSampling)
    divisor: float | None = None
    strategy: Strategy | None = None
    sized: bool = False

    def __post_init__(self) -> None:
        check.count("records", self.records)
        check.probability("sample_rate", self.sample_rate, open_low=True, hint="Use batch_size / n.")
        check.count("steps", self.steps, hint="Use round(epochs / sample_rate).")
        if not isinstance(self.clip, Clip):
            object.__setattr__(self, "clip", FlatClip(self.clip))
        if isinstance(self.noise_multiplier, tuple) and len(self.noise_multiplier) != self.steps:
            raise check.fail("noise_multiplier", f"a list of {self.steps}", f"{len(self.noise_multiplier)} values")
        if (self.sampling.separates or self.sampling.whole_run) and self.strategy is None:
            object.__setattr__(self, "strategy", ToeplitzStrategy(self.steps, (1.0,)))
        if self.strategy is not None:
            self._check_strategy(self.strategy)
            object.__setattr__(self, "sampling", self.sampling.for_steps(self.strategy.iterations))
        every = self.sampling.steps_alike(self.records, self.sample_rate)
        odd = [start for start in self._starts[:-1] if start % every]
        if odd:
            rule = f"the same for {every} steps (a pass) with {self.sampling.type} sampling"
            raise check.fail("noise_multiplier", rule, f"a change at step {odd[0]}", f"Use StepNoise(every={every}).")

    def _check_strategy(self, strategy: Strategy) -> None:
        """Raise `InvalidInput` for what is not proven with correlated noise."""
        if strategy.iterations > self.steps:
            raise check.fail("strategy", f"one of at most {self.steps} steps", f"{strategy.iterations}")
        if not self.sampling.separates and (strategy.bands > 1 or not self.sampling.whole_run):
            hint = 'Use sampling="cyclic_poisson" or "cyclic_allocation" for bands, "balls_and_bins" for any noise.'
            raise check.fail("sampling", "one that keeps a record's steps apart", self.sampling.type, hint)
        if isinstance(self.noise_multiplier, tuple):
            raise check.fail("noise_multiplier", "one number for correlated noise", "a schedule")
        base = self.clip.mechanism(self.noise_multiplier, self.unsafe_no_noise)
        if self.clip.statistics or self.clip.of_mean or type(base) is not Gaussian or base.unsafe:
            rule = "a fixed bound on each record, with noise, where steps are correlated or kept apart"
            raise check.fail("clipping", rule, self.clip.spec()["type"], "Use clip_norm=...")

    @property
    def tells_records(self) -> bool:
        """Whether settings, which are released, tell the number of records: then no add/remove guarantee holds."""
        return not self.sized or self.sampling.reads_records

    @property
    def correlation(self) -> Strategy | None:
        """`strategy`, unless it makes noise that is independent from step to step."""
        return self.strategy if self.strategy is not None and self.strategy.bands > 1 else None

    @cached_property
    def runs(self) -> tuple[tuple[Mechanism, int], ...]:
        """Stretches of equal steps in order: (mechanism of each step, number of steps)."""
        if not isinstance(self.noise_multiplier, tuple):
            return ((self._described(self.noise_multiplier), self.steps),)
        return tuple((self._described(value), len(list(group))) for value, group in groupby(self.noise_multiplier))

    @cached_property
    def _starts(self) -> list[int]:
        """First step of every stretch, and the end of the last."""
        return [0, *accumulate(steps for _, steps in self.runs)]

    @property
    def mechanism(self) -> Mechanism:
        """One step, as the accountants see it; raises `InvalidInput` where steps differ, for which see `record`."""
        if len(self.runs) > 1:
            raise InvalidInput("mechanism must be asked step by step of a plan with a noise schedule. Use `record`.")
        return self.mechanism_at(0)

    def noise_at(self, step: int) -> float:
        """Noise multiplier of step 0, 1, ...; the last one's beyond the plan."""
        if not isinstance(self.noise_multiplier, tuple):
            return self.noise_multiplier
        return self.noise_multiplier[min(step, self.steps - 1)]

    def mechanism_at(self, step: int) -> Mechanism:
        """Step 0, 1, ... as the accountants see it; beyond the plan steps are like the last."""
        return self.runs[min(bisect_right(self._starts, step), len(self.runs)) - 1][0]

    def record(self, ledger: Ledger, note: str = "", steps: int | None = None, *, start: int = 0) -> None:
        """Write planned steps into `ledger`.

        Args:
            ledger: the ledger to write.
            note: of each entry.
            steps: number of steps, all by default.
            start: the first step, >= 0.
        """
        end = self.steps if steps is None else start + steps
        for (mechanism, length), first in zip(self.runs, self._starts, strict=False):
            inside = min(first + length, end) - max(first, start)
            if inside > 0:
                ledger.add(mechanism, inside, note)

    @property
    def clip_norm(self) -> float:
        """Sensitivity of one release before the division: the unit of the noise multiplier."""
        return self.clip.sensitivity

    @property
    def expected_batch_size(self) -> float:
        """Divisor of the noisy sum: `divisor`, or the mean number of units in a batch."""
        if self.divisor is not None:
            return self.divisor
        return self.sampling.units(self.records) * self.sample_rate

    def _described(self, noise_multiplier: float) -> Mechanism:
        base = self.clip.mechanism(noise_multiplier, self.unsafe_no_noise)
        if self.strategy is not None:
            base = MatrixGaussian(noise_multiplier, self.strategy)
        return self.sampling.mechanism(base, self.records, self.sample_rate)


def ledger_after(ledger: Ledger, plan: Plan, steps: int, *, start: int = 0) -> Ledger:
    """A copy of `ledger` after further steps of `plan`.

    Args:
        ledger: left as it is.
        plan: the plan.
        steps: number of steps.
        start: the first step, >= 0.
    """
    trial = ledger.resumable()
    plan.record(trial, "training", steps, start=start)
    return trial


def resolve_plan(options: PlanOptions, records: int, ledger: Ledger) -> Plan:
    """The plan for `records` records; without a noise multiplier, the smallest that lets `ledger` meet the target.

    sample_rate = batch_size / units and steps = round(epochs / sample_rate) where those are given instead; units are
    `public_size`, else the records, or what `sampling` puts in their place.

    Raises:
        InvalidInput: an option breaks its rule, or does not fit another option or the ledger.
    """
    hint = "In a loop, make_private(transform=...) makes one copy of each record."
    options.refuse(COPIES, where="all but fit and private_step", hint=hint)
    ledger = ledger.copy()  # With what runs in progress have planned.
    clip = clip_of(options.clip_norm, options.clipping)
    sampling = sampling_of(options.sampling).in_series(ledger.free_series)
    declared = options.public_size
    sampling.check_relation(ledger.relation)
    if not options.sized or sampling.reads_records:
        ledger.leave_places()
    units = sampling.units(records) if declared is None else check.count("public_size", declared)
    sample_rate = resolve_sample_rate(units, options.sample_rate, options.batch_size)
    steps = resolve_steps(sample_rate, options.steps, options.epochs)
    warn_about_delta(options.reported_delta, units)
    noise = 1.0 if options.noise_multiplier is None else resolve_noise(options.noise_multiplier, steps)
    divisor = resolve_divisor(sample_rate, options)

    def planned(strategy: Strategy | None) -> Plan:
        drawn = sampling.for_bands(strategy.bands if strategy is not None else 1)
        length = steps, options.unsafe_no_noise
        plan = Plan(records, sample_rate, clip, noise, *length, drawn, divisor, strategy, options.sized)
        return plan if options.noise_multiplier is not None else _calibrated(plan, options, ledger)

    if options.noise == AUTO:
        return _of_least_error(planned, options, steps, sample_rate)
    return planned(strategy_of(options.noise, steps))


def _of_least_error(
    planned: Callable[[Strategy | None], Plan], options: PlanOptions, steps: int, sample_rate: float
) -> Plan:
    """Of 1, 2, 4, ... bands, as many as a group's batch allows, the plan of least error at the target.

    With one band this is Poisson sampling or random allocation with independent noise.
    """
    if options.target is None or options.noise_multiplier is not None:
        hint = "Bands are compared at one target; name their number otherwise, as banded:8."
        raise check.fail("noise", "a number of bands unless a target calibrates the noise", AUTO, hint)
    most = min(steps, int(1 / sample_rate * (1 + 1e-9)))
    plans = [planned(banded(steps, 2**power)) for power in range(most.bit_length())]

    def error(plan: Plan) -> float:
        assert isinstance(plan.strategy, ToeplitzStrategy)
        return plan.noise_at(0) * prefix_error(plan.strategy)

    return min(plans, key=error)


def resolve_sample_rate(units: int, sample_rate: float | None, batch_size: float | None) -> float:
    """The sampling rate that is given, or `batch_size / units`."""
    _check_one_given("sample_rate", sample_rate, "batch_size", batch_size)
    if sample_rate is not None:
        return check.probability("sample_rate", sample_rate, open_low=True, hint="Use batch_size / n.")
    hint = f"It is the expected size of a batch of {units} records."
    return check.real("batch_size", batch_size, low=0.0, high=units, open_low=True, hint=hint) / units


def resolve_divisor(sample_rate: float, options: PlanOptions) -> float | None:
    """The public divisor that is given; None where the batch size decides it."""
    expected, size = options.expected_batch_size, options.public_size
    if options.batch_size is not None:
        if expected is not None:
            hint = "It is the divisor already."
            raise check.fail("expected_batch_size", "given with sample_rate alone, not batch_size", expected, hint)
        return float(options.batch_size)
    if expected is None and size is None:
        return None
    _check_one_given("expected_batch_size", expected, "public_size", size)
    return check.positive("expected_batch_size", expected) if size is None else size * sample_rate


def resolve_steps(sample_rate: float, steps: int | None, epochs: float | None) -> int:
    """The number of steps that is given, or round(epochs / sample_rate)."""
    _check_one_given("steps", steps, "epochs", epochs)
    if steps is not None:
        return check.count("steps", steps, hint="Use round(epochs / sample_rate).")
    return max(1, round(check.positive("epochs", epochs) / sample_rate))


def warn_about_delta(delta: float | None, records: int) -> None:
    """Warn when delta >= 1/n: a mechanism that publishes one random record would satisfy it."""
    if delta is not None and check.delta(delta) >= 1.0 / records:
        warnings.warn(
            f"delta={delta:g} is not below 1/n for n={records}: use a value below {1 / records:.2g}.",
            PrivacyWarning,
            stacklevel=3,
        )


def _check_one_given(first: str, left: object, second: str, right: object) -> None:
    if (left is None) == (right is None):
        got = "neither" if left is None else "both"
        raise InvalidInput(f"{first} must be given exactly when {second} is not; got {got}. Give one of the two.")


def _calibrated(plan: Plan, options: PlanOptions, ledger: Ledger) -> Plan:
    """`plan` with the smallest noise multiplier after which `ledger` still meets the target."""
    if options.target is None:
        raise check.fail("noise_multiplier", "given unless a target is", None, "Use e.g. 1.0 or target=Epsilon(...).")

    def after(noise_multiplier: float) -> Ledger:
        return ledger_after(ledger, replace(plan, noise_multiplier=noise_multiplier), plan.steps)

    found = smallest("noise_multiplier", after, options.target, accountant=options.accountant, relation=ledger.relation)
    return replace(plan, noise_multiplier=found.value)
