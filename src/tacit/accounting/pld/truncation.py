"""A lattice for steps that rarely sample the record: losses that settle a run by themselves are counted in closed form.

When a record is removed, a step that samples at a low rate p loses at least log(1 - p), next to nothing, and its large
losses reach far beyond epsilon. With l_i the least losses of the steps and h_i = epsilon - sum_{j != i} l_j, a run with
some loss above its h_i loses more than epsilon whatever the other steps do, so that these runs add
P(some L_i > h_i) - e^epsilon Q(some L_i > h_i) to delta. All other runs compose the steps without losses above h_i, for
which a lattice of their short range is fine. When a record is added, losses are at most -log(1 - p), and runs with
some loss below epsilon less what the others can add do not count at all (THEORY.md, Theorem 5.7). Groups of records,
of which a step samples none with probability (1 - p)^size, likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.accounting.pld.fft import Bracket, Convolution
from tacit.accounting.pld.intervals import inverted, looseness, valid_bounds
from tacit.accounting.pld.rounding import PERTURBATION, UNIT, mass_units
from tacit.accounting.pld.saddle_point import SMALLEST
from tacit.mechanisms.pairs import GaussianMixturePair, Pair, SampledGaussianPair

_ROUGH, _FINE = 1 << 12, 1 << 18  # Points of the lattice that looks for epsilon, and of the one that answers.
_FINER = 1 / 16  # Gap, relative to the usual one, of a lattice where that one is not narrow.
_NARROW = 5e-7  # Relative width of epsilon up to which it is.
_BEYOND = (2.0, 1.05)  # How far from its own epsilon the limit of either lattice lies.
_SEARCHES = 6  # Rough lattices at most.
_CLOSE = 4.0  # A rough lattice whose epsilon is off by a larger factor is laid again.
_LEAST = 1e-3  # Least epsilon of a search, relative to the expected number of samples.
_SHALLOW = 100.0  # Epsilon, relative to that least one, up to which a lattice that reaches far serves from 0 on.
_WIDEST = 1.02  # Ratio of the bounds of a rough lattice up to which the finer one's will be narrow.
_NARROW_DELTA = 1.5e-6  # Relative width of delta up to which a lattice that reaches far answers.
_RATIOS = np.geomspace(0.5, 1.9, 7)  # Epsilons of an outline, relative to that of a rough lattice.
_FAINT = 1e-3  # Least lower bound of an outline, relative to the upper one.
_FARTHEST = 1e12  # Largest epsilon of an outline, relative to the first.
_SAME = 1.5  # A wide lattice whose epsilon is off by no more would be as wide again.
_TILT = 0.7  # Tilt of a lattice relative to the saddle's: large losses make copies heavy beyond the saddle.
_MOST_SAMPLES = 2.0  # Expected samples up to which the range that is left is short.
# The same of groups, whose losses reach further, with the points of a rough lattice of them and its tilt.
_MOST_OF_GROUPS, _ROUGH_OF_GROUPS, _TILT_OF_GROUPS = 20.0, 1 << 15, 0.5
_FEWEST = 2  # Steps from which on it is used: one has an engine of its own.
_SMALL = 1e-4  # Epsilon below which a lattice aims at an absolute gap.
_UNITS = 64.0  # Units of a probability besides those of its tails, and of a threshold (Theorem 5.7).


Truncated = SampledGaussianPair | GaussianMixturePair


@dataclass(frozen=True)
class TruncatedPair(Pair):
    """The losses of a pair in (low, high], a pair of measures of less mass than 1."""

    base: Pair
    low: float
    high: float

    @property
    def largest(self) -> float:
        """Return the supremum of the losses."""
        return min(self.base.largest, self.high)

    def edge_error(self, size: float) -> float:
        """Return that of the pair."""
        return self.base.edge_error(size)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the kept losses in each bin."""
        inner = np.clip(edges, self.low, self.high)
        p, q = self.base.bin_masses(np.concatenate([[self.low], inner, [self.high]]))
        return p[1:-1], q[1:-1]


