"""A sum without the losses that settle a run by themselves, which are counted in closed form.

Rare losses may reach far beyond epsilon, as where a step seldom samples the record. With a threshold h_i = epsilon + m
for each step, the runs with some loss L_i > h_i lose more than epsilon but where the other steps make up for m. So they
add P(some L_i > h_i) - e^epsilon Q(some L_i > h_i) to delta, and at most as much more as the others' chance for that,
which a Chernoff bound holds and a large m makes negligible. All other runs compose the steps without losses above h_i,
for which a saddle line or a lattice of their short range is fine. Where losses are bounded above, as where a record is
added, runs with some loss below epsilon less what the others can add do not count at all (THEORY.md, Theorem 5.7).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tacit.accounting.pld.discrete_cumulants import DiscreteLoss
from tacit.accounting.pld.fft import EDGES, Convolution, thinned
from tacit.accounting.pld.intervals import LocalBounds, inverted, looseness, valid_bounds
from tacit.accounting.pld.inversion import saddle_line
from tacit.accounting.pld.rounding import PERTURBATION, UNIT, mass_units
from tacit.accounting.pld.saddle_point import (
    SMALLEST,
    CompositionCumulant,
    saddle_at,
    saddle_for_delta,
    saddle_for_epsilon,
)
from tacit.accounting.pld.sampled_cumulant import TruncatedCumulant
from tacit.accounting.pld.step_cumulants import (
    GaussianCumulant,
    IndependentSum,
    StepCumulant,
    Unsuitable,
)
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.gaussian import GaussianPair, SampledGaussian
from tacit.mechanisms.pairs.groups import GaussianMixturePair

_ROUGH, _FINE = 1 << 12, 1 << 19  # Points of the lattice that looks for epsilon, and of the one that answers, at most.
_FINER = 1 / 4  # Gap, relative to the usual one, of the one that answers: few losses are rounded to first order.
_BEYOND = (2.0, 1.05)  # How far from its own epsilon the ends of either lattice lie.
_SEARCHES = 6  # Rough lattices at most.
_CLOSE = 4.0  # A rough lattice whose epsilon is off by a larger factor is laid again.
_LEAST = 1e-3  # Least epsilon of a search, relative to the margin.
_SHALLOW = 100.0  # Epsilon, relative to that least one, up to which a lattice that reaches far serves from 0 on.
_WIDEST = 1.02  # Ratio of the bounds of a rough lattice up to which the finer one's will be narrow.
_NARROW_DELTA = 1.5e-6  # Relative width of delta up to which a lattice that reaches far answers.
_NARROW_LINE = 5e-6  # The same of a line: rounding of very many steps moves a lattice as well.
_RATIOS = np.geomspace(0.5, 1.9, 7)  # Epsilons of an outline, relative to that of a rough lattice.
_FAINT = 1e-3  # Least lower bound of an outline, relative to the upper one.
_FARTHEST = 1e12  # Largest epsilon of an outline, relative to the first.
_NEAR = 1.2  # A fine lattice whose epsilon is off by a larger factor is laid again.
_SAME = 1.5  # A wide lattice whose epsilon is off by no more would be as wide again.
# Tilt of a lattice relative to the saddle's, as large losses make copies heavy beyond it; more for a small delta, by
# its log over the second, as a low tilt leaves it to the rounding of transforms; the third at most.
_TILT, _SCALE, _STEEPEST = 0.7, 300.0, 0.9
_ROUGH_OF_GROUPS, _TILT_OF_GROUPS = 1 << 15, 0.5  # The same of groups, whose losses reach further.
_TILT_OF_LINES = 0.85  # The same of lines.
_POINTS = 20_000  # Points of a line at most.
_FEW = 6  # Unlike sampled Gaussians in the bound on what others make up for.
_SMALL = 1e-4  # Epsilon below which a lattice aims at an absolute gap.
_UNITS = 64.0  # Units of a probability besides those of its tails, and of a threshold (Theorem 5.7).
_MARGINS = np.geomspace(1e-9, 1e4, 300)  # Margins to choose from; any gives a bound.
_POWERS = 1 + np.append(np.geomspace(0.01, 1e6, 40), np.geomspace(1e7, 1e12, 12))  # Of its Chernoff bound, likewise.
_EXCESS = 1e-8  # What others make up for, relative to what single steps leak or to a margin below 1.
# Exponents beyond which the bound takes the probability instead of a power; from 709 on powers overflow.
_LARGEST_EXPONENTS = (600.0, 60.0, 20.0)


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

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        return tuple(atom for atom in self.base.atoms if self.low < atom <= self.high)

    @property
    def threshold(self) -> float:
        """Return the loss at which the pair is cut: from above, or else from below."""
        return self.high if self.high < self.base.largest else self.low

    def edge_error(self, size: float) -> float:
        """Return that of the pair."""
        return self.base.edge_error(size)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the kept losses in each bin."""
        inner = np.clip(edges, self.low, self.high)
        p, q = self.base.bin_masses(np.concatenate([[self.low], inner, [self.high]]))
        return p[1:-1], q[1:-1]


