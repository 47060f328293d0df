"""Composition by FFT: pairs rounded both ways to one lattice, tilted to the question and convolved.

`LatticeSum` certifies one rounding; `Convolution` builds the lower and the upper one for any composition of pairs.

Groups of unlike noises: steps of neighbouring parameters counted together, from above and from below.

Less noise and a higher rate dominate (`SampledGaussian`), so steps at the smallest sigma and the largest rate of a
group leak at least as much as its own, and steps at the largest sigma and the smallest rate at most as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from scipy import fft

from tacit.accounting.pld.discrete_cumulants import DiscreteLoss, SampledSteps, grouped
from tacit.accounting.pld.lattice import RoundedLoss, place_atoms, round_down, round_up
from tacit.accounting.pld.lattice_sum import LatticeSum, infinity_mass
from tacit.accounting.pld.saddle_point import (
    Aliases,
    CompositionCumulant,
    Saddle,
    period_for,
    saddle_at,
    saddle_for_delta,
    saddle_for_epsilon,
)
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.gaussian import SampledGaussian
from tacit.root_finding import bisect

Parts = Sequence[tuple[Pair, int]]

_FEW = 32  # So many unlike parts a lattice transforms one by one; each costs it two transforms.


def thinned(parts: Parts, few: int = _FEW) -> tuple[Parts, Parts]:
    """Return (lower, upper) parts with more than a few sampled Gaussians of a kind grouped by noise and rate."""
    kinds, others = _kinds(parts, by_rate=False)
    groups = [
        group
        for members in kinds
        for group in (_groups(members, few) if len(members) > few else [[member] for member in members])
    ]
    return _bounds(groups, others)


def grouped_by_noise(parts: Parts, distinct: int) -> tuple[Parts, Parts]:
    """Return (lower, upper) parts with at most about `distinct` sampled Gaussians, only steps of one rate together."""
    kinds, others = _kinds(parts, by_rate=True)
    total = sum(len(members) for members in kinds)
    groups = [group for members in kinds for group in _groups(members, max(1, distinct * len(members) // total))]
    return _bounds(groups, others)


def _kinds(parts: Parts, *, by_rate: bool) -> tuple[list[SampledSteps], list[tuple[Pair, int]]]:
    """Return the sampled Gaussians, those of one kind (and rate) together, and all other parts."""
    sampled = [(pair, steps) for pair, steps in parts if isinstance(pair, SampledGaussian)]
    others = [(pair, steps) for pair, steps in parts if not isinstance(pair, SampledGaussian)]
    return grouped(sampled, lambda pair: (pair.kind, pair.rate if by_rate else 1.0)), others


def _groups(members: SampledSteps, count: int) -> list[SampledSteps]:
    """Return the members by cells of equal width in log sigma and log rate, `count` cells at most."""
    logs = [np.log([pair.sigma for pair, _ in members]), np.log([pair.rate for pair, _ in members])]
    count = int(count**0.5) if all(np.ptp(values) > 0 for values in logs) else count
    # The factor 1 - 1e-12 keeps the largest value in the last cell.
    keys = [np.floor(count * (v - v.min()) / (np.ptp(v) or 1.0) * (1 - 1e-12)) for v in logs]
    cells = {pair: cell for (pair, _), *cell in zip(members, *keys, strict=True)}
    return grouped(members, lambda pair: tuple(cells[pair]))


def _bounds(groups: list[SampledSteps], others: list[tuple[Pair, int]]) -> tuple[Parts, Parts]:
    """Return the other parts with every group at its least and at its most leaky corner."""
    lower, upper = list(others), list(others)
    for group in groups:
        steps = sum(count for _, count in group)
        sigma, rate = [pair.sigma for pair, _ in group], [pair.rate for pair, _ in group]
        lower.append((replace(group[0][0], sigma=max(sigma), rate=min(rate)), steps))
        upper.append((replace(group[0][0], sigma=min(sigma), rate=max(rate)), steps))
    return lower, upper


EDGES = np.concatenate([-np.geomspace(1e5, 1e-12, 512), np.geomspace(1e-12, 1e5, 512)])
"""Edges of the coarse losses: geometric, so that every scale of loss has bins."""

_APPROACH = np.geomspace(1e-9, 0.5, 40)  # Relative distances of further edges from atoms and ends.
_LARGEST = 1 << 20  # Points of a lattice unless its losses demand more.
_MOST = 1 << 26  # Points of a lattice at most: 1 GiB of complex numbers.
_COARSE = 1 << 12  # Up to this size a lattice is rough, and time is saved on its rounding.
_SKETCH = 49  # Points of a sketch of delta.
_ANCHORED = 1e-9  # Relative to the pitch: an anchor that moves by less stays.
_UNEVEN = 128  # How much finer the pitch is for tables whose losses fit no lattice.
Rounding = list[tuple[RoundedLoss, int]]


@dataclass(frozen=True)
class Bracket:
    """The lower and the upper rounding of one composition, built for one question.

    `theta` is the tilt, a first guess at the fall of log delta; at `epsilon` the bounds are meant to be evaluated. A
    rounding is None where no finite loss was left of some part: then it bounds nothing.
    """

    lower: LatticeSum | None
    upper: LatticeSum | None
    theta: float
    epsilon: float

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon)."""
        low = self.lower.bound(epsilon, 0) if self.lower else 0.0
        return low, self.upper.bound(epsilon, 1) if self.upper else 1.0


