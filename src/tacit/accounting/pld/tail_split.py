"""Runs without and with a large loss, each on its own saddle line, for one epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accounting.pld.discrete_cumulants import DiscreteCumulant, DiscreteLoss
from tacit.accounting.pld.intervals import looseness
from tacit.accounting.pld.inversion import SaddleLine, saddle_line
from tacit.accounting.pld.quadrature import SampledGaussian, TailWeight, on_line
from tacit.accounting.pld.saddle_point import Saddle, log_chernoff, saddle_for_epsilon
from tacit.accounting.pld.step_cumulants import (
    CompositionCumulant,
    GaussianCumulant,
    IndependentSum,
    StepCumulant,
    Unsuitable,
)
from tacit.accounting.pld.tail_split_laws import SplitGaussian, SplitStep, SplitTable, TailSum, weighted_cumulant
from tacit.mechanisms.pairs import GaussianPair, Nodes, Pair
from tacit.root_finding import bisect

Parts = Sequence[tuple[Pair, int]]

_CUTS = ((0.5, 0.1), (0.5, 0.05), (1 / 3, 0.1), (1 / 3, 0.05), (0.2, 0.1))
"""Thresholds as a share of epsilon, and how softly the weights set in, in standard deviations of the noise."""

_LOOSE = 1e-3  # Relative width from which another threshold is tried.
_NEGLIGIBLE = -24.0  # log of a share of delta that does not matter: e^-24 = 4e-11.


@dataclass(frozen=True)
class TailSplit:
    """delta of the runs with a large loss, that of the runs without one, and the mass of what both leave out."""

    tail: SaddleLine
    core: SaddleLine | tuple[float, float, float]
    """A line, or a rate with the log of the moment there and the mass left out, where a Chernoff bound is enough."""

    left_out: float

    @property
    def theta(self) -> float:
        """The tilt of the runs with a large loss."""
        return self.tail.theta

    @property
    def epsilon(self) -> float:
        """Where the bounds are meant to be evaluated."""
        return self.tail.epsilon

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon)."""
        low, high = self.tail.bounds(epsilon)
        if isinstance(self.core, SaddleLine):
            core = self.core.bounds(epsilon)
        else:
            rate, value, lost = self.core
            core = 0.0, 2 * float(np.exp(min(log_chernoff(rate, value, epsilon), 0.0))) + lost  # Twice, for rounding.
        return low + core[0], min(high + core[1] + self.left_out, 1.0)


