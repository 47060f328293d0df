"""`check_bracket`: is a printed bracket of epsilon right? An answer in ball arithmetic, without the accountant.

At the upper end delta(epsilon) <= delta in every direction is to be shown, at the lower end delta(epsilon) >= delta in
one. What is shared with the accountant is the description of the mechanism and the theorem that its pair dominates.
"""

import math
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flint import arb, ctx

from tacit import check, mechanisms
from tacit.judge import contour, finite_laws
from tacit.judge.contour import Question
from tacit.judge.finite_laws import AtomLaw, LaplaceSum
from tacit.judge.sampled_gaussian import Change, NotDecided, SampledGaussian, up_to
from tacit.mechanisms import Mechanism
from tacit.relation import Relation

_LOCK = threading.Lock()  # The precision of python-flint is one for all threads.
_ACCURACIES = (1e-12, 1e-20, 1e-28)  # Errors of delta in units of the claimed one, until the ball decides.
_LARGEST_GROUP = 64


class Verdict(StrEnum):
    """What was shown about a bracket; of both ends the later one counts."""

    CONFIRMED = "confirmed"
    NOT_DECIDED = "not decided"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Checked:
    """Verdict on a bracket of epsilon.

    Attributes:
        verdict: confirmed, refuted or not decided.
        enclosure_at_upper: interval that holds delta(upper); None where the end is infinite or nothing was shown.
        enclosure_at_lower: the same of delta(lower); None also where the end is 0 or the other one is refuted.
        seconds: processor time.
        reason: why it is not decided, else "".

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> check_bracket(Gaussian(1.0), 1e-5, 4.3, 4.4).row()["verdict"]
        'confirmed'
    """

    verdict: Verdict
    enclosure_at_upper: tuple[float, float] | None
    enclosure_at_lower: tuple[float, float] | None
    seconds: float
    reason: str = ""

    def row(self) -> dict[str, Any]:
        """JSON form."""
        ends = {"delta_at_upper": self.enclosure_at_upper, "delta_at_lower": self.enclosure_at_lower}
        found: dict[str, Any] = {name: end and list(end) for name, end in ends.items()}
        return {"verdict": self.verdict.value, **found} | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True)
class _Direction:
    """The steps of a composition in one direction of the relation."""

    sampled: tuple[tuple[SampledGaussian, int], ...]
    mu_squared: arb
    atoms: tuple[tuple[AtomLaw, int], ...]
    laplace: LaplaceSum

    def delta(self, epsilon: float, log_error: float, enough: float) -> arb:
        """Enclosure of delta at epsilon."""
        if not self.sampled and not self.mu_squared > 0:
            return finite_laws.delta(self.atoms, self.laplace, epsilon)
        others = (*self.atoms, *([(self.laplace, 1)] if self.laplace.parts else []))
        found = contour.delta(Question(self.sampled, self.mu_squared, epsilon, log_error, others, enough))
        return found + up_to(sum((times * law.dropped for law, times in self.atoms), arb(0)))


def check_bracket(
    mechanism: Mechanism,
    delta: float,
    lower: float,
    upper: float,
    *,
    relation: Relation | str = Relation.ADD_REMOVE,
    group: int = 1,
) -> Checked:
    """Decide whether the least epsilon of `mechanism` at `delta` lies in [lower, upper], in ball arithmetic.

    `confirmed`: delta(upper) <= delta <= delta(lower) is shown with every rounding error carried along, for the pair of
    distributions that the mechanism's theorem names. A lower end 0 and an infinite upper end hold trivially.

    Args:
        mechanism: what ran, such as Gaussian(1.1).poisson(0.01) * 1000.
        delta: in [0, 1].
        lower: >= 0.
        upper: at least `lower`; may be infinite.
        relation: neighbouring relation.
        group: >= 1, records added, removed or replaced together.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> found = check_bracket(Gaussian(1.3).poisson(0.0042667) * 3516, 1e-5, 0.5, 0.8)
        >>> found.verdict.value
        'refuted'
    """
    check.instance("mechanism", mechanism, Mechanism, "one such as Gaussian(1.0)")
    check.delta(delta)
    check.real("lower", lower, low=0.0)
    if upper != math.inf and check.real("upper", upper, low=0.0) < lower:
        raise check.fail("upper", f"at least lower = {lower!r}", upper)
    relation, group = Relation.parse(relation), check.count("group", group)
    begun = time.process_time()
    with _LOCK:
        precision, cap = ctx.prec, ctx.cap
        try:
            ends = _ends(mechanism, relation, group, delta, lower, upper)
        finally:
            ctx.prec, ctx.cap = precision, cap
    verdict = max((end.verdict for end in ends if end), key=list(Verdict).index, default=Verdict.CONFIRMED)
    reasons = dict.fromkeys(end.reason for end in ends if end and end.reason)
    reason = "; ".join(reasons) if verdict is Verdict.NOT_DECIDED else ""
    high, low = (end and end.enclosure for end in ends)
    return Checked(verdict, high, low, time.process_time() - begun, reason)


@dataclass(frozen=True)
class _End:
    verdict: Verdict
    enclosure: tuple[float, float] | None
    reason: str = ""


