"""Very many sampled Gaussians of unlike noise: neighbours in noise counted together, from above and from below.

Noise of a larger sigma is that of a smaller one plus more noise, so a step at the smallest sigma of a group is at least
as leaky as each step in it, and one at the largest at most (post-processing).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tacit.accounting.pld.dispatch import Dispatch
from tacit.mechanisms.pairs import GaussianReplacePair, Pair, SampledGaussianPair

Parts = Sequence[tuple[Pair, int]]


class Grouped:
    """Two-sided answers about one direction: where one line covers all steps, as `Direction`; else by two groupings."""

    def __init__(self, parts: Parts, lower: Parts, upper: Parts):
        self._exact, self._lower, self._upper = Dispatch(parts), Dispatch(lower), Dispatch(upper)
        self._known_delta = lru_cache(maxsize=32)(self._delta)
        self._known_epsilon = lru_cache(maxsize=32)(self._epsilon)

    @classmethod
    def of(cls, parts: Parts, distinct: int) -> Grouped | None:
        """`parts` by groups, where they are more than `distinct` and grouping makes them fewer; else None."""
        if len(parts) <= distinct:
            return None
        lower, upper = (grouped(parts, distinct, upper=side) for side in (False, True))
        return cls(parts, lower, upper) if len(upper) < len(parts) else None

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Bounds on delta(epsilon)."""
        return self._known_delta(epsilon)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Bounds on the smallest epsilon >= 0 with delta(epsilon) <= delta."""
        return self._known_epsilon(delta)

    def _delta(self, epsilon: float) -> tuple[float, float]:
        found = self._exact.delta_on_line(epsilon)
        return found or (self._lower.delta(epsilon)[0], self._upper.delta(epsilon)[1])

    def _epsilon(self, delta: float) -> tuple[float, float]:
        found = self._exact.epsilon_on_line(delta)
        return found or (self._lower.epsilon(delta)[0], self._upper.epsilon(delta)[1])

    def profile(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on delta at many epsilons."""
        return self._lower.profile(epsilons)[0], self._upper.profile(epsilons)[1]


def grouped(parts: Parts, distinct: int, *, upper: bool) -> list[tuple[Pair, int]]:
    """At most about `distinct` sampled Gaussians in place of those in `parts`, together more (`upper`) or less leaky.

    Steps of one kind and rate in cells of log sigma of equal width; all other parts as they are.
    """
    kinds: dict[object, list[tuple[SampledGaussianPair | GaussianReplacePair, int]]] = defaultdict(list)
    found: Counter[Pair] = Counter()
    for pair, steps in parts:
        if isinstance(pair, SampledGaussianPair | GaussianReplacePair):
            kinds[replace(pair, sigma=1.0)].append((pair, steps))
        else:
            found[pair] += steps
    total = sum(len(members) for members in kinds.values())
    for members in kinds.values():
        cells = max(1, distinct * len(members) // total)
        logs = np.log([pair.sigma for pair, _ in members])
        width = (logs.max() - logs.min()) / cells
        places = np.minimum((logs - logs.min()) / width, cells - 1).astype(int) if width > 0 else np.zeros(len(logs))
        ends: dict[int, SampledGaussianPair | GaussianReplacePair] = {}
        for place, (pair, _) in zip(places, members, strict=True):
            end = ends.setdefault(int(place), pair)
            if (pair.sigma < end.sigma) == upper:
                ends[int(place)] = pair
        for place, (_, steps) in zip(places, members, strict=True):
            found[ends[int(place)]] += steps
    return list(found.items())
