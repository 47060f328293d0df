"""Calibration: the parameter that just meets a target, for any accountant and any target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit import check
from tacit.accounting import Accountant, Ledger, accountant, read_spec
from tacit.errors import InvalidInput, TacitError
from tacit.mechanisms import Gaussian, Mechanism
from tacit.relation import Relation
from tacit.root_finding import bisect_integers
from tacit.tradeoff import Target, TradeOff, check_target

_RELATIVE = 1e-7
_LIMITS = (1e-4, 1e8)
_STRIDE = math.log(4)
_ASIDE = 0.01


@dataclass(frozen=True)
class Calibrated:
    """A parameter value and the guarantee it gives; the target is met at exactly this value."""

    parameter: str
    value: float
    guarantee: TradeOff


def noise_multiplier(
    target: Target,
    *,
    sample_rate: float | None = None,
    steps: int = 1,
    using: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Calibrated:
    """The smallest noise multiplier of `steps` (Poisson-subsampled) Gaussian steps that meets `target`.

    Raises `InvalidInput` when no noise multiplier up to 1e8 meets it.
    """

    def build(value: float) -> Mechanism:
        step: Mechanism = Gaussian(value)
        return (step if sample_rate is None else step.poisson(sample_rate)) * steps

    return smallest("noise_multiplier", build, target, using=using, relation=relation)


def smallest(
    parameter: str,
    build: Callable[[float], Mechanism | Ledger],
    target: Target,
    *,
    using: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Calibrated:
    """The smallest value for which `build(value)` meets `target`, to one part in 10^7 on the safe side.

    `build` must describe less leakage as the value grows (a noise multiplier, a noise scale). The central limit
    theorem tells where to start, which saves questions to the accountant.
    """
    check_target(target)
    judge = _judge(using)
    start, slope = _limit(parameter, build, target) if judge.name != "clt" else (0.0, -1.0)
    return _smallest(parameter, build, target, judge, Relation.parse(relation), start, slope)


def _smallest(
    parameter: str,
    build: Callable[[float], Mechanism | Ledger],
    target: Target,
    judge: Accountant,
    relation: Relation,
    start: float,
    slope: float,
) -> Calibrated:

    def at(log_value: float) -> TradeOff:
        return judge(build(math.exp(log_value)), relation=relation)

    known: dict[float, TradeOff] = {}

    def excess(log_value: float) -> float:
        known[log_value] = at(log_value)
        return target.excess(known[log_value])

    log_value = _safe_root(excess, start, slope)
    if log_value is None:
        raise check.fail(parameter, f"able to meet {target}", f"nothing up to {_LIMITS[1]:g}")
    return Calibrated(parameter, math.exp(log_value), known[log_value])


def largest_sample_rate(
    target: Target,
    build: Callable[[float], Mechanism | Ledger],
    *,
    using: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Calibrated:
    """The largest sampling rate in (0, 1] for which `build(rate)` still meets `target`."""
    check_target(target)
    whole = _judge(using)(build(1.0), relation=Relation.parse(relation))
    if target.met(whole):
        return Calibrated("sample_rate", 1.0, whole)
    found = smallest("1 / sample_rate", lambda size: build(min(1 / size, 1.0)), target, using=using, relation=relation)
    return Calibrated("sample_rate", 1 / found.value, found.guarantee)


def parameter_of_spec(path: str | Path, target: Target, *, using: Accountant | str = "pld") -> Calibrated:
    """The parameter that the SPEC at `path` leaves null, at the value that just meets `target`.

    The smallest `noise_multiplier` or `scale`, or the largest `steps` or `sample_rate`. It may be null in any number of
    mechanisms: all get the same value.
    """
    spec = read_spec(path)
    rows = [row for row in spec["mechanisms"] if isinstance(row, dict)]
    free = {key for row in rows for key, value in row.items() if value is None}
    if len(free) != 1 or not free <= {"noise_multiplier", "scale", "steps", "sample_rate"}:
        rule = 'one in which exactly one of "noise_multiplier", "scale", "steps", "sample_rate" is null'
        raise check.fail("SPEC", rule, ", ".join(sorted(free)) or "no null")
    parameter = free.pop()

    def build(value: float) -> Ledger:
        filled = [{k: value if v is None else v for k, v in row.items()} for row in spec["mechanisms"]]
        return Ledger.from_spec(spec | {"mechanisms": filled})

    if parameter == "steps":
        return largest_steps(target, build, using=using)
    if parameter == "sample_rate":
        return largest_sample_rate(target, build, using=using)
    return smallest(parameter, build, target, using=using)


def largest_steps(
    target: Target,
    build: Callable[[int], Mechanism | Ledger],
    *,
    using: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
    limit: int = 10**9,
) -> Calibrated:
    """The largest number of steps for which `build(steps)` still meets `target`."""
    check_target(target)
    judge = _judge(using)
    relation = Relation.parse(relation)

    def met(steps: int) -> bool:
        return target.met(judge(build(steps), relation=relation))

    if not met(1):
        raise InvalidInput(f"target must be within reach of a single step; got {target}. Use more noise.")
    low, high = 1, 2
    while met(high):
        if high > limit:
            raise check.fail(
                "steps", f"limited by {target}", f"no limit up to {high:,}", "Any number of steps meets it."
            )
        low, high = high, 2 * high
    low = bisect_integers(met, low, high)
    return Calibrated("steps", float(low), judge(build(low), relation=relation))


def _judge(using: Accountant | str) -> Accountant:
    return accountant(using) if isinstance(using, str) else using


def _limit(parameter: str, build: Callable[[float], Mechanism | Ledger], target: Target) -> tuple[float, float]:
    """The log of the value by the central limit theorem, and the slope of the excess there; (0, -1) without one."""
    judge = accountant("clt")
    try:
        log_value = math.log(_smallest(parameter, build, target, judge, Relation.ADD_REMOVE, 0.0, -1.0).value)
        beside = target.excess(judge(build(math.exp(log_value - _ASIDE))))
    except TacitError:
        return 0.0, -1.0
    return log_value, -beside / _ASIDE


def _safe_root(excess: Callable[[float], float], x: float, slope: float) -> float | None:
    """A point at which the decreasing `excess` is <= 0, within `_RELATIVE` above its sign change; None beyond limits.

    Secant steps that overshoot by their own expected error, so that they end where the target is met; a stride or a
    bisection when they bring nothing.
    """
    low, high, lowest, highest = -math.inf, math.inf, math.log(_LIMITS[0]), math.log(_LIMITS[1])
    before, last_move, idle, gap = (math.nan, math.nan), _STRIDE, 0, math.inf
    while True:
        value = excess(x)
        low, high = (x, high) if value > 0.0 else (low, x)
        idle, gap = (0, high - low) if high - low < gap / 2 else (idle + 1, gap)
        steepness = (value - before[1]) / (x - before[0]) if x != before[0] else math.nan
        slope = steepness if -math.inf < steepness < 0.0 else slope
        if low >= highest:
            return None
        if high - low <= _RELATIVE or -_RELATIVE <= value / -slope <= 0.0 or high <= lowest:
            return high
        move = max(-_STRIDE, min(-value / slope, _STRIDE))
        before, x = (x, value), x + move + max(0.3 * _RELATIVE, min(0.1 * abs(move), abs(move * last_move)))
        last_move = move
        if not low < x < high or idle > 4:
            x, idle = _apart(low, high), 0


def _apart(low: float, high: float) -> float:
    """The middle of two points, or a stride beyond the one that is finite."""
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    return low + _STRIDE if math.isfinite(low) else high - _STRIDE
