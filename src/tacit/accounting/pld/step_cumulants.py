"""Cumulants of single steps, and the law of the summed loss that the saddle line integrates.

A step gives log E_P e^{zL} with its error and a bound on |phi(t)| for every t; `IndependentSum` adds steps up.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.accounting.pld.quadrature import VOID, log1p
from tacit.accounting.pld.rounding import COMPLEX_LOGARITHM, FUNCTION, UNIT, mass_units
from tacit.accounting.pld.saddle_point import SMALLEST, CompositionCumulant, Summand


class Unsuitable(Exception):
    """The saddle line cannot answer this question at a reasonable cost; the lattice can."""


class StepCumulant(Summand):
    """One kind of step, run `steps` times, tilted by `theta`."""

    theta: float

    largest: float
    """The largest tilt that `log_moment` accepts."""

    left_out: float = 0.0
    """P-mass of the runs with an outcome that this cumulant leaves out."""

    limit: float = np.inf
    """The frequency up to which the cumulant is that of the step; nothing is claimed beyond."""

    def log_moment_bound(self, theta: float) -> float:
        """Return an upper bound on `log_moment`, rounding left out."""
        return self.log_moment(theta)

    @abstractmethod
    def rounding(self) -> float:
        """Return a bound on the rounding error of `log_moment` at `theta`, of one step."""

    def mean_and_variance(self) -> tuple[float, float]:
        """Of the tilted loss of one step."""
        _, mean, variance = self.cumulant_derivatives(self.theta)
        return mean, variance

    @abstractmethod
    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Upper bound on log |phi| of one step over each [t_j, t_{j+1}]."""

    def nodes(self, frequency: float) -> int:
        """How many terms `log_phi` sums for each t up to `frequency`."""
        return 1

    @abstractmethod
    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log E_theta e^{it(L - mean)} of all steps at multiples t of t[1] > 0, and a bound on its error."""

    def decay_within(self, t: np.ndarray) -> np.ndarray:
        """Return `log_decay` up to the limit, and nothing beyond."""
        return np.where(t[1:] <= self.limit, self.log_decay(t), 0.0)

    def phi_within(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return `log_phi`; raises `Unsuitable` beyond the limit."""
        if t[-1] > self.limit:
            raise Unsuitable
        return self.log_phi(t)


@dataclass
class GaussianCumulant(StepCumulant):
    """A plain Gaussian step: everything in closed form."""

    mu: float
    theta: float
    steps: int = 1
    largest: float = np.inf
    limit: float = np.inf

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        return theta * (theta + 1) * self.mu**2 / 2

    def rounding(self) -> float:
        """Return four rounding units of the value, for as many products."""
        return 4 * UNIT * abs(self.log_moment(self.theta))

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        return self.log_moment(theta), (theta + 0.5) * self.mu**2, self.mu**2

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}], which falls."""
        return -((self.mu * t[:-1]) ** 2) / 2

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        value = -((self.mu * t) ** 2) / 2
        return self.steps * value.astype(complex), self.steps * 4 * UNIT * np.abs(value)


class IndependentSum(CompositionCumulant[StepCumulant]):
    """The law of the summed loss of independent steps, tilted by `theta`; a little of its mass may be left out."""

    def __init__(self, parts: Sequence[StepCumulant], theta: float):
        self.theta, self.largest = theta, min(part.largest for part in parts)
        super().__init__(parts, 0.4 * theta, min(2.5 * theta, self.largest))
        """The largest tilt that K accepts."""
        self.left_out = sum(part.left_out for part in parts)
        """P-mass of the runs that this law leaves out, to be added to upper bounds."""
        moments = [(part.steps, part.mean_and_variance()) for part in parts]
        self.mean, self.variance = (sum(steps * moment[k] for steps, moment in moments) for k in (0, 1))

    @cached_property
    def rounding(self) -> float:
        """Return a bound on the rounding error of K at `theta`."""
        return sum(part.steps * part.rounding() for part in self.parts)

    def log_moment_bound(self, theta: float) -> float:
        """Return an upper bound on it, rounding of at most log 2 left out."""
        return sum(part.steps * part.log_moment_bound(theta) for part in self.parts)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}], and for the last beyond."""
        return sum((part.steps * part.decay_within(t) for part in self.parts), np.zeros(len(t) - 1))

    def transform(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi = E e^{(theta + it) L - it mean} / E e^{theta L} at multiples of t[1] > 0, with its error."""
        log_phi, slack = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        for part in self.parts:
            value, error = part.phi_within(t)
            log_phi += value
            slack += error
        return np.exp(log_phi), grown(np.real(log_phi), slack)

    def nodes(self, frequency: float) -> int:
        """Return how many terms `transform` sums for each t up to `frequency`."""
        return sum(part.nodes(frequency) for part in self.parts)

    def smoothed(self, variance: float) -> IndependentSum:
        """Return the sum with a Gaussian step of this variance."""
        return IndependentSum([*self.parts, GaussianCumulant(variance**0.5, self.theta)], self.theta)


def grown(log_size: np.ndarray, slack: np.ndarray) -> np.ndarray:
    """e^{log_size + slack} - e^{log_size} at most, also where the sizes underflow."""
    small = np.exp(np.minimum(log_size, VOID)) * np.expm1(np.minimum(slack, 1.0))
    return np.where(slack < 1.0, small, np.exp(np.minimum(log_size + slack, VOID)))


def logarithm_of(change: np.ndarray, error: np.ndarray, steps: int | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of `steps` factors 1 + change that are known up to `error`, and a bound on its error (Lemma 6.3)."""
    value = log1p(change)
    relative = np.minimum(error / np.maximum(np.abs(1 + change), np.finfo(float).tiny), np.finfo(float).max)
    slack = np.log1p(relative) + UNIT * COMPLEX_LOGARITHM * (np.abs(value) + np.abs(change / (1 + change)))
    return steps * value, steps * slack


def tilted_masses(
    p: np.ndarray, q: np.ndarray, tails: tuple[np.ndarray, np.ndarray], theta: float, log_moment: np.ndarray | float
) -> np.ndarray:
    """Lower bounds on the tilted masses E_Q e^{(theta + 1) L} >= q (p / q)^(theta + 1) of cells of masses p and q.

    A mass is a difference of two tails. Where it is small beside them a steep tilt multiplies what it loses.

    Args:
        p: masses under P, shape (..., cells).
        q: masses under Q.
        tails: for P and for Q, the smaller tail of the distribution at the cell, the larger of its two edges.
        theta: the tilt.
        log_moment: log E_P e^{theta L}.
    """
    lost = (2 * UNIT * (mass_units(tail) + FUNCTION) * (tail + mass) for tail, mass in zip(tails, (p, q), strict=True))
    least, most = p - next(lost), q + next(lost)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.exp(np.log(least) + theta * np.log(least / most) - log_moment)
    return np.where((least > SMALLEST) & (q > SMALLEST), weights, 0.0)


def nearer_tails(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The smaller of both tails at the edges of cells, the larger of a cell's two edges, shape (..., cells)."""
    near = np.minimum(below, above)
    return np.maximum(near[..., :-1], near[..., 1:])
