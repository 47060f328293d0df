"""Compositions whose delta falls more slowly than exponentially around epsilon: few steps with a large loss decide.

There no tilt makes epsilon typical: it favours either runs without any large loss or runs with a very large one. Every
outcome of a step is a tail loss with a probability rising from 0 to 1 around some loss. Runs without a tail loss are
light-tailed, so that a high tilt bounds their delta. With c and j the transforms of the core and tail outcomes
of a step, those of all other runs are prod c^T (e^{sum T log(1 + j / c)} - 1), which keeps its digits however rare
they are, and falls with j: |prod (c + j)^T - prod c^T| <= prod (C + |j|)^T - prod C^T, C = c at t = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.accounting.pld.quadrature import NodeUnits, SampledGaussian, TailWeight, log1p, shifted_sum, weighted_reach
from tacit.accounting.pld.rounding import COMPLEX_LOGARITHM, FUNCTION, MASS, UNIT, mass_units, pairwise_units
from tacit.accounting.pld.saddle_point import SMALLEST
from tacit.accounting.pld.sampled_cumulant import SampledGaussianCumulant
from tacit.accounting.pld.step_cumulants import (
    GaussianCumulant,
    LossSum,
    StepCumulant,
    Unsuitable,
)
from tacit.mechanisms.pairs.base import exponential_tilt

_LOG_UNIT = -37.0  # e^-37 < 2^-53
_RAREST = -690.0  # log of the share of tail losses at a tilt from which their odds leave the normal doubles.
_LIGHT = 1e-25  # Tilted mass of an atom below which it is dropped, and added to the error.


class SplitStep(ABC):
    """One kind of step split at its large losses, run `steps` times and tilted by `theta`."""

    steps: int
    mean: float

    @abstractmethod
    def log_moments(self, theta: float) -> tuple[float, float]:
        """Return log E[e^{theta L}; no tail_weight] and log E[e^{theta L}; tail_weight]."""

    @abstractmethod
    def rounding(self) -> float:
        """Return a bound on the error of both log moments at the tilt (Lemma 8.2)."""

    left_out: float = 0.0
    """P-mass of the runs with an outcome that neither side holds."""

    def miss(self, theta: float) -> float:
        """Return by how much a quadrature may make a log moment at `theta` too low."""
        return 0.0

    @abstractmethod
    def changes(self, t: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For outcomes without and with a tail_weight: E_theta e^{it(L - mean)} - 1, and a bound on its error."""

    @property
    @abstractmethod
    def nodes(self) -> int:
        """The number of terms of each transform."""

    @abstractmethod
    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Upper bound on log |E_theta e^{itL}| of tail outcomes over each [t_j, t_{j+1}]."""


class SplitGaussian(SplitStep):
    """A Poisson-subsampled Gaussian step; the tail_weights are a smooth function of its noise."""

    def __init__(
        self, pair: SampledGaussian, steps: int, theta: float, largest: float, tail_weight: TailWeight, limit: float,
        log_ignored: float,
    ):  # fmt: skip
        """Nothing is claimed for frequencies beyond `limit`.

        Args:
            pair: the step's dominating pair.
            steps: independent repetitions, >= 1.
            theta: tilt of the saddle point, > 0.
            largest: largest tilt that will be asked for.
            tail_weight: share of every outcome that is taken.
            limit: largest frequency.
            log_ignored: log of the P-mass of all runs that may be left out, < 0.
        """
        self.steps, self._limit = steps, limit
        self.sides = [
            weighted_cumulant(pair, steps, theta, largest, share, log_ignored)
            for share in (replace(tail_weight, end=None), tail_weight)
        ]
        self.mean = self.sides[0].mean
        self.theta = theta
        self.left_out = sum(side.left_out for side in self.sides)

    def log_moments(self, theta: float) -> tuple[float, float]:
        """Return the log moments of the core and of the tail."""
        low, high = (side.log_moment(theta) for side in self.sides)
        return low, high

    def rounding(self) -> float:
        """Return the larger of both sides'."""
        return max(side.rounding() for side in self.sides)

    def miss(self, theta: float) -> float:
        """Return the larger of both sides'."""
        return max(side.log_moment_bound(theta) - side.log_moment(theta) for side in self.sides)

    def changes(self, t: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return phi - 1 of the core and of the tail, with bounds on the errors."""
        if t[-1] > self._limit:
            raise Unsuitable
        return [side.change(t, self.mean) for side in self.sides]

    @property
    def nodes(self) -> int:
        """Return the finite losses with their masses."""
        return sum(side.nodes(0.0) for side in self.sides)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        return np.where(t[1:] <= self._limit, self.sides[1].log_decay(t), 0.0)


def weighted_cumulant(
    pair: SampledGaussian, steps: int, theta: float, largest: float, tail_weight: TailWeight, log_ignored: float
) -> SampledGaussianCumulant:
    """Return a step under a weight; raises `Unsuitable` where the tilt makes outcomes matter that it leaves out.

    Args:
        pair: the step's dominating pair.
        steps: independent repetitions, >= 1.
        theta: tilt of the saddle point, > 0.
        largest: largest tilt that will be asked for.
        tail_weight: share of every outcome that is taken.
        log_ignored: log of the P-mass of all runs that may be left out, < 0.
    """
    log_steps = float(np.log(steps))
    found = weighted_reach(pair, (theta, largest), tail_weight, -40.0 - log_steps, log_ignored - log_steps)
    if found is None:
        raise Unsuitable
    ends, log_moment = found
    return SampledGaussianCumulant(pair, steps, theta, largest, ends, tail_weight=tail_weight, log_moment=log_moment)


class SplitTable(SplitStep):
    """A step with many atoms; losses above a threshold are its tail."""

    def __init__(self, loss: np.ndarray, p: np.ndarray, steps: int, theta: float, threshold: float, moved: float):
        """A table split at a threshold.

        Args:
            loss: losses of the atoms, shape (atoms,).
            p: their P-masses, shape (atoms,).
            steps: independent repetitions, >= 1.
            theta: tilt of the saddle point, > 0.
            threshold: loss above which an atom belongs to the tail.
            moved: bound on the error of each loss.

        Raises:
            Unsuitable: all atoms or none belong to the tail.
        """
        self.steps, self.theta = steps, theta
        keep = p > 0
        self.loss, self.log_p = loss[keep], np.log(p[keep])
        self._units = NodeUnits(mass_units(p[keep]), moved / UNIT)
        self.tail_weights = self.loss > threshold
        if self.tail_weights.all() or not self.tail_weights.any():
            raise Unsuitable
        _, weights = self._tilted(theta, ~self.tail_weights)
        self.mean = float(weights @ self.loss[~self.tail_weights])

    def _tilted(self, theta: float, where: np.ndarray) -> tuple[float, np.ndarray]:
        return exponential_tilt(self.log_p[where], self.loss[where], theta)

    def log_moments(self, theta: float) -> tuple[float, float]:
        """Return the log moments of the core and of the tail."""
        low, high = (self._tilted(theta, where)[0] for where in (~self.tail_weights, self.tail_weights))
        return low, high

    def rounding(self) -> float:
        """Return the average of the atoms' units under either tilt, and those of the sum."""
        found = []
        for where in (~self.tail_weights, self.tail_weights):
            log_moment, weights = self._tilted(self.theta, where)
            units = NodeUnits(self._units.mass[where], self._units.loss)
            relative = units.of_weights(self.log_p[where], self.loss[where], self.theta, log_moment)
            found.append(float(weights @ relative) + 2 * pairwise_units(len(weights)))
        return UNIT * max(found)

    def changes(self, t: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return phi - 1 of the core and of the tail, with bounds on the errors."""
        found = []
        for where in (~self.tail_weights, self.tail_weights):
            log_moment, weights = self._tilted(self.theta, where)
            keep = weights > _LIGHT
            units = NodeUnits(self._units.mass[where], self._units.loss)
            relative = units.of_weights(self.log_p[where], self.loss[where], self.theta, log_moment)
            value, error = shifted_sum(
                weights[keep], self.loss[where][keep] - self.mean, t, float(t[1]), relative[keep],
                self._units.loss + 2 * abs(self.mean),
            )  # fmt: skip
            found.append((value, error + 2 * float(weights[~keep].sum()) + np.abs(value) * self.rounding()))
        return found

    @property
    def nodes(self) -> int:
        """Return the finite losses with their masses."""
        return len(self.loss)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        return np.zeros(len(t) - 1)


class TailSum(LossSum):
    """The runs in which some step has a tail loss."""

    def __init__(self, split_steps: Sequence[SplitStep], plain: Sequence[StepCumulant], theta: float, largest: float):
        self.split_steps, self.plain, self.theta, self.largest = split_steps, plain, theta, largest
        if self._logs(theta)[1] < _RAREST:
            raise Unsuitable
        step = 1e-3 * min(theta, largest - theta)
        below, value, above = (self.log_moment(theta + k * step) for k in (-1, 0, 1))
        self.variance = max((above - 2 * value + below) / step**2, 0.0)
        self.left_out = sum(step_kind.left_out for step_kind in split_steps)
        self.mean = sum(step_kind.steps * step_kind.mean for step_kind in split_steps)
        self.mean += sum(part.steps * part.mean_and_variance()[0] for part in plain)
        self.rounding = self._rounding()

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        base, log_rise = self._logs(theta)
        return base + _log_expm1(log_rise)

    def _rounding(self) -> float:
        """Return a bound on the error of `log_moment` at the tilt: the core's, and that of the rise, relative to it."""
        found = sum(part.steps * part.rounding() for part in self.plain)
        for step_kind in self.split_steps:
            core, tail = step_kind.log_moments(self.theta)
            each = step_kind.rounding() + UNIT * FUNCTION * (abs(core) + abs(tail))
            found += step_kind.steps * each + 2 * each + UNIT * MASS
        return found

    def _logs(self, theta: float) -> tuple[float, float]:
        """Return log prod c^T, and log sum T log(1 + j / c), which no rarity of tail losses turns into zero."""
        base = sum(part.steps * part.log_moment(theta) for part in self.plain)
        log_rise = -np.inf
        for step_kind in self.split_steps:
            core, tail = step_kind.log_moments(theta)
            base += step_kind.steps * core
            log_rise = np.logaddexp(log_rise, np.log(step_kind.steps) + _log_softplus(tail - core))
        return base, float(log_rise)

    def log_moment_bound(self, theta: float) -> float:
        """Return an upper bound on it: with c and j larger by a factor, it grows by its power of the steps."""
        more = sum(part.steps * (part.log_moment_bound(theta) - part.log_moment(theta)) for part in self.plain)
        return self.log_moment(theta) + more + sum(step.steps * step.miss(theta) for step in self.split_steps)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        rise = np.zeros(len(t) - 1)
        for step_kind in self.split_steps:
            core, tail = step_kind.log_moments(self.theta)
            rise += step_kind.steps * np.logaddexp(0.0, tail - core + step_kind.log_decay(t))
        _, largest = self._logs(self.theta)
        with np.errstate(divide="ignore"):
            fall = np.array([_log_expm1(each) for each in np.log(rise)]) - _log_expm1(largest)
        return sum((part.steps * part.decay_within(t) for part in self.plain), fall)

    def transform(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi at each t, and a bound on its error (Lemma 8.2)."""
        phi, size, most = _Difference(len(t)), _Difference(len(t)), _Difference(len(t))
        slack = np.zeros(len(t))
        for step_kind in self.split_steps:
            (core, core_error), (tail, tail_error) = step_kind.changes(t)
            log_c, log_j = step_kind.log_moments(self.theta)
            odds = float(np.exp(log_j - log_c))
            core, jump = 1 + core, odds * (1 + tail)
            # A core that is not told from zero may be any number of that size.
            core_error = core_error + UNIT
            least = core_error + SMALLEST
            small = np.abs(core) < least
            core, core_error = np.where(small, least, core), np.where(small, 2 * least, core_error)
            phi.multiply(core, jump, step_kind.steps)
            size.multiply(np.abs(core), np.abs(jump), step_kind.steps)
            own = 2 * step_kind.rounding() + UNIT * 2 * MASS
            tail_error = tail_error + UNIT * MASS
            most.multiply(np.abs(core) + core_error, np.abs(jump) * (1 + own) + odds * tail_error, step_kind.steps)
            turned = np.minimum(np.abs(jump / core), 1 + np.abs(np.log(np.maximum(np.abs(core + jump), SMALLEST))))
            slack += 4 * step_kind.steps * UNIT * COMPLEX_LOGARITHM * (np.abs(np.log(core)) + turned)
        for part in self.plain:
            value, error = part.phi_within(t)
            phi.log_core += value
            size.log_core += np.real(value)
            most.log_core += np.real(value) + error
            slack += error
        scale = _log_expm1(self._logs(self.theta)[1])
        bound, largest = (np.real(each.value(scale)) for each in (size, most))
        rounded = 4 * UNIT * (COMPLEX_LOGARITHM + MASS + abs(scale))
        return phi.value(scale), np.maximum(largest - bound, 0.0) + largest * (
            np.expm1(np.minimum(slack, 1.0)) + rounded
        )

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return sum(step_kind.nodes for step_kind in self.split_steps)

    def smoothed(self, variance: float) -> LossSum:
        """Return the sum with a Gaussian step of this variance."""
        return TailSum(
            self.split_steps, [*self.plain, GaussianCumulant(variance**0.5, self.theta)], self.theta, self.largest
        )


class _Difference:
    """The difference prod (c + j)^T - prod c^T, factor by factor.

    It is prod c^T (e^{sum T log(1 + j / c)} - 1), which keeps the digits of small j.
    """

    def __init__(self, count: int):
        """Begin with no factor at each of `count` frequencies."""
        self.log_core, self._rise = np.zeros(count, dtype=complex), np.zeros(count, dtype=complex)

    def multiply(self, core: np.ndarray, jump: np.ndarray, steps: int) -> None:
        """Take the factors of `steps` steps; no core may be zero."""
        log_core, large = np.log(core + 0j), np.abs(jump) > 0.5 * np.abs(core)
        with np.errstate(divide="ignore"):
            rise = np.log(np.where(large, core + jump, 1.0) + 0j) - log_core
        self.log_core += steps * log_core
        self._rise += steps * np.where(large, rise, log1p(np.where(large, 0.0, jump / core) + 0j))

    def value(self, log_scale: float) -> np.ndarray:
        """Return the difference over e^log_scale."""
        base, large = self.log_core - log_scale, np.real(self._rise) > 1.0
        with np.errstate(under="ignore"):
            whole, core = np.exp(np.where(large, base + self._rise, 0.0)), np.exp(base)
            return np.where(large, whole - core, core * np.expm1(np.where(large, 0.0, self._rise)))


def _log_softplus(x: float) -> float:
    """Log log(1 + e^x), which is x to the last digit where e^x is below a unit."""
    return x if x < _LOG_UNIT else float(np.log(np.logaddexp(0.0, x)))


def _log_expm1(log_x: float) -> float:
    """log(e^x - 1) of log x."""
    x = float(np.exp(log_x))
    return log_x if log_x < _LOG_UNIT else x + float(np.log(-np.expm1(-x)))