def _ends(
    mechanism: Mechanism, relation: Relation, group: int, delta: float, lower: float, upper: float
) -> tuple[_End | None, _End | None]:
    """What is shown about the upper and the lower end; None of ends that hold trivially, or no longer matter."""
    if delta == 0:
        unknown = _End(Verdict.NOT_DECIDED, None, "delta is 0")
        return (unknown if upper < math.inf else None), (unknown if lower > 0 else None)

    def decided(epsilon: float, *, upper_end: bool) -> _End:
        """Compare delta(epsilon) with the claimed one, more accurately each time."""
        end = _End(Verdict.NOT_DECIDED, None)
        for accuracy in _ACCURACIES:
            balls, reasons = _deltas(mechanism, relation, group, epsilon, math.log(delta) + math.log(accuracy), delta)
            end = _compared(balls, reasons, delta, upper_end=upper_end)
            if end.verdict is not Verdict.NOT_DECIDED or end.enclosure is None:
                break
        return end

    at_upper = None if upper == math.inf else decided(upper, upper_end=True)
    refuted = at_upper is not None and at_upper.verdict is Verdict.REFUTED
    return at_upper, None if lower == 0 or refuted else decided(lower, upper_end=False)


def _deltas(
    mechanism: Mechanism, relation: Relation, group: int, epsilon: float, log_error: float, enough: float
) -> tuple[list[arb], list[str]]:
    """Enclosures of delta in the directions that are decided, and the reasons why others are not."""
    balls, reasons = [], []
    ctx.prec = 128
    try:
        for direction in _directions(mechanism, relation, group):
            try:
                ball = direction.delta(epsilon, log_error, enough)
                balls.append(ball if ball.is_finite() else arb(0.5, 0.5))
            except NotDecided as reason:
                reasons.append(str(reason))
            except (ArithmeticError, ValueError, IndexError):
                reasons.append("numbers of this size are out of reach")
    except NotDecided as reason:
        return [], [str(reason)]
    return balls, reasons


def _compared(balls: list[arb], reasons: list[str], delta: float, *, upper_end: bool) -> _End:
    """The verdict on one end: delta in every direction at the upper one, in one direction at the lower one."""
    lows = [max(math.nextafter(float(ball.lower()), -math.inf), 0.0) for ball in balls]
    highs = [1.0 for _ in reasons] + [min(math.nextafter(float(ball.upper()), math.inf), 1.0) for ball in balls]
    enclosure = (max(lows, default=0.0), max(highs))
    if upper_end:
        refuted, confirmed = any(ball > delta for ball in balls), not reasons and all(ball <= delta for ball in balls)
    else:
        refuted, confirmed = not reasons and all(ball < delta for ball in balls), any(ball >= delta for ball in balls)
    if refuted or confirmed:
        return _End(Verdict.REFUTED if refuted else Verdict.CONFIRMED, enclosure)
    if reasons:
        return _End(Verdict.NOT_DECIDED, None, reasons[0])
    return _End(Verdict.NOT_DECIDED, enclosure, "the enclosure of delta holds the claimed one")


def _directions(mechanism: Mechanism, relation: Relation, group: int) -> list[_Direction]:
    """The pairs that the theorems name, in the notation of the judge, for every choice among disjoint parts."""
    found = []
    for option in mechanisms.alternatives(mechanisms.Compose.of((mechanism, 1))):
        parts = list(option.accountable().parts())
        sampled = any(isinstance(part, mechanisms.Poisson) and part.sample_rate < 1 for part, _ in parts)
        names: tuple[Change, ...] = ("removed", "added") if sampled else ("removed",)
        names = ("replaced",) if relation is Relation.REPLACE_ONE else names
        found += [_direction(parts, relation, group, name) for name in names]
    return found


def _direction(parts: list[tuple[Mechanism, int]], relation: Relation, group: int, name: Change) -> _Direction:
    mu_squared, sampled, atoms, laplace = arb(0), [], [], []
    for part, times in parts:
        base, rate = (part.base, part.sample_rate) if isinstance(part, mechanisms.Poisson) else (part, 1.0)
        shift = int(relation.sensitivity) * group
        if rate < 1 and name == "replaced" and not (isinstance(base, mechanisms.Gaussian) and group == 1):
            raise NotDecided(f"no rule for {part} under {relation.value} in groups of {group}")
        if isinstance(base, mechanisms.Gaussian) and base.noise_multiplier > 0 and group <= _LARGEST_GROUP:
            if rate == 1:
                mu_squared += times * (arb(shift) / arb(base.noise_multiplier)) ** 2
            else:
                sampled.append((SampledGaussian(base.noise_multiplier, rate, group, name), times))
        elif isinstance(base, mechanisms.Laplace) and rate == 1:
            laplace.append((shift * arb(base.sensitivity) / arb(base.scale), times))
        elif isinstance(base, mechanisms.RandomizedResponse) and group == 1:
            atoms.append((AtomLaw.response(base.epsilon).sampled(rate, added=name == "added"), times))
        elif isinstance(base, mechanisms.DiscreteGaussian) and (rate == 1 or group == 1):
            scale = arb(base.noise_multiplier) * base.sensitivity
            law = AtomLaw.discrete_gaussian(scale, shift * base.sensitivity)
            atoms.append((law.sampled(rate, added=name == "added"), times))
        else:
            raise NotDecided(f"no rule for {part} in groups of {group}")
    return _Direction(tuple(sampled), mu_squared, tuple(atoms), LaplaceSum(tuple(laplace)))
