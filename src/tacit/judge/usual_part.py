"""The part of delta in which no step has rare noise: its masses exactly, and a bound on what epsilon cuts off.

A step is usual with weight chi(x) = Phi((place - x) / width). Where every x is at most x_1, v = (w^r - 1) / r is at
most v_1 and w^p <= e^{p v} <= 1 + p v + (p v)^2 g, g = (e^{p v_1} - 1 - p v_1) / (p v_1)^2 (Bennett's inequality), so
E[chi w^p; x <= x_1] <= E[chi (1 + p v + p^2 v^2 max(g, 1/2))], three moments. Elsewhere some usual step is above x_1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from flint import arb
from scipy.special import log_ndtr

from tacit.judge.sampled_gaussian import Cut, Line, SampledGaussian, up_to, upper_tail

Counted = tuple[tuple[SampledGaussian, int], ...]
_ROOT = 1 / 64  # r: w^r is nearly linear in log w.
_BEYOND = (4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0)  # (x_1 - place) / width.
_SHARES = 40
_POWERS = np.exp(np.linspace(0.05, 30, 300))  # p.


@dataclass(frozen=True)
class UsualPart:
    """A cut of every step, and the parameters of the bound.

    Args:
        steps: sampled steps with their counts, all removed or all added.
        cuts: where each becomes rare.
        beyond: (x_1 - place) / width.
        power: p.
    """

    steps: Counted
    cuts: tuple[Cut, ...]
    beyond: float
    power: float

    @classmethod
    def widest(cls, steps: Counted, epsilon: float, log_error: float, width: float) -> UsualPart | None:
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
        reaches = (self.power * _v(law, np.array([self._place(cut)])) for (law, _), cut in self._each())
        largest = max(float(_ratio_log(reach)[0]) for reach in reaches)
        return -max(largest, 0.0) - 2 * math.log(self.power / _ROOT) - math.log(100 * sum(t for _, t in self.steps))

    def delta(self, epsilon: float, log_error: float, tilt: float) -> arb:
        """What the integral of M without the usual part along Re s = `tilt` leaves out of delta.

        Of the usual part E[(1 - e^{epsilon - S})_+]; of the rest the residues 1 - e^epsilon of the poles, left of them.
        """
        added = self.steps[0][0].direction == "added"
        found = up_to(self._bound(epsilon, added=added))
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
            lines = (Line(law, law.tilt(power), accuracy, cut) for power in (0.0, _ROOT, 2 * _ROOT))
            nothing, once, twice = (line.moment for line in lines)
            reach = p * ((law.ball_log_w(place) * r).exp() - 1) / r
            # At least 1/2: then the bound is positive above x_1, too.
            growth = arb.max((reach.exp() - 1 - reach) / reach**2, arb(1) / 2)
            first, second = (once - nothing) / r, (twice - 2 * once + nothing) / r**2
            inside *= (nothing + p * first + p**2 * growth * second) ** times
            k, q = law.size, arb(law.rate)
            for j in range(k + 1):
                shifted = math.comb(k, j) * q**j * (1 - q) ** (k - j) * upper_tail((place - j) / law.sigma)
                outside += times * shifted * upper_tail((place - cut.place) / cut.width)
        return (inside + (arb(epsilon).exp() if added else 1) * outside).upper()


def _v(law: SampledGaussian, x: np.ndarray) -> np.ndarray:
    return np.expm1(_ROOT * law.log_w(x)) / _ROOT


def _ratio_log(reach: np.ndarray) -> np.ndarray:
    """Estimate of log g."""
    with np.errstate(all="ignore"):
        near, far = np.log((np.expm1(reach) - reach) / reach**2), reach - 2 * np.log(np.abs(reach))
    return np.where(np.abs(reach) < 1e-3, -math.log(2), np.where(reach > 500, far, near))


def _best(steps: Counted, share: float, epsilon: float, width: float) -> tuple[float, UsualPart]:
    """Estimate of the least log of the bound for cuts at this share of the noise, and its parameters."""
    added, best = steps[0][0].direction == "added", (math.inf, 0.0, 0.0)
    # From -5 to 9 standard deviations.
    places = [law.sigma * (14 * share - 5) + share * law.size for law, _ in steps]
    widths = [width * min(law.sigma / 2, law.strip / 3) for law, _ in steps]
    cuts = tuple(Cut(place, each, rare=False) for place, each in zip(places, widths, strict=True))
    means = [_means(law, cut) for (law, _), cut in zip(steps, cuts, strict=True)]
    for beyond in _BEYOND:
        outside, inside = -math.inf, (_POWERS if added else 1 - _POWERS) * epsilon
        for (law, times), (zero, one, two), cut in zip(steps, means, cuts, strict=True):
            place = cut.place + beyond * cut.width
            outside = max(outside, math.log(times) + float(log_ndtr((law.size - place) / law.sigma)))
            log_growth = _ratio_log(_POWERS * _v(law, np.array([place])))
            change = zero + _POWERS * one + _POWERS**2 * two * np.exp(np.minimum(log_growth, 600.0))
            change[log_growth > 600] = math.inf
            inside = inside + times * np.log1p(np.maximum(change, -1 + 1e-12))
        outside += float(log_ndtr(-beyond)) + (epsilon if added else 0.0)
        bounds = np.maximum(inside, outside)
        best = min(best, (float(bounds.min()), beyond, float(_POWERS[bounds.argmin()])))
    return best[0], UsualPart(tuple(steps), cuts, best[1], best[2])


def _means(law: SampledGaussian, cut: Cut) -> tuple[float, float, float]:
    """Estimates of E[chi] - 1, from the other side, as what matters is small, E[chi v] and E[chi v^2]."""
    x, tilt = law.places(law.tilt(0.0)), law.tilt(0.0)
    both = (cut, Cut(cut.place, cut.width, rare=True))
    usual, rare = (np.exp(law.log_density(x, tilt, each)) * (x[1] - x[0]) for each in both)
    v = _v(law, x)
    return -float(rare.sum()), float((usual * v).sum()), float((usual * v * v).sum())
