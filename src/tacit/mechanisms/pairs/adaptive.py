"""Several steps of a family of pairs, each picked when the outcomes before it are known.

With V_0(x) = (1 - e^x)_+, the delta of k steps is V_k(x) = sup over the family of E_P V_{k-1}(x - L), and as the member
may depend on x it covers an analyst who adapts. V_k is convex in e^x, hence the profile of one pair. `RangePair` alone
covers one step; its powers cover several, but with losses that spread by a third too much.

Both bounds live on a grid of x. Above, the values between two points are those of the chord in e^x, and the largest is
taken over pairs that cover the family (`Pair.covering`). Below, every value is a line in e^x below the profile of one
way to adapt, and such lines add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from tacit.mechanisms.pairs.base import Pair, Table, table_bin_masses
from tacit.mechanisms.pairs.quadrature import Nodes
from tacit.root_finding import bracketed_root

_MEMBERS = 40  # Members of a covering; their tests are 1 / 40 of the range apart.
_TOWARDS = 0.5 ** np.arange(6, 50, 2)  # Distances from the largest loss.
_SHARES = [*np.linspace(-1.0, 1.0, 2 * _MEMBERS + 1)[:-1], *(1 - _TOWARDS)]
"""Members to pick from, more of them where the largest loss is rare: little delta is left there for anything else."""
_FINEST, _WORK = 192, 6000  # Grid points per step at most, and of the whole block.
_LOG_TAIL = -92.0  # log of the chance of too long a block: e^-92 = 1e-40.


@dataclass(frozen=True)
class AdaptivePair(Pair):
    """The smallest pair, up to the grid, that dominates `steps` adaptively picked steps of the family of `member`."""

    member: Pair
    steps: int

    @cached_property
    def table(self) -> Table:  # type: ignore[override]
        """Return the losses with their masses under P and Q."""
        return _table(self.member, self.steps)

    @property
    def table_error(self) -> np.ndarray:
        """Return zeros: the losses are grid points that the pair chooses, to which its masses belong."""
        return np.zeros(len(self.table[0]))

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return float(self.table[0][-1])

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        return Nodes(*self.table)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        return table_bin_masses(edges, *self.table)


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

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        return self.infinity_mass

    @cached_property
    def table(self) -> Table:  # type: ignore[override]
        """Return the losses with their masses under P and Q."""
        return _mixed_table(self.member, self.steps, self.rate, self.most)


def _log_tail(most: int, mean: float) -> float:
    """Chernoff's bound on log P(J > most) for binomial J of that mean, below `most`."""
    count = most + 1
    return count - mean - count * float(np.log(count / mean))


@lru_cache(maxsize=8)
def _table(member: Pair, steps: int) -> Table:
    """The pair with the profile V (from above)."""
    *_, (put, call) = _profiles(member, steps)
    return _pair_of(put, call, *_grid_of(member, steps))


@lru_cache(maxsize=8)
def _mixed_table(member: Pair, steps: int, rate: float, most: int) -> Table:
    """The pair with the profile E V_J given J <= most, its masses those of that event."""
    from scipy.stats import binom

    weights = binom.pmf(np.arange(most + 1), steps, rate)
    put = call = np.zeros(1)
    for weight, (each_put, each_call) in zip(weights / weights.sum(), _profiles(member, most), strict=True):
        put, call = put + weight * each_put, call + weight * each_call
    loss, p, q = _pair_of(put, call, *_grid_of(member, most))
    kept = -np.expm1(_log_tail(most, steps * rate))
    return loss, kept * p, kept * q


def _profiles(member: Pair, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """V_k and V_k - (1 - e^x), from above, for k = 0, 1, ..., steps."""
    cover = [_outcomes(pair) for pair in member.covering(_MEMBERS)]
    x, _ = _grid(cover, steps)
    put, call = np.maximum(-np.expm1(x), 0.0), np.maximum(np.expm1(x), 0.0)
    yield put, call
    for _ in range(steps):
        put = _chords(put, -np.expm1(_beyond(x)[0]), np.zeros_like(x), cover, x)
        call = _chords(call, np.zeros_like(x), np.expm1(_beyond(x)[1]), cover, x)
        yield put, call


def _grid_of(member: Pair, steps: int) -> tuple[np.ndarray, int]:
    return _grid([_outcomes(pair) for pair in member.covering(_MEMBERS)], steps)


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


def _outcomes(pair: Pair) -> Table:
    """Losses and masses of a member."""
    nodes = pair.nodes(1.0, 0.0)
    assert nodes is not None
    return nodes.columns


def _grid(members: Sequence[Table], steps: int) -> tuple[np.ndarray, int]:
    """Equally spaced points over all that `steps` steps can lose, and the index of 0."""
    low, high = min(float(loss.min()) for loss, _, _ in members), max(float(loss.max()) for loss, _, _ in members)
    pitch = (high - low) / max(min(_FINEST, _WORK // steps), 16)
    first, last = int(np.floor(steps * min(low, 0.0) / pitch)) - 1, int(np.ceil(steps * max(high, 0.0) / pitch)) + 1
    return pitch * np.arange(first, last + 1), -first


def _beyond(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
                start = int(np.floor(shift))
                part = float(np.expm1((shift - start) * pitch) / np.expm1(pitch))
                at = count + start
                total += mass * (1 - part) * padded[at : at + count] + mass * part * padded[at + 1 : at + 1 + count]
        best = np.maximum(best, total)
    return best


@lru_cache(maxsize=8)
def attained_lines(member: Pair, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, v, s of lines v - s (e^y - e^x) in e^y, each below the profile of one way to pick steps adaptively."""
    members = [_outcomes(member.attained(share)) for share in _SHARES]
    x, _ = _grid(members, steps)
    below, above = _beyond(x)
    value, slope = np.maximum(-np.expm1(x), 0.0), (x < 0).astype(float)
    ones, zeros, count, pitch = np.ones(len(x)), np.zeros(len(x)), len(x), float(x[1] - x[0])
    for _ in range(steps):
        values, slopes = np.concatenate([-np.expm1(below), value, zeros]), np.concatenate([ones, slope, zeros])
        points = np.exp(np.concatenate([below, x, above]))
        best, best_slope = np.zeros(count), np.zeros(count)
        for loss, p, q in members:
            total, fall = np.zeros(count), np.zeros(count)
            for each, p_mass, q_mass in zip(loss, p, q, strict=True):
                at = count + int(np.rint(-each / pitch))
                there = slice(at, at + count)
                total += p_mass * (values[there] - slopes[there] * (np.exp(x - each) - points[there]))
                fall += q_mass * slopes[there]
            better = total > best
            best, best_slope = np.where(better, total, best), np.where(better, fall, best_slope)
        value, slope = best, best_slope
    return x, value, slope