@dataclass(frozen=True)
class TruncatedLattice:
    """Bounds on delta for epsilons on one side of `limit`: up to it where a record is removed, else from it on."""

    lattice: Bracket
    limit: float
    removed: bool
    settled: tuple[float, float]
    """P- and Q-mass of the runs with a loss that is left out, which count as a whole where a record is removed."""
    unsure: tuple[float, float]
    """Bounds on the errors of both."""
    beyond: TruncatedLattice | None = None
    """Bounds that serve beyond `limit`; else those at the limit do."""

    @property
    def theta(self) -> float:
        """The tilt of the lattice."""
        return self.lattice.theta

    @property
    def epsilon(self) -> float:
        """Where the bounds are meant to be evaluated."""
        return self.lattice.epsilon

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon); it falls, so that the limit bounds what lies beyond."""
        if epsilon > self.limit if self.removed else epsilon < self.limit:
            if self.beyond is not None:
                return self.beyond.bounds(epsilon)
            low, high = self.bounds(self.limit)
            return (0.0, high) if self.removed else (low, 1.0)
        low, high = self.lattice.bounds(epsilon)
        growth = float(np.exp(epsilon))
        value = self.settled[0] - growth * self.settled[1]
        error = self.unsure[0] + growth * self.unsure[1]
        return max(low + value - error, 0.0), min(high + value + error, 1.0)

    def serves(self, delta: float) -> bool:
        """Whether the epsilon of `delta` lies on this side of the limit."""
        low, high = valid_bounds(self, self.limit)
        return high <= delta if self.removed else low >= delta


class Truncation:
    """Builds `TruncatedLattice` for Poisson-subsampled Gaussian steps of one direction.

    Args:
        parts: the pairs with the number of times that they run.
        gap: relative width of epsilon that is aimed at, > 0.
    """

    def __init__(self, parts: Sequence[tuple[Truncated, int]], gap: float):
        self._parts, self._gap = parts, gap
        self._removed = parts[0][0].remove
        self._least = _LEAST * _samples(parts)
        self._rough, self._tilt = (_ROUGH_OF_GROUPS, _TILT_OF_GROUPS) if _of_groups(parts) else (_ROUGH, _TILT)

    @classmethod
    def of(cls, parts: Sequence[tuple[Pair, int]], gap: float) -> Truncation | None:
        """The builder where all parts are sampled Gaussians of one direction that are expected to sample rarely."""
        found = [(pair, steps) for pair, steps in parts if isinstance(pair, SampledGaussianPair | GaussianMixturePair)]
        if len(found) < len(parts) or sum(steps for _, steps in found) < _FEWEST:
            return None
        rare = _samples(found) <= (_MOST_OF_GROUPS if _of_groups(found) else _MOST_SAMPLES)
        return cls(found, gap) if rare and len({pair.remove for pair, _ in found}) == 1 else None

    def near_epsilon(self, epsilon: float) -> TruncatedLattice | None:
        """The bounds around an epsilon > 0, which serve up to twice or down to half of it; None of no losses."""
        wide = self._lattice(epsilon, _BEYOND[0], _FINE)
        if wide is None or looseness(wide, epsilon) <= _NARROW_DELTA:
            return wide
        close = self._lattice(epsilon, _BEYOND[1], _FINE)
        if close is None or looseness(close, epsilon) >= looseness(wide, epsilon):
            return wide
        return replace(close, beyond=wide)

    def outline(self, delta: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Rough (epsilons, deltas) down to `delta`, from small lattices at growing epsilons; None where none is used.

        Saddles alone are off by orders of magnitude where a record is removed: few samples have no light tail.
        """
        if not self._removed:
            return None
        epsilons, deltas, epsilon = [], [], self._least
        while not deltas or (deltas[-1] > delta and epsilon < _FARTHEST * self._least):
            rough = self._lattice(epsilon, _BEYOND[0], self._rough)
            if rough is None:
                return None
            for each in [0.0] * (not deltas) + [epsilon * ratio for ratio in _RATIOS]:
                low, high = valid_bounds(rough, each)
                epsilons.append(each)
                deltas.append(max(low, _FAINT * high, SMALLEST) ** 0.5 * high**0.5)
            epsilon *= _BEYOND[0] ** 2
        return np.array(epsilons), np.minimum.accumulate(deltas)

    def near_delta(self, delta: float, epsilon: float) -> TruncatedLattice | None:
        """The bounds around the epsilon of `delta`; None where the search finds none.

        Args:
            delta: in (0, 1).
            epsilon: a guess, >= 0.
        """
        epsilon = max(epsilon, self._least)
        for _ in range(_SEARCHES):
            rough = self._lattice(epsilon, _BEYOND[0], self._rough)
            if rough is None:
                return None
            low, high = inverted(rough, delta)
            if high == 0.0:
                return rough
            # The end that the finer lattice serves with certainty.
            found = min(high, _CLOSE * epsilon) if self._removed else low
            near = epsilon / _CLOSE < found < _CLOSE * epsilon
            if (high < _WIDEST * low and near) or epsilon / _SAME < found < _SAME * epsilon:
                return self._fine(delta, found)
            epsilon = found if found > self._least else 0.0
        return None

    def _fine(self, delta: float, epsilon: float) -> TruncatedLattice | None:
        """The lattice that answers around an epsilon, a finer one where it is not narrow."""
        found = self._lattice(epsilon, _BEYOND[1], _FINE)
        if found is None or not found.serves(delta):
            return None
        low, high = inverted(found, delta)
        return found if high - low <= _NARROW * high else self._lattice(epsilon, _BEYOND[1], _FINE, _FINER)

    def _lattice(self, epsilon: float, beyond: float, largest: int, share: float = 1.0) -> TruncatedLattice | None:
        limit = epsilon * beyond if self._removed else epsilon / beyond
        if beyond == _BEYOND[0] and epsilon < _SHALLOW * self._least:
            limit = max(limit, _SHALLOW * self._least) if self._removed else 0.0  # All small epsilons are served alike.
        kept = [(TruncatedPair(pair, *self._range(pair, limit)), steps) for pair, steps in self._parts]
        convolution = Convolution(
            kept, gap=share * self._gap * min(max(epsilon, self._least) / _SMALL, 1.0), largest=largest
        )
        if not all(len(part.losses) for part in convolution.coarse_losses):
            return None
        saddle = convolution.saddle_for_epsilon(epsilon)
        saddle = replace(saddle, theta=self._tilt * saddle.theta)
        settled, unsure = self._settled(kept) if self._removed else ((0.0, 0.0), (0.0, 0.0))
        return TruncatedLattice(convolution.bracket(saddle), limit, self._removed, settled, unsure)

    def _range(self, pair: Truncated, limit: float) -> tuple[float, float]:
        """The losses that do not settle a run at `limit`, and a little more for the rounding of this threshold."""
        end = _end(pair)
        total = sum(steps * _end(other) for other, steps in self._parts)
        place = limit - (total - end)
        spare = (_UNITS + len(self._parts)) * UNIT * (limit + abs(total)) + 2 * pair.edge_error(2 * abs(place))
        return (-np.inf, place + spare) if self._removed else (place - spare, np.inf)

    def _settled(self, kept: Sequence[tuple[TruncatedPair, int]]) -> tuple[tuple[float, float], tuple[float, float]]:
        """P- and Q-mass of the runs with a loss above its threshold, and bounds on their errors (Theorem 5.7)."""
        logs, errors = np.zeros(2), np.zeros(2)
        for pair, steps in kept:
            moved = 2 * pair.edge_error(2 * abs(pair.high))
            masses = np.array(pair.base.bin_masses(pair.high + np.array([-moved, 0.0, moved])))
            tails, near = masses[:, 2:].sum(axis=1), masses[:, 1:3].sum(axis=1)
            logs += steps * np.log1p(-tails)
            added = len(pair.base.shifts) if isinstance(pair.base, GaussianMixturePair) else 0
            units = UNIT * (mass_units(tails) + _UNITS + len(kept) + added) + PERTURBATION
            errors += steps * (units * tails + near + SMALLEST)
        found = -np.expm1(logs)
        return (float(found[0]), float(found[1])), (float(errors[0]), float(errors[1]))


def _end(pair: Truncated) -> float:
    """The least loss of a step that removes records, the largest of one that adds them."""
    if isinstance(pair, GaussianMixturePair):
        return pair.log_weights[0] if pair.remove else -pair.log_weights[0]
    return float(np.log1p(-pair.rate)) if pair.remove else pair.largest


def _of_groups(parts: Sequence[tuple[Truncated, int]]) -> bool:
    return any(isinstance(pair, GaussianMixturePair) for pair, _ in parts)


def _samples(parts: Sequence[tuple[Truncated, int]]) -> float:
    """How often records are expected to be sampled; inf where a step samples for certain."""
    total = 0.0
    for pair, steps in parts:
        share = -pair.log_weights[0] if isinstance(pair, GaussianMixturePair) else pair.rate
        total += steps * (share if isinstance(pair, GaussianMixturePair) or share < 1 else np.inf)
    return total
