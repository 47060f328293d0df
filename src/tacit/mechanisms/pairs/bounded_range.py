"""The pair of every mechanism of bounded range, such as the exponential mechanism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.mechanisms.pairs.atoms import AtomPair
from tacit.mechanisms.pairs.pair import Pair


@dataclass(frozen=True)
class RangePair(Pair):
    """The smallest pair that dominates every mechanism whose loss lies in an interval [t - epsilon, t].

    For fixed t in [0, epsilon] the worst case has two outcomes (Dong, Durfee & Rogers 2020, Lemma 3.4) and
    H_{e^x} = (1 - e^{x-t})(1 - e^{t-epsilon}) / (1 - e^{-epsilon}); the largest over t, reached at
    t = (x + epsilon) / 2, is (1 - e^{(x-epsilon)/2})^2 / (1 - e^{-epsilon}), |x| <= epsilon. That profile is convex in
    e^x, so it is one of a pair: the loss has density proportional to e^{x/2} on [-epsilon, epsilon] under P and to
    e^{-x/2} under Q. Being one pair for all t, it covers t that an analyst picks adaptively.
    """

    epsilon: float

    @property
    def largest(self) -> float:
        return self.epsilon

    @property
    def attained(self) -> AtomPair:
        """Two outcomes with losses epsilon / 2 and -epsilon / 2, a mechanism of the family."""
        return AtomPair.response(self.epsilon / 2)

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bounds = np.clip(np.concatenate([[-self.epsilon], edges, [self.epsilon]]), -self.epsilon, self.epsilon)
        width = np.expm1(np.diff(bounds) / 2) / np.expm1(self.epsilon)
        p = np.exp((bounds[:-1] + self.epsilon) / 2) * width
        q = np.exp((self.epsilon - bounds[1:]) / 2) * width
        return p, q
