"""The pair of every mechanism of bounded range, such as the exponential mechanism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.mechanisms.pairs.atoms import AtomPair
from tacit.mechanisms.pairs.nodes import Nodes, legendre
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

    def attained(self, share: float) -> AtomPair:
        """The two outcomes of t = (1 + share) epsilon / 2, the worst case of one step at share * epsilon."""
        t = (1 + share) * self.epsilon / 2
        q = np.expm1(t - self.epsilon) / (np.expm1(-self.epsilon) * np.exp(t))
        p = np.exp(t) * q
        return AtomPair((t - self.epsilon, t), (float(1 - p), float(p)), (float(1 - q), float(q)))

    def nodes(self, theta: float, frequency: float) -> Nodes:
        y, weight = legendre(-self.epsilon, self.epsilon, theta, frequency)
        scale = weight / (2 * -np.expm1(-self.epsilon))
        return Nodes(y, scale * np.exp((y - self.epsilon) / 2), scale * np.exp(-(y + self.epsilon) / 2))

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bounds = np.clip(np.concatenate([[-self.epsilon], edges, [self.epsilon]]), -self.epsilon, self.epsilon)
        width = np.expm1(np.diff(bounds) / 2) / np.expm1(self.epsilon)
        p = np.exp((bounds[:-1] + self.epsilon) / 2) * width
        q = np.exp((self.epsilon - bounds[1:]) / 2) * width
        return p, q
