"""Pairs of additive noise whose shift is drawn: any Gaussian mixture, and groups of records in a Poisson sample.

A group of records shifts the noise by i of its contributions with probability P(Bin(size, rate) = i). These mixtures
dominate for every symmetric law of noise with a monotone likelihood ratio, under replace-one those of opposite shifts
(THEORY.md, Theorem 1.13).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from scipy.special import log_ndtr

from tacit.mechanisms.pairs.base import LOSS_UNIT, Nodes, Pair, Table, legendre
from tacit.mechanisms.pairs.discrete import DiscreteGaussianPair, TabulatedPair
from tacit.mechanisms.pairs.gaussian import normal_cells
from tacit.mechanisms.pairs.laplace import DiscreteLaplacePair, laplace_cells
from tacit.relation import Relation

LARGEST_GROUP = 256
"""Records of a group whose pair is computed: its cost grows with their number."""

_BLOCK = 1 << 14  # Losses whose places are found at once: memory.
_KNOTS = 512  # Places between which first guesses are interpolated.
_LIGHT = 60.0  # Log of a share of the density, e^-60 = 9e-27, that no double of the sum shows.
_SPACING = 64  # Edges between two at which the shares are looked up.
_ITERATIONS = 100  # Convergence is quadratic from the first of them.
_LARGEST_LOSS = 1e300


def binomial_logs(rate: float, size: int) -> tuple[float, ...]:
    """Log P(Bin(size, rate) = i) for i = 0, ..., size; rate in (0, 1)."""
    i = np.arange(size + 1)
    chosen = np.log([float(comb(size, k)) for k in range(size + 1)])
    return tuple((chosen + i * np.log(rate) + (size - i) * np.log1p(-rate)).tolist())


@dataclass(frozen=True)
class GaussianMixturePair(Pair):
    """N_0 against the mixture M = sum_i w_i N(s_i, sigma^2), 0 = s_0 < s_1 < ...

    P = M, Q = N_0 where `remove`; P = N_0, Q = M otherwise. With t = x / sigma^2, log dM/dN_0 = log sum_i
    e^{c_i + s_i t}, where c_i = log w_i - s_i^2 / (2 sigma^2).

    Args:
        sigma: standard deviation of the noise, > 0.
        shifts: s_0 = 0 and one or more larger ones, increasing.
        log_weights: log w_i; that of s_0 may be -inf.
        remove: whether P is the mixture.
    """

    sigma: float
    shifts: tuple[float, ...]
    log_weights: tuple[float, ...]
    remove: bool

    @classmethod
    def of_group(cls, sigma: float, rate: float, size: int, *, remove: bool) -> GaussianMixturePair:
        """A Poisson-subsampled Gaussian step for a group of records, added or removed together.

        s_i = i and w_i = P(Binomial(size, rate) = i). It dominates, and parallel contributions reach it (THEORY.md,
        Theorem 1.13; Charles et al. 2024, arXiv 2401.10294).

        Args:
            sigma: noise multiplier, > 0.
            rate: sampling rate of a record, in (0, 1).
            size: in 2..`LARGEST_GROUP`.
            remove: whether the first of the two data sets holds the group.
        """
        return cls(sigma, tuple(float(i) for i in range(size + 1)), binomial_logs(rate, size), remove)

    @property
    def covering_mu(self) -> float:
        """Return that of the largest shift alone, which dominates it."""
        return self.shifts[-1] / self.sigma

    @property
    def tail_mu(self) -> float:
        """Return the same where the loss is unbounded: it is c_i + s_i x / sigma^2 or more for the largest shift."""
        return self.covering_mu if self.remove or self.log_weights[0] == -np.inf else 0.0

    @property
    def largest(self) -> float:
        """Return the supremum of the finite losses."""
        return np.inf if self.remove else -float(self._logs[0])

    def edge_error(self, size: float) -> float:
        """Return four units of the edge, and 32 of each term of its place.

        At the place t of an edge, s_i |t| is at most the sum of the edge, c_i and c_0 for the i that count there;
        others are weighted by their posterior e^{c_i + s_i t - loss}, which falls faster than s_i |t| grows.
        """
        terms = 1 + size + self._log_size + (self.shifts[-1] / self.sigma) ** 2
        return LOSS_UNIT * (size + 8 * terms)

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        z = self._places(loss if self.remove else -loss[::-1]) * self.sigma
        base, mixed = normal_cells(z), self._mixed(z)
        return (mixed, base) if self.remove else (base[::-1], mixed[::-1])

    def _mixed(self, z: np.ndarray) -> np.ndarray:
        """Masses of the mixture between edges, of each component where it has e^-`_LIGHT` of the largest one's density.

        The log of that share is concave in z: between the knots beside those that reach it there is all that does.
        """
        knots = np.clip(z[::_SPACING] / self.sigma, -_LARGEST_LOSS, _LARGEST_LOSS)
        terms = self._logs[:, None] + np.multiply.outer(self.shifts, knots)
        shares, mixed = terms - terms.max(axis=0), np.zeros(len(z) + 1)
        for shift, log_weight, share in zip(self.shifts, self.log_weights, shares, strict=True):
            near = np.flatnonzero(share >= min(-_LIGHT, share.max()))
            first, last = max(near[0] - 1, 0) * _SPACING, min((near[-1] + 1) * _SPACING, len(z) - 1)
            cells = normal_cells(z[first : last + 1] - shift / self.sigma)
            inner = slice(int(first > 0), len(cells) - int(last < len(z) - 1))
            mixed[first + inner.start : first + inner.stop] += np.exp(log_weight) * cells[inner]
        return mixed

    def log_q_above(self, loss: float) -> tuple[float, float]:
        """Log Phi(-z) at the noise z whose loss is the one given; z^2 doubles the relative error of z."""
        if not self.remove:
            return super().log_q_above(loss)
        z = float(self._places(np.array([loss]))[0]) * self.sigma
        return float(log_ndtr(-z)), 64 * LOSS_UNIT * (1 + z * z + abs(loss) + self._log_size)

    @cached_property
    def _logs(self) -> np.ndarray:
        """c_0, c_1, ..."""
        return np.array(self.log_weights) - (np.array(self.shifts) / self.sigma) ** 2 / 2

    @cached_property
    def _log_size(self) -> float:
        return float(np.abs(self._logs[np.isfinite(self._logs)]).max())

    def _places(self, loss: np.ndarray) -> np.ndarray:
        """The t with log sum_i e^{c_i + s_i t} = loss; -inf where loss <= c_0.

        Newton's steps on the convex log sum_{i > 0} e^{c_i + s_i t} = log(e^loss - e^{c_0}), whose slope is between the
        least and the largest shift: every point after the first lies to the right of the root, and closer than the one
        before.
        """
        place = np.full(loss.shape, -np.inf)
        inside = np.flatnonzero(loss > self._logs[0])
        still = float(self._logs[0]) if np.isfinite(self._logs[0]) else None
        for start in range(0, len(inside), _BLOCK):
            block = inside[start : start + _BLOCK]
            value = np.clip(loss[block], -_LARGEST_LOSS, _LARGEST_LOSS)
            # Relative to c_0, which keeps the digits of losses next to it.
            target = value if still is None else _log_expm1(np.minimum(value - still, _LARGEST_LOSS))
            place[block] = self._solved(target, still or 0.0)
        return place

    def _solved(self, target: np.ndarray, less: float) -> np.ndarray:
        shifts, logs = np.array(self.shifts[1:])[:, None], (self._logs[1:] - less)[:, None]
        known = 4 * LOSS_UNIT * (1 + np.abs(target) + np.abs(logs).max())
        # All places lie between these two, as the largest term is at least a share 1 / size of the sum.
        ends = float(target.min()) - np.log(len(shifts)), float(target.max())
        low, high = (float(np.min((end - logs) / shifts)) for end in ends)
        knots = np.linspace(low, high, _KNOTS)
        terms = logs + knots * shifts
        # Half a distance of knots away the log of a share is less by so much at most.
        light = _LIGHT + (high - low) / len(knots) * self.shifts[-1]
        near = (terms > terms.max(axis=0) - light).any(axis=1)
        shifts, logs = shifts[near], logs[near]
        place = np.interp(target, _sums(logs, shifts, knots)[0], knots)
        for _ in range(_ITERATIONS):
            value, slope = _sums(logs, shifts, place)
            missing = value - target
            if np.all(np.abs(missing) <= known):
                return place
            place = place - missing / slope
        raise ArithmeticError(f"no noise was found for the losses of {self}")


def _sums(logs: np.ndarray, shifts: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of sum_i e^{c_i + s_i t}, and its slope."""
    terms = logs + place * shifts
    top = terms.max(axis=0)
    weights = np.exp(terms - top)
    total = weights.sum(axis=0)
    return top + np.log(total), (weights * shifts).sum(axis=0) / total


