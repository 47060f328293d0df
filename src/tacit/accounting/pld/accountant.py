"""`pld`: the exact accountant, two-sided."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import ClassVar, Protocol, Self

import numpy as np
from scipy.special import ndtri

from tacit import check
from tacit.accounting.base import Accountant
from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.envelopes import coarse_dispatch, in_blocks, lower_bounds
from tacit.accounting.pld.few_samples import few_samples
from tacit.accounting.pld.gaussian_cover import Chart, mu_bounds, mu_floor, regret_ceiling
from tacit.accounting.pld.grouped_dispatch import GroupedDispatch
from tacit.accounting.pld.intervals import ALLOWANCE
from tacit.accounting.pld.menu import MenuCost
from tacit.accounting.pld.selection import SelectionCost
from tacit.accounting.pld.sketch import SketchCurve
from tacit.accounting.pld.type_two_error import Delta, type_two_error
from tacit.errors import Refused
from tacit.mechanisms import Mechanism, Menu, Selection
from tacit.mechanisms.pairs import NOTHING, EnclosedPair, GaussianPair, Pair
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, GaussianCurve
from tacit.tradeoff.curve import PROFILE_END, profile_grid
from tacit.tradeoff.gaussian import gaussian_mu

Parts = list[tuple[Pair, int]]
_DISTINCT = 256  # Unlike noises that are accounted one by one.
_FEW_ALPHAS = 2  # Type I errors for which exact values are worth their tenth of a second.
_ROUGHLY = 24  # The same for first guesses.
_POINTS = 33  # Epsilons among which the one that needs most mu is looked for first.
_BEYOND = (1 + 1e-6, 1.001, 1.02, 1.2)  # They reach a little beyond the epsilon whose delta is the slack.
_CLEARLY = 4.0  # Ratio of a rough delta to the slack from which on no engine is asked whether it exceeds it.
_NO_REGRET, _REGRET_POINTS = 1e-6, 65  # delta below which nothing is to regret, and epsilons down to there.
_NEAR_ZERO = 1e-15  # delta up to which epsilons are searched where no slack is allowed.


class Pld(Accountant):
    """Exact composition of dominating pairs, as a bracket around the true trade-off curve.

    delta(epsilon) is computed for both directions of the relation and the larger counts. Where noise takes more than
    `distinct` values and no single line covers them, neighbouring values count together: the bracket is then about as
    wide as their ratio.
    """

    name: ClassVar[str] = "pld"
    standing: ClassVar[Standing] = Standing.PROVEN

    def __init__(self, distinct: int = _DISTINCT):
        self._distinct = check.count("distinct", distinct)

    def curves(self, mechanism: Mechanism, relation: Relation) -> tuple[Curve, Curve]:
        """Upper and lower curve; raises `Refused` where a mechanism has no dominating pair."""
        parts = list(mechanism.parts())
        if len(parts) == 1 and parts[0][1] == 1 and isinstance(parts[0][0], Selection | Menu):
            cost = _cost(parts[0][0], relation)
            return cost.upper, cost.lower
        directions = _directions(mechanism, relation)
        if len(directions) == 1 and (mus := _gaussian_ends(directions[0])) is not None:
            return GaussianCurve(mus[1] * (1 + ALLOWANCE)), GaussianCurve(mus[0] * (1 - ALLOWANCE))
        if any(pair.infinity_mass == 1.0 for parts in directions for pair, _ in parts):
            return GaussianCurve(np.inf), GaussianCurve(np.inf)
        quick = [bounds for parts in directions if (bounds := few_samples(parts)) is not None]
        tail = _mu_without_slack(mechanism, relation, directions)
        if len(quick) == len(directions):
            return _both(quick, tail)
        if not _has_envelope(directions) or _one_choice(directions):
            return _both([GroupedDispatch.of(parts, self._distinct) or Dispatch(parts) for parts in directions], tail)
        # The two sides differ by more than rounding, which need not be fine then.
        upper = [coarse_dispatch(in_blocks(parts)) for parts in directions]
        lower = [low for parts, above in zip(directions, upper, strict=True) for low in lower_bounds(parts, above)]
        return PldCurve(Bracket(upper, tail), 1), PldCurve(Bracket(lower, tail), 0)

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """Return the upper curve."""
        return self.curves(mechanism, relation)[0]

    def sketch(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """Return saddle-point values; raises `Refused` for adaptive choices and for envelopes."""
        if any(isinstance(part, Selection | Menu) for part, _ in mechanism.parts()):
            return super().sketch(mechanism, relation)
        directions = _directions(mechanism, relation)
        if _has_envelope(directions) or any(pair.infinity_mass for parts in directions for pair, _ in parts):
            return super().sketch(mechanism, relation)
        if all(few_samples(parts) is not None for parts in directions):
            return self.curve(mechanism, relation)
        return SketchCurve([GroupedDispatch.of(parts, self._distinct) or Dispatch(parts) for parts in directions])

    def rough(self) -> Self:
        """Return an accountant with fewer groups, for first guesses."""
        return type(self)(distinct=min(self._distinct, _ROUGHLY))


@lru_cache(maxsize=32)
def _cost(mechanism: Selection | Menu, relation: Relation) -> SelectionCost | MenuCost:
    if isinstance(mechanism, Menu):
        stages = [[_directions(option.accountable(), relation) for option in stage] for stage in mechanism.stages]
        found = [option for stage in stages for option in stage]
        if any(_has_envelope(option) for option in found):
            raise Refused("pld needs options without envelopes in a menu; ask rdp, which has a bound for them.")
        both = max(len(option) for option in found)
        return MenuCost([[option * both if len(option) < both else option for option in stage] for stage in stages])
    base = mechanism.base.accountable()
    directions = _directions(base, relation)
    exact = not _has_envelope(directions) and max(len(parts) for parts in directions) <= _DISTINCT
    return SelectionCost(Pld().curve(base, relation), directions if exact else None, mechanism.law)


def _gaussian_ends(parts: Parts) -> tuple[float, float] | None:
    """Find mu from below and above of Gaussian pairs, each exact or with a Gaussian on either side; None of others."""
    below, above = 0.0, 0.0
    for pair, steps in parts:
        low, high = (pair.below, pair.above) if isinstance(pair, EnclosedPair) else (pair, pair)
        if not (isinstance(low, GaussianPair) or low == NOTHING) or not isinstance(high, GaussianPair):
            return None
        below += steps * low.mu**2 if isinstance(low, GaussianPair) else 0.0
        above += steps * high.mu**2
    return math.sqrt(below), math.sqrt(above)


def _has_envelope(directions: Sequence[Parts]) -> bool:
    return any(pair.attained(0.0) != pair for parts in directions for pair, _ in parts)


def _pairs(mechanism: Mechanism, relation: Relation) -> tuple[Pair, ...]:
    """The dominating pairs of one step."""
    if isinstance(mechanism, Selection | Menu):
        return _cost(mechanism, relation).pairs
    return mechanism.dominating_pairs(relation)


def _one_choice(directions: Sequence[Parts]) -> bool:
    """One step of an envelope, which whoever runs it last reaches at each loss before it (THEORY.md, Theorem 11.5)."""
    for parts in directions:
        families = [(pair, steps) for pair, steps in parts if pair.attained(0.0) != pair]
        if sum(steps for _, steps in families) > 1 or not all(pair.reached for pair, _ in families):
            return False
    return True


def _directions(mechanism: Mechanism, relation: Relation) -> list[Parts]:
    parts = [(_pairs(part, relation), steps) for part, steps in mechanism.parts()]
    count = max((len(pairs) for pairs, _ in parts), default=1)
    return [_merged([(pairs[min(side, len(pairs) - 1)], steps) for pairs, steps in parts]) for side in range(count)]


def _merged(parts: list[tuple[Pair, int]]) -> Parts:
    """Equal pairs counted together, and all plain Gaussians as one of the summed mu^2."""
    counted: dict[Pair, int] = {}
    mu_squared = 0.0
    for pair, steps in parts:
        if isinstance(pair, GaussianPair):
            mu_squared += steps * pair.mu**2
        else:
            counted[pair] = counted.get(pair, 0) + steps
    if mu_squared or not counted:
        counted[GaussianPair(mu_squared**0.5)] = 1
    return list(counted.items())


class Bounds(Protocol):
    """Two-sided answers about one direction."""

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at this epsilon."""
        ...

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon that meets `delta`."""
        ...

    def ceiling(self, delta: float) -> float:
        """Return an upper bound on that epsilon that is quick and rough."""
        ...

    def near(self, epsilon: float) -> Delta:
        """Return bounds on delta that are quick, and narrow around `epsilon`."""
        ...

    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """Return upper bounds on delta that are quick, rough, and best around `epsilon`."""
        ...

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on delta at many epsilons."""
        ...


