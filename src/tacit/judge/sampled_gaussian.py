"""Moments E[e^{(c + iy) L}] of the loss L of one Poisson-subsampled Gaussian step, by a trapezoid rule with bounds.

With w(x) = sum_j Bin(k, q)(j) e^{(2 j x - j^2) / (2 sigma^2)} and x ~ N(0, sigma^2), the moment is E[w(x)^p w(-x)^n]:
p = 1 + s, n = 0 for a group that is removed, p = -s, n = 0 for one that is added, p = 1 + s, n = -s for one that is
replaced. The line is moved to Im x = a, where |e^{iyL}| = e^{-y arg} <= 1: the number of nodes does not grow with y,
and the same sum of moduli bounds the moment for every larger y. Derivation: THEORY.md.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, TypeVar

import numpy as np
from flint import acb, acb_mat, arb, ctx
from scipy.special import gammaln, log_ndtr


class NotDecided(Exception):
    """The ways of the judge do not reach this question: the reason why a bracket is neither confirmed nor refuted."""


Change = Literal["removed", "added", "replaced"]
Ball = TypeVar("Ball", arb, acb)
_MOST_NODES = 20_000
_REACH = 14.0  # Standard deviations that estimates cover.
_HEIGHTS = (0.003, 0.01, 0.03, 0.08, 0.15, 0.3, 0.5)  # Of lines that bound a moment, in units of the strip.


@dataclass(frozen=True)
class Cut:
    """Weight of noise x in a part of a step: Phi((x - place) / width) of the rare one, 1 minus it of the usual one."""

    place: float
    width: float
    rare: bool

    @property
    def sign(self) -> float:
        """1.0 where the weight grows with the noise."""
        return 1.0 if self.rare else -1.0

    def weight(self, z: acb) -> acb:
        """The weight at a complex place."""
        return acb(1) if self is WHOLE else upper_tail((self.place - z) * self.sign / self.width)


WHOLE = Cut(-1e308, 1e300, rare=True)
"""The cut that keeps everything: any noise is rare."""


@dataclass(frozen=True)
class SampledGaussian:
    """One step; `size` records are removed, added or replaced together.

    Args:
        sigma: noise multiplier.
        rate: sampling rate in (0, 1).
        size: records of the group; 1 where they are replaced.
        direction: what happens to them.
    """

    sigma: float
    rate: float
    size: int
    direction: Change

    def powers(self, tilt: float) -> tuple[float, float]:
        """The powers of w(x) and w(-x) at s = tilt."""
        if self.direction == "added":
            return -tilt, 0.0
        return 1 + tilt, -tilt if self.direction == "replaced" else 0.0

    def tilt(self, power: float) -> float:
        """The tilt of a power of w(x)."""
        return -power if self.direction == "added" else power - 1

    def ball_log_w(self, z: Ball) -> Ball:
        """Log w(z) where its argument keeps within a quarter turn."""
        (first, second, *others), ratio = _masses(self, ctx.prec), (z / arb(self.sigma) ** 2).exp()
        total, power = first + second * ratio, ratio
        for mass in others:
            power *= ratio
            total += mass * power
        return total.log()

    def one_step(self, epsilon: float) -> arb | None:
        """delta(epsilon) of one step in closed form, where one record is added or removed; None of others."""
        if self.size > 1 or self.direction == "replaced":
            return None
        sigma, q, added = arb(self.sigma), arb(self.rate), self.direction == "added"
        ratio = ((-arb(epsilon) if added else arb(epsilon)).exp() - 1 + q) / q
        if not ratio > 0:
            return arb(0) if ratio <= 0 else None
        # The loss exceeds epsilon on one side of the place where w is e^epsilon, or e^-epsilon.
        place = sigma**2 * ratio.log() + arb(1) / 2
        away, near = (upper_tail((-1 if added else 1) * (place - shift) / sigma) for shift in (0, 1))
        mixed = (1 - q) * away + q * near
        return away - arb(epsilon).exp() * mixed if added else mixed - arb(epsilon).exp() * away

    @property
    def strip(self) -> float:
        """Half-width of the strip where the arguments of w keep within a quarter turn."""
        return math.pi / 2 * self.sigma**2 / self.size * (1 - 1e-12)

    @cached_property
    def _logs(self) -> np.ndarray:
        j = np.arange(self.size + 1)
        chosen = gammaln(self.size + 1) - gammaln(j + 1) - gammaln(self.size - j + 1)
        log_rates = j * math.log(self.rate) + (self.size - j) * math.log1p(-self.rate)
        return chosen + log_rates - j**2 / (2 * self.sigma**2)

    def log_w(self, x: np.ndarray) -> np.ndarray:
        """Estimate of log w at real or complex places."""
        if self.size == 1 and float(np.real(x).max()) < 600 * self.sigma**2:
            return np.log1p(self.rate * np.expm1((x - 0.5) / self.sigma**2))
        terms = self._logs[:, None] + np.multiply.outer(np.arange(self.size + 1), x / self.sigma**2)
        top = np.real(terms).max(axis=0)
        return top + np.log(np.exp(terms - top).sum(axis=0))

    def places(self, tilt: float) -> np.ndarray:
        """Places that hold all but a negligible part of the moment."""
        p, n = self.powers(tilt)
        spread = _REACH * self.sigma
        left = spread + self.sigma**2 * math.log1p(max(-p, 0.0) * self.size**2)
        right = spread + max(p, 0.0) * self.size + self.sigma**2 * math.log1p(-n)
        step = min(self.sigma, self.sigma**2 / self.size) / 8
        if (left + right) / step > 400_000:
            raise NotDecided("the moments reach too far")
        return np.arange(-left, right, step)

    def log_density(self, x: np.ndarray, tilt: float, cut: Cut) -> np.ndarray:
        """Estimate of the log of the integrand at real places."""
        p, n = self.powers(tilt)
        found = -(x**2) / (2 * self.sigma**2) - math.log(self.sigma * math.sqrt(2 * math.pi)) + p * self.log_w(x)
        if n:
            found = found + n * self.log_w(-x)
        return found if cut is WHOLE else found + log_ndtr(cut.sign * (x - cut.place) / cut.width)

    def log_moment(self, tilt: float, cut: Cut = WHOLE) -> float:
        """Estimate of the log of the moment."""
        x = self.places(tilt)
        return log_sum(self.log_density(x, tilt, cut)) + math.log(x[1] - x[0])


@lru_cache(maxsize=64)
def _masses(law: SampledGaussian, precision: int) -> list[arb]:
    """Bin(k, q)(j) e^{-j^2 / (2 sigma^2)} at this precision."""
    k, q, variance = law.size, arb(law.rate), arb(law.sigma) ** 2
    return [math.comb(k, j) * q**j * (1 - q) ** (k - j) * (-arb(j * j) / (2 * variance)).exp() for j in range(k + 1)]


def log_sum(logs: np.ndarray) -> float:
    """Log of the sum of e^logs."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


