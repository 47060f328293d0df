"""Steps of one or several families of pairs, each picked when the outcomes before it are known, from above.

With V(x) = (1 - e^x)_+ where no step is left, delta is V_S(x) = max over the families i in S and sup over the members
of i of E_P V_{S - i}(x - L), S the steps that are left: as both may depend on x, it covers an analyst who adapts and
who picks the order. V_S is convex in e^x, hence the profile of one pair. `RangePair` alone covers one step; its powers
cover several, but with losses that spread by a third too much.

The values live on a grid of x. Those between two points are those of the chord in e^x, and the largest is taken over
pairs that cover the family (`Pair.covering`). `attained` has the bound from below.

Steps of one or several families of pairs, each picked when the outcomes before it are known, from below.

The values of `adaptive` live on the same grid of x, but every value is a line in e^x below the profile of one way to
adapt. Such lines add up, and the largest of several is again below the largest profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tacit.mechanisms.pairs.base import Pair, Table
from tacit.mechanisms.pairs.discrete import TabulatedPair
from tacit.root_finding import bracketed_root

_MEMBERS = 40  # Members of a covering; their tests are 1 / 40 of the range apart.
_ON_POINT = 1e-13  # Relative rounding of a loss in points of the grid.
_FINEST, _WORK = 192, 6000  # Grid points per step at most, and of the whole block.
_LOG_TAIL = -92.0  # log of the chance of too long a block: e^-92 = 1e-40.
Families = tuple[tuple[Pair, int], ...]


class GridPair(TabulatedPair):
    """A pair of finitely many losses that it chooses itself, on a grid or where lines meet."""

    @property
    def table_error(self) -> np.ndarray:
        """Return zeros: the masses belong to exactly these losses."""
        return np.zeros(len(self.table[0]))


@dataclass(frozen=True)
class AdaptivePair(GridPair):
    """The smallest pair, up to the grid, that dominates `steps` adaptively picked steps of the family of `member`."""

    member: Pair
    steps: int

    @property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        return _table(((self.member, self.steps),))


@dataclass(frozen=True)
class JointPair(GridPair):
    """The same for steps of several families, whose order is picked as well.

    Args:
        families: an envelope of each with its number of steps.
    """

    families: Families

    @property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        return _table(self.families)


@dataclass(frozen=True)
class RevealedBlock(AdaptivePair):
    """The same for very many steps of which each is run with probability `rate` only, and which ones is revealed.

    `member` is the family of one step that runs. With J ~ Binomial(steps, rate) of them, delta is at most E V_J: who
    adapts knows no more than J. Where more than `most` run, all is lost; `fitting` keeps that below 1e-39.
    """

    rate: float
    most: int

    @classmethod
    def fitting(cls, member: Pair, rate: float, most: int) -> RevealedBlock:
        """The longest block in which hardly ever more than `most` steps run."""
        mean = bracketed_root(lambda mean: _log_tail(most, mean) - _LOG_TAIL, 1e-30 * most, most)
        return cls(member, int(mean / rate), rate, most)

    @property
    def infinity_mass(self) -> float:
        """Return the P-mass of infinite loss."""
        return float(np.exp(_log_tail(self.most, self.steps * self.rate)))

    negative_infinity_mass = infinity_mass

    @property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        return _mixed_table(self.member, self.steps, self.rate, self.most)


def _log_tail(most: int, mean: float) -> float:
    """Chernoff's bound on log P(J > most) for binomial J of that mean, below `most`."""
    count = most + 1
    return count - mean - count * float(np.log(count / mean))


@lru_cache(maxsize=8)
def _table(families: Families) -> Table:
    """The pair with the profile V (from above)."""
    *_, last = _layers(families)
    ((put, call),) = last.values()
    return _pair_of(put, call, *_grid_of(families))


@lru_cache(maxsize=8)
def _mixed_table(member: Pair, steps: int, rate: float, most: int) -> Table:
    """The pair with the profile E V_J given J <= most, its masses those of that event."""
    from scipy.stats import binom

    weights = binom.pmf(np.arange(most + 1), steps, rate)
    put = call = np.zeros(1)
    for weight, layer in zip(weights / weights.sum(), _layers(((member, most),)), strict=True):
        ((each_put, each_call),) = layer.values()
        put, call = put + weight * each_put, call + weight * each_call
    loss, p, q = _pair_of(put, call, *_grid_of(((member, most),)))
    kept = -np.expm1(_log_tail(most, steps * rate))
    return loss, kept * p, kept * q


