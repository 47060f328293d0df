"""Envelopes under adaptive choice: blocks of steps from above, lines of attained profiles from below.

Two-sided answers about very many unlike noises, and about Laplace steps of very little noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.fft import grouped_by_noise
from tacit.accounting.pld.intervals import Bounds
from tacit.mechanisms.pairs.adaptive import AdaptivePair, AttainedPair, JointPair, RevealedBlock, attained_lines
from tacit.mechanisms.pairs.base import Pair
from tacit.mechanisms.pairs.discrete import NOTHING
from tacit.mechanisms.pairs.laplace import LaplacePair
from tacit.mechanisms.pairs.subsampled import RevealedPair
from tacit.root_finding import bracketed_root

BLOCK = 128
"""Steps of one block: its pair spreads by about 1 / (3 BLOCK) more than the steps that attain most.

Where it is revealed which steps run, blocks are of so many steps that hardly ever more than BLOCK of them do.
"""

_GAP, _LARGEST = 1e-4, 1 << 17  # Relative rounding and size of lattices: an envelope is 1e-3 wide anyway.
# Largest total loss on a grid; steps, and expected runs, that one grid covers.
_REACH, _FEW_STEPS, _FEW_RUNS = 200.0, 64, 2.0
_STATES, _UNLIKE = 72, 30.0  # Sets of steps that are left, of unlike families, and how unlike their losses may be.
# Members among which the worst is looked for, more of them near the largest loss.
_SHARES = (*np.linspace(-0.95, 0.95, 39).tolist(), *(1 - 0.5 ** np.arange(5, 40)).tolist())
_FEW = (0.0, 0.25, 0.5, 0.8, 0.95)  # Members for a profile.

Parts = Sequence[tuple[Pair, int]]


def coarse_dispatch(parts: Parts) -> Dispatch:
    """A direction whose own two sides need not be closer than those of an envelope."""
    return Dispatch(parts, gap=_GAP, largest=_LARGEST)


def in_blocks(parts: Parts) -> list[tuple[Pair, int]]:
    """Steps of an envelope of a known family as blocks of one dominating pair each; all other parts as they are.

    A few unlike families are one block together, whose steps may be picked in any order.
    """
    families, others = _few_families(parts)
    if len(families) > 1:
        return [(JointPair(families), 1), *others]
    found: list[tuple[Pair, int]] = []
    for pair, steps in parts:
        block = _block(pair, steps)
        if steps == 1 or block is None:
            found.append((pair, steps))
            continue
        whole, rest = divmod(steps, block.steps)
        found += [(block, whole)] if whole else []
        found += [(replace(block, steps=rest) if rest > 1 else pair, 1)] if rest else []
    return found


def _reach(pair: Pair) -> int:
    """How many steps a grid may cover, which must hold e to three times their losses; 0 for no known family."""
    largest = _largest_loss(pair)
    return int(_REACH / largest) if largest else 0


def _few_families(parts: Parts) -> tuple[tuple[tuple[Pair, int], ...], list[tuple[Pair, int]]]:
    """Return the envelopes, each of a known family, and all other parts; no envelopes where they are too many steps."""
    families = tuple((pair, steps) for pair, steps in parts if pair.attained(_FEW[0]) != pair)
    others = [(pair, steps) for pair, steps in parts if pair.attained(_FEW[0]) == pair]
    sizes = [_largest_loss(pair) for pair, _ in families]
    if 0.0 in sizes or sum(steps * size for (_, steps), size in zip(families, sizes, strict=True)) > _REACH:
        return (), list(parts)
    states = math.prod(steps + 1 for _, steps in families)
    unlike = len(families) > 1 and (states > _STATES or max(sizes) > _UNLIKE * min(sizes))
    return ((), list(parts)) if unlike or sum(steps for _, steps in families) > _FEW_STEPS else (families, others)


def _largest_loss(pair: Pair) -> float:
    """The largest absolute loss of a known family; 0 of an unknown one."""
    losses = [abs(loss) for each in pair.covering(1) if (nodes := each.nodes(1.0, 0.0)) for loss in nodes.loss]
    return float(max(losses, default=0.0))


def _block(pair: Pair, steps: int) -> AdaptivePair | None:
    """The longest block for so many steps; None for no known family, or losses too large for two steps."""
    most = min(BLOCK, _reach(pair))
    if most < 2:
        return None
    plain = AdaptivePair(pair, most)
    if steps <= most or not isinstance(pair, RevealedPair):
        return plain
    longer = RevealedBlock.fitting(pair.base, pair.rate, most)
    return longer if longer.steps > most else plain


class FixedMemberLowerBound(Bounds):
    """A lower bound on delta of steps that are all one member: the worst of a few and of the one at the tilt asked."""

    def __init__(self, parts: Parts, upper: Dispatch):
        self._upper = upper
        self._families = [part for part in parts if part[0].attained(_FEW[0]) != part[0].attained(_FEW[1])]
        self._at_share = lru_cache(maxsize=16)(lambda share: _member(parts, share))

    def _candidates(self, theta: float) -> list[Dispatch]:
        """The largest moment decides how fast delta falls where it is small; elsewhere nothing tells."""
        moments = [
            sum(steps * _log_moment(pair.attained(share), theta) for pair, steps in self._families) for share in _SHARES
        ]
        return [self._at_share(share) for share in {_SHARES[int(np.argmax(moments))], *_FEW[:-1]}]

    def delta(self, epsilon: float) -> tuple[float, float]:
        """The bound, and 1."""
        theta = self._upper.general.saddle_for_epsilon(epsilon).theta
        return max(direction.delta(epsilon)[0] for direction in self._candidates(theta)), 1.0

    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """The bound of the members that count at `epsilon`, and 1."""
        theta = self._upper.general.saddle_for_epsilon(epsilon).theta
        bounds = [direction.near(epsilon) for direction in self._candidates(theta)]
        return lambda value: (max(bound(value)[0] for bound in bounds), 1.0)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Where the bound falls to delta, and infinity."""
        if delta <= 0:
            return 0.0, np.inf
        if delta <= self._upper.general.infinity_mass:
            return max(direction.epsilon(delta)[0] for direction in self._candidates(1.0)), np.inf
        theta = self._upper.general.saddle_for_delta(delta).theta
        return max(direction.epsilon(delta)[0] for direction in self._candidates(theta)), np.inf

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`delta` at many epsilons, by a few members."""
        sides = [self._at_share(share).profile(epsilons)[0] for share in _FEW]
        return np.max(sides, axis=0), np.ones(len(epsilons))


class AdaptiveLowerBound(Bounds):
    """A lower bound on delta of a few steps of one family: the highest of the lines that some way to adapt exceeds."""

    def __init__(self, pair: Pair, steps: int):
        self._x, self._value, self._slope = attained_lines(((pair, steps),))

    def _at(self, epsilon: float) -> float:
        with np.errstate(over="ignore"):
            change = np.exp(self._x) * np.expm1(np.minimum(epsilon - self._x, 700.0))
            fall = self._slope * np.where(self._slope > 0, change, 0.0)
        return max(float((self._value - fall).max()), 0.0)

    def delta(self, epsilon: float) -> tuple[float, float]:
        """The bound, and 1."""
        return self._at(epsilon), 1.0

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Where the bound falls to delta, and infinity."""
        top = float(self._x[-1])
        if self._at(0.0) <= delta or delta <= 0:
            return 0.0, np.inf
        return bracketed_root(lambda epsilon: self._at(epsilon) - delta, 0.0, top, relative=1e-9) * (1 - 1e-8), np.inf


