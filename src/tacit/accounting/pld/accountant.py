"""`pld`: the exact accountant, two-sided.

Saddle-point sketches of a profile: a few per cent from the exact one at a hundredth of its time, and no bounds.

Rough answers of an accountant, from which a search may begin.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import ClassVar, Self

import numpy as np
from scipy.special import ndtri

from tacit import check
from tacit.accounting.base import Accountant
from tacit.accounting.ledger import Ledger
from tacit.accounting.pld.bracket import Bracket, PldCurve, both_sides
from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.envelopes import (
    GroupedDispatch,
    ShiftedDispatch,
    coarse_dispatch,
    in_blocks,
    is_large,
    lower_bounds,
)
from tacit.accounting.pld.intervals import ALLOWANCE
from tacit.accounting.pld.profile_pairs import MenuCost
from tacit.accounting.pld.selection import SelectionCost
from tacit.accounting.pld.simple_bounds import few_samples
from tacit.errors import Refused
from tacit.mechanisms import Mechanism, Menu, Selection
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.discrete import NOTHING, EnclosedPair
from tacit.mechanisms.pairs.gaussian import GaussianPair
from tacit.mechanisms.pairs.groups import GaussianMixturePair, IntegerMixturePair, LaplaceMixturePair
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Curve, GaussianCurve, TradeOff, worst
from tacit.tradeoff.curve import PROFILE_END
from tacit.tradeoff.gaussian import gaussian_mu

_LEAST = 1e-300  # delta whose logarithm stands for that of 0


class SketchCurve(Curve):
    """The largest of the sketches of all directions, for searches only: it may lie on either side of the truth.

    Args:
        directions: the directions of the relation.
    """

    def __init__(self, directions: Sequence[Dispatch | ShiftedDispatch]):
        self._directions = directions

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the saddle at `delta`; raises `Refused` where there is none."""
        if not delta > 0.0:
            raise Refused("A sketch needs a delta above 0; ask the exact accountant.")
        return max(float(epsilons[-1]) for epsilons, _ in self._points(delta))

    def delta(self, epsilon: float) -> float:
        """Return the delta between the saddles on both sides, on a log scale."""
        return float(
            np.exp(max(np.interp(epsilon, x, np.log(np.maximum(y, _LEAST)), right=-np.inf) for x, y in self._saddles))
        )

    def mu(self, slack: float) -> float:
        """Return the largest mu that the saddles ask for."""
        pairs = [pair for saddles in self._saddles for pair in np.transpose(saddles).tolist()]
        return max(gaussian_mu(epsilon, delta - slack) for epsilon, delta in pairs)

    @cached_property
    def _saddles(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return self._points(PROFILE_END)

    def _points(self, delta: float) -> list[tuple[np.ndarray, np.ndarray]]:
        found = [direction.sketch(delta) for direction in self._directions]
        if not all(np.isfinite(each).all() for each in found):
            raise Refused("A sketch needs finite saddles; ask the exact accountant.")
        return found


class Sketched(Accountant):
    """Answers from the sketches of another accountant: quick, near its answers, bounds of nothing.

    Raises `Refused` for a mechanism of which that accountant has no sketch.

    Args:
        exact: the accountant whose answers are approached.
    """

    name: ClassVar[str] = "sketch"
    standing: ClassVar[Standing] = Standing.ASYMPTOTIC

    def __init__(self, exact: Accountant):
        self._exact = exact

    def curve(self, mechanism: Mechanism, relation: Relation) -> Curve:
        """The sketch."""
        return self._exact.sketch(mechanism, relation)


Parts = list[tuple[Pair, int]]
_DISTINCT = 256  # Unlike noises that are accounted one by one.
_GROUP_GAP = 4e-7  # Relative width of epsilons of groups, whose lattices are the only engine.
_KEPT = 8  # Mechanisms whose curves are kept.
_ROUGHLY = 24  # The same for first guesses.


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
        """Upper and lower curve; raises `Refused` where a mechanism has no dominating pair.

        Those of the last few mechanisms are kept, with what was found about them.
        """
        return curves_of(type(self), self._distinct, mechanism, relation)

    def _curves(self, mechanism: Mechanism, relation: Relation) -> tuple[Curve, Curve]:
        parts = list(mechanism.parts())
        if len(parts) == 1 and parts[0][1] == 1 and isinstance(parts[0][0], Selection | Menu):
            cost = _cost(parts[0][0], relation)
            return cost.upper, cost.lower
        directions = _directions(mechanism, relation)
        return self._of_directions(directions, _mu_without_slack(mechanism, relation, directions))

    def grouped(self, ledger: Ledger, size: int) -> TradeOff:
        """For groups of `size` records, added or removed together.

        Exact where every step has pairs of groups (`Mechanism.group_pairs`); else what the curve of single records
        implies, from below what the steps with such pairs leak by themselves.
        """
        check.instance("ledger", ledger, Ledger, "a Ledger")
        if check.count("size", size) == 1:
            return self(ledger)
        parts, missing = _group_parts(ledger.mechanism, ledger.relation, size)
        if missing and not parts:
            return super().grouped(ledger, size)
        directions = _by_direction(parts)
        upper, lower = self._of_directions(directions, _mu_of_pairs(directions))
        if missing:
            single = super().grouped(ledger, size)
            return replace(single, floor=worst([lower, single.floor] if single.floor else [lower]))
        standing = Standing.weakest(self.standing, ledger.standing)
        return TradeOff(upper, standing, ledger.relation, self.name, floor=lower)

    def _of_directions(self, directions: list[Parts], tail: tuple[float, float]) -> tuple[Curve, Curve]:
        """Upper and lower curve from the pairs of each direction and bounds on mu without slack."""
        if len(directions) == 1 and (mus := _gaussian_ends(directions[0])) is not None:
            return GaussianCurve(mus[1] * (1 + ALLOWANCE)), GaussianCurve(mus[0] * (1 - ALLOWANCE))
        if any(pair.infinity_mass == 1.0 for parts in directions for pair, _ in parts):
            return GaussianCurve(np.inf), GaussianCurve(np.inf)
        quick = [bounds for parts in directions if (bounds := few_samples(parts)) is not None]
        if len(quick) == len(directions):
            return both_sides(quick, tail)
        if not _has_envelope(directions) or _one_choice(directions):
            return both_sides([self._engine(parts) for parts in directions], tail)
        # The two sides differ by more than rounding, which need not be fine then.
        upper = [coarse_dispatch(in_blocks(parts)) for parts in directions]
        lower = [low for parts, above in zip(directions, upper, strict=True) for low in lower_bounds(parts, above)]
        return PldCurve(Bracket(upper, tail), 1), PldCurve(Bracket(lower, tail), 0)

    def _engine(self, parts: Parts) -> Dispatch | ShiftedDispatch:
        if any(is_large(pair) for pair, _ in parts) and len(parts) <= self._distinct:
            return ShiftedDispatch(parts)
        if any(isinstance(pair, GaussianMixturePair | IntegerMixturePair | LaplaceMixturePair) for pair, _ in parts):
            return Dispatch(parts, gap=_GROUP_GAP)
        return GroupedDispatch.of(parts, self._distinct) or Dispatch(parts)

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
        return SketchCurve([self._engine(parts) for parts in directions])

    def rough(self) -> Self:
        """Return an accountant with fewer groups, for first guesses."""
        return type(self)(distinct=min(self._distinct, _ROUGHLY))


@lru_cache(maxsize=_KEPT)
def curves_of(kind: type[Pld], distinct: int, mechanism: Mechanism, relation: Relation) -> tuple[Curve, Curve]:
    """Curves of a mechanism, kept for further questions about it.

    Args:
        kind: the accountant.
        distinct: its number of unlike noises.
        mechanism: what ran.
        relation: neighbouring relation.
    """
    return kind(distinct)._curves(mechanism, relation)


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
    tail = _mu_without_slack(base, relation, directions)
    bases = [Pld()._of_directions([parts], tail)[0] for parts in directions] if exact else [Pld().curve(base, relation)]
    return SelectionCost(bases, directions if exact else None, mechanism.law)


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
    return _by_direction([(_pairs(part, relation), steps) for part, steps in mechanism.parts()])


def _group_parts(
    mechanism: Mechanism, relation: Relation, size: int
) -> tuple[list[tuple[tuple[Pair, ...], int]], bool]:
    """Pairs for groups of the steps that have them, with their numbers, and whether any has none."""
    parts, missing = [], False
    for part, steps in mechanism.parts():
        try:
            pairs, times = part.group_pairs(size, relation)
        except Refused:
            missing = True
        else:
            parts.append((pairs, times * steps))
    return parts, missing


def _by_direction(parts: list[tuple[tuple[Pair, ...], int]]) -> list[Parts]:
    count = max((len(pairs) for pairs, _ in parts), default=1)
    # One pair is for both directions; two more are for neighbours of another size, in the order of the first two.
    return [_merged([(pairs[side % len(pairs)], steps) for pairs, steps in parts]) for side in range(count)]


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
    return _mu_of_pairs(directions)[0], float(most) ** 0.5 * (1 + ALLOWANCE)


def _mu_of_pairs(directions: Sequence[Parts]) -> tuple[float, float]:
    """The same from the Gaussian tails and covers of pairs alone."""
    least = max(sum(steps * pair.tail_mu**2 for pair, steps in parts) for parts in directions)
    most = max(sum(steps * pair.covering_mu**2 for pair, steps in parts) for parts in directions)
    return float(least) ** 0.5 * (1 - ALLOWANCE), float(most) ** 0.5 * (1 + ALLOWANCE)
