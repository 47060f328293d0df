"""Runs without and with a large loss, each on its own saddle line, for one epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accounting.pld.cumulants import as_gaussian
from tacit.accounting.pld.discrete_cumulants import Cumulant, Discrete, SmoothNodes
from tacit.accounting.pld.inversion import SaddleLine, saddle_line
from tacit.accounting.pld.quadrature import Mark, SampledGaussian, on_line
from tacit.accounting.pld.saddle_point import Saddle, log_chernoff, saddle_for_epsilon
from tacit.accounting.pld.smooth_cumulants import Limited, Product, Smooth, SmoothCumulant, SmoothGaussian, Unsuitable
from tacit.accounting.pld.tail_split_laws import Jumps, Marked, MarkedGaussian, MarkedTable, marked
from tacit.mechanisms.pairs import GaussianPair, GaussianReplacePair, Nodes, Pair, SampledGaussianPair

_ROUNDING = 2e-14
"""Relative rounding of a marked step's moment, which the power of its steps multiplies; under 1e-14 where measured."""

Parts = Sequence[tuple[Pair, int]]

_CUTS = ((0.5, 0.1), (0.5, 0.05), (1 / 3, 0.1), (1 / 3, 0.05), (0.2, 0.1))
"""Thresholds as a share of epsilon, and how softly the marks set in, in standard deviations of the noise."""

_NEGLIGIBLE = -24.0


