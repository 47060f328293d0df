"""delta(epsilon) of independent steps as an integral of their moments along Re s = c, enclosed in a ball.

delta = 1 / (2 pi i) int M(s) e^{-s epsilon} / (s (s + 1)) ds, M(s) = e^{mu^2 s (s + 1) / 2} prod_k m_k(s)^{T_k}, by the
trapezoid rule, whose error the strip |Re s - c| <= d bounds, up to a frequency beyond which the moments are shown to be
negligible. Where they fall too slowly, the part of every step with usual noise is taken out of M: its share of delta is
known up to a Chernoff bound. Derivation: THEORY.md.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
from flint import acb, arb, ctx

from tacit.judge.finite_laws import AtomLaw, LaplaceSum
from tacit.judge.sampled_gaussian import Ball, Cut, Line, NotDecided, SampledGaussian, up_to
from tacit.judge.usual_part import UsualPart

_MOST_POINTS = 150_000
_MANY_POINTS = 4000  # From here on taking out the usual part is tried.
_MARGIN = 3.0  # Of logs of errors: estimates are no bounds.
_LARGEST_COST = 2.5e7  # Nodes times frequencies: some ten seconds.
_LARGEST_TILT = 1e12
_WIDTHS = (0.6, 0.35, 0.2, 0.12)


@dataclass(frozen=True)
class Question:
    """One direction of a composition at one epsilon.

    Args:
        steps: sampled steps with their counts, all of one direction.
        mu_squared: of the Gaussian steps without sampling, together.
        others: steps with moments in closed form, with their counts.
        enough: an upper bound on delta below this need not be the least.
        epsilon: >= 0, exact.
        log_error: log of the error of delta that is aimed at.
    """

    steps: tuple[tuple[SampledGaussian, int], ...]
    mu_squared: arb
    epsilon: float
    log_error: float
    others: tuple[tuple[AtomLaw | LaplaceSum, int], ...] = ()
    enough: float = 0.0

    def log_size(self, tilt: float) -> float:
        """Estimate of log M(tilt) e^{-tilt epsilon}."""
        closed = float(self.mu_squared) * tilt * (tilt + 1) / 2 - tilt * self.epsilon
        closed += sum(times * float(law.moment(acb(tilt)).real.log()) for law, times in self.others)
        return closed + sum(times * law.log_moment(tilt) for law, times in self.steps)

    def log_rare_size(self, tilt: float, rare: Sequence[Cut]) -> float:
        """The same of M without the product of the usual parts."""
        whole = [law.log_moment(tilt) for law, _ in self.steps]
        parts = [law.log_moment(tilt, cut) for (law, _), cut in zip(self.steps, rare, strict=True)]
        shares = [min(math.exp(b - m), 1 - 1e-15) for m, b in zip(whole, parts, strict=True)]
        lost = sum(times * math.log1p(-share) for (_, times), share in zip(self.steps, shares, strict=True))
        return self.log_size(tilt) + math.log(-math.expm1(lost))

    def size(self, tilt: float) -> arb:
        """Upper bound on M(tilt) e^{-tilt epsilon}."""
        s = arb(tilt)
        found = self.closed(acb(s)).real * (-s * self.epsilon).exp()
        for law, times in self.steps:
            found *= Line(law, tilt, -math.log(100 * times) - _MARGIN).moment ** times
        return found.upper()

    def closed(self, s: acb) -> acb:
        """The factors of M(s) that are known in closed form."""
        found = (self.mu_squared * s * (s + 1) / 2).exp() if self.mu_squared > 0 else acb(1)
        for law, times in self.others:
            found *= law.moment(s) ** times
        return found


@dataclass(frozen=True)
class Plan:
    """Where the integral is taken: all of it is a choice, none of it is trusted.

    Args:
        tilt: Re s, > 0 or < -1.
        half_strip: less than the distance to the poles 0 and -1.
        spacing: of the frequencies.
        count: of the frequencies after 0; beyond the last one the moments are bounded.
        whole: nodes of each kind of step.
        rare: nodes of the rare side of each; none where M is integrated as it is.
        usual: the rest.
    """

    tilt: float
    half_strip: float
    spacing: float
    count: int
    whole: tuple[Line, ...]
    rare: tuple[Line, ...] = ()
    usual: UsualPart | None = None

    @property
    def cost(self) -> float:
        """What the nodes cost at all frequencies."""
        return self.count * (100 + sum(line.count for line in (*self.whole, *self.rare)))


def delta(question: Question) -> arb:
    """Enclosure of delta at epsilon.

    Raises:
        NotDecided: the moments fall too slowly, or numbers are out of reach.
    """
    if not question.mu_squared > 0 and not question.others and _ends_below(question):
        return arb(0)
    closed = _by_single_steps(question)
    if closed is not None:
        return closed
    tilt = _saddle(question.log_size, 1.0)
    if question.log_size(tilt) < question.log_error - _MARGIN:
        return up_to(question.size(tilt))
    plan = _plan(question, tilt)
    needs = [-line.log_accuracy for line in (*plan.whole, *plan.rare)] or [-question.log_error]
    if plan.usual is not None:
        ctx.prec = 96 + int(1.7 * max(*needs, -plan.usual.log_accuracy()))
        return _integral(question, plan) + plan.usual.delta(question.epsilon, question.log_error - _MARGIN, plan.tilt)
    ctx.prec = 96 + int(1.7 * max(needs))
    if plan.tilt > 0:
        return _integral(question, plan)
    # A line left of both poles leaves out M(0) - e^epsilon M(-1); sampled steps have moment 1 there.
    poles = question.closed(acb(0)).real - arb(question.epsilon).exp() * question.closed(acb(-1)).real
    return _integral(question, plan) + poles


def _by_single_steps(question: Question) -> arb | None:
    """One step in closed form; at epsilon 0 at most the sum of all, where that is enough."""
    if question.mu_squared > 0 or question.others:
        return None
    found = arb(0)
    for law, times in question.steps:
        one = law.one_step(question.epsilon)
        if one is None:
            return None
        found += times * one
    if len(question.steps) == 1 and question.steps[0][1] == 1:
        return found
    most = found.abs_upper()
    return up_to(most) if question.epsilon == 0 and most < question.enough else None


def _ends_below(question: Question) -> bool:
    """Whether epsilon is beyond every loss."""
    if any(law.direction != "added" for law, _ in question.steps):
        return False
    largest = sum((-times * law.size * (1 - arb(law.rate)).log() for law, times in question.steps), arb(0))
    if not (largest <= question.epsilon or largest > question.epsilon):
        raise NotDecided("epsilon is the largest loss up to rounding")
    return bool(largest <= question.epsilon)


def _integral(question: Question, plan: Plan) -> arb:
    step, tilt, half = arb(plan.spacing), arb(plan.tilt), arb(plan.half_strip)
    turn, total = acb(0, -step * question.epsilon), acb(0)
    for n, value in enumerate(_composed(question, plan)):
        s = acb(tilt, step * n)
        term = value * question.closed(s) * (turn * n).exp() / (s * (s + 1))
        total += term if n else term / 2
    ends = sum(question.size(plan.tilt + sign * plan.half_strip) for sign in (-1, 1))
    error = ends / (_distance(plan.tilt) - half) / ((2 * arb.pi() * half / step).exp() - 1) + _tail(question, plan)
    return (-tilt * question.epsilon).exp() * total.real * step / arb.pi() + arb(0, error.upper())


def _composed(question: Question, plan: Plan) -> Iterator[acb]:
    """M without its closed factors, or its part with a rare step, at every frequency."""
    if not question.steps:
        yield from [acb(1)] * (plan.count + 1)
        return
    counts = [times for _, times in question.steps]
    columns = [line.values(plan.spacing, plan.count + 1) for line in (*plan.whole, *plan.rare)]
    for values in zip(*columns, strict=True):
        wholes, rares = values[: len(counts)], values[len(counts) :]
        shares = [-b / m for b, m in zip(rares, wholes, strict=False)]
        if not rares:
            yield _product(wholes, counts)
        elif all(abs(share) < 0.5 for share in shares):
            lost = sum((share.log1p() * times for share, times in zip(shares, counts, strict=True)), acb(0))
            yield -_product(wholes, counts) * lost.expm1()
        else:
            yield _product(wholes, counts) - _product([m - b for b, m in zip(rares, wholes, strict=True)], counts)


def _product(values: Sequence[Ball], counts: Sequence[int]) -> Ball:
    """The product of the powers."""
    first, *others = (value**times for value, times in zip(values, counts, strict=True))
    return math.prod(others, start=first)


def _tail(question: Question, plan: Plan) -> arb:
    """Bound on the frequencies beyond the last."""
    at, s, counts = plan.spacing * plan.count, arb(plan.tilt), [times for _, times in question.steps]
    size = question.closed(acb(s)).real * (-question.mu_squared * arb(at) ** 2 / 2 - s * question.epsilon).exp()
    size /= arb.pi() * arb(plan.spacing) * plan.count
    if not counts:
        return size.upper()
    rares = [line.beyond(at) for line in plan.rare] or [arb(0)] * len(counts)
    bounds = [arb.min(line.beyond(at) + b, line.moment.upper()) for line, b in zip(plan.whole, rares, strict=True)]
    size *= _product(bounds, counts)
    if plan.rare:
        # |prod a^T - prod b^T| <= sum T |a - b| / m times prod m^T, where m is a bound on |a| and |b|.
        size *= sum(times * rare / bound for rare, bound, times in zip(rares, bounds, counts, strict=True))
    return size.upper()


def _saddle(log_size: Callable[[float], float], side: float) -> float:
    """The tilt > 0 or < -1 where an estimate of the integrand is least, within a percent."""
    logs = np.linspace(math.log(1e-8), math.log(_LARGEST_TILT), 50)
    for _ in range(3):
        tilts = [_tilt(side, math.exp(x)) for x in logs]
        best = int(np.argmin([_safe(lambda: log_size(c) - math.log(c * (c + 1))) for c in tilts]))  # noqa: B023
        logs = np.linspace(logs[max(best - 1, 0)], logs[min(best + 1, len(logs) - 1)], 9)
    return _tilt(side, math.exp(float(logs[4])))


def _tilt(side: float, distance: float) -> float:
    return distance if side > 0 else -1 - distance


def _safe(function: Callable[[], float]) -> float:
    try:
        with np.errstate(all="ignore"):
            found = function()
    except (NotDecided, OverflowError, ValueError):
        return math.inf
    return found if not math.isnan(found) else math.inf


def _plan(question: Question, tilt: float) -> Plan:
    plan = _frequencies(question, tilt)
    if plan.count > _MANY_POINTS:
        plan = min([plan, *_other_plans(question)], key=lambda each: each.cost)
    if plan.count > _MOST_POINTS or plan.cost > _LARGEST_COST:
        raise NotDecided(f"the moments fall too slowly: {plan.count} frequencies")
    return plan


def _other_plans(question: Question) -> list[Plan]:
    """Plans left of the poles, and those that integrate only what has a rare step."""
    found = [_frequencies(question, _saddle(question.log_size, -1.0))]
    directions = {law.direction for law, _ in question.steps}
    if question.mu_squared > 0 or question.others or directions not in ({"removed"}, {"added"}):
        return found
    for width in _WIDTHS:
        usual = UsualPart.widest(question.steps, question.epsilon, question.log_error - _MARGIN, width)
        if usual is not None:
            # On this side of the poles the moments have no other scale than that of epsilon.
            side = 1.0 if directions == {"added"} else -1.0
            tilt = _saddle(partial(question.log_rare_size, rare=usual.rare), side)
            with suppress(NotDecided):
                found.append(_frequencies(question, tilt, usual))
    return found


def _frequencies(question: Question, tilt: float, usual: UsualPart | None = None) -> Plan:
    rare: tuple[Cut, ...] = usual.rare if usual else ()
    spacing, tilt, half = _strip(question, tilt)
    top = question.log_rare_size(tilt, rare) if rare else question.log_size(tilt)
    counts = [times for _, times in question.steps]
    room = math.log(_distance(tilt) / max(sum(counts), 1)) - 2 * _MARGIN
    accuracy = min(question.log_error - top + room, -_MARGIN)
    whole = tuple(Line(law, tilt, accuracy) for law, _ in question.steps)
    parts = tuple(Line(line.law, tilt, accuracy, cut) for line, cut in zip(whole, rare, strict=False))
    size = question.log_size(tilt)

    def log_tail(y: float) -> float:
        ratios: list[float] = []
        gains = [line.log_beyond(y)[0] - line.estimate for line in whole]
        if rare:
            shares = [line.log_beyond(y)[0] - each.estimate for line, each in zip(parts, whole, strict=True)]
            gains = [float(np.logaddexp(gain, share)) for gain, share in zip(gains, shares, strict=True)]
            ratios = [s - min(g, 0.0) + math.log(times) for g, s, times in zip(gains, shares, counts, strict=True)]
        total = size + sum(times * min(gain, 0.0) for times, gain in zip(counts, gains, strict=True))
        total += float(np.logaddexp.reduce(ratios)) if rare else 0.0
        return total - float(question.mu_squared) * y * y / 2 - math.log(math.pi * y)

    last, goal = spacing, question.log_error - _MARGIN
    while last < 2 * spacing * _MOST_POINTS and _safe(partial(log_tail, last)) > goal:
        last *= 1.2
    return Plan(tilt, half, spacing, math.ceil(last / spacing), whole, parts, usual)


def _distance(tilt: float) -> float:
    """Distance to the nearer pole."""
    return tilt if tilt > 0 else -1 - tilt


def _strip(question: Question, tilt: float) -> tuple[float, float, float]:
    """Spacing of the frequencies, Re s and half-width of the strip: the widest that the error allows.

    Moments of rare losses grow suddenly from some tilt on: what is least there may have no room on its right.
    """
    best, distance = (0.0, 0.0, 0.0), _distance(tilt)
    for less in (16.0, 10.0, 6.0, 4.0, 2.5, 1.5, 1.0, 0.85, 0.7, 0.5, 0.3, 0.15):
        for share in (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95):
            middle, half = _tilt(math.copysign(1.0, tilt), distance * less), distance * less * share
            ends = _safe(lambda: max(question.log_size(middle + sign * half) for sign in (-1, 1)))  # noqa: B023
            need = ends - math.log(distance * less - half) - question.log_error + _MARGIN
            best = max(best, (2 * math.pi * half / max(need, 1.0), middle, half))
    if not best[0] > 0:
        raise NotDecided("no strip of the integral was found")
    return best