class TailSplitter:
    """Builds `TailSplit` for a composition of sampled Gaussians, discrete Gaussians and plain Gaussians."""

    def __init__(self, parts: Parts, coarse_losses: Sequence[DiscreteLoss], budget: int):
        limits = [(*pair.gaussian_limit(), steps) for pair, steps in parts]
        self._parts = [(pair, steps) for pair, _, steps in limits]
        self._limit = min(limit for _, limit, _ in limits)
        self._coarse_losses, self._budget = coarse_losses, budget

    def epsilon_for(self, log_delta: float, low: float, high: float) -> float:
        """Roughly where delta = e^log_delta in [low, high], by saddle-point values of the coarse_losses."""
        a, b = bisect(
            lambda log_epsilon: self._log_delta(float(np.exp(log_epsilon))) > log_delta,
            float(np.log(low)), float(np.log(high)), halvings=12,
        )  # fmt: skip
        return float(np.exp((a + b) / 2))

    def _log_delta(self, epsilon: float) -> float:
        core, tail = _split(self._coarse_losses, _CUTS[0][0] * epsilon)
        if not all(len(part.losses) for part in core):
            return 0.0
        value = saddle_for_epsilon(CompositionCumulant(core), epsilon).log_delta
        if any(len(part.losses) for part in tail):
            coarse_loss = _CoarseSplit(core, tail)
            value = np.logaddexp(value, _saddle(coarse_loss, coarse_loss.tilt_for(epsilon), epsilon).log_delta)
        return float(value)

    def at(self, epsilon: float, log_delta: float) -> TailSplit | None:
        """Around `epsilon`, where delta is about e^log_delta; None where all or none of a step's losses are large."""
        best: TailSplit | None = None
        for share, softness in _CUTS:
            try:
                found = self._at(epsilon, log_delta, share * epsilon, softness)
            except Unsuitable:
                continue
            if found and (best is None or looseness(found, epsilon) < looseness(best, epsilon)):
                best = found
            if best and looseness(best, epsilon) <= _LOOSE:
                break
        return best

    def _at(self, epsilon: float, log_delta: float, threshold: float, softness: float) -> TailSplit | None:
        if any(isinstance(pair, SampledGaussian) and pair.rate == 1.0 for pair, _ in self._parts):
            return None  # A step on all records has no rare outcomes to take apart.
        core_parts, jump_parts = _split(self._coarse_losses, threshold)
        if not all(len(part.losses) for part in core_parts) or not any(len(part.losses) for part in jump_parts):
            return None
        tail_weights = [self._tail_weight(pair, steps, threshold, softness, log_delta) for pair, steps in self._parts]
        core = self._core(_steepest(core_parts, epsilon, log_delta), threshold, tail_weights, log_delta)
        if core is None:
            return None
        theta = _CoarseSplit(core_parts, jump_parts).tilt_for(epsilon)
        tail = self._tail(theta, threshold, tail_weights, log_delta)
        line = saddle_line(tail, _saddle(tail, theta, epsilon), self._budget, 0.0)
        if line is None:
            return None
        left_out = 0.0
        for (pair, steps), tail_weight in zip(self._parts, tail_weights, strict=True):
            if tail_weight and isinstance(pair, SampledGaussian):
                left_out += steps * float(np.exp(tail_weight.beyond(1 / pair.sigma)))
            elif pair.table is not None:
                left_out += steps * float(pair.table[1][_far(pair, steps, log_delta)].sum())
        return TailSplit(line, core, left_out)

    def _tail_weight(
        self, pair: Pair, steps: int, threshold: float, softness: float, log_delta: float
    ) -> TailWeight | None:
        if not isinstance(pair, SampledGaussian):
            return None
        end = 1 / pair.sigma + (2 * (float(np.log(steps)) - log_delta - _NEGLIGIBLE)) ** 0.5
        place = _place(pair, threshold)
        return TailWeight(place, softness * min(1.0, pair.sigma), max(end, place + 1.0))

    def _tail(
        self, theta: float, threshold: float, tail_weights: Sequence[TailWeight | None], log_delta: float
    ) -> TailSum:
        largest, ignored = 3 * theta + 5, log_delta + _NEGLIGIBLE
        found: list[SplitStep] = []
        plain: list[StepCumulant] = []
        for (pair, steps), tail_weight in zip(self._parts, tail_weights, strict=True):
            if isinstance(pair, GaussianPair):
                plain.append(GaussianCumulant(pair.mu * steps**0.5, theta, limit=self._limit))
            elif tail_weight and isinstance(pair, SampledGaussian):
                found.append(SplitGaussian(pair, steps, theta, largest, tail_weight, self._limit, ignored))
            elif pair.table is not None:
                keep = ~_far(pair, steps, log_delta)
                moved = pair.edge_error(float(np.abs(pair.table[0][keep]).max()))
                found.append(SplitTable(pair.table[0][keep], pair.table[1][keep], steps, theta, threshold, moved))
            else:
                raise Unsuitable
        return TailSum(found, plain, theta, largest)

    def _core(
        self, saddle: Saddle, threshold: float, tail_weights: Sequence[TailWeight | None], log_delta: float
    ) -> SaddleLine | tuple[float, float, float] | None:
        for _ in range(3):
            cumulants = self._core_cumulants(saddle.theta, threshold, tail_weights, log_delta)
            value = sum(cumulant.steps * cumulant.log_moment_bound(saddle.theta) for cumulant in cumulants)
            if log_chernoff(saddle.theta, value, saddle.epsilon) < log_delta + _NEGLIGIBLE:
                return saddle.theta, value, sum(cumulant.left_out for cumulant in cumulants)
            refined = saddle_for_epsilon(CompositionCumulant.around(cumulants, saddle.theta), saddle.epsilon)
            close = abs(np.log(refined.theta / saddle.theta)) < 0.3
            saddle = refined
            if close:
                break
        cumulants = self._core_cumulants(saddle.theta, threshold, tail_weights, log_delta)
        return saddle_line(IndependentSum(cumulants, saddle.theta), saddle, self._budget, 0.0)

    def _core_cumulants(
        self, theta: float, threshold: float, tail_weights: Sequence[TailWeight | None], log_delta: float
    ) -> list[StepCumulant]:
        cumulants: list[StepCumulant] = []
        for (pair, steps), tail_weight in zip(self._parts, tail_weights, strict=True):
            if isinstance(pair, GaussianPair):
                cumulants.append(GaussianCumulant(pair.mu * steps**0.5, theta, limit=self._limit))
            elif tail_weight and isinstance(pair, SampledGaussian):
                below = weighted_cumulant(
                    pair, steps, theta, 1.5 * theta, TailWeight(tail_weight.place, tail_weight.softness),
                    log_delta + _NEGLIGIBLE,
                )  # fmt: skip
                below.limit = self._limit
                cumulants.append(below)
            elif pair.table is None:
                raise Unsuitable
            else:
                cumulants.append(DiscreteCumulant(_Below(pair, threshold), steps, theta))
        return cumulants


