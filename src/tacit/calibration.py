"""Calibration: the parameter value that just meets a target, for any accountant and any target."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tacit import accounting, check
from tacit.accounting import Accountant, Ledger, read_spec
from tacit.accounting.pld.accountant import Sketched
from tacit.errors import InvalidInput, TacitError
from tacit.mechanisms import Gaussian, Mechanism
from tacit.relation import Relation
from tacit.root_finding import bisect_integers
from tacit.tradeoff import Target, TradeOff, check_target

_RELATIVE = 1e-7  # accuracy of the value: far finer than any use of a noise multiplier, and a few evaluations cheaper
_LIMITS = (1e-4, 1e8)  # range of values that are searched
_STRIDE = math.log(4)  # longest step in the log of the value while no bracket is known
_START_RELATIVE = 1e-3  # accuracy of the value at which a search begins
_SLOPE_STEP = 0.03  # distance in the log of the value at which the slope of the excess is measured
_FREE = ("noise_multiplier", "scale", "steps", "sample_rate")  # what a SPEC may leave null


@dataclass(frozen=True)
class Calibrated:
    """A parameter value and the guarantee that it gives; the guarantee meets the target.

    Attributes:
        parameter: name of the parameter.
        value: its value.
        guarantee: the trade-off curve at exactly this value.
    """

    parameter: str
    value: float
    guarantee: TradeOff


def noise_multiplier(
    target: Target,
    *,
    sample_rate: float | None = None,
    steps: int = 1,
    accountant: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Calibrated:
    """The smallest noise multiplier of `steps` (Poisson-subsampled) Gaussian steps that meets `target`.

    Args:
        target: what the guarantee must reach, e.g. `Epsilon(1.0, 1e-5)`.
        sample_rate: rate of the Poisson sampling, in (0, 1]; None for no sampling.
        steps: number of steps, >= 1.
        accountant: an accountant or its name.
        relation: neighbouring relation of the guarantee.

    Raises:
        InvalidInput: an argument breaks its rule, or no noise multiplier up to 1e8 meets the target.

    Example:
        >>> from tacit.tradeoff import Mu
        >>> round(noise_multiplier(Mu(0.5), steps=100, accountant="clt").value, 4)
        20.0
    """

    def build(value: float) -> Mechanism:
        step: Mechanism = Gaussian(value)
        return (step if sample_rate is None else step.poisson(sample_rate)) * steps

    return smallest("noise_multiplier", build, target, accountant=accountant, relation=relation)


def smallest(
    parameter: str,
    build: Callable[[float], Mechanism | Ledger],
    target: Target,
    *,
    accountant: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Calibrated:
    """The smallest value for which `build(value)` meets `target`, to one part in 10^7 on the safe side.

    The search starts at the value by the central limit theorem, then by sketches of the accountant where it has them.
    Only its own answers decide the end.

    Args:
        parameter: name of the parameter, for messages.
        build: value to what runs; it must leak less as the value grows (a noise multiplier, a noise scale).
        target: what the guarantee must reach.
        accountant: an accountant or its name.
        relation: neighbouring relation of a mechanism; a ledger has its own.

    Raises:
        InvalidInput: an argument breaks its rule, or no value up to 1e8 meets the target.

    Example:
        >>> from tacit.mechanisms import Laplace
        >>> from tacit.tradeoff import Epsilon
        >>> round(smallest("scale", lambda scale: Laplace(scale) * 4, Epsilon(2.0, 0.0), accountant="naive").value, 4)
        2.0
    """
    check_target(target)
    measure = accounting.accountant(accountant)
    relation = Relation.parse(relation)
    start, slope = _start(build, target, measure, relation) if measure.name != "clt" else (0.0, -1.0)
    found = _search(build, target, measure, relation, start, slope)
    if found is None:
        raise check.fail(parameter, f"able to meet {target}", f"nothing up to {_LIMITS[1]:g}")
    return Calibrated(parameter, *found)


def largest_sample_rate(
    target: Target,
    build: Callable[[float], Mechanism | Ledger],
    *,
    accountant: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
) -> Calibrated:
    """The largest sampling rate in (0, 1] for which `build(rate)` meets `target`.

    Args:
        target: what the guarantee must reach.
        build: sampling rate to what runs.
        accountant: an accountant or its name.
        relation: neighbouring relation of a mechanism; a ledger has its own.

    Raises:
        InvalidInput: an argument breaks its rule, or no rate meets the target.

    Example:
        >>> from tacit.tradeoff import Mu
        >>> found = largest_sample_rate(Mu(1.0), lambda rate: Gaussian(50.0).poisson(rate), accountant="clt")
        >>> found.value
        1.0
    """
    check_target(target)
    measure, relation = accounting.accountant(accountant), Relation.parse(relation)
    unsampled = measure(build(1.0), relation=relation)
    if target.met(unsampled):
        return Calibrated("sample_rate", 1.0, unsampled)
    inverse = lambda value: build(min(1 / value, 1.0))  # noqa: E731
    found = smallest("1 / sample_rate", inverse, target, accountant=measure, relation=relation)
    return Calibrated("sample_rate", 1 / found.value, found.guarantee)


def parameter_of_spec(path: str | Path, target: Target, *, accountant: Accountant | str = "pld") -> Calibrated:
    """The parameter that the SPEC at `path` leaves null, at the value that just meets `target`.

    The smallest `noise_multiplier` or `scale`, or the largest `steps` or `sample_rate`. Several mechanisms may leave
    the same parameter null; all of them get the same value.
    """
    spec = read_spec(path)
    rows = [row for row in spec["mechanisms"] if isinstance(row, dict)]
    free = {key for row in rows for key, value in row.items() if value is None}
    if len(free) != 1 or not free <= set(_FREE):
        rule = "one in which exactly one of " + ", ".join(f'"{name}"' for name in _FREE) + " is null"
        raise check.fail("SPEC", rule, ", ".join(sorted(free)) or "no null")
    parameter = free.pop()

    def build(value: float) -> Ledger:
        filled = [{k: value if v is None else v for k, v in row.items()} for row in spec["mechanisms"]]
        return Ledger.from_spec(spec | {"mechanisms": filled})

    largest = {"steps": largest_steps, "sample_rate": largest_sample_rate}
    solve = largest.get(parameter) or partial(smallest, parameter)
    return solve(target=target, build=build, accountant=accountant)


def largest_steps(
    target: Target,
    build: Callable[[int], Mechanism | Ledger],
    *,
    accountant: Accountant | str = "pld",
    relation: Relation | str = Relation.ADD_REMOVE,
    limit: int = 10**9,
) -> Calibrated:
    """The largest number of steps for which `build(steps)` meets `target`.

    Args:
        target: what the guarantee must reach.
        build: number of steps, >= 1, to what runs; it must leak more as the number grows.
        accountant: an accountant or its name.
        relation: neighbouring relation of a mechanism; a ledger has its own.
        limit: number of steps from which on the search gives up.

    Raises:
        InvalidInput: an argument breaks its rule, a single step misses the target, or `limit` steps meet it.

    Example:
        >>> from tacit.tradeoff import Mu
        >>> largest_steps(Mu(1.0), lambda steps: Gaussian(9.9) * steps, accountant="clt").value
        98.0
    """
    check_target(target)
    measure = accounting.accountant(accountant)
    relation = Relation.parse(relation)

    def met(steps: int) -> bool:
        return target.met(measure(build(steps), relation=relation))

    if not met(1):
        raise InvalidInput(f"target must be within reach of a single step; got {target}. Use more noise.")
    low, high = 1, 2
    while met(high):
        if high > limit:
            got, hint = f"no limit up to {high:,}", "Any number of steps meets it."
            raise check.fail("steps", f"limited by {target}", got, hint)
        low, high = high, 2 * high
    low = bisect_integers(met, low, high)
    return Calibrated("steps", float(low), measure(build(low), relation=relation))


def _search(
    build: Callable[[float], Mechanism | Ledger],
    target: Target,
    measure: Accountant,
    relation: Relation,
    start: float,
    slope: float,
    relative: float = _RELATIVE,
) -> tuple[float, TradeOff] | None:
    """The smallest value that meets the target and its trade-off curve; None when no value does."""
    known: dict[float, TradeOff] = {}

    def excess(log_value: float) -> float:
        known[log_value] = measure(build(math.exp(log_value)), relation=relation)
        return target.excess(known[log_value])

    log_value = _safe_root(excess, start, slope, relative)
    return None if log_value is None else (math.exp(log_value), known[log_value])


def _start(
    build: Callable[[float], Mechanism | Ledger], target: Target, measure: Accountant, relation: Relation
) -> tuple[float, float]:
    """The log of the value by quick approximations, each from the one before, and the slope; (0, -1) without any."""
    start, slope = 0.0, -1.0
    for rough in (accounting.accountant("clt"), Sketched(measure)):
        try:
            found = _search(build, target, rough, relation, start, slope, _START_RELATIVE)
            if found is None:
                continue
            log_value = math.log(found[0])
            beside = target.excess(rough(build(math.exp(log_value - _SLOPE_STEP)), relation=relation))
            steepness = (beside - target.excess(found[1])) / -_SLOPE_STEP
        except TacitError:
            continue
        if -math.inf < steepness < 0.0:
            start, slope = log_value, steepness
    return start, slope


def _safe_root(excess: Callable[[float], float], x: float, slope: float, relative: float = _RELATIVE) -> float | None:
    """A point at which the decreasing `excess` is <= 0, within `relative` above its sign change; None beyond limits.

    Secant steps overshoot by their own expected error, so that they end where the target is met. A stride or a
    bisection follows when they make no progress: neither the bracket nor the excess gets half as large.
    """
    low, high, lowest, highest = -math.inf, math.inf, math.log(_LIMITS[0]), math.log(_LIMITS[1])
    before, last_move, idle, gap, least = (math.nan, math.nan), _STRIDE, 0, math.inf, math.inf
    while True:
        value = excess(x)
        low, high = (x, high) if value > 0.0 else (low, x)
        nearer = high - low < gap / 2 or abs(value) < least / 2
        idle, gap, least = (0, high - low, min(abs(value), least)) if nearer else (idle + 1, gap, least)
        steepness = (value - before[1]) / (x - before[0]) if x != before[0] else math.nan
        slope = steepness if -math.inf < steepness < 0.0 else slope
        if low >= highest:
            return None
        if high - low <= relative or -relative <= value / -slope <= 0.0 or high <= lowest:
            return high
        move = max(-_STRIDE, min(-value / slope, _STRIDE))
        before, x = (x, value), x + move + max(0.3 * relative, min(0.1 * abs(move), abs(move * last_move)))
        last_move = move
        if not low < x < high or idle > 4:
            x, idle = _between(low, high), 0


def _between(low: float, high: float) -> float:
    """The middle of two points, or a stride beyond the one that is finite."""
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    return low + _STRIDE if math.isfinite(low) else high - _STRIDE