def lower_bounds(parts: Parts, upper: Dispatch) -> list[AdaptiveLowerBound | FixedMemberLowerBound | Dispatch]:
    """Lower bounds whose largest counts: adaptive ones where few steps run, and that of one member throughout.

    Beside other steps, those of the families run last. Where it is revealed which steps run, and few do, groups of
    steps stand for one each: an analyst may ask for nothing more in a group after the first step that ran.
    """
    families, others = _few_families(parts)
    if families and (others or len(families) > 1):
        return [coarse_dispatch([(AttainedPair(families), 1), *others])]
    pair, steps = parts[0]
    few = 0 if len(parts) > 1 else min(_FEW_STEPS, _reach(pair))
    if 1 < steps <= few:
        return [AdaptiveLowerBound(pair, steps)]
    if isinstance(pair, RevealedPair) and steps * pair.rate <= _FEW_RUNS and few > 1:
        once = float(-np.expm1(steps // few * np.log1p(-pair.rate)))
        return [AdaptiveLowerBound(replace(pair, rate=once), few), FixedMemberLowerBound(parts, upper)]
    if all(pair.attained(_FEW[0]) == pair.attained(_FEW[1]) for pair, _ in parts):
        return [_member(parts, _FEW[0])]
    return [FixedMemberLowerBound(parts, upper)]


def _member(parts: Parts, share: float) -> Dispatch:
    """Steps that are all the member of this share."""
    members = [(pair.attained(share), steps) for pair, steps in parts]
    return coarse_dispatch([part for part in members if part[0] != NOTHING])


def _log_moment(pair: Pair, theta: float) -> float:
    """Return log E_P e^{theta L} of a pair of few losses, infinite ones left out."""
    nodes = pair.nodes(theta, 0.0)
    return nodes.log_moment(theta) if nodes else 0.0


_ROUNDED = 1e-13  # Relative rounding of the moved loss, a sum of as many products as there are unlike steps.
_LARGE = 60.0  # Loss of a Laplace step from which on all but e^-60 of its law is that of a moved one.


class GroupedDispatch(Dispatch):
    """A direction of many unlike noises: one line where that settles a question, else steps counted in groups."""

    def __init__(self, parts: Parts, lower: Parts, upper: Parts):
        super().__init__(parts)
        self._groups = lower, upper

    @classmethod
    def of(cls, parts: Parts, distinct: int) -> GroupedDispatch | None:
        """Return `parts` by groups where they are more than `distinct` and grouping makes them fewer; else None."""
        if len(parts) <= distinct:
            return None
        lower, upper = grouped_by_noise(parts, distinct)
        return cls(parts, lower, upper) if len(upper) < len(parts) else None

    @cached_property
    def _lower(self) -> Dispatch:
        return Dispatch(self._groups[0])

    @cached_property
    def _upper(self) -> Dispatch:
        return Dispatch(self._groups[1])

    def _delta_within_bounds(self, epsilon: float) -> tuple[float, float]:
        found = self.delta_on_line(epsilon)
        return found or (self._lower.delta(epsilon)[0], self._upper.delta(epsilon)[1])

    def _epsilon_within_bounds(self, delta: float) -> tuple[float, float]:
        found = self.epsilon_on_line(delta)
        return found or (self._lower.epsilon(delta)[0], self._upper.epsilon(delta)[1])

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on delta at many epsilons."""
        return self._lower.profile(epsilons)[0], self._upper.profile(epsilons)[1]


class ShiftedDispatch(Bounds):
    """Laplace steps of a loss above `_LARGE`, beside others, by steps of that loss.

    Under P the loss is epsilon - min(2 B E, 2 epsilon), E exponential and B a fair coin. With a smaller epsilon' it is
    at most that loss moved by epsilon - epsilon', and differs where E > epsilon' alone, of mass e^-epsilon' / 2.
    """

    def __init__(self, parts: Parts):
        large = [(pair, steps) for pair, steps in parts if is_large(pair)]
        self._shift = sum(steps * (pair.largest - _LARGE) for pair, steps in large)
        self._least, self._most = self._shift * (1 - _ROUNDED), self._shift * (1 + _ROUNDED)
        self._missed = float(np.exp(-_LARGE)) * sum(steps for _, steps in large)
        counted: Counter[Pair] = Counter()
        for pair, steps in parts:
            counted[LaplacePair(_LARGE) if is_large(pair) else pair] += steps
        self._inner = Dispatch(list(counted.items()))

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at this epsilon."""
        return self._moved(epsilon, self._inner.delta)

    def _moved(self, epsilon: float, delta: Callable[[float], tuple[float, float]]) -> tuple[float, float]:
        low, high = delta(max(epsilon - self._least, 0.0))[0], 1.0
        if epsilon >= self._most:
            high = delta(epsilon - self._most)[1]
        return max(low - self._missed, 0.0), high

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon >= 0 at which delta is at most `delta`."""
        low = self._inner.epsilon(min(delta + self._missed, 1.0))[0]
        return low + self._least if low > 0 else 0.0, self._inner.epsilon(delta)[1] + self._most

    def ceiling(self, delta: float) -> float:
        """Return an upper bound on that epsilon that is quick and rough."""
        return self._inner.ceiling(delta) + self._most

    def near(self, epsilon: float) -> Callable[[float], tuple[float, float]]:
        """Return bounds on delta that are quick, and narrow around `epsilon`."""
        bounds = self._inner.near(max(epsilon - self._most, 0.0))
        return lambda value: self._moved(value, bounds)

    def ceiling_near(self, epsilon: float) -> Callable[[float], float]:
        """Return upper bounds on delta that are quick, rough, and best around `epsilon`."""
        bound = self._inner.ceiling_near(max(epsilon - self._most, 0.0))
        return lambda value: bound(value - self._most) if value >= self._most else 1.0

    def sketch(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return rough (epsilons, deltas) down to `delta`, for searches."""
        epsilons, deltas = self._inner.sketch(delta)
        return np.append(0.0, epsilons + self._shift), np.append(1.0, deltas)

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on delta at many epsilons."""
        low = self._inner.profile(np.maximum(epsilons - self._least, 0.0))[0]
        high = np.ones(len(epsilons))
        above = epsilons - self._most
        if (above >= 0).any():
            high[above >= 0] = self._inner.profile(above[above >= 0])[1]
        return np.maximum(low - self._missed, 0.0), high


def is_large(pair: Pair) -> bool:
    """Whether it is a Laplace step of a loss above `_LARGE`."""
    return type(pair) is LaplacePair and pair.largest > _LARGE