@dataclass(frozen=True)
class _Below(Pair):
    """The losses of a table up to a threshold."""

    base: Pair
    threshold: float

    def edge_error(self, size: float) -> float:
        """Return that of the table."""
        return self.base.edge_error(size)

    def nodes(self, theta: float, frequency: float) -> Nodes:
        """Return the finite losses with their masses."""
        assert self.base.table is not None
        loss, p, q = self.base.table
        keep = (loss <= self.threshold) & (p > 0)
        return Nodes(loss[keep], p[keep], q[keep])

    @property
    def infinity_mass(self) -> float:
        """What is left out."""
        assert self.base.table is not None
        loss, p, _ = self.base.table
        return float(p[loss > self.threshold].sum())

    @property
    def negative_infinity_mass(self) -> float:
        """Return the Q-mass of loss -inf."""
        assert self.base.table is not None
        loss, _, q = self.base.table
        return float(q[loss > self.threshold].sum())

    def bin_masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the P- and Q-masses of the finite losses in each bin."""
        nodes = self.nodes(0.0, 0.0)
        index = np.searchsorted(edges, nodes.loss, side="left")
        return np.bincount(index, nodes.p, len(edges) + 1), np.bincount(index, nodes.q, len(edges) + 1)


def _far(pair: Pair, steps: int, log_delta: float) -> np.ndarray:
    """Which losses of a table are so high and so rare that all of them together do not matter."""
    assert pair.table is not None
    beyond = np.cumsum(pair.table[1][::-1])[::-1]
    return beyond < np.exp(log_delta + _NEGLIGIBLE) / steps


def _place(pair: SampledGaussian, threshold: float) -> float:
    """The noise at which the loss is `threshold`."""
    high = 40.0 + 2 * threshold * pair.sigma + 2 / pair.sigma - 2 * pair.sigma * float(np.log(pair.rate))
    below = lambda u: on_line(pair, np.array([u]), 1.0, 0.0).loss[0] < threshold  # noqa: E731
    return bisect(below, -40.0, high, halvings=50)[0]


def _steepest(core: Sequence[DiscreteLoss], epsilon: float, log_delta: float) -> Saddle:
    """The saddle of the runs without a large loss, or a lower tilt that already shows them to be negligible."""
    cumulant = CompositionCumulant(core)
    saddle = saddle_for_epsilon(cumulant, epsilon)
    for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        rate = share * saddle.theta
        if log_chernoff(rate, cumulant(rate), epsilon) < log_delta + _NEGLIGIBLE - 3.0:
            return Saddle(rate, epsilon, saddle.log_delta, saddle.spread)
    return saddle


def _saddle(loss_sum: TailSum | _CoarseSplit, theta: float, epsilon: float) -> Saddle:
    step = 1e-3 * theta
    below, value, above = (loss_sum.log_moment(theta + k * step) for k in (-1, 0, 1))
    curvature = max(above - 2 * value + below, 0.0) / step**2 + 1 / theta**2 + 1 / (1 + theta) ** 2
    log_size = value - theta * epsilon - np.log(theta) - np.log1p(theta)
    return Saddle(theta, epsilon, float(log_size - 0.5 * np.log(2 * np.pi * curvature)), float(curvature**0.5))


class _CoarseSplit:
    """The planned composition with its losses split at a threshold."""

    def __init__(self, core: Sequence[DiscreteLoss], tail: Sequence[DiscreteLoss]):
        self._core, self._tail_losses = core, tail

    def log_moment(self, theta: float) -> float:
        """Return log E e^{theta L} of the runs with a large loss."""
        base = rise = 0.0
        for core, tail in zip(self._core, self._tail_losses, strict=True):
            log_core = core.tilt(theta)[0]
            base += core.steps * log_core
            if len(tail.losses):
                rise += core.steps * float(np.logaddexp(0.0, tail.tilt(theta)[0] - log_core))
        return base + rise + float(np.log(-np.expm1(-rise)))

    def tilt_for(self, epsilon: float) -> float:
        """The theta that minimises K(theta) - theta epsilon - log theta(theta + 1), a convex function."""

        def value(theta: float) -> float:
            return self.log_moment(theta) - theta * epsilon - float(np.log(theta) + np.log1p(theta))

        a, b = float(np.log(1e-6 / epsilon)), float(np.log(1e3 / epsilon))
        for _ in range(40):
            left, right = a + 0.382 * (b - a), a + 0.618 * (b - a)
            a, b = (a, right) if value(float(np.exp(left))) < value(float(np.exp(right))) else (left, b)
        return float(np.exp((a + b) / 2))


def _split(parts: Sequence[DiscreteLoss], threshold: float) -> tuple[list[DiscreteLoss], list[DiscreteLoss]]:
    below = [part.losses <= threshold for part in parts]
    core = [DiscreteLoss(p.losses[k], p.log_masses[k], p.steps) for p, k in zip(parts, below, strict=True)]
    tail = [DiscreteLoss(p.losses[~k], p.log_masses[~k], p.steps) for p, k in zip(parts, below, strict=True)]
    return core, tail