class Line:
    """The nodes of one step at Re s = `tilt`, and what they show of its moments.

    Args:
        law: the step.
        tilt: real part of s; exact.
        log_accuracy: log of the error that is aimed at, relative to the moment at y = 0; negative.
        cut: the part of the step that counts; all of it by default.

    Raises:
        NotDecided: too many nodes would be needed.
    """

    def __init__(self, law: SampledGaussian, tilt: float, log_accuracy: float, cut: Cut = WHOLE):
        self.law, self.tilt, self.cut, self.log_accuracy = law, tilt, cut, log_accuracy
        self._p, self._n = law.powers(tilt)
        self._falling = max(-self._p, 0.0) - self._n  # The power by which w may fall off the real line.
        self._plan(log_accuracy)
        if self.count > _MOST_NODES:
            raise NotDecided(f"a moment needs {self.count} nodes")

    def _plan(self, log_accuracy: float) -> None:
        law = self.law
        x = law.places(self.tilt)
        logs = law.log_density(x, self.tilt, self.cut)
        self.estimate = log_sum(logs) + math.log(x[1] - x[0])
        strips = law.strip * np.arange(1, 61) / 60
        growth = strips**2 / 2 * (law.sigma**-2 + self.cut.width**-2)
        cosines = -self._falling * np.log(np.cos(law.size * strips / (2 * law.sigma**2)))
        flat = law.size * self._falling * -math.log1p(-law.rate) - self.estimate
        self._flat = self._p < 0 and flat < float(cosines[-1])
        growth = growth + (flat if self._flat else cosines)
        steps = math.pi * strips / (growth + math.log(2) - log_accuracy)
        best = int(steps.argmax())
        self.strip, self.step = float(strips[best]), float(steps[best])
        held = np.flatnonzero(logs > self.estimate + log_accuracy - 8 - float(growth[best]) / 2)
        # With a node on either side of 0, phi grows left of all nodes and falls right of them.
        low, high = x[max(held[0] - 1, 0)], x[min(held[-1] + 1, len(x) - 1)]
        self.first, self.last = min(math.floor(low / self.step), 0) - 1, max(math.ceil(high / self.step), 0) + 1
        self._floor = self.estimate + log_accuracy - float(growth[best]) / 2

    @property
    def count(self) -> int:
        """Number of nodes."""
        return self.last - self.first + 1

    def _growth(self, height: float) -> arb:
        """How much larger density and weight may be at this height above the real line."""
        return (arb(height) ** 2 / 2 * (arb(self.law.sigma) ** -2 + arb(self.cut.width) ** -2)).exp()

    def _nodes(self, height: float) -> tuple[list[acb], list[acb]]:
        """Weights and losses on Im x = `height` (its negative where the record is added)."""
        law, variance, added = self.law, arb(self.law.sigma) ** 2, self.law.direction == "added"
        scale, shift = arb(self.step) / (2 * arb.pi() * variance).sqrt(), acb(0, -height if added else height)
        weights, losses = [], []
        for j in range(self.first, self.last + 1):
            z = arb(self.step) * j + shift
            log_w = law.ball_log_w(z)
            exponent, loss = self._p * log_w - z * z / (2 * variance), -log_w if added else log_w
            if self._n:
                other = law.ball_log_w(-z)
                exponent, loss = exponent + self._n * other, log_w - other
            weights.append(scale * exponent.exp() * self.cut.weight(z))
            losses.append(loss)
        return weights, losses

    @cached_property
    def nodes(self) -> tuple[list[acb], list[acb]]:
        """Weights and losses on the middle of the strip."""
        return self._nodes(self.strip / 2)

    @cached_property
    def error(self) -> arb:
        """Bound on |sum - moment| at every y >= 0, and on that of the sum of moduli in `beyond`."""
        law, strip = self.law, arb(self.strip)
        factor = 2 * self._growth(self.strip) / ((arb.pi() * strip / self.step).exp() - 1)
        if self._flat:
            return factor * self._most_flat + self._dropped
        factor *= (law.size * strip / (2 * arb(law.sigma) ** 2)).cos() ** -arb(self._falling)
        if not factor < 0.5:
            raise NotDecided("the strip of a moment is too wide")
        largest = (self._sum.abs_upper() + self._dropped) / (1 - factor)
        return factor * largest + self._dropped

    @property
    def _most_flat(self) -> arb:
        """The most that falling powers of w add anywhere."""
        return (1 - arb(self.law.rate)) ** (-self.law.size * arb(self._falling))

    @cached_property
    def _sum(self) -> arb:
        return sum(self.nodes[0], acb(0)).real

    @cached_property
    def moment(self) -> arb:
        """The moment at y = 0."""
        return self._sum + arb(0, self.error.upper())

    @cached_property
    def _dropped(self) -> arb:
        """Bound on the nodes left out on both sides."""
        law, cut = self.law, self.cut
        low, high = arb(self.step) * self.first, arb(self.step) * self.last
        left, right = upper_tail(-low / law.sigma) * self._most_flat, upper_tail(high / law.sigma)
        if cut.rare:
            left *= cut.weight(acb(low)).real
        if self._p > 0:
            left *= law.ball_log_w(acb(low)).real.exp() ** self._p
            right = self._most_flat * self._right_of(float(high))
        else:
            steep = law.ball_log_w(acb(high, arb(self.strip) / 2)).exp().real ** self._p
            right *= self._most_flat if self._n else steep
            if not cut.rare:
                right *= cut.weight(acb(high)).real
        return self._growth(self.strip / 2) * (left + right)

    def _right_of(self, start: float) -> arb:
        """Bound on the sum of step phi(x) w(x)^p over the nodes beyond `start`, in pieces: phi falls and w grows."""
        total, place, piece, negligible = arb(0), start, self.law.sigma, arb(self._floor).exp()
        for _ in range(10_000):
            if place >= self._p * self.law.size:
                return total + self._bound(place, place) * (self.step + self.law.sigma * (arb.pi() / 2).sqrt())
            more = self._bound(place, place + piece) * (piece + self.step)
            if more < negligible:
                total, place, piece = total + more, place + piece, 2 * piece
            elif piece < 1e-9 * self.law.sigma:
                break
            else:
                piece /= 2
        raise NotDecided("the tail of a moment is too heavy")

    def _bound(self, inner: float, outer: float) -> arb:
        variance = arb(self.law.sigma) ** 2
        density = (-(arb(inner) ** 2) / (2 * variance)).exp() / (2 * arb.pi() * variance).sqrt()
        weight = arb(1) if self.cut.rare else self.cut.weight(acb(inner)).real
        return density * weight * (self.law.ball_log_w(acb(outer)).real * self._p).exp()

    def log_beyond(self, y: float) -> tuple[float, float]:
        """Estimate of the log of `beyond`, and the height of its line."""
        return min((log_sum(logs - y * turn), height) for height, (logs, turn) in self._other_lines.items())

    @cached_property
    def _other_lines(self) -> dict[float, tuple[np.ndarray, np.ndarray]]:
        """Estimates by height of the line: log moduli of the integrand, with the step, and arguments of e^L."""
        law, cut = self.law, self.cut
        x = law.places(self.tilt)
        logs, here, there = law.log_density(x, self.tilt, cut) + math.log(x[1] - x[0]), law.log_w(x), law.log_w(-x)
        found = {}
        for height in (self.strip * share for share in _HEIGHTS):
            one, other = law.log_w(x + 1j * height), law.log_w(-x - 1j * height) if self._n else there
            grown = logs + height**2 / 2 * (law.sigma**-2 + cut.width**-2)
            grown = grown + self._p * (np.real(one) - here) + self._n * (np.real(other) - there)
            found[height] = (grown, np.imag(one) - (np.imag(other) if self._n else 0.0))
        return found

    def beyond(self, y: float) -> arb:
        """Upper bound on |moment| at every y' >= y, from a line Im x <= strip / 2."""
        weights, losses = self._nodes(self.log_beyond(y)[1])
        sizes = (abs(weight) * (-loss.imag * y).exp() for weight, loss in zip(weights, losses, strict=True))
        return (sum(sizes, arb(0)) + self.error).upper()

    def values(self, spacing: float, count: int) -> list[acb]:
        """Moments at y = 0, spacing, ..., (count - 1) spacing."""
        weights, losses = self.nodes
        block = max(math.isqrt(count), 1)
        blocks = -(-count // block)
        turns = [(acb(0, spacing) * loss).exp() for loss in losses]
        long_turns = [(acb(0, spacing) * block * loss).exp() for loss in losses]
        rows = [[a * b for a, b in zip(row, weights, strict=True)] for row in _powers(long_turns, blocks)]
        left = acb_mat(blocks, self.count, [x for row in rows for x in row])
        right = acb_mat(block, self.count, [x for row in _powers(turns, block) for x in row]).transpose()
        radius = self.error.upper()
        around = acb(arb(0, radius), arb(0, radius))
        return [value + around for value in (left * right).entries()[:count]]


def _powers(turns: list[acb], count: int) -> list[list[acb]]:
    """Powers 0, ..., count - 1 of each, as products of two halves: repeated turns would widen a ball each time."""
    rows = [[acb(1)] * len(turns), turns][:count]
    for n in range(2, count):
        rows.append([a * b for a, b in zip(rows[n // 2], rows[n - n // 2], strict=True)])
    return rows


def upper_tail(z: Ball) -> Ball:
    """P(N(0, 1) > z), of real or complex z."""
    return (z / arb(2).sqrt()).erfc() / 2


def up_to(most: arb) -> arb:
    """The ball of [0, most]."""
    return most / 2 + arb(0, (most / 2).upper())