@dataclass(frozen=True)
class TruncatedSum:
    """Bounds on delta for epsilons in [floor, limit]."""

    inside: LocalBounds
    """delta of all other runs: a line or a lattice."""
    floor: float
    limit: float
    settled: tuple[float, float]
    """P- and Q-mass of the runs with a larger loss, which count as a whole."""
    unsure: tuple[float, float]
    """Bounds on the errors of both."""
    excess: float
    """What these runs may add besides."""
    beyond: TruncatedSum | None = None
    """Bounds that serve outside of these ends; else those at the ends do."""

    @property
    def theta(self) -> float:
        """The tilt of the line or lattice."""
        return self.inside.theta

    @property
    def epsilon(self) -> float:
        """Where the bounds are meant to be evaluated."""
        return self.inside.epsilon

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon); it falls, so that the ends bound what lies beyond."""
        if not self.floor <= epsilon <= self.limit:
            if self.beyond is not None:
                return self.beyond.bounds(epsilon)
            return (0.0, self.bounds(self.limit)[1]) if epsilon > self.limit else (self.bounds(self.floor)[0], 1.0)
        low, high = self.inside.bounds(epsilon)
        growth = float(np.exp(epsilon)) if self.settled[1] or self.unsure[1] else 0.0
        value = self.settled[0] - growth * self.settled[1]
        error = self.unsure[0] + growth * self.unsure[1]
        return max(low + value - error, 0.0), min(high + value + error + self.excess, 1.0)

    def serves(self, delta: float) -> bool:
        """Whether the epsilon of `delta` lies between the ends."""
        reached = self.limit == np.inf or valid_bounds(self, self.limit)[1] <= delta
        return reached and (self.floor == 0.0 or valid_bounds(self, self.floor)[0] >= delta)


class Truncation:
    """Builds `TruncatedSum` for the steps of one direction.

    Args:
        parts: the pairs with the number of times that they run, without infinite losses.
        gap: relative width of epsilon that is aimed at, > 0.
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]], gap: float):
        self._parts, self._gap = parts, gap
        groups = any(isinstance(pair, GaussianMixturePair) for pair, _ in parts)
        self._rough, self._tilt = (_ROUGH_OF_GROUPS, _TILT_OF_GROUPS) if groups else (_ROUGH, _TILT)
        self._plain = [(pair, steps) for pair, steps in parts if isinstance(pair, GaussianPair)]
        self._sampled = [(pair, steps) for pair, steps in parts if isinstance(pair, SampledGaussian) and pair.rate < 1]
        # Of one sign of loss: where the sampled ones are bounded above, a plain one leaves nothing to cut.
        bounded = [pair.largest < np.inf for pair, _ in self._sampled]
        alike = not any(bounded) or (all(bounded) and not self._plain)
        self._has_lines = alike and bool(bounded) and len(self._sampled) + len(self._plain) == len(parts)

    @cached_property
    def _chances(self) -> np.ndarray:
        """Bounds on E(e^(-m - L) - 1)_+ of all steps at each of `_MARGINS` m: what they make up for (Theorem 5.7)."""
        parts = thinned(self._parts, _FEW)[1]  # What dominates the steps does so in reverse.
        return np.min([_chances(parts, largest) for largest in _LARGEST_EXPONENTS], axis=0)

    @cached_property
    def _least(self) -> float:
        """The least epsilon of a search: a share of the margin that the steps hardly ever make up for."""
        return _LEAST * float(_MARGINS[np.argmax(self._chances <= _EXCESS * np.minimum(_MARGINS, 1.0))])

    def _margin(self, limit: float) -> tuple[float, float]:
        """The least margin beyond `limit` with a negligible excess, relative to what single steps leak, and its bound.

        The excess of a margin m is at most sum P(L_i > limit + m), one factor, times what the others make up for.
        """
        edges = np.append(limit, limit + _MARGINS)
        tails, leaked = np.zeros(len(_MARGINS)), 0.0
        for pair, steps in self._parts:
            p, q = (np.cumsum(mass[:0:-1])[::-1] for mass in pair.bin_masses(edges))
            tails += steps * p[1:]
            leaked += steps * max(float(p[0] - np.exp(min(limit, 700.0)) * q[0]), 0.0)
        fine = np.flatnonzero(tails * self._chances <= _EXCESS * leaked)
        at = int(fine[0]) if len(fine) else len(_MARGINS) - 1
        return float(_MARGINS[at]), float(self._chances[at])

    def near_epsilon(self, epsilon: float) -> TruncatedSum | None:
        """The bounds around an epsilon > 0, which serve up to twice or down to half of it; None of no losses."""
        line = self._line(epsilon)
        if line is not None and looseness(line, epsilon) <= _NARROW_LINE:
            return line
        wide = self._wide(epsilon, _FINE)
        if wide is None or looseness(wide, epsilon) <= _NARROW_DELTA:
            return wide
        close = self._lattice(epsilon, (epsilon / _BEYOND[1], epsilon * _BEYOND[1]), _FINE, _FINER)
        if close is None or looseness(close, epsilon) >= looseness(wide, epsilon):
            return wide
        return replace(close, beyond=wide)

    def outline(self, delta: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Rough (epsilons, deltas) down to `delta`, from blocks of growing epsilons; None where none is used.

        Saddles alone are off by orders of magnitude where a record is removed: few samples have no light tail.
        """
        if np.isfinite(self._top):
            return None
        blocks, deltas, epsilon = [], [1.0], self._least
        while deltas[-1] > delta and epsilon < _FARTHEST * self._least:
            block = self._saddles(epsilon) if self._has_lines else self._rough_values(epsilon)
            if block is None:
                return None
            blocks.append(block)
            deltas, epsilon = block[1], epsilon * _BEYOND[0] ** 2
        epsilons, values = np.concatenate(blocks, axis=1)
        epsilons = np.maximum.accumulate(np.append(0.0, epsilons))
        return epsilons, np.minimum.accumulate(np.maximum(np.append(values[0], values), SMALLEST))

    def _saddles(self, epsilon: float) -> np.ndarray | None:
        """Saddle-point values of (epsilons, deltas) around an epsilon, of the losses that its line would hold."""
        _, chance, cut = self._cut(epsilon)
        cumulant, settled = self._coarse(cut), _settled(cut, chance)[0]
        if cumulant is None:
            return None
        first, last = (saddle_for_epsilon(cumulant, epsilon * float(ratio)).theta for ratio in _RATIOS[[0, -1]])
        saddles = [saddle_at(cumulant, theta) for theta in np.geomspace(first, last, len(_RATIOS)).tolist()]
        epsilons = np.array([saddle.epsilon for saddle in saddles])
        inside = np.exp([min(saddle.log_delta, 0.0) for saddle in saddles])
        return np.array([epsilons, inside + settled[0] - np.exp(epsilons) * settled[1]])

    def _rough_values(self, epsilon: float) -> np.ndarray | None:
        """The same from the bounds of a small lattice."""
        rough = self._wide(epsilon, self._rough)
        if rough is None:
            return None
        low, high = np.array([valid_bounds(rough, each) for each in (epsilon * _RATIOS).tolist()]).T
        return np.array([epsilon * _RATIOS, np.sqrt(np.maximum(low, _FAINT * high) * high)])

    def near_delta(self, delta: float, epsilon: float) -> TruncatedSum | None:
        """The bounds around the epsilon of `delta`; None where the search finds none.

        Args:
            delta: in (0, 1).
            epsilon: a guess, >= 0.
        """
        epsilon = max(epsilon, self._least)
        line = self._line_of(delta, epsilon)
        if line is not None:
            return line
        for _ in range(_SEARCHES):
            rough = self._wide(epsilon, self._rough)
            if rough is None:
                return None
            low, high = inverted(rough, delta)
            if high == 0.0:
                return rough
            most = min(high, _CLOSE * epsilon)
            found = low if np.isfinite(self._top) else most
            near = epsilon / _CLOSE < found < _CLOSE * epsilon
            if (high < _WIDEST * low and near) or epsilon / _SAME < found < _SAME * epsilon:
                return self._fine(delta, found, (low / _BEYOND[1], max(found, most) * _BEYOND[1]))
            epsilon = found if found > self._least else 0.0
        return None

    def _line_of(self, delta: float, epsilon: float) -> TruncatedSum | None:
        """The line around the epsilon of `delta`; None where there is none, or none is narrow."""
        if not self._has_lines:
            return None
        for _ in range(_SEARCHES):  # Saddle-point values without the losses that no line of this epsilon holds.
            cumulant = self._coarse(self._cut(epsilon)[2])
            if cumulant is None:
                return None
            found = saddle_for_delta(cumulant, float(np.log(delta))).epsilon
            near = epsilon / _SAME < found < _SAME * epsilon
            epsilon = max(min(found, _CLOSE * epsilon), self._least)
            if near or found <= self._least:
                break
        for _ in range(_SEARCHES):
            line = self._line(epsilon)
            if line is None:
                return None
            low, high = inverted(line, delta)
            if high == 0.0:
                return line
            if epsilon / _SAME < low and high < _SAME * epsilon:
                return line if high <= (1 + _NARROW_LINE) * low else None
            most = min(high, _CLOSE * epsilon)
            epsilon = (max(low, most / _CLOSE) * most) ** 0.5 if high < np.inf else most
        return None

    def _fine(self, delta: float, epsilon: float, ends: tuple[float, float]) -> TruncatedSum | None:
        """The lattice that answers around an epsilon, laid again where it places that of `delta` elsewhere."""
        found = self._lattice(epsilon, ends, _FINE, _FINER)
        if found is None or not found.serves(delta):
            return None
        low, high = inverted(found, delta)
        if epsilon / _NEAR < high < _NEAR * epsilon or not 0 < high < np.inf:
            return found
        return self._lattice(high, (low / _BEYOND[1], high * _BEYOND[1]), _FINE, _FINER)

    @cached_property
    def _top(self) -> float:
        return sum(steps * pair.largest for pair, steps in self._parts)

    def _wide(self, epsilon: float, largest: int) -> TruncatedSum | None:
        """A lattice that reaches far, from 0 on where epsilon is small."""
        floor = epsilon / _BEYOND[0] if epsilon >= _SHALLOW * self._least else 0.0
        return self._lattice(epsilon, (floor, self._limit(epsilon)), largest)

    def _limit(self, epsilon: float) -> float:
        """The epsilon up to which bounds around this one serve: twice it, or a share of the margin."""
        return max(epsilon * _BEYOND[0], _SHALLOW * self._least if epsilon < _SHALLOW * self._least else 0.0)

    def _cut(self, epsilon: float) -> tuple[tuple[float, float], float, list[tuple[TruncatedPair, int]]]:
        """The ends that bounds around `epsilon` serve, the chance of `_margin`, and the sampled Gaussians, cut."""
        if np.isfinite(self._top):
            floor = epsilon / _BEYOND[0]
            cut = [(TruncatedPair(pair, self._lowest(pair, floor), np.inf), steps) for pair, steps in self._sampled]
            return (floor, np.inf), 0.0, cut
        limit = self._limit(epsilon)
        margin, chance = self._margin(limit)
        cut = [(TruncatedPair(pair, -np.inf, limit + margin), steps) for pair, steps in self._sampled]
        return (0.0, limit), chance, cut

    def _coarse(self, cut: list[tuple[TruncatedPair, int]]) -> CompositionCumulant[DiscreteLoss] | None:
        losses = Convolution([*cut, *self._plain]).coarse_losses
        return CompositionCumulant(losses) if all(len(part.losses) for part in losses) else None

    def _line(self, epsilon: float) -> TruncatedSum | None:
        """A saddle line of the losses that matter to `epsilon`; None where some part has no cumulant."""
        if not self._has_lines:
            return None
        ends, chance, cut = self._cut(epsilon)
        cumulant = self._coarse(cut)
        if cumulant is None:
            return None
        saddle = saddle_for_epsilon(cumulant, epsilon)
        if ends[1] < np.inf:
            saddle = replace(saddle, theta=_TILT_OF_LINES * saddle.theta)
        try:
            cumulants: list[StepCumulant] = [
                *(
                    TruncatedCumulant(pair, steps, saddle.theta, kept.threshold)
                    for (pair, steps), (kept, _) in zip(self._sampled, cut, strict=True)
                ),
                *(GaussianCumulant(pair.mu * steps**0.5, saddle.theta) for pair, steps in self._plain),
            ]
        except Unsuitable:
            return None
        line = saddle_line(IndependentSum(cumulants, saddle.theta), saddle, _POINTS, 0.0)
        return None if line is None else TruncatedSum(line, *ends, *_settled(cut, chance))

    def _lattice(
        self, epsilon: float, ends: tuple[float, float], largest: int, share: float = 1.0
    ) -> TruncatedSum | None:
        floor, limit = ends if np.isfinite(self._top) else (0.0, ends[1])
        margin, chance = self._margin(limit)
        kept = [(TruncatedPair(pair, self._lowest(pair, floor), limit + margin), steps) for pair, steps in self._parts]
        convolution = Convolution(
            kept, gap=share * self._gap * min(max(epsilon, self._least) / _SMALL, 1.0), largest=largest
        )
        if not all(len(part.losses) for part in convolution.coarse_losses):
            return None
        saddle = convolution.saddle_for_epsilon(epsilon)
        tilt = min(self._tilt - saddle.log_delta / _SCALE, _STEEPEST)
        saddle = replace(saddle, theta=tilt * saddle.theta)
        served = limit if any(pair.high < pair.base.largest for pair, _ in kept) else np.inf
        return TruncatedSum(convolution.bracket(saddle), floor, served, *_settled(kept, chance))

    def _lowest(self, pair: Pair, floor: float) -> float:
        """The loss from which on a run may lose more than `floor`, and a little less for its rounding."""
        if not np.isfinite(self._top):
            return -np.inf
        place = floor - (self._top - pair.largest)
        spare = (_UNITS + len(self._parts)) * UNIT * (floor + abs(self._top))
        return place - spare - 2 * pair.edge_error(2 * abs(place))


def _chances(parts: Sequence[tuple[Pair, int]], largest: float) -> np.ndarray:
    """The bounds of `Truncation._chances` with losses below -largest / u apart at each of `_POWERS` u."""
    logs, lost = np.zeros(len(_POWERS)), np.zeros(len(_POWERS))
    for pair, steps in parts:
        moments, missed = _reverse_moments(pair, largest)
        moved = [2 * pair.edge_error(largest / power) for power in _POWERS.tolist()]
        logs += steps * (np.maximum(moments, 0.0) + PERTURBATION + _POWERS * moved)
        lost += steps * missed
    scale = logs + (_POWERS - 1) * np.log(_POWERS - 1) - _POWERS * np.log(_POWERS)
    exponent = np.minimum(scale - np.multiply.outer(_MARGINS, _POWERS), 700.0)
    return 2 * (np.exp(exponent) + np.exp(-_MARGINS)[:, None] * lost).min(axis=1)  # Twice, for the moments' rounding.


def _reverse_moments(pair: Pair, largest: float) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds on log E_P e^{-u L} at each of `_POWERS` u, and the Q-masses of the losses left out of it.

    e^{-u L} is convex in e^{-L}, so that its mean over a cell is at most that of both its ends. Left out are losses
    of -u L > `largest`.
    """
    p, q = pair.bin_masses(EDGES)
    powers = np.multiply.outer(-_POWERS, EDGES)
    steep = powers[:, :-1] > largest
    ends = np.exp(np.minimum(powers, largest))
    ratios = np.exp(np.minimum(-EDGES, _LARGEST_EXPONENTS[0]))
    share = (q[1:-1] - p[1:-1] * ratios[1:]) / np.maximum(ratios[:-1] - ratios[1:], SMALLEST)
    share = np.clip(share, 0.0, p[1:-1])
    value = np.where(steep, 0.0, p[1:-1] * ends[:, 1:] + share * (ends[:, :-1] - ends[:, 1:])).sum(axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(value + p[-1] * ends[:, -1])
    return logs, np.where(steep, q[1:-1], 0.0).sum(axis=1) + q[0] + pair.negative_infinity_mass


def _settled(
    cut: Sequence[tuple[TruncatedPair, int]], chance: float
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """P- and Q-mass of the runs with a loss above its threshold, bounds on their errors, and the excess (Theorem 5.7).

    The excess is the sum of the steps' probabilities times `chance`, a bound on what other steps make up for.
    """
    logs, errors = np.zeros(2), np.zeros(2)
    for pair, steps in cut:
        if pair.high >= pair.base.largest:
            continue
        moved = 2 * pair.edge_error(2 * abs(pair.high))
        masses = np.array(pair.base.bin_masses(pair.high + np.array([-moved, 0.0, moved])))
        tails, near = masses[:, 2:].sum(axis=1), masses[:, 1:3].sum(axis=1)
        logs += steps * np.log1p(-tails)
        added = len(pair.base.shifts) if isinstance(pair.base, GaussianMixturePair) else 0
        units = UNIT * (mass_units(tails) + _UNITS + len(cut) + added) + PERTURBATION
        errors += steps * (units * tails + near + SMALLEST)
    found = -np.expm1(logs)
    excess = float(errors[0] - logs[0]) * chance
    return (float(found[0]), float(found[1])), (float(errors[0]), float(errors[1])), excess
