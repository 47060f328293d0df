"""What needs no inversion: one step exactly; of a composition the largest loss, its worst step and Chernoff's bound.

Steps of so little noise that nothing is lost by telling which of them sampled the record.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from tacit.accounting.pld.intervals import ALLOWANCE, Bounds
from tacit.accounting.pld.rounding import FUNCTION, MASS, UNIT, mass_units
from tacit.accounting.pld.saddle_point import SMALLEST, log_chernoff
from tacit.mechanisms.pairs.base import Nodes, Pair
from tacit.mechanisms.pairs.discrete import AtomPair
from tacit.mechanisms.pairs.gaussian import SampledGaussianPair
from tacit.root_finding import bisect
from tacit.tradeoff import ProfileCurve
from tacit.tradeoff.gaussian import gaussian_deltas

_AT_TOP = 1e-12  # Relative distance from the largest loss up to which an atom counts as it.
_LEAST_LOG = -700.0  # log of the least mass of a loss.


class Single:
    """delta(epsilon) = P(L > epsilon) - e^epsilon Q(L > epsilon) (THEORY.md, Theorem 3.1)."""

    theta = 1.0
    epsilon = 1.0

    def __init__(self, pair: Pair):
        self._pair = pair

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """The value with its rounding error, that of the place of epsilon included."""
        moved = self._pair.edge_error(abs(epsilon))
        p, q = self._pair.bin_masses(np.array([epsilon - moved, epsilon, epsilon + moved]))
        above_p, above_q, near = float(p[2] + p[3]), float(q[2] + q[3]), float(p[1] + p[2])
        given = float(np.exp(min(epsilon, 700.0))) * above_q if above_q else 0.0
        value = above_p - given
        error = UNIT * (_tail_units(self._pair, above_p) * above_p + _tail_units(self._pair, above_q) * given)
        if above_q < SMALLEST:
            log_q, miss = self._pair.log_q_above(epsilon)
            # Anything from none to all of P's mass may be given where even the logarithm is not known.
            given = min(float(np.exp(min(epsilon + log_q, 1.0))), above_p)
            lost = min(given * float(np.expm1(miss)), above_p) if miss < 1 else above_p
            value, error = above_p - given, UNIT * _tail_units(self._pair, above_p) * above_p + lost
        infinity_mass = self._pair.infinity_mass
        error += 2 * moved * near
        return float(infinity_mass + max(value - error, 0.0)), float(min(infinity_mass + value + error, 1.0))


def _tail_units(pair: Pair, mass: float) -> float:
    """Units of the relative error of a tail mass and of its product with e^epsilon (Lemma 2.4)."""
    added = len(pair.table[0]) if pair.table is not None else 0
    return float(mass_units(mass)) + FUNCTION + MASS + added


class SimpleBounds:
    """What is known of a composition without inverting anything.

    Args:
        parts: dominating pairs with the number of times that they run.
        infinity_mass: P-mass of runs with an infinite loss.
    """

    def __init__(self, parts: Sequence[tuple[Pair, int]], infinity_mass: float):
        self._parts, self._lost = parts, infinity_mass
        losing = [(pair, steps) for pair, steps in parts if pair.infinity_mass]
        once = [pair.disclosure_probability for pair, steps in losing if isinstance(pair, AtomPair) and steps == 1]
        self._stated = once[0] if len(losing) == len(once) == 1 else None
        self.top = max(float(sum(steps * pair.largest for pair, steps in parts)), 0.0)
        """The largest finite loss, rounded, at least 0."""

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Bounds on delta, for pairs with tables: what the worst step alone leaks, and Chernoff's of all.

        They are far apart, and stand in where an engine has left the range of doubles.
        """
        floor = max(Single(pair).bounds(epsilon)[0] for pair, _ in self._parts)
        best = min(0.0, *(log_chernoff(rate, value, epsilon) for rate, value in self._log_moments))
        ceiling = self._lost + 2 * float(np.exp(best))  # Twice, for the rounding of the moments.
        return floor * (1 - ALLOWANCE), min(ceiling * (1 + ALLOWANCE) + 1e-12 * floor, 1.0)

    @cached_property
    def _log_moments(self) -> list[tuple[float, float]]:
        """Rates with log E e^{rate L} of the composition; a table may have millions of atoms."""
        return [
            (float(rate), sum(steps * _log_table_moment(pair, rate) for pair, steps in self._parts))
            for rate in np.geomspace(0.01, 1e9, 80)
        ]

    def epsilon(self, delta: float) -> tuple[float, float]:
        """The epsilons where those bounds cross `delta`, by bisection."""
        top = max(self.top, 1e-12) if np.isfinite(self.top) else 1e6
        low, high = (bisect(lambda at, side=side: self.delta(at)[side] > delta, 0.0, top)[side] for side in (0, 1))
        return low, high

    def beyond_the_top(self) -> tuple[float, float]:
        """Bounds on delta where only infinite losses are left."""
        return self._lost * (1 - ALLOWANCE), min(self._lost * (1 + ALLOWANCE), 1.0)

    def near_the_top(self, delta: float) -> tuple[float, float]:
        """Bounds from the largest loss alone: with P-mass m there, delta(epsilon) >= m (1 - e^{epsilon - largest})."""
        top = self.top
        if self._lost or not 0 < top < np.inf:
            return 0.0, np.inf
        log_mass = sum(steps * _log_mass_at_the_top(pair) for pair, steps in self._parts)
        rounded = UNIT * sum(steps for _, steps in self._parts) * float(mass_units(np.exp(_LEAST_LOG)))
        share = float(np.exp(min(np.log(delta) - log_mass + rounded, 1.0)))
        floor = top * (1 - 2 * _AT_TOP) + float(np.log1p(-share)) if share < 1 else 0.0
        return max(floor * (1 - ALLOWANCE / 4), 0.0), top * (1 + ALLOWANCE / 4)

    def at_the_end(self, delta: float) -> tuple[float, float]:
        """Return epsilon where only infinite losses are left: the largest finite loss, or inf if that is too much."""
        if self._stated is not None and delta >= self._stated:  # A product of one factor is not rounded.
            return self.top * (1 - ALLOWANCE) if delta == self._stated else 0.0, self.top * (1 + ALLOWANCE)
        if delta < self._lost * (1 - ALLOWANCE):
            return float("inf"), float("inf")
        known = delta == 0.0 and self._lost == 0.0
        return self.top * (1 - ALLOWANCE) if known else 0.0, self.top * (1 + ALLOWANCE) if known else float("inf")


