"""Composition by FFT: pairs rounded both ways to one lattice, tilted to the question and convolved.

`LatticeSum` certifies one rounding; `Convolution` builds the lower and the upper one for any composition of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from scipy import fft

from tacit.accounting.pld.discrete_cumulants import DiscreteLoss
from tacit.accounting.pld.lattice import RoundedLoss, place_atoms, round_down, round_up
from tacit.accounting.pld.noise_groups import thinned
from tacit.accounting.pld.saddle_point import (
    Aliases,
    Saddle,
    period_for,
    saddle_for_delta,
    saddle_for_epsilon,
)
from tacit.accounting.pld.step_cumulants import CompositionCumulant
from tacit.mechanisms.pairs import Pair
from tacit.root_finding import bisect

UNIT = 2.0**-52  # Spacing of doubles at 1, twice the rounding unit.
NEGLIGIBLE = -46.0  # log of |phi| below which frequencies are dropped: e^-46 = 1e-20.
_MANY = 4096  # From so many frequencies on, the sum over lattice points is cheaper.


@dataclass(frozen=True)
class LatticeSum:
    """delta(epsilon) of a sum of lattice losses, to be evaluated near the epsilon that `theta` was chosen for.

    With z = theta + i t, delta(epsilon) = e^{K(theta) - theta epsilon} / N sum_j phi(t_j) k(z_j) e^{-i t_j n h}, where
    phi is the transform of the tilted masses, n the first lattice point above epsilon and k(z) = sum over the points
    x from there on of e^{-z (x - epsilon)} (1 - e^{-(x - epsilon)}), a difference of two geometric series.
    """

    theta: float
    epsilon: float
    pitch: float
    size: int
    origin: float
    log_scale: float
    index: np.ndarray
    phi: np.ndarray
    error: np.ndarray
    aliases: Aliases
    infinity_mass: float

    @classmethod
    def of(cls, parts: Sequence[tuple[RoundedLoss, int]], theta: float, epsilon: float, size: int) -> LatticeSum:
        """The sum of `steps` independent copies of each rounded loss, on a lattice of `size` points.

        Args:
            parts: rounded losses with the number of steps of each; one pitch for all.
            theta: tilt under which the sum is transformed, > 0.
            epsilon: epsilon at the saddle point of that tilt.
            size: points of the lattice, a power of two.
        """
        log_phi, slack = np.zeros(size // 2 + 1, dtype=complex), np.zeros(size // 2 + 1)
        log_scale = 0.0
        discrete = [finite_losses(rounded, steps) for rounded, steps in parts]
        for part, (rounded, steps) in zip(discrete, parts, strict=True):
            log_total, weights = part.tilt(theta)
            value, error = transform(rounded, part, weights, size)
            log_phi += steps * np.log(value)
            slack += steps * (error / np.abs(value) + 4 * UNIT * (1 + abs(log_total)))
            log_scale += steps * log_total
        kept = np.flatnonzero(~(np.real(log_phi) <= NEGLIGIBLE))  # NaN stays, and voids the bounds
        phi = np.exp(log_phi[kept])
        return cls(
            theta, epsilon, parts[0][0].pitch, size, sum(steps * rounded.origin for rounded, steps in parts), log_scale,
            kept, phi, np.abs(phi) * np.expm1(np.minimum(slack[kept], 50.0)),
            Aliases.of(CompositionCumulant(discrete), theta),
            infinity_mass(parts),
        )  # fmt: skip

    @cached_property
    def _tilted(self) -> tuple[np.ndarray, float]:
        """Tilted probabilities of the lattice points modulo the period, and a bound on the error of each."""
        spectrum = np.zeros(self.size // 2 + 1, dtype=complex)
        spectrum[self.index] = self.phi
        error = 2 * float(self.error.sum()) / self.size + float(np.exp(NEGLIGIBLE))
        error += 8 * UNIT * np.log2(self.size) * float(np.linalg.norm(self.phi)) * (2 / self.size) ** 0.5
        return np.fft.irfft(np.conj(spectrum), self.size), error

    def finite(self, epsilon: float) -> tuple[float, float, float]:
        """Return log s, s = e^{K - theta epsilon}, and E[(1 - e^{epsilon - L})_+; L finite] / s with its error."""
        first = int(np.ceil((epsilon - self.origin) / self.pitch))
        gap = max(self.origin + first * self.pitch - epsilon, 0.0)
        value, error = (self._by_points if len(self.index) > _MANY else self._by_frequencies)(first, gap)
        return self.log_scale - self.theta * epsilon, value, error

    def _by_points(self, first: int, gap: float) -> tuple[float, float]:
        """The sum over lattice points; copies of the period form a geometric series."""
        probabilities, error = self._tilted
        count = min(self.size, int(60 / (self.theta * self.pitch)) + 2)
        above = gap + self.pitch * np.arange(count)
        period = self.size * self.pitch
        kernel = np.exp(-self.theta * above) * sum(_difference(self.theta, above, period))
        value = float(probabilities[(first % self.size + np.arange(count)) % self.size] @ kernel)
        rest = np.exp(-60.0) / -np.expm1(-self.theta * period)
        return value, error * float(np.abs(kernel).sum()) + 64 * UNIT * abs(value) + float(rest)

    def _by_frequencies(self, first: int, gap: float) -> tuple[float, float]:
        """The same sum by Parseval, over the few frequencies that have not decayed."""
        z = self.theta + 2j * np.pi * self.index / (self.size * self.pitch)
        phase = np.exp(-2j * np.pi * ((self.index * (first % self.size)) % self.size) / self.size)
        one, other = _difference(z, min(gap, self.pitch), self.pitch)
        weight = np.where((self.index == 0) | (2 * self.index == self.size), 1.0, 2.0) * np.exp(-self.theta * gap)
        terms = weight * self.phi * (one + other) * phase
        value = float(terms.real.sum()) / self.size
        size = weight * (np.abs(one) + np.abs(other))
        error = float(size @ (self.error + 64 * UNIT * np.abs(self.phi))) / self.size
        error += float(size.max()) * np.exp(NEGLIGIBLE)
        return value, error

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta of the lattice composition itself."""
        low, high = self.finite_bounds(epsilon)
        finite = 1 - self.infinity_mass
        return self.infinity_mass + min(low, finite), self.infinity_mass + min(high, finite)

    def finite_bounds(self, epsilon: float) -> tuple[float, float]:
        """The same without the infinite losses."""
        log_scale, value, error = self.finite(epsilon)
        period = self.size * self.pitch
        above = _exp(self.aliases.above(epsilon, period) - log_scale)
        below, unsure = (_exp(log - log_scale) for log in self.aliases.below(epsilon, period))
        low = _exp(log_scale) * max(value - error - above - below, 0.0)
        high = _exp(log_scale) * max(value + error - below + unsure, 0.0)
        return low, high


