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

from tacit.accounting.pld.quadrature import SampledGaussian, TailWeight, log1p, shifted_sum, weighted_reach
from tacit.accounting.pld.rounding import UNIT
from tacit.accounting.pld.step_cumulants import (
    GaussianCumulant,
    LossSum,
    SampledGaussianCumulant,
    StepCumulant,
    Unsuitable,
)
from tacit.mechanisms.pairs.quadrature import exponential_tilt


class SplitStep(ABC):
    """One kind of step split at its large losses, run `steps` times and tilted by `theta`."""

    steps: int
    mean: float

    @abstractmethod
    def log_moments(self, theta: float) -> tuple[float, float]:
        """Return log E[e^{theta L}; no tail_weight] and log E[e^{theta L}; tail_weight]."""

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
        self, pair: SampledGaussian, steps: int, theta: float, largest: float, tail_weight: TailWeight, limit: float
    ):
        """Nothing is claimed for frequencies beyond `limit`.

        Args:
            pair: the step's dominating pair.
            steps: independent repetitions, >= 1.
            theta: tilt of the saddle point, > 0.
            largest: largest tilt that will be asked for.
            tail_weight: share of every outcome that is taken.
            limit: largest frequency.
        """
        self.steps, self._limit = steps, limit
        self.sides = [
            weighted_cumulant(pair, steps, theta, largest, share)
            for share in (replace(tail_weight, end=None), tail_weight)
        ]
        self.mean = self.sides[0].mean
        self._tail_mass = float(np.exp(self.sides[1].log_moment(0.0)))

    def log_moments(self, theta: float) -> tuple[float, float]:
        """Return the log moments of the core and of the tail."""
        low, high = (side.log_moment(theta) for side in self.sides)
        if abs(low) > 0.5:
            return low, high
        core = self.sides[0].real
        return float(np.log1p(np.exp(core.log_mass) @ np.expm1(theta * core.loss) - self._tail_mass)), high

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
    pair: SampledGaussian, steps: int, theta: float, largest: float, tail_weight: TailWeight
) -> SampledGaussianCumulant:
    """Return a step under a weight; raises `Unsuitable` where the tilt makes outcomes matter that it leaves out.

    Args:
        pair: the step's dominating pair.
        steps: independent repetitions, >= 1.
        theta: tilt of the saddle point, > 0.
        largest: largest tilt that will be asked for.
        tail_weight: share of every outcome that is taken.
    """
    found = weighted_reach(pair, (theta, largest), tail_weight, -40.0 - np.log(steps))
    if found is None:
        raise Unsuitable
    ends, log_moment = found
    return SampledGaussianCumulant(pair, steps, theta, largest, ends, tail_weight=tail_weight, log_moment=log_moment)


class SplitTable(SplitStep):
    """A step with many atoms; losses above a threshold are its tail."""

    def __init__(self, loss: np.ndarray, p: np.ndarray, steps: int, theta: float, threshold: float):
        self.steps, self.theta = steps, theta
        keep = p > 0
        self.loss, self.log_p = loss[keep], np.log(p[keep])
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
        if abs(low) > 0.5:
            return low, high
        p, loss = np.exp(self.log_p), self.loss
        small = p[~self.tail_weights] @ np.expm1(theta * loss[~self.tail_weights])
        return float(np.log1p(small - p[self.tail_weights].sum())), high

    def changes(self, t: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return phi - 1 of the core and of the tail, with bounds on the errors."""
        found = []
        for where in (~self.tail_weights, self.tail_weights):
            _, weights = self._tilted(self.theta, where)
            keep = weights > 1e-25
            value, size = shifted_sum(weights[keep], self.loss[where][keep] - self.mean, t, float(t[1]))
            found.append((value, 16 * UNIT * size + 1e-20))
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
        step = 1e-3 * min(theta, largest - theta)
        below, value, above = (self.log_moment(theta + k * step) for k in (-1, 0, 1))
        self.variance = max((above - 2 * value + below) / step**2, 0.0)
        self.mean = sum(step_kind.steps * step_kind.mean for step_kind in split_steps)
        self.mean += sum(part.steps * part.mean_and_variance()[0] for part in plain)

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        base, rise = self._logs(theta)
        return base + _log_expm1(rise)

    def _logs(self, theta: float) -> tuple[float, float]:
        base = sum(part.steps * part.log_moment(theta) for part in self.plain)
        rise = 0.0
        for step_kind in self.split_steps:
            core, tail = step_kind.log_moments(theta)
            base += step_kind.steps * core
            rise += step_kind.steps * float(np.logaddexp(0.0, tail - core))
        return base, rise

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        rise = np.zeros(len(t) - 1)
        for step_kind in self.split_steps:
            core, tail = step_kind.log_moments(self.theta)
            rise += step_kind.steps * np.logaddexp(0.0, tail - core + step_kind.log_decay(t))
        _, largest = self._logs(self.theta)
        with np.errstate(divide="ignore"):
            fall = rise + np.log(-np.expm1(-rise)) - _log_expm1(largest)
        return sum((part.steps * part.log_decay(t) for part in self.plain), fall)

    def transform(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return phi at each t, and a bound on its error."""
        log_core, rise = np.zeros(len(t), dtype=complex), np.zeros(len(t), dtype=complex)
        slack, unsure = np.zeros(len(t)), np.zeros(len(t))
        for step_kind in self.split_steps:
            (core, core_error), (tail, jump_error) = step_kind.changes(t)
            log_c, log_j = step_kind.log_moments(self.theta)
            odds = float(np.exp(log_j - log_c))
            size = np.maximum(np.abs(1 + core) - core_error, 1e-300)
            ratio = odds * (1 + tail) / (1 + core)
            log_core += step_kind.steps * log1p(core)
            slack += step_kind.steps * (core_error / size + 4 * UNIT * np.abs(log1p(core)))
            rise += step_kind.steps * log1p(ratio)
            miss = (odds * jump_error + np.abs(ratio) * (core_error + 8 * UNIT)) / size
            unsure += step_kind.steps * miss / np.maximum(np.abs(1 + ratio) - miss, 1e-300)
        for part in self.plain:
            value, error = part.log_phi(t)
            log_core += value
            slack += error
        scale = _log_expm1(self._logs(self.theta)[1])
        phi = np.exp(log_core - scale) * np.expm1(rise)
        error = np.abs(phi) * np.expm1(np.minimum(slack, 50.0))
        return phi, error + np.abs(np.exp(log_core + rise - scale)) * np.expm1(np.minimum(2 * unsure, 50.0))

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return sum(step_kind.nodes for step_kind in self.split_steps)

    def smoothed(self, variance: float) -> LossSum:
        """Return the sum with a Gaussian step of this variance."""
        return TailSum(
            self.split_steps, [*self.plain, GaussianCumulant(variance**0.5, self.theta)], self.theta, self.largest
        )


def _log_expm1(x: float) -> float:
    return x + float(np.log(-np.expm1(-x))) if x > 0 else -np.inf
