"""Bounds on the least mu whose Gaussian profile, plus a slack, covers a privacy profile: exact values of delta decide.

Every epsilon needs the mu(epsilon) with delta_mu(epsilon) = delta(epsilon) - slack, and the largest of these is the
answer; any of them bounds it from below. A candidate a little above the largest found is proven by intervals: both
profiles are convex in e^epsilon, so that on an interval the one lies below the chord of its upper bounds and the
Gaussian one above its tangent in the middle. An interval where the tangent is not above the chord at both ends is cut
in two. The gap between the two profiles grows with the square of the distance from where they are closest, as do the
lengths of intervals that suffice, so that some hundred intervals cover everything.

Source: Dong, Roth & Su 2022, Corollary 2.13 (a mechanism is mu-GDP exactly if delta <= delta_mu everywhere).
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit.accounting.pld.rounding import UNIT
from tacit.root_finding import minimum
from tacit.tradeoff.gaussian import gaussian_delta, gaussian_mu

Interval = tuple[float, float]
Delta = Callable[[float], Interval]

_ABOVE = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # How far above the largest found mu the candidates lie.
_INTERVALS = 2000  # Intervals for one candidate at most.
_SHORTEST = 1e-9  # Length of an interval, relative to its place, that is not cut again.
_MISSES = 8  # How often a larger mu may turn out to be needed before a candidate is given up.
# Relative widths of delta from which bounds around another epsilon are asked for: anywhere, and where mu is decided.
_WIDE, _NARROW = 1e-3, 1e-8
_CENTRES = 6  # Epsilons around which bounds are asked for at most: each costs some hundredths of a second.
_DENSITY, _SLOPE = 64.0, 8.0  # Units of a density and a Mills ratio at t: 64 + 8 t^2 (Theorem 10.2).
_PLACE = 4.0  # Units of epsilon / mu and mu / 2 that their difference t loses.
_DOWN = (1e-13, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # Relative steps down from a computed mu, till its delta is certain.


class Chart:
    """Bounds on delta everywhere: those around the nearest of a few epsilons, more of which are asked for at need.

    Args:
        near: narrow bounds around an epsilon.
        slack: a delta up to which nothing narrower is needed.
    """

    def __init__(self, near: Callable[[float], Delta], slack: float = 0.0):
        self._near, self._slack = near, slack
        self.centres: list[tuple[float, Delta]] = []
        """The epsilons around which bounds were asked for, with these bounds."""
        self._known: dict[float, Interval] = {}

    def around(self, epsilon: float) -> Delta:
        """Bounds that are narrow around `epsilon`; they serve other epsilons too."""
        bounds = self._near(epsilon)
        self.centres.append((epsilon, bounds))
        return bounds

    def __call__(self, epsilon: float) -> Interval:
        """Lower and upper bound on delta."""
        if epsilon not in self._known:
            self._known[epsilon] = self._bounds(epsilon)
        return self._known[epsilon]

    def _bounds(self, epsilon: float) -> Interval:
        low, high = 0.0, 1.0
        for _, bounds in sorted(self.centres, key=lambda centre: abs(centre[0] - epsilon))[:2]:
            floor, ceiling = bounds(epsilon)
            low, high = max(low, floor), min(high, ceiling)
            if high - low <= _WIDE * high or high <= self._slack:
                return low, high
        if len(self.centres) >= _CENTRES:
            return low, high
        floor, ceiling = self.around(epsilon)(epsilon)
        return max(low, floor), min(high, ceiling)


def gaussian_bounds(epsilon: float, mu: float) -> Interval:
    """Lower and upper bound on the delta of `gaussian_delta`, phi(t) (R(t) - R(t + mu)), t = epsilon / mu - mu / 2.

    phi(t) and R lose 64 + 8 t^2 units of the larger term phi R(t) <= Phi(-t), and an error of t moves delta by the
    smaller one times mu (THEORY.md, Theorem 10.2).
    """
    value = gaussian_delta(epsilon, mu)
    if not 0.0 < mu < math.inf:
        return value, value
    t = epsilon / mu - mu / 2
    terms = 2 * float(ndtr(-t)) * (_DENSITY + _SLOPE * t * t)
    place = mu * float(ndtr(-t)) * _PLACE * (epsilon / mu + mu)
    unsure = UNIT * (terms + place)
    return max(value - unsure, 0.0), value + unsure


def _mu_below(epsilon: float, delta: float) -> float:
    """A mu at which the Gaussian delta is certainly at most `delta`, close to the largest one."""
    mu = gaussian_mu(epsilon, delta)
    if not 0.0 < mu < math.inf:
        return mu
    below = (mu * (1 - share) for share in _DOWN)
    return next((each for each in below if gaussian_bounds(epsilon, each)[1] <= delta), 0.0)


def mu_floor(slack: float, epsilons: np.ndarray, chart: Chart) -> float:
    """A lower bound on mu: the largest that one of the epsilons, and those near the best of them, needs.

    Args:
        slack: >= 0, what every delta may exceed the Gaussian one by.
        epsilons: increasing, from 0, shape (points,).
        chart: bounds on delta.
    """
    if not chart.centres:
        chart.around(float(epsilons[3 * len(epsilons) // 4]))
    # From where most is expected: an epsilon whose delta the largest mu covers needs no search.
    largest, best = 0.0, 0
    for i in np.argsort(np.abs(epsilons - chart.centres[0][0]), kind="stable").tolist():
        epsilon, delta = float(epsilons[i]), chart(float(epsilons[i]))[0] - slack
        if gaussian_delta(epsilon, largest) < delta and (mu := _mu_below(epsilon, delta)) > largest:
            largest, best = mu, i
    if not 0 < largest < math.inf:
        return largest
    ends = float(epsilons[max(best - 1, 0)]), float(epsilons[min(best + 1, len(epsilons) - 1)])
    low, high = chart(float(epsilons[best]))
    bounds = chart.around(float(epsilons[best])) if high - low > _NARROW * high else chart
    return max(largest, _largest(slack, *ends, bounds))


def _largest(slack: float, left: float, right: float, bounds: Delta) -> float:
    """About the largest mu that an epsilon in between needs, rounded down."""

    def loss(epsilon: float) -> float:
        return -gaussian_mu(epsilon, bounds(epsilon)[0] - slack)

    epsilon = minimum(loss, left, right, accuracy=1e-5 * (right - left))
    return _mu_below(epsilon, bounds(epsilon)[0] - slack)


def mu_bounds(floor: float, slack: float, epsilons: np.ndarray, chart: Chart) -> Interval:
    """Lower and upper bound on mu, from one that single epsilons were found to need.

    Args:
        floor: lower bound on mu, > 0.
        slack: >= 0; delta at the last of `epsilons` must not exceed it.
        epsilons: increasing, from 0, shape (points,); the first intervals.
        chart: bounds on delta.
    """
    for above in _ABOVE:
        for _ in range(_MISSES):
            mu = floor * (1 + above)
            settled, missed = _settled(mu, slack, epsilons, chart)
            if settled:
                return floor, mu
            if missed is None:
                break
            floor = max(floor, _largest(slack, *missed, chart))
    return floor, math.inf


def _settled(mu: float, slack: float, epsilons: np.ndarray, chart: Chart) -> tuple[bool, Interval | None]:
    """Whether mu covers every interval, and one with an epsilon that it certainly does not cover."""
    pending = list(zip(epsilons[-2::-1].tolist(), epsilons[:0:-1].tolist(), strict=True))
    for _ in range(_INTERVALS):
        if not pending:
            return True, None
        left, right = pending.pop()
        if _covered(mu, left, right, slack, chart):
            continue
        middle = (left + right) / 2
        if chart(middle)[0] - slack > gaussian_delta(middle, mu):
            return False, (left, right)
        if not right - left > _SHORTEST * right:
            return False, None
        pending += [(middle, right), (left, middle)]
    return not pending, None


def _covered(mu: float, left: float, right: float, slack: float, chart: Chart) -> bool:
    """Whether a tangent of delta_mu lies above the chord of delta - slack on [left, right]."""
    at_left = chart(left)[1] - slack
    if at_left <= 0.0:
        return True
    middle = (left + right) / 2
    value = gaussian_bounds(middle, mu)[0]
    fall = math.exp(min(middle + float(log_ndtr(-middle / mu - mu / 2)), 0.0))
    t = middle / mu + mu / 2
    loose = UNIT * (_DENSITY + _SLOPE * t * t + _PLACE * middle)  # Of the tangent's slope, relative.
    if at_left > value - fall * math.expm1(left - middle) * (1 - loose):
        return False
    return chart(right)[1] - slack <= value - fall * math.expm1(min(right - middle, 700.0)) * (1 + loose)


def regret_ceiling(mu: float, epsilons: np.ndarray, chart: Chart) -> float:
    """An upper bound on the regret of G_mu, the smallest k with f(alpha + k) - k <= G_mu(alpha) for every alpha.

    In convex conjugates the condition is delta_mu(epsilon) - delta(epsilon) <= k (1 + e^epsilon) for every epsilon, and
    by the symmetry of both functions for those >= 0. On an interval delta_mu lies below its chord and delta above the
    lines through two neighbouring points on either side; a quotient of lines is largest at an end, or where two meet.

    Args:
        mu: > 0.
        epsilons: increasing, from 0, shape (points,).
        chart: bounds on delta.
    """
    x = np.expm1(epsilons)
    gaussian = np.array([gaussian_bounds(e, mu)[1] for e in epsilons.tolist()])
    low, high = np.array([chart(e) for e in epsilons.tolist()]).T
    best = float(gaussian[-1] / (2 + x[-1]))
    for i in range(len(x) - 1):
        width = x[i + 1] - x[i]
        lines = []  # Values at both ends of lines below delta.
        if i > 0:
            lines.append((low[i], low[i] + (low[i] - high[i - 1]) / (x[i] - x[i - 1]) * width))
        if i + 2 < len(x):
            fall = (high[i + 2] - low[i + 1]) / (x[i + 2] - x[i + 1])
            lines.append((low[i + 1] - fall * width, low[i + 1]))
        shares = [0.0, 1.0]
        if len(lines) == 2:
            (a, b), (c, d) = lines
            shares += [(a - c) / (a - c + d - b)] if (a - c) * (d - b) > 0 else []
        for share in shares:
            below = max(low[i + 1], *((1 - share) * a + share * b for a, b in lines))
            above = (1 - share) * gaussian[i] + share * gaussian[i + 1]
            best = max(best, float((above - below) / (2 + x[i] + share * width)))
    return best
