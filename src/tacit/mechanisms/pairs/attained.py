"""Steps of one or several families of pairs, each picked when the outcomes before it are known, from below.

The values of `adaptive` live on the same grid of x, but every value is a line in e^x below the profile of one way to
adapt. Such lines add up, and the largest of several is again below the largest profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tacit.mechanisms.pairs.adaptive import Families, GridPair, beyond, grid, longer, outcomes
from tacit.mechanisms.pairs.base import Table

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
    def columns(self) -> Table:
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
