"""The cumulant of a Poisson-subsampled Gaussian step, by the trapezoid rule over its noise.

Trapezoid rules over the noise of Poisson-subsampled Gaussian steps, with a bound on their error.

The error of the rule is a contour integral around a strip (THEORY.md, Theorem 6.2; Trefethen & Weideman 2014, Theorem
5.1, for the lines; the ends are ours). `Strip` bounds it; `choose_strip` looks for a coarse rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtr

from tacit.accounting.pld.quadrature import (
    ROUNDED,
    Line,
    direct_moment,
    line_units,
    log_decay,
    mixes,
    moment_rounding,
    on_line,
    posterior,
    shifted_sum,
)
from tacit.accounting.pld.step_cumulants import StepCumulant, Unsuitable, logarithm_of, nearer_tails, tilted_masses
from tacit.mechanisms.pairs import SampledGaussian
from tacit.mechanisms.pairs.base import (
    LOG_TOLERANCE,
    between,
    exponential_tilt,
    gauss_legendre,
    steepness,
    weighted_mean_and_variance,
)

_CLEAR = 0.97  # Share of pi sigma, where the logarithm has its cut, up to which strips reach.
_DEPTHS = np.array([0.1, 0.2, 0.4, 0.65, 0.95])  # Depths of strips to try, as shares of that or of `_DEEPEST`.
_DEEPEST, _HIGHEST_LINE = 3.0, 1.6  # Deepest strip and highest line of nodes to try.
_GROWTH = 5.0  # log of how much larger than the moment a raised integrand may be: two digits of rounding.
_RAISES = np.array([0.0, 1.0])  # Heights to try, in depths of the strip.
_MET = 6.0  # log of how much the ends of a strip may add to the error that is aimed at before another one is taken.
_CELL = 0.4  # Width of the cells in which integrands are bounded, in min(1, sigma); any width gives a bound.

Bounded = tuple[np.ndarray, ...]


class Strip:
    """A bound on how far a trapezoid rule with nodes on one line misses its integral over [low, high] (Theorem 6.2).

    Over the two lines at `depth` from the nodes the integrand is bounded cell by cell, and over the two ends of the
    strip by its value on the real line. The nodes are the midpoints of equal steps between the ends.
    """

    def __init__(self, depth: float, height: float, width: float, lines: Bounded, ends: Bounded):
        """The strip between height - depth and height + depth, from what `strips` finds about its sides.

        Args:
            depth: half the height of the strip, > 0.
            height: height of the nodes.
            width: width of the cells of its two lines.
            lines: logs of the integrand, its slopes and curvatures in the cells of both lines.
            ends: logs of the integrand at the two ends.
        """
        self.depth, self.height = depth, height
        self._width, self._lines, self._ends = width, lines, ends
        self._raised = abs(height)
        self._at = lru_cache(maxsize=None)(self._log_integrals)

    def log_integrals(self, theta: float) -> float:
        """Return log of a bound on the integrals of |g| over both lines."""
        return self._at(theta)

    def _log_integrals(self, theta: float) -> float:
        value, loss, slope, loss_slope, bend, tilted_bend = self._lines
        rise = (slope + theta * loss_slope) * self._width / 2
        bent = np.maximum(bend + abs(theta) * tilted_bend, 0.0) * self._width**2 / 8
        exponent = value + theta * loss + rise**2 / 6 + bent
        top = float(exponent.max())
        return top + float(np.log(np.exp(exponent - top).sum() * self._width))

    def log_error(self, theta: float, step: float) -> float:
        """Return log of a bound on the error of the rule of this step in the moment at `theta`."""
        log_mass, loss, falls = self._ends
        vertical = float(np.logaddexp.reduce(log_mass + theta * loss + max(theta, 0.0) * falls))
        vertical += float(np.log(step + self._raised))
        return float(np.logaddexp(self.log_integrals(theta) + self.log_kernel(step), vertical))

    def log_kernel(self, step: float) -> float:
        """Return -log(e^(2 pi depth / step) - 1)."""
        exponent = 2 * np.pi * self.depth / step
        return -exponent - float(np.log(-np.expm1(-exponent)))

    def step_for(self, theta: float, log_error: float) -> float:
        """Return the step at which the two lines contribute e^`log_error`."""
        need = max(self.log_integrals(theta) - log_error + float(np.log(2.0)), 1.0)
        return 2 * np.pi * self.depth / need


def strips(
    pair: SampledGaussian, ends: tuple[float, float], shapes: Sequence[tuple[float, float]], *, largest_t: float = 0.0
) -> list[Strip]:
    """The strips of several (depth, height), all at once.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        ends: (low, high), the interval of the integral.
        shapes: half the height of each strip, > 0, and the height of its nodes with the sign of the loss: 0 or at
            least the depth.
        largest_t: largest frequency, >= 0.
    """
    depth, height = (np.array(values)[:, None] for values in zip(*shapes, strict=True))
    # |e^{i t loss}| <= 1 where Im z has the sign of the loss, the side of raised nodes; of nodes on the real line it
    # grows with t on the other side.
    away = pair.loss_sign * depth
    against = np.where(height == 0, largest_t, 0.0)
    lines = _cells(pair, ends, np.stack([height + away, height - away]), np.stack([0 * against, against]))
    sides = _vertical(pair, ends, np.abs(height) + depth, against)
    width = _real_cells(pair, ends)[1]
    return [
        Strip(d, h, width, tuple(value[..., k, :] for value in lines), tuple(value[k] for value in sides))
        for k, (d, h) in enumerate(shapes)
    ]


def _cells(pair: SampledGaussian, ends: tuple[float, float], height: np.ndarray, t: np.ndarray) -> Bounded:
    """Log of the modulus, its slope and its curvature in each cell, each at tilt 0 and what a unit of tilt adds."""
    u, _, bends = _real_cells(pair, ends)
    z = u + 1j * height
    mixed = mixes(pair, z)
    weights = [np.exp(np.log(pair.rate) + y - mix) for y, mix in mixed]
    signs, base = _exponents(pair)
    loss = mixed[0][1] * signs[0] if len(mixed) == 1 else mixed[0][1] - mixed[1][1]
    value = np.real(-(z**2) / 2 + base * mixed[0][1]) - 0.5 * np.log(2 * np.pi) - t * np.imag(loss)
    bend = bends / np.cos(height / (2 * pair.sigma)) ** 2
    loss_slope = np.tensordot(signs, weights, 1) / pair.sigma
    slope = -u + base * np.real(weights[0]) / pair.sigma - t * np.imag(loss_slope)
    return value, np.real(loss), slope, np.real(loss_slope), (base + t) * bend - 1.0, bend


def _vertical(pair: SampledGaussian, ends: tuple[float, float], top: np.ndarray, t: np.ndarray) -> Bounded:
    """Log of the modulus at most on the ends of a strip that reaches to `top`, and what a unit of tilt adds to it."""
    place = np.array(ends)
    line = on_line(pair, place, 1.0, 0.0)
    angle = top / pair.sigma
    growth = top**2 / 2 + np.zeros(2)
    falls = np.zeros((len(top), 2))
    for sign in (1.0, -1.0)[: 2 if pair.symmetric else 1]:
        weight = np.real(posterior(pair, sign * place)[0])
        # A mixture 1 + r e^{ia} has the argument a at most, and a r / (1 - r) where r < 1.
        turn = np.where(weight < 0.5, weight / np.maximum(1 - 2 * weight, np.finfo(float).tiny), 1.0)
        growth = growth + t * angle * np.minimum(turn, 1.0)
        if sign < 0 or (not pair.symmetric and pair.loss_sign < 0):
            # It is divided by, and its square falls by the share 4 w (1 - w) sin^2(a / 2) of that at a = 0.
            falls = -0.5 * np.log1p(-4 * weight * (1 - weight) * np.sin(angle / 2) ** 2)
    return line.log_mass + growth, line.loss + 0 * growth, falls


def choose_strip(
    pair: SampledGaussian, theta: float, log_moment: float, ends: tuple[float, float], largest_t: float,
    log_tolerance: float,
) -> tuple[float, Strip]:  # fmt: skip
    """The coarsest trapezoid rule whose error, relative to the moment, is about e^log_tolerance, and its strip.

    The integrand holds e^{i t loss}, which falls on one side of the real line for every t >= 0: raising the nodes to
    that side makes the error independent of t.

    Args:
        pair: a Poisson-subsampled Gaussian step.
        theta: tilt, >= 0.
        log_moment: log E e^{theta loss}, of the moment that the error is relative to.
        ends: interval of the integral.
        largest_t: largest frequency, >= 0.
        log_tolerance: log of the relative error, < 0.
    """
    raises = _RAISES if largest_t > 0 else _RAISES[:1]
    clear = _CLEAR * np.pi * pair.sigma
    deepest = min(clear, _DEEPEST)
    shapes = [(depth, depth * share) for depth in (deepest * _DEPTHS).tolist() for share in raises.tolist()]
    shapes = [(d, pair.loss_sign * h) for d, h in shapes if d + h <= clear and h <= _HIGHEST_LINE]
    found: list[tuple[bool, float, Strip]] = []
    for strip in strips(pair, ends, shapes, largest_t=largest_t):
        if strip.height and strip.log_integrals(theta) > log_moment + _GROWTH:
            continue
        step = strip.step_for(theta, log_moment + log_tolerance)
        met = strip.log_error(theta, step) <= log_moment + log_tolerance + _MET
        found.append((met, step, strip))
    _, step, strip = max(found, key=lambda each: each[:2])
    return step, strip


def midpoints(ends: tuple[float, float], step: float) -> tuple[np.ndarray, float]:
    """The midpoints of equal steps between the ends, at most `step` long, and their length."""
    count = max(int(np.ceil((ends[1] - ends[0]) / step)), 1)
    length = (ends[1] - ends[0]) / count
    return ends[0] + length * (np.arange(count) + 0.5), length


def noise_cells(pair: SampledGaussian, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses at the edges `u` of cells of the noise, and P and Q of the cells: their masses, and their nearer tails."""
    sides = [(ndtr(u - shift / pair.sigma), ndtr(shift / pair.sigma - u)) for shift in (0.0, 1.0, -1.0)]
    base, up, down = (np.array([between(*each)[1:-1], nearer_tails(*each)]) for each in sides)
    up, down = ((1 - pair.rate) * base + pair.rate * moved for moved in (up, down))
    loss = on_line(pair, u, 1.0, 0.0).loss
    if pair.symmetric:
        return loss, up, down
    return (loss, up, base) if pair.loss_sign > 0 else (loss, base, up)