class Bracket:
    """Two-sided answers about all directions: for each side the largest over the directions."""

    def __init__(self, directions: Sequence[Bounds], tail: tuple[float, float] = (0.0, np.inf)):
        """`tail` holds bounds on the least mu that covers the profile with no slack."""
        self._directions = directions
        self._tail = tail
        self._mus: dict[float, tuple[float, float]] = {}
        self._floors: dict[float, tuple[float, np.ndarray, Chart]] = {}
        self._betas: dict[float, tuple[float, float]] = {}

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
                    if rough[place](value) <= low:
                        continue
                    close[place] = other.near(epsilon)
                low, high = _largest([(low, high), close[place](value)])
            return low, high

        return delta

    def beta(self, alpha: float) -> tuple[float, float]:
        """Return lower and upper bound on the least type II error at `alpha` in (0, 1)."""
        if alpha not in self._betas:
            found = type_two_error(alpha, *self._sketch, self.near) if self._sketch else (0.0, 1.0 - alpha)
            if found[1] == 1.0 - alpha:
                epsilons, low, high = self.profile
                found = type_two_error(alpha, epsilons, (low + high) / 2, self.near)
            self._betas[alpha] = found
        return self._betas[alpha]

    @cached_property
    def _sketch(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rough epsilons and deltas where a search may begin; None for engines that have none."""
        exact = [each for each in self._directions if isinstance(each, Dispatch | GroupedDispatch)]
        if len(exact) < len(self._directions):
            return None
        found = [direction.sketch(PROFILE_END) for direction in exact]
        epsilons = profile_grid(max(float(each[0][-1]) for each in found))
        if not all(np.isfinite(column).all() for each in found for column in each):
            return None
        return epsilons, np.max([np.interp(epsilons, *each, right=0.0) for each in found], axis=0)

    def mu_floor(self, slack: float) -> float:
        """Return a lower bound on the least mu that covers delta up to `slack`."""
        return 0.0 if self._within(slack) else self._mu_found(slack)[0]

    def _within(self, slack: float) -> bool:
        """Whether no delta exceeds a slack; asked of an engine only where a sketch leaves it open."""
        clear = self._sketch is not None and self._sketch[1][0] > _CLEARLY * slack
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
                most = min(most, found)
            self._mus[slack] = floor, most
        return self._mus[slack]

    def _mu_found(self, slack: float) -> tuple[float, np.ndarray, Chart]:
        """The floor of mu, the epsilons of a first grid, and the bounds on delta that were asked for."""
        if slack not in self._floors:
            least = self._tail[0] if slack == 0 else 0.0
            chart = Chart(self.near)
            if self._sketch is not None and slack >= _NEAR_ZERO:
                epsilons, deltas = self._sketch
                low = last = float(epsilons[min(np.searchsorted(-deltas, -slack), len(deltas) - 1)])
                needed = [gaussian_mu(e, d - slack) for e, d in zip(epsilons.tolist(), deltas.tolist(), strict=True)]
                chart.around(float(epsilons[np.argmax(needed)]))
            else:
                low, high = self.epsilon(max(slack, _NEAR_ZERO))
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


class PldCurve(Curve):
    """One side of a bracket: lower (0) or upper (1)."""

    def __init__(self, bracket: Bracket, side: int):
        self._bracket = bracket
        self._side = side

    def delta(self, epsilon: float) -> float:
        """Return this side of the bracket at epsilon."""
        return self._bracket.delta(epsilon)[self._side]

    def epsilon(self, delta: float) -> float:
        """Return this side of the bracket at `delta`."""
        return self._bracket.epsilon(delta)[self._side]

    def beta(self, alpha: np.ndarray) -> np.ndarray:
        """Return lower bounds: for a few alphas from exact values of delta, for many from tangents on the grid."""
        return self._exact(alpha, 0) if np.size(alpha) <= _FEW_ALPHAS else super().beta(alpha)

    def beta_ceiling(self, alpha: np.ndarray) -> np.ndarray:
        """Return upper bounds, likewise."""
        return self._exact(alpha, 1) if np.size(alpha) <= _FEW_ALPHAS else super().beta_ceiling(alpha)

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

    def mu(self, slack: float) -> float:
        """Return an upper bound on the least mu (see `Curve.mu`)."""
        return self._bracket.mu(slack)[1]

    def regret(self, mu: float) -> float:
        """Return an upper bound on the regret of G_mu (see `Curve.regret`)."""
        return self._bracket.regret(mu)

    def mu_floor(self, slack: float) -> float:
        """Return a lower bound on the least mu."""
        return self._bracket.mu_floor(slack)

    @cached_property
    def profile(self) -> tuple[np.ndarray, np.ndarray]:
        """(epsilons, deltas) of this side."""
        epsilons, *sides = self._bracket.profile
        return epsilons, sides[self._side]


def _largest(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return max(low for low, _ in bounds), max(high for _, high in bounds)


def _mu_without_slack(mechanism: Mechanism, relation: Relation, directions: Sequence[Parts]) -> tuple[float, float]:
    """Bounds on the least mu that covers every epsilon with no slack, from what is known of single steps.

    Steps that a Gaussian pair dominates compose to one that the Gaussian pair of the summed mu^2 dominates. From below,
    the part of a composition whose loss has Gaussian tails needs their mu, and the rest of it only adds.
    """
    most = 0.0
    for part, steps in mechanism.parts():
        try:
            cover = max(pair.covering_mu for pair in part.dominating_pairs(relation))
        except Refused:
            cover = np.inf  # Its pair is that of a bound on a whole curve, of which no mu is known.
        if part.is_pure(relation):
            cover = min(cover, -2 * float(ndtri(1 / (1 + np.exp(min(part.pure_epsilon(relation), 700.0))))))
        most += steps * cover**2
    least = max(sum(steps * pair.tail_mu**2 for pair, steps in parts) for parts in directions)
    return float(least) ** 0.5 * (1 - ALLOWANCE), float(most) ** 0.5 * (1 + ALLOWANCE)


def _both(directions: Sequence[Bounds], tail: tuple[float, float]) -> tuple[Curve, Curve]:
    bracket = Bracket(directions, tail)
    return PldCurve(bracket, 1), PldCurve(bracket, 0)