def _layers(families: Families) -> Iterator[dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]]]:
    """V_S and V_S - (1 - e^x), from above, by how many steps of each family S has; for 0, 1, ... steps in all."""
    covers = [[outcomes(pair) for pair in member.covering(_MEMBERS)] for member, _ in families]
    x, _ = _grid_of(families)
    below, above = beyond(x)
    ends = (-np.expm1(below), np.zeros_like(x)), (np.zeros_like(x), np.expm1(above))
    layer = {(0,) * len(families): (np.maximum(-np.expm1(x), 0.0), np.maximum(np.expm1(x), 0.0))}
    yield layer
    for _ in range(sum(steps for _, steps in families)):
        found: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
        for state, (put, call) in layer.items():
            for place, more in longer(state, families):
                one, other = (_chords(v, *end, covers[place], x) for v, end in zip((put, call), ends, strict=True))
                known = found.get(more)
                found[more] = (np.maximum(known[0], one), np.maximum(known[1], other)) if known else (one, other)
        layer = found
        yield layer


def longer(state: tuple[int, ...], families: Families) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The families with a step beyond those of `state`, and the states with that step."""
    for place, (_, steps) in enumerate(families):
        if state[place] < steps:
            yield place, (*state[:place], state[place] + 1, *state[place + 1 :])


def _grid_of(families: Families) -> tuple[np.ndarray, int]:
    return grid([([outcomes(pair) for pair in member.covering(_MEMBERS)], steps) for member, steps in families])


def _pair_of(put: np.ndarray, call: np.ndarray, x: np.ndarray, zero: int) -> Table:
    """The pair with a profile on a grid by differences of its slopes, those of V - (1 - e^x) at x <= 0."""
    width = np.exp(x[:-1]) * np.expm1(x[1] - x[0])
    above = np.concatenate([-np.diff(put) / width, [0.0]])
    below = np.concatenate([[0.0], np.diff(call) / width, [1.0]])
    q = np.where(np.arange(len(x)) > zero, np.append(np.nan, above[:-1]) - above, np.diff(below))
    return _balanced(x, np.maximum(q, 0.0), zero)


def _balanced(x: np.ndarray, q: np.ndarray, zero: int) -> Table:
    """Losses and masses with sum p = sum q = 1, for which rounding is taken from the bulk at x <= 0."""
    heavy = int(np.argmax(q[:zero])) if zero else 0
    change = float(q @ np.expm1(x)) / -float(np.expm1(x[heavy]))
    q[heavy] += change
    q[zero] += 1 - q.sum()
    keep = q > 0
    return x[keep], (q * np.exp(x))[keep], q[keep]


def outcomes(pair: Pair) -> Table:
    """Losses and masses of a member."""
    nodes = pair.nodes(1.0, 0.0)
    assert nodes is not None
    return nodes.columns


def grid(families: Sequence[tuple[Sequence[Table], int]]) -> tuple[np.ndarray, int]:
    """Equally spaced points over all that the steps of the families' members can lose, and the index of 0."""
    ends = [
        (min(float(loss.min()) for loss, _, _ in members), max(float(loss.max()) for loss, _, _ in members), steps)
        for members, steps in families
    ]
    narrowest = min(high - low for low, high, _ in ends)
    total = sum(steps * (high - low) for low, high, steps in ends)
    pitch = narrowest / max(min(_FINEST, int(_WORK * narrowest / total * (1 + 1e-12))), 16)
    first = int(np.floor(sum(steps * min(low, 0.0) for low, _, steps in ends) / pitch)) - 1
    last = int(np.ceil(sum(steps * max(high, 0.0) for _, high, steps in ends) / pitch)) + 1
    return pitch * np.arange(first, last + 1), -first