def mass_outside(pair: SampledGaussian, ends: tuple[float, float]) -> tuple[float, float]:
    """P- and Q-mass of the noise outside of the ends."""
    low, high = ends
    found = [float(ndtr(low - shift / pair.sigma) + ndtr(shift / pair.sigma - high)) for shift in (0.0, 1.0, -1.0)]
    rate = pair.rate
    up, down = ((1 - rate) * found[0] + rate * moved for moved in found[1:])
    if pair.symmetric:
        return up, down
    return (up, found[0]) if pair.loss_sign > 0 else (found[0], up)


def _exponents(pair: SampledGaussian) -> tuple[tuple[float, ...], float]:
    """What a unit of loss adds to the exponents of the mixtures of `_posterior`, and what the P-mass adds to the first.

    Signs are those of the derivative in z: the second mixture falls with z and is divided by.
    """
    if pair.symmetric:
        return (1.0, 1.0), 1.0
    return ((1.0,), 1.0) if pair.loss_sign > 0 else ((-1.0,), 0.0)


@lru_cache(maxsize=64)
def _real_cells(pair: SampledGaussian, ends: tuple[float, float]) -> tuple[np.ndarray, float, np.ndarray]:
    """Middles of cells between the ends, their width, and a bound on the curvature of all mixtures within each."""
    count = max(int(np.ceil((ends[1] - ends[0]) / min(_CELL, _CELL * pair.sigma))), 1)
    if count > 2 * _MOST_NODES:
        raise Unsuitable  # A step is at most 1.2 cells long, so nodes would be too many: all strips ask for gigabytes.
    width = (ends[1] - ends[0]) / count
    u = ends[0] + width * (np.arange(count) + 0.5)
    found = [np.real(w) * (1 - np.real(w)) for w in posterior(pair, u + 0j)]
    return u, width, sum(found, np.zeros(count)) * np.exp(width / 2 / pair.sigma) / pair.sigma**2


