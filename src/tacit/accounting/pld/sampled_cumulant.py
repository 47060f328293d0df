"""The cumulant of a Poisson-subsampled Gaussian step, by the trapezoid rule over its noise."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tacit.accounting.pld.decay import ROUNDED, log_decay, tilted_masses
from tacit.accounting.pld.node_sums import direct_moment, line_units, moment_rounding, shifted_sum
from tacit.accounting.pld.quadrature import TailWeight, on_line
from tacit.accounting.pld.step_cumulants import StepCumulant, Unsuitable, logarithm_of
from tacit.accounting.pld.trapezoid import choose_strip, mass_outside, midpoints, noise_cells, strips
from tacit.mechanisms.pairs import SampledGaussian
from tacit.mechanisms.pairs.base import exponential_tilt, weighted_mean_and_variance

_MOST_NODES = 20_000  # More nodes cost more than a lattice.
_LOG_TOLERANCE = -36.0  # log of the relative error of all steps at which a rule aims; what it misses is bounded.
_SPARE = 12.0  # Nodes lighter than that by e^-12 are dropped, and added to the error.
_DECAY, _DECAY_SPARE = -50.0, 8.0  # log of what |phi| of all steps should fall to before the rule's error is reached.
_HEIGHTS = np.array([0.15, 0.35, 0.6, 0.9])  # Heights of the raised lines; any choice gives a bound.
_HIGHEST, _SOFT = 2.0, 6.0  # Largest height, also as a multiple of the softness of a weight.
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
        *,
        tail_weight: TailWeight | None = None,
        log_moment: float = 0.0,
    ):
        self.pair, self.steps, self.theta, self.largest, self.ends, self.tail_weight = (
            pair,
            steps,
            theta,
            largest,
            ends,
            tail_weight,
        )
        self.log_tolerance = _LOG_TOLERANCE - np.log(steps)
        step, self._strip = choose_strip(pair, theta, log_moment, ends, 0.0, self.log_tolerance, tail_weight)
        if (ends[1] - ends[0]) / step > _MOST_NODES:
            raise Unsuitable
        u, step = midpoints(ends, step)
        self._lost = mass_outside(pair, ends, tail_weight)
        self.left_out = steps * self._lost[0]
        self.real = on_line(pair, u, step, 0.0, tail_weight=tail_weight)
        # Smoothing by more and more asks the same again.
        self.log_moment_bound = lru_cache(maxsize=64)(self._log_moment_bound)
        self._decay: tuple[np.ndarray, np.ndarray] = np.zeros(0), np.zeros(0)
        self.moment = self.log_moment(theta)
        _, self.weights = exponential_tilt(self.real.log_mass, self.real.loss, theta)
        self.mean = float(self.weights @ self.real.loss)

    def log_moment(self, theta: float) -> float:
        """E_P[e^{theta L} - 1 + theta (e^{-L} - 1)] keeps the digits of small moments, as E_P e^{-L} = 1."""
        loss = self.real.loss
        direct, _ = exponential_tilt(self.real.log_mass, loss, theta)
        if self.tail_weight or direct_moment(self.real.log_mass, loss, theta, direct):
            return direct
        return float(np.log1p((np.exp(self.real.log_mass) * (np.expm1(theta * loss) + theta * np.expm1(-loss))).sum()))

    def _miss(self, theta: float) -> float:
        """A bound on the error of the rule in the moment at theta, absolute."""
        return float(np.exp(min(self._strip.log_error(theta, self.real.step), 700.0)))

    def _log_moment_bound(self, theta: float) -> float:
        """Return log of the moment and of what the rule may miss."""
        value = self.log_moment(theta)
        more = self._miss(theta) + self._identity(theta)
        return value + float(np.log1p(more * np.exp(min(-value, 700.0))))

    def _identity(self, theta: float) -> float:
        """What E_P 1 = E_P e^{-L} = 1 miss on the nodes: the rule's error and the masses outside of its ends."""
        p_miss, q_miss = (self._miss(rate) + lost for rate, lost in zip((0.0, -1.0), self._lost, strict=True))
        return 0.0 if self.tail_weight else (1 + abs(theta)) * p_miss + abs(theta) * q_miss

    def rounding(self) -> float:
        """Return `moment_rounding` of the nodes, with what the rule may miss."""
        log_mass, loss = self.real.log_mass, self.real.loss
        miss = (self._miss(self.theta) + self._identity(self.theta)) * float(np.exp(-self.moment))
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
        share = self.tail_weight.log_least(u) if self.tail_weight else np.zeros(_EDGES)
        order = slice(None, None, -1) if loss[0] > loss[-1] else slice(None)
        weights = tilted_masses(p, q, (p_tail, q_tail), self.theta, self.moment - share)
        decay = log_decay(loss[order], weights[order], t)
        raised = self._raised_decay(t[:-1])
        decay[-1] = 0.0
        return np.minimum(decay, raised)

    def _raised_decay(self, t: np.ndarray) -> np.ndarray:
        """Return log of the sum of |e^{(theta + it) L}| over nodes with Im L >= 0 and of what the rule misses.

        It bounds log |phi| for every t and falls with t (Lemma 6.7).
        """
        bound = np.zeros(len(t))
        # Runs of a large loss are a sum over steps, other ones a product.
        wanted = (_DECAY if self.tail_weight else _DECAY / self.steps) - _DECAY_SPARE
        scale = min(_HIGHEST, np.pi * self.pair.sigma / 2)
        scale = min(scale, _SOFT * self.tail_weight.softness) if self.tail_weight else scale
        clear, sign = 0.95 * np.pi * self.pair.sigma, self.pair.loss_sign
        shapes = [(min(height, clear - height), sign * height) for height in (_HEIGHTS * scale).tolist()]
        for strip in strips(self.pair, self.ends, shapes, tail_weight=self.tail_weight):
            u, step = midpoints(self.ends, max(strip.step_for(self.theta, self.moment + wanted), self.real.step / 4))
            line = on_line(self.pair, u, step, strip.height, tail_weight=self.tail_weight)
            exponent = np.real(line.log_mass) + self.theta * np.real(line.loss) - self.moment
            size = np.exp(np.minimum(exponent - np.multiply.outer(t, np.imag(line.loss)), 700.0)).sum(axis=1)
            miss = float(np.exp(min(strip.log_error(self.theta, step) - self.moment, 700.0)))
            bound = np.minimum(bound, np.log((size + miss) * (1 + ROUNDED) + np.finfo(float).tiny))
        return bound

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return 2 * len(self.real.u)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        return logarithm_of(*self.change(t, self.mean), self.steps)

    def change(self, t: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
        """E_theta e^{it(L - mean)} - 1 of one step, and a bound on its error."""
        step, strip = choose_strip(
            self.pair, self.theta, self.moment, self.ends, float(t[-1]), self.log_tolerance, self.tail_weight
        )
        if (self.ends[1] - self.ends[0]) / step > _MOST_NODES:
            raise Unsuitable
        u, step = midpoints(self.ends, step)
        line = on_line(self.pair, u, step, strip.height, tail_weight=self.tail_weight)
        units = line_units(self.pair, line)
        exponent = line.log_mass + self.theta * line.loss - self.moment
        relative = units.of_weights(line.log_mass, line.loss, self.theta, self.moment)
        keep = np.real(exponent) > self.log_tolerance - _SPARE
        dropped = float(np.exp(np.real(exponent[~keep])).sum())
        change, error = shifted_sum(
            np.exp(exponent[keep]), line.loss[keep] - mean, t, float(t[1]), relative[keep],
            np.asarray(units.loss + 2 * abs(mean))[keep],
        )  # fmt: skip
        miss = float(np.exp(min(strip.log_error(self.theta, step) - self.moment, 700.0))) + dropped
        return change, error + 2 * miss + np.abs(change) * self.rounding()