def _difference(z: Any, start: Any, period: float) -> tuple[Any, Any]:
    """sum_k e^{-z k period} (1 - e^{-start - k period}) for 0 <= start <= period, as two terms to be added.

    It is a difference of two geometric series that nearly cancel where z is large; written so, nothing is lost.
    """
    series = np.expm1(-z * period) * np.expm1(-(z + 1) * period)
    return -np.expm1(-start) / series, -np.exp(-z * period - start) * np.expm1(start - period) / series


def finite_losses(rounded: RoundedLoss, steps: int) -> DiscreteLoss:
    """The lattice points that have mass."""
    keep = rounded.masses > 0
    return DiscreteLoss(rounded.losses[keep], np.log(rounded.masses[keep]), steps)


def transform(rounded: RoundedLoss, part: DiscreteLoss, weights: np.ndarray, size: int) -> tuple[np.ndarray, float]:
    """sum_k w_k e^{i t_j k h} for the weights of `part` on the lattice, and a bound on its rounding error.

    Args:
        rounded: the rounded loss, for its origin and pitch.
        part: its finite losses.
        weights: their masses under a tilt, shape (losses,).
        size: points of the lattice, even.
    """
    place = np.round((part.losses - rounded.origin) / rounded.pitch).astype(int) % size
    value = np.conj(np.fft.rfft(np.bincount(place, weights, size)))
    error = 8 * UNIT * float(np.log2(size) * np.sqrt(weights @ weights))
    return np.where(np.abs(value) < 1e-300, 1e-300, value), error


def infinity_mass(parts: Sequence[tuple[RoundedLoss, int]]) -> float:
    """P-mass of runs in which some step has infinite loss."""
    if any(rounded.infinity_mass >= 1 for rounded, _ in parts):
        return 1.0
    return float(-np.expm1(sum(steps * np.log1p(-rounded.infinity_mass) for rounded, steps in parts)))


def _exp(x: float) -> float:
    return float(np.exp(min(x, 700.0)))


