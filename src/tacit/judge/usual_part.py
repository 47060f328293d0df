"""The part of delta in which no step has rare noise: its masses exactly, and a bound on what epsilon cuts off.

A step is usual with weight chi(x) = Phi((place - x) / width). Where every x is at most x_1, v = (w^r - 1) / r is at
most v_1 and w^p <= e^{p v} <= 1 + p v + (p v)^2 g, g = (e^{p v_1} - 1 - p v_1) / (p v_1)^2 (Bennett's inequality), so
E[chi w^p; x <= x_1] <= E[chi (1 + p v + p^2 v^2 max(g, 1/2))], three moments. Elsewhere some usual step is above x_1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb
from scipy.special import log_ndtr

from tacit.judge.sampled_gaussian import Cut, Line, SampledGaussian, upper_tail

Counted = Sequence[tuple[SampledGaussian, int]]
_ROOT = 1 / 64  # r: w^r is nearly linear in log w.
_BEYOND = (4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0)  # (x_1 - place) / width.
_SHARES = 40


@dataclass(frozen=True)
class UsualPart:
    """A cut of every step, and the parameters of the bound.

    Args:
        steps: sampled steps with their counts, all removed or all added.
        cuts: where each becomes rare.
        beyond: (x_1 - place) / width.
        power: p.
    """

    steps: tuple[tuple[SampledGaussian, int], ...]
    cuts: tuple[Cut, ...]
    beyond: float
    power: float

    @classmethod
    def widest(
        cls, steps: tuple[tuple[SampledGaussian, int], ...], epsilon: float, log_error: float, width: float
    ) -> UsualPart | None:
        """The part that leaves the fewest rare steps, of those whose bound is expected to be below the error.

        Args:
            steps: as above.
            epsilon: as asked.
            log_error: log of the error.
            width: of the cuts, in units of the smaller of sigma / 2 and a third of the strip.
        """
        low, high, best = 0, _SHARES, None
        while low < high:
            middle = (low + high) // 2
            log_bound, found = _best(steps, middle / _SHARES, epsilon, width)
            low, high = (middle + 1, high) if log_bound < log_error else (low, middle)
            best = found if log_bound < log_error else best
        return best

    @property
    def rare(self) -> tuple[Cut, ...]:
        """The cuts that keep the other side."""
        return tuple(Cut(cut.place, cut.width, rare=True) for cut in self.cuts)

    def log_accuracy(self) -> float:
        """Log of the accuracy that the moments of the bound need."""
        largest = max(_ratio_log(self.power * _v(law, self._place(cut))) for (law, _), cut in self._each())
        return -max(largest, 0.0) - 2 * math.log(self.power / _ROOT) - math.log(100 * sum(t for _, t in self.steps))

    def delta(self, epsilon: float, log_error: float, tilt: float) -> arb:
        """What the integral of M without the usual part along Re s = `tilt` leaves out of delta.

        Of the usual part E[(1 - e^{epsilon - S})_+]; of the rest the residues 1 - e^epsilon of the poles, left of them.
        """
        added = self.steps[0][0].direction == "added"
        rest = self._bound(epsilon, added=added)
        found = rest / 2 + arb(0, (rest / 2).upper())
        # (1 - e^{-u})_+ = 1 - e^{-u} + (e^{-u} - 1)_+, u = S - epsilon.
        accuracy = log_error - math.log(100 * sum(times for _, times in self.steps))
        for s, factor in ((0.0, arb(1)), (-1.0, -arb(epsilon).exp())):
            if added or tilt < 0:
                mass = self._mass(s, accuracy)
                found += factor * ((mass if added else 0) + (1 - mass if tilt < 0 else 0))
        return found

    def _each(self) -> list[tuple[tuple[SampledGaussian, int], Cut]]:
        return list(zip(self.steps, self.cuts, strict=True))

    def _place(self, cut: Cut) -> float:
        return cut.place + self.beyond * cut.width

    def _mass(self, tilt: float, accuracy: float) -> arb:
        """The product of the usual moments at s = tilt, 0 or -1."""
        total = arb(1)
        for (law, times), cut in self._each():
            total *= Line(law, tilt, accuracy, cut).moment ** times
        return total

    def _bound(self, epsilon: float, *, added: bool) -> arb:
        p, r, accuracy = arb(self.power), arb(_ROOT), self.log_accuracy()
        # e^{-c epsilon} at s = c: c = p - 1 where the record is removed, c = -p where it is added.
        inside, outside = (p * epsilon if added else -(p - 1) * epsilon).exp(), arb(0)
        for (law, times), cut in self._each():
            place = arb(self._place(cut))
            nothing, once, twice = (
                Line(law, law.tilt(power), accuracy, cut).moment for power in (0.0, _ROOT, 2 * _ROOT)
            )
            reach = p * ((law.ball_log_w(place) * r).exp() - 1) / r
            # At least 1/2: then the bound is positive above x_1, too.
            growth = arb.max((reach.exp() - 1 - reach) / reach**2, arb(1) / 2)
            inside *= (
                nothing + p * (once - nothing) / r + p**2 * growth * (twice - 2 * once + nothing) / r**2
            ) ** times
            shifted = sum((mass * upper_tail((place - i) / law.sigma) for i, mass in enumerate(law.masses)), arb(0))
            outside += times * shifted * upper_tail((place - cut.place) / cut.width)
        return (inside + (arb(epsilon).exp() if added else 1) * outside).upper()


def _v(law: SampledGaussian, place: float) -> float:
    return math.expm1(_ROOT * float(law.log_w(np.array([place]))[0])) / _ROOT


def _ratio_log(reach: float) -> float:
    """Estimate of log g."""
    if abs(reach) < 1e-3:
        return -math.log(2)
    return reach - 2 * math.log(reach) if reach > 500 else math.log((math.expm1(reach) - reach) / reach**2)


def _best(
    steps: tuple[tuple[SampledGaussian, int], ...], share: float, epsilon: float, width: float
) -> tuple[float, UsualPart]:
    """Estimate of the least log of the bound for cuts at this share of the noise, and its parameters."""
    added = steps[0][0].direction == "added"
    cuts, means = [], []
    for law, _ in steps:
        # From -5 to 9 standard deviations.
        cut = Cut(
            law.sigma * (14 * share - 5) + share * law.size, width * min(law.sigma / 2, law.strip / 3), rare=False
        )
        x = law.places(law.tilt(0.0))
        mass = np.exp(law.log_density(x, law.tilt(0.0), cut)) * (x[1] - x[0])
        v = np.expm1(_ROOT * law.log_w(x)) / _ROOT
        cuts.append(cut)
        # 1 - E[chi] from the other side: what matters is small.
        missing = float((np.exp(law.log_density(x, law.tilt(0.0), Cut(cut.place, cut.width, rare=True)))).sum()) * (
            x[1] - x[0]
        )
        means.append((-missing, float((mass * v).sum()), float((mass * v * v).sum())))
    best = (math.inf, 0.0, 0.0)
    for beyond in _BEYOND:
        places = [cut.place + beyond * cut.width for cut in cuts]
        outside = (
            max(
                math.log(times) + float(log_ndtr((law.size - place) / law.sigma))
                for (law, times), place in zip(steps, places, strict=True)
            )
            + float(log_ndtr(-beyond))
            + (epsilon if added else 0.0)
        )
        limits = [_v(law, place) for (law, _), place in zip(steps, places, strict=True)]
        for log_power in np.linspace(0.05, 30, 300):
            p = math.exp(float(log_power))
            inside = p * epsilon if added else -(p - 1) * epsilon
            for (_, times), (zero, one, two), limit in zip(steps, means, limits, strict=True):
                change = zero + p * one
                log_g = _ratio_log(p * limit)
                if log_g > 600:
                    inside = math.inf
                    break
                change += p * p * two * math.exp(log_g)
                inside += times * math.log1p(max(change, -1 + 1e-12))
            best = min(best, (max(inside, outside), beyond, p))
    return best[0], UsualPart(steps, tuple(cuts), best[1], best[2])
