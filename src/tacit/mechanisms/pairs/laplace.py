"""Pairs of the one-dimensional Laplace mechanism, continuous and discrete, and of permute-and-flip.

The pair of every mechanism of bounded range, such as the exponential mechanism.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

import numpy as np

from tacit.mechanisms.pairs.base import (
    LOSS_UNIT,
    Nodes,
    Pair,
    Table,
    between,
    legendre,
    log_mixture,
    steepness,
    unmixed,
)
from tacit.mechanisms.pairs.discrete import AtomPair, TabulatedPair, replaced_table


@dataclass(frozen=True)
class LaplacePair(Pair):
    """P = Lap(epsilon), Q = Lap(0) of scale 1: the loss is clipped to [-epsilon, epsilon], with atoms at both ends."""

    epsilon: float
    largest = property(attrgetter("epsilon"))

    def edge_error(self, size: float) -> float:
        """Return four units of the terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.epsilon)

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        return (-self.epsilon, self.epsilon)

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        ends = np.array([self.epsilon, -self.epsilon])
        y, weight = legendre(-self.epsilon, self.epsilon, theta, frequency)
        p, q = (weight / 4 * np.exp((sign * y - self.epsilon) / 2) for sign in (1, -1))
        masses = np.array([0.5, np.exp(-self.epsilon) / 2])
        return Nodes(ends, masses, masses[::-1]).joined(Nodes(y, p, q))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        x = np.where(loss < self.epsilon, (loss + self.epsilon) / 2, np.inf)
        x = np.where(loss < -self.epsilon, -np.inf, x)
        return laplace_cells(x - self.epsilon), laplace_cells(x)


@dataclass(frozen=True)
class PermuteAndFlipPair(LaplacePair):
    """The Laplace pair as the bound that permute-and-flip meets at every epsilon, each time with other scores.

    The mechanism is the arg max of q_i + E_i, E_i ~ Exp(rate) (Ding et al. 2021, arXiv:2105.07260). For a set S of
    candidates let W = max_{i in S} (q_i + E_i) - max_{i not in S} (q_i + E_i), so that S wins where W > 0. Neighbours
    move the two maxima apart by c at most, rate * c = epsilon, so that S wins there with P(W > c) at least. Each E_i,
    and hence each maximum, has hazard at most rate: P(A > t + s) >= e^{-rate s} P(A > t), by the first candidate above
    t. Given the other maximum, so have W and -W: f_W <= rate min(F_W, 1 - F_W), with equality for Laplace noise. So the
    quantile transform from W to Laplace noise is 1-Lipschitz, and level and power of S lie within the trade-off of a
    Laplace shift of at most epsilon. Two candidates reach it: there W is Laplace noise.
    """

    def attained(self, share: float) -> AtomPair:
        """Return the outcomes of two candidates whose gap is the best threshold at share * epsilon."""
        x = (1 + share) * self.epsilon / 2
        p_low, q_high = float(np.exp(x - self.epsilon)) / 2, float(np.exp(-x)) / 2
        low = x - self.epsilon - float(np.log1p(-np.expm1(-x)))
        high = x + float(np.log1p(-np.expm1(x - self.epsilon)))
        return AtomPair((low, high), (p_low, 1 - p_low), (1 - q_high, q_high))


@dataclass(frozen=True)
class DiscreteLaplacePair(TabulatedPair):
    """P = DLap(shift), Q = DLap(0) on the integers, probabilities proportional to e^{-parameter |x - shift|}.

    The losses are parameter (2 j - shift) at x = j in 0..shift, with all smaller and larger integers at the two ends.
    The ratio is monotone, so larger shifts dominate, and optimal tests are thresholds. Those of shifts k and then l
    are the same test, so the trade-off of k + l is g(1 - f) of those of k and l, which is at most that of two
    coordinates moved by k and l (Dong, Roth & Su 2019, Lemma A.5): a vector of that L1 norm costs no more.

    With `rate` < 1 the pair is that of a Poisson sample under replace-one, (1-p) N_0 + p N_shift against
    (1-p) N_0 + p N_{-shift}; the argument of `GaussianReplacePair` holds as for the discrete Gaussian.
    """

    parameter: float
    shift: int
    rate: float = 1.0

    @cached_property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        if self.rate == 1.0:
            x = self.integers(0, self.shift)
            return self.parameter * (2 * x - self.shift), self.masses(x, self.shift), self.masses(x, 0)
        return replaced_table(self, self.integers(-self.shift, self.shift), self.rate)

    def integers(self, low: int, high: int) -> np.ndarray:
        """The integers where the ratio of noise at any two shifts in [low, high] changes."""
        return np.arange(low, high + 1.0)

    def log_ratio(self, x: np.ndarray, shift: int) -> np.ndarray:
        """Log of the probability of noise moved by `shift` over that of noise at 0."""
        return self.parameter * (np.abs(x) - np.abs(x - shift))

    def most_log_ratio(self, count: int) -> float:
        """The largest of them at `count` times the pair's own shift."""
        return self.parameter * count * self.shift

    def masses(self, x: np.ndarray, centre: int) -> np.ndarray:
        """Probabilities of the integers, all below the first and above the last added to those."""
        weight = np.exp(-self.parameter * np.abs(x - centre))
        mass = np.tanh(self.parameter / 2) * weight
        for end, inside in ((0, x[0] <= centre), (-1, x[-1] >= centre)):
            tail = weight[end] / (1 + np.exp(-self.parameter))
            # The other side of the centre: all but the tail beyond this end.
            mass[end] = tail if inside else 1 - np.exp(-self.parameter) * tail
        return mass


