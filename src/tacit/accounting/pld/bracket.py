"""`Bracket`: two-sided answers about all directions of a relation; `PldCurve`: one side of it.

Bounds on the least type II error at one type I error: one concave maximisation over exact values of delta.

With delta(-e) = 1 - e^-e (1 - delta(e)) the symmetric trade-off function is beta(alpha) = max_s phi(s) over s > 0,
phi(s) = 1 - delta(log s) - alpha s, and phi is concave, since delta is convex in e^epsilon. Every phi(s) is a lower
bound. The maximum lies between two points that are lower than two points between them, where secants bound phi.

Source: Dong, Roth & Su 2022, Proposition 2.13, for the maximum; secants of a concave function for its bound.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property

import numpy as np

from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.gaussian_cover import Chart, mu_bounds, mu_floor, regret_ceiling
from tacit.accounting.pld.intervals import ALLOWANCE, Bounds
from tacit.accounting.pld.rounding import UNIT
from tacit.errors import Refused
from tacit.root_finding import minimum
from tacit.tradeoff import Curve
from tacit.tradeoff.curve import PROFILE_END, profile_grid
from tacit.tradeoff.gaussian import gaussian_mu

Interval = tuple[float, float]
Delta = Callable[[float], Interval]
"""Lower and upper bound on delta at an epsilon >= 0."""

# Units that phi loses, of its largest term: three terms, and the logarithm of s with its slope (Lemma 10.1).
_UNITS = 16.0
# Distances of the points around the maximum in log s, also relative to its place; the closest at which their order is
# certain counts.
_DISTANCES = (3e-6, 3e-5, 3e-4, 1e-3, 3e-3, 1e-2)
_KINK = (1e-10, 1e-9, 1e-8, 1e-7)  # The same at a kink, on whose sides phi falls at once.
_MOVES, _EDGE = 6, 0.02  # Intervals to look in, and the share of one at whose ends the next one begins.
_CLOSE, _FARTHEST = 1e-7, 700.0  # Accuracy of the place, relative to it below 1, and the largest log of s.


def type_two_error(alpha: float, epsilons: np.ndarray, deltas: np.ndarray, near: Callable[[float], Delta]) -> Interval:
    """Lower and upper bound on beta(alpha); the upper one is 1 - alpha where the maximum cannot be enclosed.

    Args:
        alpha: type I error, in (0, 1).
        epsilons: increasing, from 0, shape (points,).
        deltas: rough values of delta there.
        near: `near(epsilon)` gives bounds on delta that are narrow around that epsilon.
    """
    place = _maximum(alpha, epsilons, deltas, near)
    if abs(place) < _DISTANCES[0]:  # A kink at s = 1, unless the profile is steeper than anything that is seen here.
        place = 0.0
    high, delta = 1.0 - alpha, near(abs(place))
    low = max(_phi(alpha, math.exp(place), delta)[0], 0.0)
    closer = _KINK if place == 0.0 else [min(abs(place), 1.0) * each for each in _DISTANCES]
    for distance in sorted({*closer, *_DISTANCES}):
        points = np.exp(place) * (1 + distance * np.array([-1.5, -0.5, 0.5, 1.5]))
        values = [_phi(alpha, float(s), delta) for s in points]
        low = max(low, *(value[0] for value in values))
        if values[0][1] < values[1][0] and values[3][1] < values[2][0]:
            return low, max(min(high, _above(points, values)), low)
    return low, high


def _maximum(alpha: float, epsilons: np.ndarray, deltas: np.ndarray, near: Callable[[float], Delta]) -> float:
    """Log s at about the maximum of phi."""
    reached = epsilons <= _FARTHEST
    epsilons, deltas = epsilons[reached], deltas[reached]
    logs = np.concatenate([-epsilons[:0:-1], epsilons])
    rough = np.concatenate([deltas[:0:-1], deltas])
    at = int(np.argmax([_value(alpha, math.exp(e), d) for e, d in zip(logs.tolist(), rough.tolist(), strict=True)]))
    place, left, right = (float(logs[min(max(at + k, 0), len(logs) - 1)]) for k in (0, -1, 1))
    for _ in range(_MOVES):
        quick = near(abs(place))

        def loss(log_s: float, quick: Delta = quick) -> float:
            return -_value(alpha, math.exp(log_s), sum(quick(abs(log_s))) / 2)

        accuracy = _CLOSE * min(max(abs(left), abs(right)), 1.0)
        place, width = minimum(loss, left, right, accuracy=accuracy), right - left
        if left + _EDGE * width < place < right - _EDGE * width:
            break
        left, right = max(place - width, -_FARTHEST), min(place + width, _FARTHEST)
    return place


def _value(alpha: float, s: float, delta: float) -> float:
    """phi(s), with `delta` that at |log s|."""
    return 1 - delta - alpha * s if s >= 1 else s * (1 - alpha - delta)


def _phi(alpha: float, s: float, delta: Delta) -> Interval:
    low, high = delta(abs(math.log(s)))
    unsure = (_UNITS + abs(math.log(s))) * UNIT * (1 + alpha * s if s >= 1 else s)
    return _value(alpha, s, high) - unsure, _value(alpha, s, low) + unsure


def _above(points: np.ndarray, values: list[Interval]) -> float:
    """The largest value of a concave function between the outer points, from intervals of it at four points.

    Left of the second point it lies below the secant of the second and the third, right of the third below the same;
    between these below the secants of the outer pairs, which meet at the value of a kink.
    """
    gaps = np.diff(points)
    rising, falling = (max((values[k][1] - values[j][0]) / gaps[g], 0.0) for k, j, g in ((1, 0, 0), (2, 3, 2)))
    both = rising + falling
    meet = min(max((values[2][1] - values[1][1] + falling * gaps[1]) / both, 0.0), gaps[1]) if both else 0.0
    steepest = (values[2][0] - values[1][1]) / gaps[1], (values[2][1] - values[1][0]) / gaps[1]
    return max(
        values[1][1] + max(-steepest[0], 0.0) * gaps[0],
        min(values[1][1] + rising * meet, values[2][1] + falling * (gaps[1] - meet)),
        values[2][1] + max(steepest[1], 0.0) * gaps[2],
    )


_FEW_ALPHAS = 2  # Type I errors for which exact values are worth their tenth of a second.
_POINTS = 33  # Epsilons among which the one that needs most mu is looked for first.
_BEYOND = (1 + 1e-6, 1.001, 1.02, 1.2, 2.0, 4.0)  # They reach beyond the epsilon whose rough delta is the slack.
_CLEARLY = 1e3  # Ratio of a rough delta to the slack from which on no engine is asked whether it exceeds it.
_NO_REGRET, _REGRET_POINTS = 1e-6, 65  # delta below which nothing is to regret, and epsilons down to there.
_LEAST_DELTA = 1e-300  # delta below which logs and ratios of bounds leave the range of normal doubles.
_NEAR_ZERO = 1e-15  # delta up to which epsilons are searched where no slack is allowed.


class Bracket:
    """Two-sided answers about all directions: for each side the largest over the directions."""

    def __init__(self, directions: Sequence[Bounds], tail: tuple[float, float] = (0.0, np.inf)):
        """`tail` holds bounds on the least mu that covers the profile with no slack."""
        self._directions = directions
        self._tail = tail
        self._mus: dict[float, tuple[float, float]] = {}
        self._floors: dict[float, tuple[float, np.ndarray, Chart]] = {}
        self.beta, self._sketch = cache(self._beta), cache(self._sketched)

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at `epsilon`."""
        first, *others = self._directions
        low, high = first.delta(epsilon)
        for other in others:
            # A direction that is known to leak less is not looked at any closer; at 0 both leak the same.
            if epsilon == 0.0 or not other.ceiling_near(epsilon)(epsilon) <= low:
                low, high = _largest([(low, high), other.delta(epsilon)])
        return low, high

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon that meets `delta`."""
        if delta >= _LEAST_DELTA:
            return self._epsilon(delta)
        # Epsilon falls with delta: below, at a delta whose arithmetic is sound; above, by the largest loss.
        least, most = self._epsilon(0.0)
        if delta == 0.0 and least == np.inf:
            return least, most
        return max(self._epsilon(_LEAST_DELTA)[0], least if delta == 0.0 else 0.0), most

    def _epsilon(self, delta: float) -> tuple[float, float]:
        first, *others = self._directions
        low, high = first.epsilon(delta)
        for other in others:
            if not other.ceiling(delta) <= low:
                low, high = _largest([(low, high), other.epsilon(delta)])
        return low, high

    def near(self, epsilon: float) -> Delta:
        """Return bounds on delta that are narrow around `epsilon`."""
        first, *others = self._directions
        bounds = first.near(epsilon)
        rough = {place: other.ceiling_near(epsilon) for place, other in enumerate(others)}
        close: dict[int, Delta] = {}

        def delta(value: float) -> tuple[float, float]:
            low, high = bounds(value)
            for place, other in enumerate(others):
                if place not in close:
                    if value == 0.0 or rough[place](value) <= low:
                        continue
                    close[place] = other.near(epsilon)
                low, high = _largest([(low, high), close[place](value)])
            return low, high

        return delta

    def _beta(self, alpha: float) -> tuple[float, float]:
        """Return lower and upper bound on the least type II error at `alpha` in (0, 1)."""
        sketch = self._sketch(PROFILE_END)
        found = type_two_error(alpha, *sketch, self.near) if sketch else (0.0, 1.0 - alpha)
        if found[1] == 1.0 - alpha:
            epsilons, low, high = self.profile
            found = type_two_error(alpha, epsilons, (low + high) / 2, self.near)
        return found

    def _sketched(self, least: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Rough epsilons and deltas down to `least`, where a search may begin; None for engines that have none."""
        exact = [each for each in self._directions if isinstance(each, Dispatch)]
        if len(exact) < len(self._directions):
            return None
        found = [direction.outline(max(least, PROFILE_END)) for direction in exact]
        if not all(np.isfinite(column).all() for each in found for column in each):
            return None
        epsilons = np.unique([0.0, *(epsilon for each in found for epsilon in each[0])])
        return epsilons, np.max([np.interp(epsilons, *each, right=0.0) for each in found], axis=0)

    def mu_floor(self, slack: float) -> float:
        """Return a lower bound on the least mu that covers delta up to `slack`."""
        return 0.0 if self._within(slack) else self._mu_found(slack)[0]

    def _within(self, slack: float) -> bool:
        """Whether no delta exceeds a slack; asked of an engine only where a sketch leaves it open."""
        sketch = self._sketch(slack)
        clear = sketch is not None and sketch[1][0] > _CLEARLY * slack
        return not clear and slack >= self.delta(0.0)[1]

    def mu(self, slack: float) -> tuple[float, float]:
        """Return lower and upper bound on the least mu that covers delta up to `slack` (see `Curve.mu`)."""
        if self._within(slack):
            return 0.0, 0.0
        if slack not in self._mus:
            floor, epsilons, chart = self._mu_found(slack)
            most = self._tail[1]
            last = float(epsilons[-1])
            if 0 < floor < most * (1 - 3 * ALLOWANCE) and chart(last)[1] <= slack:
                floor, found = mu_bounds(floor, slack, epsilons, chart)
                most, self._floors[slack] = min(most, found), (floor, epsilons, chart)
            self._mus[slack] = floor, most
        return self._mus[slack]

    def _mu_found(self, slack: float) -> tuple[float, np.ndarray, Chart]:
        """The floor of mu, the epsilons of a first grid, and the bounds on delta that were asked for."""
        if slack not in self._floors:
            least = self._tail[0] if slack == 0 else 0.0
            chart = Chart(self.near, slack)
            sketch = self._sketch(slack)
            if sketch is not None and slack >= _NEAR_ZERO:
                epsilons, deltas = sketch
                low = last = float(epsilons[min(np.searchsorted(-deltas, -slack), len(deltas) - 1)])
                needed = [gaussian_mu(e, d - slack) for e, d in zip(epsilons.tolist(), deltas.tolist(), strict=True)]
                chart.around(float(epsilons[np.argmax(needed)]))
            else:
                low, high = self.epsilon(slack or _NEAR_ZERO)
                last = high if np.isfinite(high) else low
            ends = (last * beyond for beyond in _BEYOND)
            last = next((end for end in ends if chart(end)[1] <= slack), last)
            epsilons = profile_grid(last, _POINTS)
            if low > 0 and least < self._tail[1] * (1 - 3 * ALLOWANCE):
                least = max(least, mu_floor(slack, epsilons, chart))
            self._floors[slack] = least, epsilons, chart
        return self._floors[slack]

    def regret(self, mu: float) -> float:
        """Return an upper bound on the regret of G_mu (see `Curve.regret`)."""
        if not 0 < mu < np.inf:
            return 0.0 if mu == 0 else 1.0
        return regret_ceiling(mu, profile_grid(self.epsilon(_NO_REGRET)[1], _REGRET_POINTS), Chart(self.near))

    @cached_property
    def profile(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(epsilons, lower deltas, upper deltas) on the grid of `Curve.profile`, from a few shared inversions."""
        epsilons = profile_grid(self.epsilon(PROFILE_END)[1])
        found = np.clip([direction.profile(epsilons) for direction in self._directions], 0.0, 1.0).max(axis=0)
        return epsilons, np.maximum.accumulate(found[0][::-1])[::-1], np.minimum.accumulate(found[1])


@contextmanager
def _in_range() -> Iterator[None]:
    """Context of a question whose numbers may be beyond what any engine holds: that is a refusal."""
    try:
        yield
    except (ArithmeticError, MemoryError) as failure:
        raise Refused(f"pld cannot compute with numbers of this size: {failure}") from failure


class PldCurve(Curve):
    """One side of a bracket: lower (0) or upper (1)."""

    def __init__(self, bracket: Bracket, side: int):
        self._bracket = bracket
        self._side = side

    @_in_range()
    def delta(self, epsilon: float) -> float:
        """Return this side of the bracket at epsilon."""
        return self._bracket.delta(epsilon)[self._side]

    @_in_range()
    def epsilon(self, delta: float) -> float:
        """Return this side of the bracket at `delta`."""
        return self._bracket.epsilon(delta)[self._side]

    def beta(self, alpha: np.ndarray) -> np.ndarray:
        """Return lower bounds: for a few alphas from exact values of delta, for many from tangents on the grid."""
        return self._exact(alpha, 0) if np.size(alpha) <= _FEW_ALPHAS else super().beta(alpha)

    def refuted_by(self, alpha: np.ndarray, beta: np.ndarray) -> bool:
        """Return whether a test lies below the curve: below a tangent on the grid, or below an exact value."""
        return bool(np.any(super().beta(alpha) > beta)) or super().refuted_by(alpha, beta)

    def beta_ceiling(self, alpha: np.ndarray) -> np.ndarray:
        """Return upper bounds, likewise."""
        return self._exact(alpha, 1) if np.size(alpha) <= _FEW_ALPHAS else super().beta_ceiling(alpha)

    @_in_range()
    def _exact(self, alpha: np.ndarray, side: int) -> np.ndarray:
        """This side of the exact bounds, with those of the grid at the ends and where no maximum was enclosed."""
        alpha = np.asarray(alpha, dtype=float)
        found = np.full(alpha.shape, float(side))
        wide = np.ones(alpha.shape, dtype=bool)
        for place, value in np.ndenumerate(alpha):
            if 0.0 < value < 1.0:
                low, high = self._bracket.beta(float(value))
                found[place], wide[place] = (low, high)[side], low == 0.0 or high == 1.0 - value
        if not wide.any():
            return found
        rough = super().beta_ceiling(alpha) if side else super().beta(alpha)
        return np.minimum(found, rough) if side else np.maximum(found, rough)

    @_in_range()
    def mu(self, slack: float) -> float:
        """Return an upper bound on the least mu (see `Curve.mu`)."""
        return self._bracket.mu(slack)[1]

    def regret(self, mu: float) -> float:
        """Return an upper bound on the regret of G_mu (see `Curve.regret`)."""
        return self._bracket.regret(mu)

    @_in_range()
    def mu_floor(self, slack: float) -> float:
        """Return a lower bound on the least mu."""
        return self._bracket.mu_floor(slack)

    @cached_property
    @_in_range()
    def profile(self) -> tuple[np.ndarray, np.ndarray]:
        """(epsilons, deltas) of this side."""
        epsilons, *sides = self._bracket.profile
        return epsilons, sides[self._side]


def _largest(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return max(low for low, _ in bounds), max(high for _, high in bounds)


def both_sides(directions: Sequence[Bounds], tail: tuple[float, float]) -> tuple[Curve, Curve]:
    """Upper and lower curve of one bracket.

    Args:
        directions: one engine for each direction of the relation.
        tail: bounds on the least mu that covers the profile with no slack.
    """
    bracket = Bracket(directions, tail)
    return PldCurve(bracket, 1), PldCurve(bracket, 0)
