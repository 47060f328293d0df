"""Many sampled Gaussians of unlike parameters at once, by Chebyshev interpolation of their cumulants.

log E e^{zL} of one step is analytic in x = (log sigma, log rate), so the sum over a schedule is a weighted sum of its
values at a few nodes, the weights being those of interpolation. With B the largest |log E e^{zL}| on a Bernstein
ellipse of parameter r, n nodes miss each step by at most 4 B r^{1-n} / (r - 1) (Trefethen 2013, Theorem 8.2). B is
taken for the quadrature sum itself at points of the ellipse, with a margin for the places between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tacit.accounting.pld.quadrature import SampledGaussian, choose_line, log1p, on_line, reach, shifted_sum, varied
from tacit.accounting.pld.rounding import UNIT
from tacit.accounting.pld.step_cumulants import SampledGaussianCumulant, StepCumulant, Unsuitable

_RADII = (6.0, 4.0, 3.0, 2.5, 2.0, 1.7, 1.5, 1.35, 1.25)  # Bernstein ellipses to try, the largest first: fewer nodes.
_PANEL = 0.45  # Widest panel in log sigma, a factor of 1.57.
_BOUNDARY = np.exp(2j * np.pi * (np.arange(12) + 0.5) / 12)  # Twelve points of the unit circle, mapped to an ellipse.
_MARGIN = 4.0  # Safe side for the places between the points of an ellipse.
_LOG_ERROR = -29.0  # log of the interpolation error of the whole sum: e^-29 = 3e-13.
_CELLS = 6  # Cells of an axis in the bound of the decay.


@dataclass(frozen=True)
class Panel:
    """Interpolation nodes (sigma, rate) of one cell of parameters, their weights, and the miss of each step."""

    sigma: np.ndarray
    rate: np.ndarray
    weights: np.ndarray
    steps: float
    radii: tuple[float, float]
    corners: tuple[np.ndarray, np.ndarray]
    counts: tuple[int, int]


class InterpolatedCumulant(StepCumulant):
    """Sampled Gaussians of one kind as a single step."""

    steps = 1

    def __init__(self, pairs: Sequence[tuple[SampledGaussian, int]], theta: float, log_delta: float):
        self.kind = pairs[0][0]
        self.theta = theta
        self.sigma = np.array([pair.sigma for pair, _ in pairs])
        self.rate = np.array([pair.rate for pair, _ in pairs])
        self.count = np.array([float(steps) for _, steps in pairs])
        self.total = float(self.count.sum())
        self.log_tolerance = -38.0 - np.log(self.total)
        self._reach(log_delta)
        self.panels = [self._panel(low, high) for low, high in self._split()]
        self.cumulants = [
            self._real(s, r) for panel in self.panels for s, r in zip(panel.sigma, panel.rate, strict=True)
        ]
        self.weights = np.concatenate([panel.weights for panel in self.panels])
        self.mean = self.cumulant_derivatives(theta)[1]

    def _reach(self, log_delta: float) -> None:
        log_cut = -38.0 - np.log(self.total)
        corners = [(s, r) for s in (self.sigma.min(), self.sigma.max()) for r in (self.rate.min(), self.rate.max())]
        for largest in (2 * self.theta + 3, 1.5 * self.theta, 1.2 * self.theta, self.theta):
            found = [reach(varied(self.kind, s, r), largest, log_cut, log_delta + log_cut) for s, r in corners]
            ends = [end for end in found if end is not None]
            if len(ends) == len(found) and max(high for _, high in ends) < 60:
                break
        else:
            raise Unsuitable
        self.largest = largest
        self.ends = (min(low for low, _ in ends), max(high for _, high in ends))
        lines = [
            choose_line(varied(self.kind, s, r), self.theta, 0.0, self.ends, 0.0, self.log_tolerance)
            for s, r in corners
        ]
        self.u = np.arange(self.ends[0], self.ends[1], min(step for step, _ in lines))

    def _split(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Cells of log sigma at most `_PANEL` wide that hold some of the steps."""
        x, y = np.log(self.sigma), np.log(self.rate)
        pieces = max(1, int(np.ceil((x.max() - x.min()) / _PANEL)))
        edges = np.linspace(x.min(), x.max(), pieces + 1)
        rows = pairwise(edges)
        return [(np.array([a, y.min()]), np.array([b, y.max()])) for a, b in rows if np.any((x >= a) & (x <= b))]

    def _panel(self, low: np.ndarray, high: np.ndarray) -> Panel:
        radii, counts = [], []
        for axis in (0, 1):
            radius = self._radius(low, high, axis) if high[axis] > low[axis] else np.inf
            radii.append(radius)
            needed = (
                (np.log(4 * self.total) - _LOG_ERROR - np.log(radius - 1)) / np.log(radius) + 2
                if radius < np.inf
                else 1
            )
            counts.append(int(np.ceil(needed)))
        nodes = [_chebyshev(a, b, n) for a, b, n in zip(low, high, counts, strict=True)]
        grid = np.meshgrid(*nodes, indexing="ij")
        x = np.stack([np.log(self.sigma), np.log(self.rate)])
        inside = (x[0] >= low[0]) & ((x[0] < high[0]) | (high[0] == np.log(self.sigma).max()))
        left, right = (_lagrange(nodes[axis], x[axis][inside]) for axis in (0, 1))
        weights = np.einsum("i,ia,ib->ab", self.count[inside], left, right)
        return Panel(
            np.exp(grid[0].ravel()), np.exp(grid[1].ravel()), weights.ravel(), float(self.count[inside].sum()),
            (radii[0], radii[1]), (low, high), (counts[0], counts[1]),
        )  # fmt: skip

    def _radius(self, low: np.ndarray, high: np.ndarray, axis: int) -> float:
        """The largest ellipse on which the mixture stays clear of the cut of its logarithm, for the nodes at hand."""
        for radius in _RADII:
            if all(self._clear(point) for point in _ellipse(low, high, axis, radius)):
                return radius
        raise Unsuitable

    def _clear(self, point: np.ndarray) -> bool:
        pair = varied(self.kind, *np.exp(point))
        with np.errstate(over="ignore", invalid="ignore"):
            line = on_line(pair, self.u, float(self.u[1] - self.u[0]), 0.0, whole=True)
            change = np.abs(np.exp(line.log_mass + self.theta * line.loss).sum() - 1)
        return bool(np.all(np.abs(np.imag(line.loss)) < 2.6) and np.all(np.isfinite(line.loss)) and change < 0.1)

    def _real(self, sigma: float, rate: float) -> SampledGaussianCumulant:
        step = float(self.u[1] - self.u[0])
        return SampledGaussianCumulant(
            varied(self.kind, sigma, rate), 1, self.theta, self.largest, self.ends, step=step
        )

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        return float(self.weights @ [cumulant.log_moment(theta) for cumulant in self.cumulants])

    def rounding(self) -> float:
        """Return the sum over the nodes of interpolation, whose weights may have either sign."""
        return float(np.abs(self.weights) @ [cumulant.rounding() for cumulant in self.cumulants])

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        value, first, second = self.weights @ np.array(
            [cumulant.cumulant_derivatives(theta) for cumulant in self.cumulants]
        )
        return float(value), float(first), float(second)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """The parameters in cells of a grid, each step bounded by the slowest corner of its cell."""
        x, y = np.log(self.sigma), np.log(self.rate)
        grids = [np.linspace(v.min(), v.max(), 1 + (_CELLS if v.max() > v.min() else 0)) for v in (x, y)]
        place = [
            np.clip(np.searchsorted(g, v, side="right") - 1, 0, max(len(g) - 2, 0))
            for g, v in zip(grids, (x, y), strict=True)
        ]
        decays = np.array(
            [[self._real(float(np.exp(a)), float(np.exp(b))).log_decay(t) for b in grids[1]] for a in grids[0]]
        )
        for axis in (0, 1):
            if decays.shape[axis] > 1:
                decays = np.maximum(
                    np.take(decays, range(decays.shape[axis] - 1), axis),
                    np.take(decays, range(1, decays.shape[axis]), axis),
                )
        cells = np.zeros(decays.shape[:2])
        np.add.at(cells, tuple(place), self.count)
        return 0.9 * np.einsum("ab,abt->t", cells, decays)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        corners = [(s, r) for s in (self.sigma.min(), self.sigma.max()) for r in (self.rate.min(), self.rate.max())]
        lines = [
            choose_line(varied(self.kind, s, r), self.theta, 0.0, self.ends, float(t[-1]), self.log_tolerance)
            for s, r in corners
        ]
        step = min(step for step, _ in lines)
        height = min((height for _, height in lines), key=abs)
        if step <= 0 or (self.ends[1] - self.ends[0]) / step > 5000:
            raise Unsuitable
        u = np.arange(self.ends[0], self.ends[1], step)
        value, error = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        start = 0
        for panel in self.panels:
            for cumulant, weight in zip(self.cumulants[start:], panel.weights, strict=False):
                one, size = _log_phi(cumulant, u, step, height, t)
                value += weight * one
                error += abs(weight) * (2 * np.exp(self.log_tolerance) + 16 * UNIT * size)
            start += len(panel.weights)
            error += panel.steps * self._miss(panel, u, step, height, t)
        return value, error

    def _miss(self, panel: Panel, u: np.ndarray, step: float, height: float, t: np.ndarray) -> np.ndarray:
        """The interpolation error of one step in the panel, for its log moment at theta and at each t."""
        miss = np.zeros(len(t))
        for axis, (radius, count) in enumerate(zip(panel.radii, panel.counts, strict=True)):
            if radius == np.inf:
                continue
            size = np.zeros(len(t))
            for point in _ellipse(*panel.corners, axis, radius):
                line = on_line(varied(self.kind, *np.exp(point)), u, step, height, whole=True)
                weights = np.exp(line.log_mass + self.theta * line.loss)
                change, _ = shifted_sum(weights, line.loss, t, float(t[1]))
                change = change + weights.sum() - 1
                size = np.maximum(size, np.abs(change))
            if not np.all(size < 0.8):
                raise Unsuitable
            miss += _MARGIN * 4 * -(np.log1p(-size) + np.log1p(-size[0])) * radius ** (1.0 - count) / (radius - 1)
        return miss * 10