@dataclass(frozen=True)
class LaplaceReplacePair(Pair):
    """The Poisson-subsampled Laplace mechanism under replace-one.

    P = (1-p) Lap(0) + p Lap(epsilon), Q = (1-p) Lap(0) + p Lap(-epsilon), scale 1, epsilon = sensitivity / scale
    of one contribution. The argument of `GaussianReplacePair` holds word for word: Laplace likelihood ratios of
    a larger distance garble to those of a smaller one in one dimension, and opposite signs make the two ratios
    comonotone.
    """

    epsilon: float
    rate: float
    largest = property(lambda self: self.atoms[1])

    def edge_error(self, size: float) -> float:
        """Return four units of the terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.epsilon - float(np.log(self.rate)))

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        ends = log_mixture(self.rate, np.array([self.epsilon, -self.epsilon]))
        return (float(ends[1] - ends[0]), float(ends[0] - ends[1]))

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """For x > 0 the loss is log(1-p + p e^y) - log(1-p + p e^{-epsilon}), y = min(2x - epsilon, epsilon)."""
        slope = float(steepness(self.rate, self.epsilon))
        y, weight = legendre(-self.epsilon, self.epsilon, slope * theta, slope * frequency)
        y = np.append(y, self.epsilon)
        base = np.append(weight / 4 * np.exp(-(y[:-1] + self.epsilon) / 2), np.exp(-self.epsilon) / 2)
        up, down = (log_mixture(self.rate, z) for z in (y, np.array(-self.epsilon)))
        right = Nodes(up - down, base * np.exp(up), base * np.exp(down))
        return right.joined(Nodes(-right.loss, right.q, right.p))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        positive = self._position(np.abs(loss), attained=loss >= 0)
        x = np.where(loss >= 0, positive, -positive)
        base, up, down = (laplace_cells(x - shift * self.epsilon) for shift in (0.0, 1.0, -1.0))
        return (1 - self.rate) * base + self.rate * up, (1 - self.rate) * base + self.rate * down

    def _position(self, loss: np.ndarray, attained: np.ndarray) -> np.ndarray:
        """The x >= 0 where the loss is `loss` >= 0: Q's ratio is constant there, P's is e^{2x - epsilon}."""
        other = np.log1p(self.rate * np.expm1(-self.epsilon))
        y = unmixed(self.rate, loss + other)
        beyond = np.where(attained, y >= self.epsilon, y > self.epsilon)
        return np.where(beyond, np.inf, (np.minimum(y, self.epsilon) + self.epsilon) / 2)


def laplace_cells(edges: np.ndarray) -> np.ndarray:
    """Laplace masses between increasing edges, scale 1."""
    tail = np.exp(-np.abs(edges)) / 2
    return between(np.where(edges < 0, tail, 1 - tail), np.where(edges < 0, 1 - tail, tail))


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
    largest = property(attrgetter("epsilon"))

    def edge_error(self, size: float) -> float:
        """Return four units of the terms of an edge's place."""
        return LOSS_UNIT * (1 + size + self.epsilon)

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
        half, end = (high - low) / 2, self.epsilon
        # log cosh(half), whose square root is lost where cosh(half) rounds to 1.
        bend = float(np.log1p(2 * np.sinh(half / 2) ** 2) if half < 1 else half - np.log1p(np.tanh(half)))
        mean, harmonic = (low + high) / 2 + bend, (low + high) / 2 - bend
        whole, tilt = -np.expm1(-end), np.tanh(half)
        p = (np.exp(harmonic - end) * -np.expm1(-harmonic) / whole, -np.expm1(harmonic - end) / whole)
        q = (-np.expm1(-mean) / whole, np.exp(-mean) * -np.expm1(mean - end) / whole)
        # tilt^2 in two factors, which do not underflow.
        fall, rise = (tilt * (tilt / np.expm1(x)) if half else 0.0 for x in (-mean, end - mean))
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = (max(mean - end + float(np.log1p(fall)), -end), min(mean + float(np.log1p(rise)), end))
        return AtomPair(losses, tuple(float(x) for x in p), tuple(float(x) for x in q))

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        y, weight = legendre(-self.epsilon, self.epsilon, theta, frequency)
        scale = weight / (2 * -np.expm1(-self.epsilon))
        return Nodes(y, scale * np.exp((y - self.epsilon) / 2), scale * np.exp(-(y + self.epsilon) / 2))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        bounds = np.clip(np.concatenate([[-self.epsilon], edges, [self.epsilon]]), -self.epsilon, self.epsilon)
        share = np.expm1(-np.diff(bounds) / 2) / np.expm1(-self.epsilon)
        return np.exp((bounds[1:] - self.epsilon) / 2) * share, np.exp(-(bounds[:-1] + self.epsilon) / 2) * share
