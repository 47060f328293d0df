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
from tacit.tradeoff import Target, TradeOff

_RELATIVE = 1e-7
_LIMITS = (1e-4, 1e8)


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

    return smallest("noise_multiplier", build, target, using=using, relation=relation, start=_limit(build, target))


def smallest(
    parameter: str,
    build: Callable[[float], Mechanism | Ledger],
    target: Target,
    *,
    using: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
    start: float = 1.0,
) -> Calibrated:
    """The smallest value for which `build(value)` meets `target`, to one part in 10^7 on the safe side.

    `build` must describe less leakage as the value grows (a noise multiplier, a noise scale). A good guess as
    `start` saves questions to the accountant, a bad one costs a few.
    """
    judge = _judge(using)
    relation = Relation.parse(relation)

    def at(log_value: float) -> TradeOff:
        return judge(build(math.exp(log_value)), relation=relation)

    known: dict[float, TradeOff] = {}

    def excess(log_value: float) -> float:
        known[log_value] = at(log_value)
        return target.excess(known[log_value])

    low, high = _bracket(parameter, excess, target, math.log(start))
    log_value = _safe_root(excess, low, high, _RELATIVE)
    return Calibrated(parameter, math.exp(log_value), known[log_value])


def largest_sample_rate(
    target: Target,
    build: Callable[[float], Mechanism | Ledger],
    *,
    using: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Calibrated:
    """The largest sampling rate in (0, 1] for which `build(rate)` still meets `target`."""
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
    rows = [row for row in spec.get("mechanisms", []) if isinstance(row, dict)]
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
    judge = _judge(using)
    relation = Relation.parse(relation)

    def met(steps: int) -> bool:
        return target.met(judge(build(steps), relation=relation))

    if not met(1):
        raise InvalidInput(f"target must be within reach of a single step; got {target}. Use more noise.")
    low, high = 1, 2
    while high <= limit and met(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if met(middle) else (low, middle)
    return Calibrated("steps", float(low), judge(build(low), relation=relation))


def _judge(using: Accountant | str) -> Accountant:
    return accountant(using) if isinstance(using, str) else using


def _limit(build: Callable[[float], Mechanism], target: Target) -> float:
    """The noise multiplier by the central limit theorem, a cheap guess; 1 where that gives none."""
    try:
        return smallest("noise_multiplier", build, target, using="clt").value
    except TacitError:
        return 1.0


def _bracket(
    parameter: str, excess: Callable[[float], float], target: Target, start: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Two (log value, excess) of which only the larger meets the target, in growing strides from `start`."""
    lowest, highest = math.log(_LIMITS[0]), math.log(_LIMITS[1])
    low = high = (start, excess(start))
    stride = max(1.5 * abs(low[1]), 1e-4) if math.isfinite(low[1]) else math.log(4)
    stride = min(stride, math.log(4))
    while high[1] > 0.0:
        low, high = high, (high[0] + stride, excess(high[0] + stride))
        if high[1] > 0.0 and high[0] > highest:
            raise check.fail(parameter, f"able to meet {target}", f"nothing up to {_LIMITS[1]:g}")
        stride = min(2 * stride, math.log(4))
    while low[1] <= 0.0 and low[0] > lowest:
        low, high = (low[0] - stride, excess(low[0] - stride)), low
        stride = min(2 * stride, math.log(4))
    return low, high


def _safe_root(
    excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], width: float
) -> float:
    """A point within `width` above the sign change of the decreasing `excess` at which excess <= 0.

    Secant steps that overshoot by their own expected error, so that the bracket closes from both sides; bisection
    when the bracket hardly shrinks. Unlike a plain root search it always ends where the target is met.
    """
    slow, previous, last_move = 0, high[0] - low[0], high[0] - low[0]
    older, newer = low, high
    while high[0] - low[0] > width:
        slope = (newer[1] - older[1]) / (newer[0] - older[0]) if newer[0] != older[0] else 0.0
        move = -newer[1] / slope if math.isfinite(slope) and slope < 0.0 else math.nan
        x = newer[0] + move + math.copysign(max(0.4 * width, min(0.1 * abs(move), abs(move * last_move))), move)
        if not low[0] < x < high[0] or slow > 3:
            x, slow = (low[0] + high[0]) / 2, 0
        last_move = abs(x - newer[0])
        older, newer = newer, (x, excess(x))
        if newer[1] <= 0.0:
            high = newer
        else:
            low = newer
        slow = slow + 1 if high[0] - low[0] > previous / 2 else 0
        previous = high[0] - low[0]
    return high[0]
