"""`resolve_plan`: the plan that the options of a public call ask for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

from tacit import check
from tacit.accounting import Ledger
from tacit.calibration import smallest
from tacit.clipping import clip_of
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.mechanisms import Strategy, ToeplitzStrategy
from tacit.noise import Stream
from tacit.noise.strategy import AUTO, banded, prefix_error, strategy_of
from tacit.sampling import sampling_of
from tacit.training.plan import Plan, ledger_after
from tacit.training.plan_options import COPIES, PlanOptions, resolve_noise
from tacit.training.private_run import PrivateRun
from tacit.training.ranks import RankedRun, Ranks, ShardedRun
from tacit.training.sharded import WholeModel


def start_run(
    options: PlanOptions,
    plan: Plan,
    ledger: Ledger,
    stream: Stream | None = None,
    ranks: Ranks | None = None,
    whole: WholeModel | None = None,
    *,
    goes_on: bool = False,
) -> PrivateRun:
    """The run of `plan` that records in `ledger` and takes no step past the target.

    Args:
        options: their target and its accountant are read.
        plan: what runs.
        ledger: where its steps are recorded.
        stream: source of sampling and noise; a new secure one by default.
        ranks: the processes that run it together; this one alone by default.
        whole: the model that steps compute with, where parameters are sharded over the ranks.
        goes_on: whether a checkpoint is restored next.
    """
    named = {"stream": stream, "ledger": ledger, "budget": options.target, "accountant": options.accountant}
    if ranks is not None:
        return RankedRun(plan, ranks, **named) if whole is None else ShardedRun(plan, ranks, whole, **named)
    return PrivateRun(plan, **named, goes_on=goes_on)


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