# Edges of the coarse losses: geometric, so that every scale of loss has bins.
_EDGES = np.concatenate([-np.geomspace(1e5, 1e-12, 512), np.geomspace(1e-12, 1e5, 512)])
_APPROACH = np.geomspace(1e-9, 0.5, 40)  # Relative distances of further edges from atoms and ends.
_LARGEST = 1 << 20  # Points of a lattice unless its losses demand more.
_MOST = 1 << 26  # Points of a lattice at most: 1 GiB of complex numbers.
_COARSE = 1 << 12  # Up to this size a lattice is rough, and time is saved on its rounding.
_UNEVEN = 64  # How much finer the pitch is for tables whose losses fit no lattice.
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
        low = self.lower.bounds(epsilon)[0] if self.lower else 0.0
        return low, self.upper.bounds(epsilon)[1] if self.upper else 1.0


class Convolution:
    """Two-sided delta of one direction: `parts` are pairs with the number of times that they run.

    Args:
        parts: dominating pairs with the number of steps of each.
        gap: relative width that the bracket of delta aims at, > 0.
        largest: points of the finest lattice.
        coarse_losses: losses of every part on a coarse lattice; computed by default.
    """

    def __init__(
        self,
        parts: Sequence[tuple[Pair, int]],
        *,
        gap: float = 2e-7,
        largest: int = _LARGEST,
        coarse_losses: Sequence[DiscreteLoss] | None = None,
    ):
        self.parts = parts
        self.gap = gap
        self.largest = largest
        self.infinity_mass = -np.expm1(sum(steps * _log1m(pair.infinity_mass) for pair, steps in parts))
        self.lower_parts, self.upper_parts = thinned(parts)
        self.exact = _common(parts) > 0
        """Whether all losses lie on one lattice, where nothing is rounded."""
        self.coarse_losses = coarse_losses or [_coarse_loss(pair, steps) for pair, steps in self.upper_parts]

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
        period = period_for(aliases, saddle.epsilon, saddle.log_delta - 23.0, 4 * saddle.spread)
        close = self.largest > _COARSE
        gap = self.gap * max(saddle.epsilon, 1e-4)
        uneven = any(pair.table is not None and not pair.atoms for pair, _ in self.parts)
        wanted = min(_pitch_for(cumulant, theta, gap), saddle.spread / 8) / (_UNEVEN if uneven else 1) if close else 0.0
        down, up, size = self._rounded(cumulant, theta, saddle.log_delta, period, wanted, self.largest)
        lower, upper = (
            LatticeSum.of(parts, theta, saddle.epsilon, size)
            if all(rounded.masses.any() for rounded, _ in parts)
            else None
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
            points = int(np.ceil((high - first) / pitch)) + 5
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
        place = float(np.log(p[1] / q[1]))
    return place


def _log1m(x: float) -> float:
    return float(np.log1p(-x)) if x < 1 else -np.inf


def _coarse_loss(pair: Pair, steps: int) -> DiscreteLoss:
    """The pair merged into a few hundred cells: close enough to plan with, not a bound that is used."""
    ends = [*pair.atoms, *([pair.largest] if np.isfinite(pair.largest) else [])]
    near = [end + sign * abs(end) * _APPROACH for end in ends for sign in (-1, 1)]
    edges = np.unique(np.concatenate([_EDGES, *near]))
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
    below = _EDGES[max(int(np.searchsorted(_EDGES, part.losses[low])) - 1, 0)]
    above = _EDGES[min(int(np.searchsorted(_EDGES, part.losses[high])), len(_EDGES) - 1)]
    return float(below), float(above)


def _pitch_for(cumulant: CompositionCumulant[DiscreteLoss], theta: float, gap: float) -> float:
    """The pitch whose rounding moves epsilon by about `gap`: theta / 8 times the variance that it adds or removes."""
    tilted = [(part.steps, part.tilt(theta)[1], np.abs(part.losses)) for part in cumulant.parts]

    def fine_enough(log_pitch: float) -> bool:
        pitch = float(np.exp(log_pitch))
        cost = sum(steps * float(weights @ np.minimum(pitch**2, pitch * size)) for steps, weights, size in tilted)
        return theta / 8 * cost < gap

    return float(np.exp(bisect(fine_enough, -30.0, 3.0, halvings=20)[0]))


def _common(parts: Sequence[tuple[Pair, int]]) -> float:
    """The distance of neighbouring losses where all parts have the same; then nothing is rounded; else 0."""
    distances = [_distance(pair) for pair, _ in parts]
    return distances[0] if distances and np.ptp(distances) == 0.0 else 0.0


def _distance(pair: Pair) -> float:
    if pair.table is not None:
        losses = pair.table[0] if len(pair.table[0]) < _COARSE else np.zeros(0)
    else:
        losses = np.unique(pair.atoms) if pair.discrete else np.zeros(0)
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