@dataclass(frozen=True)
class Apart:
    """delta of the runs with a large loss, that of the runs without one, and the mass of what both leave out."""

    jumps: SaddleLine
    core: SaddleLine | tuple[float, float]
    """A line, or a rate with the log of the moment there, where a Chernoff bound is enough."""

    left_out: float
    steps: int

    @property
    def theta(self) -> float:
        """The tilt of the runs with a large loss."""
        return self.jumps.theta

    @property
    def epsilon(self) -> float:
        """Where the bounds are meant to be asked."""
        return self.jumps.epsilon

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon)."""
        low, high = self.jumps.bounds(epsilon)
        if isinstance(self.core, SaddleLine):
            core = self.core.bounds(epsilon)
        else:
            core = 0.0, float(np.exp(min(log_chernoff(*self.core, epsilon), 0.0)))
        rounding = _ROUNDING * self.steps
        return (low + core[0]) * (1 - rounding), min((high + core[1]) * (1 + rounding) + self.left_out, 1.0)


class Splitter:
    """Builds `Apart` for a composition of sampled Gaussians, discrete Gaussians and plain Gaussians."""

    def __init__(self, parts: Parts, outlines: Sequence[Discrete], budget: int):
        self._parts = [(as_gaussian(pair)[0], steps) for pair, steps in parts]
        self._limit = min(as_gaussian(pair)[1] for pair, _ in parts)
        self._outlines, self._budget = outlines, budget

    def epsilon_for(self, log_delta: float, low: float, high: float) -> float:
        """Roughly where delta = e^log_delta in [low, high], by saddle-point values of the outlines."""
        a, b = float(np.log(low)), float(np.log(high))
        for _ in range(12):
            middle = (a + b) / 2
            a, b = (middle, b) if self._log_delta(float(np.exp(middle))) > log_delta else (a, middle)
        return float(np.exp((a + b) / 2))

    def _log_delta(self, epsilon: float) -> float:
        core, jump = _split(self._outlines, _CUTS[0][0] * epsilon)
        value = saddle_for_epsilon(Cumulant(core), epsilon).log_delta if all(len(part.losses) for part in core) else 0.0
        if any(len(part.losses) for part in jump):
            outline = _Outline(core, jump)
            value = np.logaddexp(value, _saddle(outline, outline.tilt_for(epsilon), epsilon).log_delta)
        return float(value)

    def at(self, epsilon: float, log_delta: float) -> Apart | None:
        """Around `epsilon`, where delta is about e^log_delta; None where all or none of a step's losses are large."""
        for share, softness in _CUTS:
            try:
                found = self._at(epsilon, log_delta, share * epsilon, softness)
            except Unsuitable:
                continue
            if found:
                return found
        return None

    def _at(self, epsilon: float, log_delta: float, threshold: float, softness: float) -> Apart | None:
        core_parts, jump_parts = _split(self._outlines, threshold)
        if not all(len(part.losses) for part in core_parts) or not any(len(part.losses) for part in jump_parts):
            return None
        marks = [self._mark(pair, steps, threshold, softness, log_delta) for pair, steps in self._parts]
        core = self._core(_steepest(core_parts, epsilon, log_delta), threshold, marks, log_delta)
        if core is None:
            return None
        theta = _Outline(core_parts, jump_parts).tilt_for(epsilon)
        jumps = self._jumps(theta, threshold, marks, log_delta)
        line = saddle_line(jumps, _saddle(jumps, theta, epsilon), self._budget, 0.0)
        if line is None:
            return None
        left_out = 0.0
        for (pair, steps), mark in zip(self._parts, marks, strict=True):
            if mark and isinstance(pair, SampledGaussianPair | GaussianReplacePair):
                left_out += steps * float(np.exp(mark.beyond(1 / pair.sigma)))
            elif pair.table is not None:
                left_out += steps * float(pair.table[1][_far(pair, steps, log_delta)].sum())
        return Apart(line, core, left_out, sum(steps for _, steps in self._parts))

    def _mark(self, pair: Pair, steps: int, threshold: float, softness: float, log_delta: float) -> Mark | None:
        if not isinstance(pair, SampledGaussianPair | GaussianReplacePair):
            return None
        end = 1 / pair.sigma + (2 * (float(np.log(steps)) - log_delta - _NEGLIGIBLE)) ** 0.5
        place = _place(pair, threshold)
        return Mark(place, softness * min(1.0, pair.sigma), max(end, place + 1.0))

    def _jumps(self, theta: float, threshold: float, marks: Sequence[Mark | None], log_delta: float) -> Jumps:
        largest = 3 * theta + 5
        found: list[Marked] = []
        plain: list[Smooth] = []
        for (pair, steps), mark in zip(self._parts, marks, strict=True):
            if isinstance(pair, GaussianPair):
                plain.append(Limited(SmoothGaussian(pair.mu * steps**0.5, theta), self._limit))
            elif mark and isinstance(pair, SampledGaussianPair | GaussianReplacePair):
                found.append(MarkedGaussian(pair, steps, theta, largest, mark, self._limit))
            elif pair.table is not None:
                keep = ~_far(pair, steps, log_delta)
                found.append(MarkedTable(pair.table[0][keep], pair.table[1][keep], steps, theta, threshold))
            else:
                raise Unsuitable
        return Jumps(found, plain, theta, largest)

    def _core(
        self, saddle: Saddle, threshold: float, marks: Sequence[Mark | None], log_delta: float
    ) -> SaddleLine | tuple[float, float] | None:
        for _ in range(3):
            views = self._unmarked(saddle.theta, threshold, marks)
            value = sum(view.steps * view.log_moment(saddle.theta) for view in views)
            if log_chernoff(saddle.theta, value, saddle.epsilon) < log_delta + _NEGLIGIBLE:
                return saddle.theta, value
            refined = saddle_for_epsilon(SmoothCumulant(views, saddle.theta), saddle.epsilon)
            close = abs(np.log(refined.theta / saddle.theta)) < 0.3
            saddle = refined
            if close:
                break
        views = self._unmarked(saddle.theta, threshold, marks)
        return saddle_line(Product(views, saddle.theta), saddle, self._budget, 0.0)

    def _unmarked(self, theta: float, threshold: float, marks: Sequence[Mark | None]) -> list[Smooth]:
        views: list[Smooth] = []
        for (pair, steps), mark in zip(self._parts, marks, strict=True):
            if isinstance(pair, GaussianPair):
                views.append(Limited(SmoothGaussian(pair.mu * steps**0.5, theta), self._limit))
            elif mark and isinstance(pair, SampledGaussianPair | GaussianReplacePair):
                below = marked(pair, steps, theta, 1.5 * theta, Mark(mark.place, mark.softness))
                views.append(Limited(below, self._limit))
            elif pair.table is None:
                raise Unsuitable
            else:
                views.append(SmoothNodes(_Below(pair, threshold), steps, theta))
        return views