def _log_table_moment(pair: Pair, rate: float) -> float:
    """Return log E e^{rate L} of one step with a table of atoms; infinite losses are left out."""
    assert pair.table is not None
    return Nodes(*pair.table).log_moment(rate)


def _log_mass_at_the_top(pair: Pair) -> float:
    """Return log of the P-mass of the largest loss, -inf where it is not an atom."""
    slack = _AT_TOP * abs(pair.largest)
    nodes = pair.nodes(1.0, 0.0)
    if nodes is None or not any(atom >= pair.largest - slack for atom in pair.atoms):
        return -np.inf
    return float(np.log(nodes.p[nodes.loss >= pair.largest - slack].sum()))


_LEAST_MU = 16.0  # From this mu on the two bounds differ by a few per cent (see `FewSamples`).
_MOST_COUNTS = 200_000  # Counts in the window at most.
_ALLOWANCE = 1e-9  # Relative widening for rounding (Lemma 9.2): 8 units for each count of the widest window.
_MARGINS = (0.05, 0.5, 2.0, 8.0)  # Values of m in the lower bound; the best counts.

Parts = Sequence[tuple[Pair, int]]


class FewSamples(Bounds):
    """delta and epsilon, as (lower, upper), of `steps` equal Poisson-subsampled Gaussian steps in one direction.

    Let K ~ Bin(steps, rate) be how many steps sample the record. Whoever knows K's steps sees K Gaussian steps, so by
    joint convexity delta(epsilon) <= E delta_{mu sqrt(K)}(epsilon), mu = 1 / sigma. A record removed: the loss of a
    step is at least log rate + mu^2 / 2 + mu Z where it is sampled and log(1 - rate) elsewhere, which bounds
    delta >= P(loss > epsilon + m) (1 - e^-m) from below. A record added: no step loses more than -log(1 - rate). The
    two bounds on epsilon differ by about log(1 / rate) / (mu^2 / 2), a few per cent where mu is 16 or more.
    """

    def __init__(self, pair: SampledGaussianPair, steps: int):
        self._pair, self._steps, self._mu = pair, steps, 1 / pair.sigma

    @cached_property
    def _counts(self) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Counts in a window, their probabilities, and what lies below and beyond it at most (Lemma 9.2)."""
        steps, rate = self._steps, self._pair.rate
        low, high = window(steps, rate)
        counts = np.arange(low, high + 1)
        mode = int(np.clip(int((steps + 1) * rate), low, high)) - low
        ratio = (steps - counts[:-1]) / (counts[1:]) * (rate / (1 - rate))
        masses = np.concatenate([np.cumprod(1 / ratio[:mode][::-1])[::-1], [1.0], np.cumprod(ratio[mode:])])
        below, beyond = (_log_chernoff(steps, rate, count) for count in (low - 1, high + 1))
        return counts, masses / masses.sum(), float(np.exp(below)), float(np.exp(beyond))

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Return lower and upper bound at this epsilon."""
        return self._lower(epsilon) * (1 - _ALLOWANCE), min(self._upper(epsilon) * (1 + _ALLOWANCE), 1.0)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """Return bounds on the smallest epsilon that meets `delta`."""
        low, high = (ProfileCurve(bound).epsilon(delta) for bound in (self._lower, self._upper))
        return low * (1 - _ALLOWANCE), min(high, self._steps * self._pair.largest) * (1 + _ALLOWANCE)

    def _upper(self, epsilon: float) -> float:
        counts, masses, below, beyond = self._counts
        deltas = gaussian_deltas(epsilon, self._mu * np.sqrt(counts))
        total = float(masses @ deltas + below * deltas[0]) + beyond
        if self._pair.remove:
            return min(total, 1.0)
        past = self._steps * self._pair.largest - epsilon
        return min(total, -np.expm1(-past)) if past > 0 else 0.0

    def _lower(self, epsilon: float) -> float:
        if not self._pair.remove:
            return 0.0
        counts, masses, below, beyond = self._counts
        rate, mu = self._pair.rate, self._mu
        least = counts * (mu**2 / 2 + np.log(rate)) + (self._steps - counts) * np.log1p(-rate)
        spread = mu * np.sqrt(np.maximum(counts, 1))
        sampled = masses * (counts > 0) * (1 - below - beyond)
        return max(
            float(sampled @ ndtr((least - epsilon - margin) / spread)) * -np.expm1(-margin) for margin in _MARGINS
        )


def _log_chernoff(steps: int, rate: float, count: int) -> float:
    """Return log of Chernoff's bound on the probability of `count` samples or more, or of as few, past the mean."""
    if not 0 <= count <= steps:
        return -np.inf
    value = count * np.log(steps * rate / count) if count else 0.0
    missed = steps - count
    return float(value + (missed * np.log(steps * (1 - rate) / missed) if missed else 0.0))


def few_samples(parts: Parts) -> FewSamples | None:
    """The bounds for `parts` where they are equal sampled Gaussian steps of mu at least 16; None otherwise."""
    if len(parts) != 1:
        return None
    pair, steps = parts[0]
    if not isinstance(pair, SampledGaussianPair):
        return None
    low, high = window(steps, pair.rate)
    wide = high - low > _MOST_COUNTS
    return None if steps == 1 or pair.sigma * _LEAST_MU > 1 or pair.rate == 1.0 or wide else FewSamples(pair, steps)


def window(steps: int, rate: float) -> tuple[int, int]:
    """Counts around the mean that hold all but a negligible part of the probability."""
    mean = steps * rate
    reach = 14 * np.sqrt(mean * (1 - rate)) + 40
    return max(int(mean - reach), 0), min(int(mean + reach) + 1, steps)
