"""From what a person asks for (batch size or rate, epochs or steps, noise or target) to a plan."""

from __future__ import annotations

from dataclasses import replace

from tacit import check
from tacit.accounting import Accountant, Ledger
from tacit.calibration import smallest
from tacit.clipping import Clip, clip_of
from tacit.errors import InvalidInput
from tacit.sampling import Sampling, sampling_of
from tacit.tradeoff import Epsilon, Target
from tacit.training.plan import Plan, planned_ahead, warn_about_delta
from tacit.training.schedules import Noise, resolved


def resolve_plan(
    records: int,
    *,
    clip_norm: float | None,
    clipping: Clip | None = None,
    sampling: str | Sampling = "poisson",
    noise_multiplier: Noise | None,
    target: Target | None,
    accountant: Accountant | str,
    sample_rate: float | None,
    batch_size: float | None,
    steps: int | None,
    epochs: float | None,
    delta: float | None,
    ledger: Ledger,
    unsafe_no_noise: bool,
) -> Plan:
    """The plan for `records`; with `target` and no `noise_multiplier`, the noise that meets the target.

    sample_rate = batch_size / units and steps = round(epochs / sample_rate) where those are given instead; units are
    the records, or what `sampling` puts in their place.
    """
    clip, how = clip_of(clip_norm, clipping), sampling_of(sampling).in_series(ledger.free_series)
    units = how.units(records)
    rate = sample_rate_of(units, sample_rate, batch_size)
    planned = steps_of(rate, steps, epochs)
    warn_about_delta(target.delta if isinstance(target, Epsilon) else delta, units)
    how.check_relation(ledger.relation)
    if noise_multiplier is not None:
        return Plan(records, rate, clip, resolved(noise_multiplier, planned), planned, unsafe_no_noise, how)
    return _calibrated(Plan(records, rate, clip, 1.0, planned, unsafe_no_noise, how), target, accountant, ledger)


def sample_rate_of(records: int, sample_rate: float | None, batch_size: float | None) -> float:
    """The sample rate that is given, or `batch_size / records`."""
    _one_of("sample_rate", sample_rate, "batch_size", batch_size)
    if sample_rate is not None:
        return check.probability("sample_rate", sample_rate, open_low=True, hint="Use batch_size / n.")
    hint = f"It is the expected size of a batch of the {records} records."
    return check.real("batch_size", batch_size, low=0.0, high=records, open_low=True, hint=hint) / records


def steps_of(sample_rate: float, steps: int | None, epochs: float | None) -> int:
    """The steps that are given, or round(epochs / sample_rate)."""
    _one_of("steps", steps, "epochs", epochs)
    if steps is not None:
        return check.count("steps", steps, hint="Use round(epochs / sample_rate).")
    return max(1, round(check.positive("epochs", epochs) / sample_rate))


def _one_of(first: str, left: object, second: str, right: object) -> None:
    if (left is None) == (right is None):
        got = "neither" if left is None else "both"
        raise InvalidInput(f"{first} must be given exactly when {second} is not; got {got}. Give one of the two.")


def _calibrated(plan: Plan, target: Target | None, accountant: Accountant | str, ledger: Ledger) -> Plan:
    """`plan` with the smallest noise after which `ledger` still meets `target`."""
    if target is None:
        raise check.fail("noise_multiplier", "given unless a target is", None, "Use e.g. 1.0 or target=Epsilon(...).")

    def after(noise_multiplier: float) -> Ledger:
        return planned_ahead(ledger, replace(plan, noise_multiplier=noise_multiplier), plan.steps)

    found = smallest("noise_multiplier", after, target, accountant=accountant, relation=ledger.relation)
    return replace(plan, noise_multiplier=found.value)