_MOST_NODES = 20_000  # More nodes cost more than a lattice.
_LOG_TOLERANCE = -36.0  # log of the relative error of all steps at which a rule aims; what it misses is bounded.
_SPARE = 12.0  # Nodes lighter than that by e^-12 are dropped, and added to the error.
_DECAY, _DECAY_SPARE = -50.0, 8.0  # log of what |phi| of all steps should fall to before the rule's error is reached.
_HEIGHTS = np.array([0.15, 0.35, 0.6, 0.9])  # Heights of the raised lines; any choice gives a bound.
_HIGHEST = 2.0  # Largest height.
_DENSE, _STRIDE = 4000, 4  # Nodes from which on the decay is looked up at every second frequency, and at every fourth.
_LOST = 2.0**-40  # Relative error of the masses outside of the ends: 2^13 units.
_ELLIPSES = np.array([1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0])  # Bernstein ellipses to choose from.
_LOWEST = -np.linspace(6.0, 40.0, 137)  # Lower ends of the noise to try.
_LOG_BELOW = -40.0  # log of what all steps may lose below them, relative to a tilted mass of 1.
_COUNT = 32  # Nodes of one piece.
_EDGES = 400  # Cells of the noise in the bound of the decay at low frequencies.


class SampledGaussianCumulant(StepCumulant):
    """A Poisson-subsampled Gaussian step by the trapezoid rule over its noise."""

    def __init__(
        self,
        pair: SampledGaussian,
        steps: int,
        theta: float,
        largest: float,
        ends: tuple[float, float],
    ):
        self.pair, self.steps, self.theta, self.largest, self.ends = pair, steps, theta, largest, ends
        self.log_tolerance = _LOG_TOLERANCE - np.log(steps)
        self._lost = mass_outside(pair, ends)
        self.left_out = steps * self._lost[0]
        self.real = self._real()
        # Smoothing by more and more asks the same again.
        self.log_moment_bound = lru_cache(maxsize=64)(self._log_moment_bound)
        self._decay: tuple[np.ndarray, np.ndarray] = np.zeros(0), np.zeros(0)
        self.moment = self.log_moment(theta)
        _, self.weights = exponential_tilt(self.real.log_mass, self.real.loss, theta)
        self.mean = float(self.weights @ self.real.loss)

    def _real(self) -> Line:
        """The nodes on the real line."""
        step, self._strip = choose_strip(self.pair, self.theta, 0.0, self.ends, 0.0, self.log_tolerance)
        if (self.ends[1] - self.ends[0]) / step > _MOST_NODES:
            raise Unsuitable
        u, self._step = midpoints(self.ends, step)
        return on_line(self.pair, u, self._step, 0.0)

    def log_moment(self, theta: float) -> float:
        """E_P[e^{theta L} - 1 + theta (e^{-L} - 1)] keeps the digits of small moments, as E_P e^{-L} = 1."""
        loss = self.real.loss
        direct, _ = exponential_tilt(self.real.log_mass, loss, theta)
        if direct_moment(self.real.log_mass, loss, theta, direct):
            return direct
        small = (np.exp(self.real.log_mass) * (np.expm1(theta * loss) + theta * np.expm1(-loss))).sum()
        return float(np.log1p(small - self._lost[0] - theta * (self._lost[0] - self._lost[1])))

    def _miss(self, theta: float) -> float:
        """A bound on the error of the rule in the moment at theta, absolute."""
        return float(np.exp(min(self._strip.log_error(theta, self._step), 700.0)))

    def _log_moment_bound(self, theta: float) -> float:
        """Return log of the moment and of what the rule may miss."""
        value = self.log_moment(theta)
        more = self._miss(theta) + self._identity(theta) + self._beyond(theta)
        return value + float(np.log1p(more * np.exp(min(-value, 700.0))))

    def _beyond(self, theta: float) -> float:
        """What noise that is neither between the ends nor left out adds to the moment at most."""
        return 0.0

    def _identity(self, theta: float) -> float:
        """What E_P 1 = E_P e^{-L} = 1, less the masses outside, miss on the nodes: errors of the rule and of these."""
        p_miss, q_miss = (self._miss(rate) + _LOST * lost for rate, lost in zip((0.0, -1.0), self._lost, strict=True))
        return (1 + abs(theta)) * p_miss + abs(theta) * q_miss

    def rounding(self) -> float:
        """Return `moment_rounding` of the nodes, with what the rule may miss."""
        log_mass, loss = self.real.log_mass, self.real.loss
        miss = self._miss(self.theta) + self._identity(self.theta) + self._beyond(self.theta)
        miss = miss * float(np.exp(-self.moment))
        units = line_units(self.pair, self.real)
        return 2 * miss + moment_rounding(log_mass, loss, self.theta, self.moment, units)

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives, the latter for searches only."""
        _, weights = exponential_tilt(self.real.log_mass, self.real.loss, theta)
        return self.log_moment(theta), *weighted_mean_and_variance(weights, self.real.loss)

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}], and for the last beyond."""
        if not np.array_equal(t, self._decay[0]):
            self._decay = t, self._log_decay(t)
        return self._decay[1]

    def _log_decay(self, t: np.ndarray) -> np.ndarray:
        u = np.linspace(*self.ends, _EDGES + 1)
        loss, (p, p_tail), (q, q_tail) = noise_cells(self.pair, u)
        order = slice(None, None, -1) if loss[0] > loss[-1] else slice(None)
        weights = tilted_masses(p, q, (p_tail, q_tail), self.theta, self.moment)
        decay = log_decay(loss[order], weights[order], t)
        raised = self._raised_decay(t[:-1])
        decay[-1] = 0.0
        return np.minimum(decay, raised)

    def _raised_decay(self, t: np.ndarray) -> np.ndarray:
        """Return log of the sum of |e^{(theta + it) L}| over nodes with Im L >= 0 and of what the rule misses.

        It bounds log |phi| for every t and falls with t (Lemma 6.7).
        """
        bound = np.zeros(len(t))
        wanted, finest = _DECAY / self.steps - _DECAY_SPARE, float(np.mean(self.real.step)) / 4
        scale = min(_HIGHEST, np.pi * self.pair.sigma / 2)
        clear, sign = 0.95 * np.pi * self.pair.sigma, self.pair.loss_sign
        shapes = [(min(height, clear - height), sign * height) for height in (_HEIGHTS * scale).tolist()]
        for strip in strips(self.pair, self.ends, shapes):
            u, step = midpoints(self.ends, max(strip.step_for(self.theta, self.moment + wanted), finest))
            line = on_line(self.pair, u, step, strip.height)
            exponent = np.real(line.log_mass) + self.theta * np.real(line.loss) - self.moment
            stride = min(1 + len(u) // _DENSE, _STRIDE)
            size = np.exp(np.minimum(exponent - np.multiply.outer(t[::stride], np.imag(line.loss)), 700.0)).sum(axis=1)
            size = np.repeat(size, stride)[: len(t)]
            miss = float(np.exp(min(strip.log_error(self.theta, step) - self.moment, 700.0)))
            bound = np.minimum(bound, np.log((size + miss) * (1 + ROUNDED) + np.finfo(float).tiny))
        return bound

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return 2 * len(self.real.u)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        return logarithm_of(*self.change(t, self.mean), self.steps)

    def _line_for(self, frequency: float) -> tuple[Line, float]:
        """The nodes for frequencies up to this one, and what their rule misses, relative to the moment."""
        step, strip = choose_strip(self.pair, self.theta, self.moment, self.ends, frequency, self.log_tolerance)
        if (self.ends[1] - self.ends[0]) / step > _MOST_NODES:
            raise Unsuitable
        u, step = midpoints(self.ends, step)
        miss = float(np.exp(min(strip.log_error(self.theta, step) - self.moment, 700.0)))
        return on_line(self.pair, u, step, strip.height), miss

    def change(self, t: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
        """E_theta e^{it(L - mean)} - 1 of one step, and a bound on its error."""
        line, miss = self._line_for(float(t[-1]))
        units = line_units(self.pair, line)
        exponent = line.log_mass + self.theta * line.loss - self.moment
        relative = units.of_weights(line.log_mass, line.loss, self.theta, self.moment)
        keep = np.real(exponent) > self.log_tolerance - _SPARE
        dropped = float(np.exp(np.real(exponent[~keep])).sum())
        change, error = shifted_sum(
            np.exp(exponent[keep]), line.loss[keep] - mean, t, float(t[1]), relative[keep],
            np.asarray(units.loss + 2 * abs(mean))[keep],
        )  # fmt: skip
        return change, error + 2 * (miss + dropped) + np.abs(change) * self.rounding()


class TruncatedCumulant(SampledGaussianCumulant):
    """A Poisson-subsampled Gaussian step without the noise above a threshold, by Gauss-Legendre rules over the noise.

    There lie its largest losses, or the least where the loss falls with the noise. Such runs are not counted as left
    out: whoever truncates the step accounts for them (Theorem 5.7). The noise below the ends hardly occurs, and
    counts as an error of the moments.
    """

    def __init__(self, pair: SampledGaussian, steps: int, theta: float, threshold: float):
        """The step with the noise up to that of the threshold.

        Args:
            pair: a step.
            steps: independent repetitions, >= 1.
            theta: tilt of the saddle point, > 0.
            threshold: the largest loss, or the least where the loss falls with the noise.

        Raises:
            Unsuitable: the noise has no end below which next to nothing is lost.
        """
        log_cut = _LOG_BELOW - np.log(steps) - np.log1p(theta)
        far = float(pair.noise_at(np.array([threshold]))[0])
        low = next((u for u in _LOWEST.tolist() if _log_beyond(pair, theta, u, -1) < log_cut), None)
        if low is None or low >= far:
            raise Unsuitable
        # Losses that fall with the noise hardly count long before they are cut.
        high = next((u for u in (-_LOWEST).tolist() if u < far and _log_beyond(pair, theta, u, 1) < log_cut), far)
        self._ignored = [(low, -1), *([(high, 1)] if high < far else [])]
        super().__init__(pair, steps, theta, 3 * (theta + 2), (low, high))
        self.left_out = 0.0

    def _beyond(self, theta: float) -> float:
        logs = (min(_log_beyond(self.pair, theta, u, side), 700.0) for u, side in self._ignored)
        return float(sum(np.exp(log) for log in logs))

    def _log_decay(self, t: np.ndarray) -> np.ndarray:
        missed = self._beyond(self.theta) * float(np.exp(-self.moment))
        return np.minimum(np.log(np.exp(super()._log_decay(t)) + missed), 0.0)

    def _real(self) -> Line:
        return self._legendre(0.0)

    def _line_for(self, frequency: float) -> tuple[Line, float]:
        missed = float(np.exp(LOG_TOLERANCE)) + self._beyond(self.theta) * float(np.exp(-self.moment))
        return self._legendre(frequency), missed

    def _legendre(self, frequency: float) -> Line:
        return on_line(self.pair, *legendre_nodes(self.pair, self.ends, self.largest, frequency), 0.0)

    def _miss(self, theta: float) -> float:
        return float(np.exp(min(LOG_TOLERANCE + 1.0 + self.log_moment(theta), 700.0)))


def _log_beyond(pair: SampledGaussian, theta: float, u: float, side: int) -> float:
    """Log of a bound on E_P e^{theta L} of the noise beyond u: its largest loss there, P- or Q-mass by Hoelder's.

    Args:
        pair: a step.
        theta: tilt, >= -1.
        u: end of the noise.
        side: -1 for the noise below u; 1 for that above, where only a loss that falls with the noise has a bound.
    """
    if theta < 0:
        return float(log_ndtr(1 / pair.sigma - side * u))
    falls = side * pair.loss_sign < 0
    largest = float(on_line(pair, np.array([u]), 1.0, 0.0).loss[0]) if falls else pair.largest
    return float(log_ndtr(-side * u)) + theta * largest


def legendre_nodes(
    pair: SampledGaussian, ends: tuple[float, float], theta: float, frequency: float
) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights over the noise for every E_P e^{zL}, |Re z| <= theta, |Im z| <= frequency.

    Pieces are halved until `_COUNT` nodes miss each integral by at most e^`LOG_TOLERANCE` of that at Im z = 0
    (Theorem 6.2b).

    Args:
        pair: a Poisson-subsampled Gaussian step.
        ends: (low, high), the interval of the noise.
        theta: largest |Re z|, >= 0.
        frequency: largest |Im z|, >= 0.

    Raises:
        Unsuitable: too many nodes would be needed.
    """
    rise = (_ELLIPSES - 1 / _ELLIPSES) / 2
    edges = np.linspace(*ends, int(np.ceil((ends[1] - ends[0]) / min(1.0, pair.sigma))) + 1)
    while _COUNT * len(edges) <= _MOST_NODES:
        low, high = edges[:-1], edges[1:]
        far = np.multiply.outer((high - low) / 2, rise)  # No point of an ellipse is farther from its piece.
        slope = _steepest_loss(pair, low, high)[:, None]
        size = np.maximum(np.abs(low), np.abs(high))[:, None] + far
        growth = (high - low)[:, None] * (size + (theta + 1) * slope)
        growth = growth + far * (size + (theta + 1 + frequency) * slope) + far**2 / 2
        growth = np.where(far <= np.pi / 2 * pair.sigma, growth, np.inf)
        wide = (growth + 2.0 - 2 * _COUNT * np.log(_ELLIPSES)).min(axis=1) > LOG_TOLERANCE
        if not wide.any():
            x, weight = gauss_legendre(_COUNT)
            half = (high - low)[:, None] / 2
            return (low[:, None] + half * (1 + x)).ravel(), (half * weight).ravel()
        edges = np.sort(np.append(edges, (low + high)[wide] / 2))
    raise Unsuitable


def _steepest_loss(pair: SampledGaussian, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Bounds on |dL/du| within pi sigma / 2 of each [low, high]."""
    up, down = (steepness(pair.rate, end / pair.sigma - 0.5 / pair.sigma**2) for end in (high, -low))
    return (up + down if pair.symmetric else up) / pair.sigma