def _log_expm1(value: np.ndarray) -> np.ndarray:
    """log(e^value - 1) for value > 0."""
    large = value + np.log1p(-np.exp(-np.maximum(value, 1.0)))
    return np.where(value > 1.0, large, np.log(np.expm1(np.minimum(value, 1.0))))


Noise = DiscreteGaussianPair | DiscreteLaplacePair


@dataclass(frozen=True)
class IntegerMixturePair(TabulatedPair):
    """Integer noise N_0 against M = sum_i w_i N_{i s}, or M against its mirror image.

    P = M, Q = N_0 where `way` is "remove"; the two exchanged where it is "add"; Q = sum_i w_i N_{-i s} where "replace".

    Args:
        noise: the law of the noise, and the shift s of one record.
        log_weights: log w_i, i = 0, ..., size.
        way: what happens to the group.
    """

    noise: Noise
    log_weights: tuple[float, ...]
    way: str

    @classmethod
    def both_ways(cls, noise: Noise, logs: tuple[float, ...], relation: Relation) -> tuple[IntegerMixturePair, ...]:
        """The pairs of a relation."""
        ways = ("replace",) if relation is Relation.REPLACE_ONE else ("remove", "add")
        return tuple(cls(noise, logs, way) for way in ways)

    @cached_property
    def table(self) -> Table:
        """Return the losses with their masses under P and Q."""
        reach = (len(self.log_weights) - 1) * self.noise.shift
        x = self.noise.integers(-reach if self.way == "replace" else 0, reach)
        loss, mixed, base = self._mixture(x, 1), self._masses(x, 1), self.noise.masses(x, 0)
        if self.way == "add":
            return -loss[::-1], base[::-1], mixed[::-1]
        return (
            (loss, mixed, base) if self.way == "remove" else (loss - self._mixture(x, -1), mixed, self._masses(x, -1))
        )

    @property
    def table_error(self) -> np.ndarray:
        """Return a bound on the rounding error of each loss: of a sum of exponentials, twice under replace-one."""
        size = len(self.log_weights)
        most = max(abs(weight) for weight in self.log_weights) + float(np.abs(self.table[0]).max()) + size
        return np.full(len(self.table[0]), 8 * LOSS_UNIT * (most + self.noise.most_log_ratio(size - 1)))

    def _shifts(self, sign: int) -> list[tuple[float, int]]:
        return [(weight, sign * i * self.noise.shift) for i, weight in enumerate(self.log_weights)]

    def _mixture(self, x: np.ndarray, sign: int) -> np.ndarray:
        """Log M / N_0 at the integers."""
        terms = (weight + self.noise.log_ratio(x, shift) for weight, shift in self._shifts(sign))
        total = np.full(len(x), -np.inf)
        for term in terms:
            total = np.logaddexp(total, term)
        return total

    def _masses(self, x: np.ndarray, sign: int) -> np.ndarray:
        found = (np.exp(weight) * self.noise.masses(x, shift) for weight, shift in self._shifts(sign))
        return np.sum([*found], axis=0)


