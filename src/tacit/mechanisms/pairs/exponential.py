"""The pair of every mechanism of bounded range, such as the exponential mechanism."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tacit.mechanisms.pairs.base import LOSS_UNIT, Pair
from tacit.mechanisms.pairs.discrete import AtomPair
from tacit.mechanisms.pairs.quadrature import Nodes, legendre


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

    def edge_error(self, size: float) -> float:
        """Return four units of the terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.epsilon)

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return self.epsilon

    def attained(self, share: float) -> AtomPair:
        """The two outcomes of t = (1 + share) epsilon / 2, the worst case of one step at share * epsilon."""
        t = (1 + share) * self.epsilon / 2
        return self._two_outcomes(t, t)

    def covering(self, count: int) -> tuple[AtomPair, ...]:
        """`count` + 1 members and, between any two neighbours, the tests at which their tangents meet.

        The tests of t in between lie in the triangle of the three, and E f is convex in the test.
        """
        t = np.linspace(0.0, self.epsilon, count + 1)
        ends, tangents = zip(t, t, strict=True), itertools.pairwise(t)
        return tuple(self._two_outcomes(float(low), float(high)) for low, high in (*ends, *tangents))

    def _two_outcomes(self, low: float, high: float) -> AtomPair:
        """The outcomes of t = `low` = `high`, or those of the test where the tangents of two t meet.

        With u = e^t the test of t has the power (1 - u e^{-epsilon}) / (1 - e^{-epsilon}) and the level
        (1 / u - e^{-epsilon}) / (1 - e^{-epsilon}). Two tangents of this curve meet where u is the harmonic mean of
        both in the power and the arithmetic mean in the level.
        """
        half = (high - low) / 2
        middle, bend = (low + high) / 2, float(np.log(np.cosh(half)))
        harmonic, mean = middle - bend, middle + bend
        whole = -np.expm1(-self.epsilon)
        p = (np.exp(-self.epsilon) * np.expm1(harmonic) / whole, -np.expm1(harmonic - self.epsilon) / whole)
        q = (-np.expm1(-mean) / whole, np.exp(-mean) * -np.expm1(mean - self.epsilon) / whole)
        losses = [
            float(np.log(a / b)) if a > 0 and b > 0 else t
            for a, b, t in zip(p, q, (low - self.epsilon, high), strict=True)
        ]
        return AtomPair(tuple(losses), tuple(float(x) for x in p), tuple(float(x) for x in q))

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        y, weight = legendre(-self.epsilon, self.epsilon, theta, frequency)
        scale = weight / (2 * -np.expm1(-self.epsilon))
        return Nodes(y, scale * np.exp((y - self.epsilon) / 2), scale * np.exp(-(y + self.epsilon) / 2))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        bounds = np.clip(np.concatenate([[-self.epsilon], edges, [self.epsilon]]), -self.epsilon, self.epsilon)
        width = np.expm1(np.diff(bounds) / 2) / np.expm1(self.epsilon)
        p = np.exp((bounds[:-1] + self.epsilon) / 2) * width
        q = np.exp((self.epsilon - bounds[1:]) / 2) * width
        return p, q