def _log_phi(
    cumulant: SampledGaussianCumulant, u: np.ndarray, step: float, height: float, t: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    line = on_line(cumulant.pair, u, step, height)
    weights = np.exp(line.log_mass + cumulant.theta * line.loss - cumulant.moment)
    change, size = shifted_sum(weights, line.loss - cumulant.mean, t, float(t[1]))
    return log1p(change), size


def _ellipse(low: np.ndarray, high: np.ndarray, axis: int, radius: float) -> list[np.ndarray]:
    """Points of the Bernstein ellipse around [low, high] along one axis, the other axis at both its ends and middle."""
    centre, half = (low + high) / 2, (high - low) / 2
    edge = radius * _BOUNDARY
    shape = (edge + 1 / edge) / 2
    others = (0.0,) if half[1 - axis] == 0 else (-1.0, 0.0, 1.0)
    points = []
    for other in others:
        for z in shape[:6]:
            point = centre.astype(complex)
            point[axis] += half[axis] * z
            point[1 - axis] += half[1 - axis] * other
            points.append(point)
    return points


def _chebyshev(low: float, high: float, count: int) -> np.ndarray:
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(count) + 0.5) / count)


def _lagrange(nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Values at x of the Lagrange polynomials of Chebyshev nodes, by the barycentric formula."""
    count = len(nodes)
    if count == 1:
        return np.ones((len(x), 1))
    sign = (-1.0) ** np.arange(count) * np.sin(np.pi * (np.arange(count) + 0.5) / count)
    gap = x[:, None] - nodes
    exact = gap == 0
    terms = sign / np.where(exact, 1.0, gap)
    values = terms / terms.sum(axis=1, keepdims=True)
    return np.where(exact.any(axis=1, keepdims=True), exact.astype(float), values)