class Convolution:
    """Two-sided delta of one direction: `parts` are pairs with the number of times that they run.

    Args:
        parts: dominating pairs with the number of steps of each.
        gap: relative width that the bracket of delta aims at, > 0.
        largest: points of the finest lattice.
        groups: sampled Gaussians of a kind that are taken one by one; more are grouped. None for a few dozen.
    """

    def __init__(
        self,
        parts: Sequence[tuple[Pair, int]],
        *,
        gap: float = 2e-7,
        largest: int = _LARGEST,
        groups: int | None = None,
    ):
        self.parts = parts
        self.gap = gap
        self.largest = largest
        self.infinity_mass = infinity_mass(parts)
        self.lower_parts, self.upper_parts = thinned(parts, groups) if groups else thinned(parts)
        self.exact = _common(parts) > 0
        """Whether all losses lie on one lattice, where nothing is rounded."""
        self.coarse_losses = [_coarse_loss(pair, steps) for pair, steps in self.upper_parts]

    def saddle_for_delta(self, delta: float) -> Saddle:
        """The approximate saddle where delta(epsilon) = delta > `infinity_mass`."""
        log_delta = float(np.log(delta - self.infinity_mass))
        return saddle_for_delta(self._coarse_cumulant(log_delta), log_delta)

    def saddle_for_epsilon(self, epsilon: float) -> Saddle:
        """The approximate saddle of `epsilon`."""
        saddle = saddle_for_epsilon(self._coarse_cumulant(-300.0), epsilon)
        for _ in range(2):
            saddle = saddle_for_epsilon(self._coarse_cumulant(saddle.log_delta), epsilon)
        return saddle

    def sketch(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Saddle-point values of (epsilon, delta) from epsilon = 0 to where delta falls to `delta`: no bounds."""
        log_delta = float(np.log(delta))
        cumulant = self._coarse_cumulant(log_delta)
        first, last = saddle_for_epsilon(cumulant, 0.0), saddle_for_delta(cumulant, log_delta)
        saddles = [saddle_at(cumulant, theta) for theta in np.geomspace(first.theta, last.theta, _SKETCH).tolist()]
        epsilons = np.maximum.accumulate([max(saddle.epsilon, 0.0) for saddle in saddles])
        values = np.exp([min(saddle.log_delta, 0.0) for saddle in saddles])
        return epsilons, np.minimum(values + self.infinity_mass, 1.0)

    def coarse_losses_for(self, log_delta: float) -> list[DiscreteLoss]:
        """The coarse_losses without masses that are too small to matter at this delta, but could rule a high tilt."""
        floor = log_delta - 50.0 - np.log(sum(part.steps for part in self.coarse_losses))
        return [part.above(floor) for part in self.coarse_losses]

    def _coarse_cumulant(self, log_delta: float) -> CompositionCumulant[DiscreteLoss]:
        return CompositionCumulant(self.coarse_losses_for(log_delta))

    def bracket(self, saddle: Saddle) -> Bracket:
        """Both roundings, built for one saddle."""
        cumulant = self._coarse_cumulant(saddle.log_delta)
        theta = saddle.theta
        aliases = Aliases.of(cumulant, theta)
        uneven = any(pair.table is not None and not pair.atoms for pair, _ in self.parts)
        period = period_for(aliases, saddle.epsilon, saddle.log_delta - (18 if uneven else 23), 4 * saddle.spread)
        close = self.largest > _COARSE
        gap = self.gap * max(saddle.epsilon, 1e-4)
        wanted = min(_pitch_for(cumulant, theta, gap), saddle.spread / 8) / (_UNEVEN if uneven else 1) if close else 0.0
        down, up, size = self._rounded(cumulant, theta, saddle.log_delta, period, wanted, self.largest)
        lower, upper = (
            LatticeSum(parts, theta, size) if all(rounded.masses.any() for rounded, _ in parts) else None
            for parts in (down, up)
        )
        return Bracket(lower, upper, theta, saddle.epsilon)

    def _rounded(
        self,
        cumulant: CompositionCumulant[DiscreteLoss],
        theta: float,
        log_delta: float,
        period: float,
        wanted: float,
        largest: int,
    ) -> tuple[Rounding, Rounding, int]:
        """Lower and upper parts on one lattice, and the number of its points."""
        steps = sum(part.steps for part in cumulant.parts)
        ends = [_ends(part, theta, log_delta, steps) for part in cumulant.parts]
        period = max(period, max(high - low for low, high in ends) * 1.01)
        pitch = _common(self.parts) or _aligned(self.parts, max(wanted, period / largest))
        if period > _MOST * pitch:
            raise OverflowError(f"a lattice of {period / pitch:.1g} losses does not fit into memory")
        size = cast(int, fft.next_fast_len(max(int(np.ceil(period / pitch)), 64), real=True))
        down: Rounding = []
        up: Rounding = []
        for (lower, count), (upper, _), part, (low, high) in zip(
            self.lower_parts, self.upper_parts, cumulant.parts, ends, strict=True
        ):
            anchor = upper.atoms[0] if upper.atoms else _anchor(upper, part, theta, pitch)
            first = anchor + pitch * (np.floor((low - anchor) / pitch) - 4)
            points = max(int(np.ceil((high - first) / pitch)) + 5, 1)  # Ends may cross where next to nothing is lost.
            exact = place_atoms(upper, first, pitch, points) if upper.discrete or upper.table is not None else None
            up.append((exact or round_up(upper, first, pitch, points), count))
            down.append((exact or round_down(lower, first, pitch, points, theta, close=largest > _COARSE), count))
        return down, up, size


def _anchor(pair: Pair, part: DiscreteLoss, theta: float, pitch: float) -> float:
    """The mode of many atoms; else the merged loss of a cell around itself near the bulk, which so stays whole."""
    if pair.table is not None:
        return float(pair.table[0][np.argmax(pair.table[1])])
    place = float(part.losses[np.argmax(part.tilt(theta)[1])])
    for _ in range(30):
        p, q = pair.bin_masses(np.array([place - pitch / 2, place + pitch / 2]))
        if not (p[1] > 0 and q[1] > 0):
            break
        before, place = place, float(np.log(p[1] / q[1]))
        if abs(place - before) <= _ANCHORED * pitch:
            break
    return place


def _coarse_loss(pair: Pair, steps: int) -> DiscreteLoss:
    """The pair merged into a few hundred cells: close enough to plan with, not a bound that is used."""
    ends = [*pair.atoms, *([pair.largest] if np.isfinite(pair.largest) else [])]
    near = [end + sign * abs(end) * _APPROACH for end in ends for sign in (-1, 1)]
    edges = np.unique(np.concatenate([EDGES, *near]))
    p, q = pair.bin_masses(edges)
    middle = np.concatenate([edges[:1], (edges[:-1] + edges[1:]) / 2, edges[-1:]])
    with np.errstate(divide="ignore", invalid="ignore"):
        # Beyond a loss of 745 the Q-mass is below the smallest double.
        losses = np.where(q > 0, np.log(p / q), middle)
    keep = (p > 0) & ((q > 0) | (losses > 700))
    return DiscreteLoss(losses[keep], np.log(p[keep]), steps)


def _ends(part: DiscreteLoss, theta: float, log_delta: float, steps: int) -> tuple[float, float]:
    """Losses between which all but a negligible part of the tilted mass, and of the mass that matters, lies."""
    _, weights = part.tilt(theta)
    cut = 1e-15 / steps
    low = int(np.searchsorted(np.cumsum(weights), cut))
    high = len(weights) - 1 - int(np.searchsorted(np.cumsum(weights[::-1]), cut))
    tail = np.cumsum(np.exp(part.log_masses)[::-1])[::-1]
    heavy = np.flatnonzero(tail > np.exp(log_delta - 23.0) / steps)
    high = max(high, int(heavy[-1])) if len(heavy) else high
    below = EDGES[max(int(np.searchsorted(EDGES, part.losses[low])) - 1, 0)]
    above = EDGES[min(int(np.searchsorted(EDGES, part.losses[high])), len(EDGES) - 1)]
    return float(below), float(above)


def _pitch_for(cumulant: CompositionCumulant[DiscreteLoss], theta: float, gap: float) -> float:
    """The pitch whose rounding moves epsilon by about `gap`: (1 + theta) / 8 times the variance that it changes."""
    tilted = [(part.steps, part.tilt(theta)[1], np.abs(part.losses)) for part in cumulant.parts]

    def fine_enough(log_pitch: float) -> bool:
        pitch = float(np.exp(log_pitch))
        cost = sum(steps * float(weights @ np.minimum(pitch**2, pitch * size)) for steps, weights, size in tilted)
        return (1 + theta) / 8 * cost < gap

    return float(np.exp(bisect(fine_enough, -30.0, 3.0, halvings=20)[0]))


def _common(parts: Sequence[tuple[Pair, int]]) -> float:
    """The distance of neighbouring losses where all parts have the same; then nothing is rounded; else 0."""
    distances = [_distance(pair) for pair, _ in parts]
    return distances[0] if distances and np.ptp(distances) == 0.0 else 0.0


def _distance(pair: Pair) -> float:
    if pair.table is None and not pair.discrete:
        return 0.0
    if pair.table is not None:
        losses = pair.table[0] if len(pair.table[0]) < _COARSE else np.zeros(0)
    else:
        losses = np.unique(pair.atoms)
    gaps = np.diff(losses)
    if not len(gaps) or np.ptp(gaps) > 1e-12 * np.abs(losses).max():
        return 0.0
    return float(losses[-1] - losses[0]) / len(gaps)


def _aligned(parts: Sequence[tuple[Pair, int]], pitch: float) -> float:
    """A pitch near `pitch` that divides the distance of the busiest part's first atoms, or is divided by it."""
    atomic = [(steps, pair.atoms) for pair, steps in parts if len(pair.atoms) > 1]
    if not atomic:
        return pitch
    _, atoms = max(atomic)
    distance = abs(atoms[1] - atoms[0])
    if not distance:
        return pitch
    return distance / np.ceil(distance / pitch) if distance > pitch else distance * np.ceil(pitch / distance)