@dataclass(frozen=True)
class _Below(Pair):
    """The losses of a table up to a threshold."""

    base: Pair
    threshold: float

    def nodes(self, theta: float, frequency: float) -> Nodes:
        assert self.base.table is not None
        loss, p, q = self.base.table
        keep = (loss <= self.threshold) & (p > 0)
        return Nodes(loss[keep], p[keep], q[keep])

    @property
    def infinite(self) -> float:
        """What is left out."""
        assert self.base.table is not None
        loss, p, _ = self.base.table
        return float(p[loss > self.threshold].sum())

    @property
    def unseen(self) -> float:
        assert self.base.table is not None
        loss, _, q = self.base.table
        return float(q[loss > self.threshold].sum())

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
    low, high = -40.0, 40.0 + 2 * threshold * pair.sigma + 2 / pair.sigma - 2 * pair.sigma * float(np.log(pair.rate))
    for _ in range(50):
        middle = (low + high) / 2
        loss = on_line(pair, np.array([middle]), 1.0, 0.0).loss[0]
        low, high = (middle, high) if loss < threshold else (low, middle)
    return low


def _steepest(core: Sequence[Discrete], epsilon: float, log_delta: float) -> Saddle:
    """The saddle of the runs without a large loss, or a lower tilt that already shows them to be negligible."""
    cumulant = Cumulant(core)
    saddle = saddle_for_epsilon(cumulant, epsilon)
    for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        rate = share * saddle.theta
        if log_chernoff(rate, cumulant(rate), epsilon) < log_delta + _NEGLIGIBLE - 3.0:
            return Saddle(rate, epsilon, saddle.log_delta, saddle.spread)
    return saddle


def _saddle(measure: Jumps | _Outline, theta: float, epsilon: float) -> Saddle:
    step = 1e-3 * theta
    below, value, above = (measure.log_moment(theta + k * step) for k in (-1, 0, 1))
    curvature = max(above - 2 * value + below, 0.0) / step**2 + 1 / theta**2 + 1 / (1 + theta) ** 2
    log_size = value - theta * epsilon - np.log(theta) - np.log1p(theta)
    return Saddle(theta, epsilon, float(log_size - 0.5 * np.log(2 * np.pi * curvature)), float(curvature**0.5))


class _Outline:
    """The planned composition with its losses split at a threshold."""

    def __init__(self, core: Sequence[Discrete], jump: Sequence[Discrete]):
        self._core, self._jump = core, jump

    def log_moment(self, theta: float) -> float:
        """log E e^{theta L} of the runs with a large loss."""
        base = rise = 0.0
        for core, jump in zip(self._core, self._jump, strict=True):
            log_core = core.tilt(theta)[0]
            base += core.steps * log_core
            if len(jump.losses):
                rise += core.steps * float(np.logaddexp(0.0, jump.tilt(theta)[0] - log_core))
        return base + rise + float(np.log(-np.expm1(-rise)))

    def tilt_for(self, epsilon: float) -> float:
        """The theta that minimises K(theta) - theta epsilon - log theta(theta + 1), a convex function."""

        def value(theta: float) -> float:
            return self.log_moment(theta) - theta * epsilon - float(np.log(theta) + np.log1p(theta))

        a, b = float(np.log(0.01 / epsilon)), float(np.log(1e3 / epsilon))
        for _ in range(40):
            left, right = a + 0.382 * (b - a), a + 0.618 * (b - a)
            a, b = (a, right) if value(float(np.exp(left))) < value(float(np.exp(right))) else (left, b)
        return float(np.exp((a + b) / 2))


def _split(parts: Sequence[Discrete], threshold: float) -> tuple[list[Discrete], list[Discrete]]:
    below = [part.losses <= threshold for part in parts]
    core = [Discrete(p.losses[k], p.log_masses[k], p.steps) for p, k in zip(parts, below, strict=True)]
    jumps = [Discrete(p.losses[~k], p.log_masses[~k], p.steps) for p, k in zip(parts, below, strict=True)]
    return core, jumps