def beyond(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of the grid below and above it, as many as it has."""
    length = x[-1] - x[0] + (x[1] - x[0])
    return x - length, x + length


def _chords(
    value: np.ndarray, before: np.ndarray, after: np.ndarray, cover: Sequence[Table], x: np.ndarray
) -> np.ndarray:
    """Return max over pairs of sum_o p_o V(x - l_o), V linear in e^x between points and known outside of the grid."""
    count, pitch = len(x), float(x[1] - x[0])
    padded = np.concatenate([before, value, after])
    best = np.zeros(count)
    for loss, p, _ in cover:
        total = np.zeros(count)
        for each, mass in zip(loss, p, strict=True):
            if mass > 0:
                shift = -each / pitch
                # A loss on a point, but for its rounding, is no larger than it.
                shift = np.rint(shift) if abs(shift - np.rint(shift)) <= _ON_POINT * abs(shift) else shift
                start = int(np.floor(shift))
                part = float(np.expm1((shift - start) * pitch) / np.expm1(pitch))
                at = count + start
                total += mass * (1 - part) * padded[at : at + count] + mass * part * padded[at + 1 : at + 1 + count]
        best = np.maximum(best, total)
    return best


_STEPS = 80  # Members at equal distances.
_TOWARDS = 0.5 ** np.arange(6, 50, 2)  # Distances from the largest loss.
_SHARES = [*np.linspace(-1.0, 1.0, _STEPS + 1)[:-1], *(1 - _TOWARDS)]
"""Members to pick from, more of them where the largest loss is rare: little delta is left there for anything else."""

Lines = tuple[np.ndarray, np.ndarray]
"""Values at the points of a grid of x, and slopes s of v - s (e^y - e^x)."""


@lru_cache(maxsize=8)
def attained_lines(families: Families) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, v, s of lines v - s (e^y - e^x) in e^y, each below the profile of one way to pick steps adaptively.

    Args:
        families: an envelope of each with its number of steps.
    """
    members = [[outcomes(member.attained(share)) for share in _SHARES] for member, _ in families]
    x, _ = grid([(each, steps) for each, (_, steps) in zip(members, families, strict=True)])
    layer = {(0,) * len(families): (np.maximum(-np.expm1(x), 0.0), (x < 0).astype(float))}
    for _ in range(sum(steps for _, steps in families)):
        found: dict[tuple[int, ...], Lines] = {}
        for state, lines in layer.items():
            for place, more in longer(state, families):
                one = _picked(members[place], lines, x)
                known = found.get(more)
                found[more] = _higher(known, one) if known else one
        layer = found
    ((value, slope),) = layer.values()
    return x, value, slope


def _higher(one: Lines, other: Lines) -> Lines:
    """Return the higher line at every point."""
    better = other[0] > one[0]
    return np.where(better, other[0], one[0]), np.where(better, other[1], one[1])


def _picked(members: Sequence[Table], lines: Lines, x: np.ndarray) -> Lines:
    """The best line at every point after one more step of some member."""
    (value, slope), (below, above) = lines, beyond(x)
    ones, zeros, count, pitch = np.ones(len(x)), np.zeros(len(x)), len(x), float(x[1] - x[0])
    values, slopes = np.concatenate([-np.expm1(below), value, zeros]), np.concatenate([ones, slope, zeros])
    points = np.exp(np.concatenate([below, x, above]))
    best = zeros, zeros
    for loss, p, q in members:
        total, fall = np.zeros(count), np.zeros(count)
        for each, p_mass, q_mass in zip(loss, p, q, strict=True):
            at = count + int(np.rint(-each / pitch))
            there = slice(at, at + count)
            total += p_mass * (values[there] - slopes[there] * (np.exp(x - each) - points[there]))
            fall += q_mass * slopes[there]
        best = _higher(best, (total, fall))
    return best


@dataclass(frozen=True)
class AttainedPair(GridPair):
    """A pair whose profile is the largest of `attained_lines`, 0 and 1 - e^y: some way to adapt leaks more.

    Beside other steps it is a lower bound, too: whoever runs these steps last knows the loss before them.
    A loss is the log of the e^y where two neighbouring lines meet, its P-mass the difference of their values at
    e^y = 0 and its Q-mass that of their slopes; both add up to 1.
    """

    families: Families

    @property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        return _upper_hull(self.families)


@lru_cache(maxsize=8)
def _upper_hull(families: Families) -> Table:
    x, value, slope = attained_lines(families)
    with np.errstate(over="ignore", invalid="ignore"):
        height = value + slope * np.exp(x)
    kept: list[tuple[float, float]] = [(1.0, 1.0)]
    meets: list[float] = [0.0]
    falling = slope > 0
    for line in [*zip(slope[falling].tolist(), height[falling].tolist(), strict=True), (0.0, 0.0)]:
        while len(kept) > 1 and _meeting(kept[-1], line) <= meets[-1]:
            kept.pop()
            meets.pop()
        at = _meeting(kept[-1], line)
        if 0 < at < np.inf:
            kept.append(line)
            meets.append(at)
    q, p = -np.diff(np.array(kept), axis=0).T
    return np.log(p / q), p, q


def _meeting(steep: tuple[float, float], flat: tuple[float, float]) -> float:
    """Where a flatter line rises above a steeper one; infinity for one that is not flatter."""
    fall = steep[0] - flat[0]
    return (steep[1] - flat[1]) / fall if fall > 0 else np.inf