@dataclass(frozen=True)
class LaplaceMixturePair(Pair):
    """Lap(0) against M = sum_i w_i Lap(i epsilon), scale 1; P = M where `remove`.

    Between i epsilon and the next shift M / Lap(0) is A_i + B_i e^{2 x}, and constant beyond both ends.
    """

    epsilon: float
    log_weights: tuple[float, ...]
    remove: bool
    largest = property(lambda self: self.atoms[1])

    @cached_property
    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Log A_i and log B_i, of 0 < i + 1 <= size shifts below x."""
        logs, moved = np.array(self.log_weights), self.epsilon * np.arange(len(self.log_weights))
        below = np.logaddexp.accumulate(logs + moved)[:-1]
        return below, np.logaddexp.accumulate((logs - moved)[:0:-1])[::-1]

    @cached_property
    def _corners(self) -> np.ndarray:
        """The loss of a removal at 0, epsilon, 2 epsilon, ..."""
        below, above = self._coefficients
        places = 2 * self.epsilon * np.arange(len(below) + 1)
        inner = np.logaddexp(below, above + places[:-1])
        return np.append(inner, np.logaddexp(below[-1], above[-1] + places[-1]))

    @property
    def _size(self) -> int:
        return len(self.log_weights) - 1

    def edge_error(self, size: float) -> float:
        """Return eight units of the terms of an edge's place."""
        largest = max(abs(weight) for weight in self.log_weights)
        return 8 * LOSS_UNIT * (1 + size + 2 * self._size * self.epsilon + largest)

    @property
    def atoms(self) -> tuple[float, ...]:
        """Return the losses of positive mass."""
        ends = (float(self._corners[0]), float(self._corners[-1]))
        return ends if self.remove else (-ends[1], -ends[0])

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses: both ends, and a rule between neighbouring shifts."""
        low, high = self._corners[0], self._corners[-1]
        base = [np.array([0.5, np.exp(-self._size * self.epsilon) / 2])]
        ratio = [np.array([low, high])]
        for i, (below, above) in enumerate(zip(*self._coefficients, strict=True)):
            y, weight = legendre(2 * i * self.epsilon, 2 * (i + 1) * self.epsilon, theta, frequency)
            base.append(weight / 4 * np.exp(-y / 2))
            ratio.append(np.logaddexp(below, above + y))
        q, loss = np.concatenate(base), np.concatenate(ratio)
        return Nodes(loss, q * np.exp(loss), q) if self.remove else Nodes(-loss, q, q * np.exp(loss))

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        loss = np.asarray(edges, dtype=float)
        x = self._places(loss) if self.remove else self._places(-loss[::-1], before=True)
        base = laplace_cells(x)
        mixed = np.zeros(len(base))
        for i, weight in enumerate(self.log_weights):
            mixed += np.exp(weight) * laplace_cells(x - i * self.epsilon)
        return (mixed, base) if self.remove else (base[::-1], mixed[::-1])

    def _places(self, loss: np.ndarray, *, before: bool = False) -> np.ndarray:
        """The x up to which the loss of a removal is at most `loss`, or below it where `before`."""
        below, above = self._coefficients
        i = np.clip(np.searchsorted(self._corners, loss, side="right") - 1, 0, self._size - 1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            x = (loss + np.log1p(-np.exp(np.minimum(below[i] - loss, 0.0))) - above[i]) / 2
        x = np.clip(x, i * self.epsilon, (i + 1) * self.epsilon)
        first, last = self._corners[0], self._corners[-1]
        low, high = (loss <= first, loss > last) if before else (loss < first, loss >= last)
        return np.where(high, np.inf, np.where(low, -np.inf, x))
