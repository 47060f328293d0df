"""Cumulants of steps with finitely many losses, and of a step that is one of two, picked by a coin both sides see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.accounting.pld.decay import log_decay, tilted_masses
from tacit.accounting.pld.node_sums import SMALL_MOMENT, NodeUnits, direct_moment, moment_rounding, shifted_sum
from tacit.accounting.pld.rounding import FUNCTION, MASS, UNIT, mass_units
from tacit.accounting.pld.sampled_cumulant import SampledGaussianCumulant
from tacit.accounting.pld.step_cumulants import (
    StepCumulant,
    Unsuitable,
    logarithm_of,
)
from tacit.mechanisms.pairs import Nodes, Pair
from tacit.mechanisms.pairs.base import LOG_TOLERANCE, exponential_tilt, weighted_mean_and_variance


@dataclass(frozen=True)
class DiscreteLoss:
    """Losses with the log of their P-masses, run `steps` times."""

    losses: np.ndarray
    log_masses: np.ndarray
    steps: int

    def above(self, log_floor: float) -> DiscreteLoss:
        """Without the masses below a floor, which must not be all of them."""
        keep = self.log_masses > min(log_floor, float(self.log_masses.max()) - 1.0)
        return DiscreteLoss(self.losses[keep], self.log_masses[keep], self.steps)

    def tilt(self, theta: float) -> tuple[float, np.ndarray]:
        """Return log sum p e^{theta loss} of one step, and the tilted probabilities."""
        return exponential_tilt(self.log_masses, self.losses, theta)

    def log_moment(self, theta: float) -> float:
        """Return log sum p e^{theta loss} of one step."""
        return self.tilt(theta)[0]

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        log_total, weights = self.tilt(theta)
        return log_total, *weighted_mean_and_variance(weights, self.losses)


_MIXED = 2 * (MASS + FUNCTION)  # Units of a mixture's logarithm besides those of its two.
_MOST = 40_000  # Nodes at most.
_FIRST = 256  # Frequencies that share one set of nodes at least.
_EDGES = 600  # Bins in the bound of the decay.


class DiscreteCumulant(StepCumulant):
    """A step by `Pair.nodes`. Its characteristic function need not decay: atoms keep it up at every frequency."""

    def __init__(self, pair: Pair, steps: int, theta: float, log_ignored: float = -np.inf):
        """Atoms beyond all but e^`log_ignored` of the P-mass are left out where a high tilt would see nothing else.

        Args:
            pair: the step's dominating pair.
            steps: independent repetitions, >= 1.
            theta: tilt of the saddle point, > 0.
            log_ignored: log of the P-mass that may be left out; -inf keeps everything.
        """
        self.pair, self.steps, self.theta = pair, steps, theta
        self.largest = 3 * theta + 5
        self._kept = _without_far_tail(pair, self.largest, log_ignored)
        self._ignored = (0.0, 0.0) if self._kept is None else _beyond(pair, float(self._kept.loss[-1]))
        self.left_out = steps * self._ignored[0]
        self.real = self._nodes(0.0)
        self.moment = self.log_moment(theta)
        self.mean, self.variance = self.cumulant_derivatives(theta)[1:]

    def _nodes(self, frequency: float) -> Nodes:
        if self._kept is not None:
            return self._kept
        try:
            nodes = self.pair.nodes(self.largest, frequency)
        except OverflowError:
            raise Unsuitable from None
        if nodes is None or len(nodes.loss) > _MOST:
            raise Unsuitable
        return nodes

    def log_moment(self, theta: float) -> float:
        """The digits of small moments are kept by sum p and sum p e^{-loss}, which are 1 less the lost masses."""
        loss, p, _ = self.real.columns
        direct = self.real.log_moment(theta)
        with np.errstate(divide="ignore"):
            if direct_moment(np.log(p), loss, theta, direct):
                return direct
        with np.errstate(over="ignore", invalid="ignore"):
            small = float((p * (np.expm1(theta * loss) + theta * np.expm1(-loss))).sum())
        p_lost, q_lost = self.pair.infinity_mass + self._ignored[0], self.pair.negative_infinity_mass + self._ignored[1]
        lost = p_lost + theta * (p_lost - q_lost)
        return float(np.log1p(small - lost)) if np.isfinite(small) else direct

    def rounding(self) -> float:
        """Return `moment_rounding` of the nodes that have mass."""
        loss, p, _ = self.real.columns
        quadrature = float(np.exp(LOG_TOLERANCE)) * (3 + 3 * self.theta)
        return quadrature + moment_rounding(
            np.log(p[p > 0]), loss[p > 0], self.theta, self.moment, self._units(p[p > 0], loss)
        )

    def _units(self, p: np.ndarray, loss: np.ndarray) -> NodeUnits:
        """What masses and losses of the pair's nodes lose: those of its tables or closed forms."""
        moved = self.pair.edge_error(float(np.abs(loss).max(initial=0.0))) / UNIT
        return NodeUnits(mass_units(p), moved)

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        _, weights = self.real.tilt(theta)
        return self.log_moment(theta), *weighted_mean_and_variance(weights, self.real.loss)

    def mean_and_variance(self) -> tuple[float, float]:
        """Return mean and variance of the tilted loss."""
        return self.mean, self.variance

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}], by the tilted masses of bins.

        A bin of masses p and q has the tilted mass E_Q[e^{(theta + 1) L}] >= q (p / q)^(theta + 1), as that is convex.
        """
        deviation = self.variance**0.5
        near = self.mean + deviation * np.linspace(-8, 8, _EDGES)
        edges = np.unique(np.concatenate([near, np.sort(self.real.loss)[:: max(len(self.real.loss) // _EDGES, 1)]]))
        if self._kept is not None:  # Atoms that the law leaves out would make it look as if it decayed.
            edges = np.append(edges[edges < self.real.loss[-1]], self.real.loss[-1])
        masses = self.pair.bin_masses(edges)
        # A table adds up masses, which loses no digits.
        tails = [np.zeros(len(edges) - 1) if self.pair.table is not None else _tails(mass)[1:-1] for mass in masses]
        p, q = (mass[1:-1] for mass in masses)
        weights = tilted_masses(p, q, (tails[0], tails[1]), self.theta, self.moment)
        moved = self.pair.edge_error(float(np.abs(edges).max()))
        decay = log_decay(edges, weights, t * (1 + moved))
        decay[-1] = 0.0  # Nothing is claimed for the frequencies beyond, which the last cell stands for.
        return decay

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return len(self._nodes(frequency).loss)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        value, size = np.empty(len(t), dtype=complex), np.empty(len(t))
        start = 0
        while start < len(t):
            stop = max(int(np.searchsorted(t, 2 * t[start])), start + _FIRST)
            nodes = self._nodes(float(t[min(stop, len(t)) - 1]))
            kept = nodes.p > 0
            log_p, loss = np.log(nodes.p[kept]), nodes.loss[kept]
            weights = np.exp(log_p + self.theta * loss - self.moment)
            units = self._units(nodes.p[kept], loss)
            relative = units.of_weights(log_p, loss, self.theta, self.moment)
            block = slice(start, stop)
            value[block], size[block] = shifted_sum(
                weights, loss - self.mean, t[block], float(t[1]), relative, units.loss + 2 * abs(self.mean)
            )
            start = stop
        error = size + 2 * float(np.exp(LOG_TOLERANCE)) + np.abs(value) * self.rounding()
        return logarithm_of(value, error, self.steps)


def _tails(masses: np.ndarray) -> np.ndarray:
    """The smaller of the two tails that each bin belongs to."""
    return np.minimum(np.cumsum(masses), np.cumsum(masses[::-1])[::-1])


def _without_far_tail(pair: Pair, largest: float, log_ignored: float) -> Nodes | None:
    """The atoms of a table up to where P-mass e^`log_ignored` is left; None where that hardly changes any moment."""
    if pair.table is None or log_ignored == -np.inf:
        return None
    loss, p, q = pair.table
    kept = int(np.searchsorted(-np.cumsum(p[::-1])[::-1], -np.exp(log_ignored)))
    with np.errstate(divide="ignore"):
        exponent = np.log(p) + largest * loss
    if not 0 < kept < len(p) or exponent[kept:].max() < exponent[:kept].max() + LOG_TOLERANCE:
        return None
    return Nodes(loss[:kept], p[:kept], q[:kept])


def _beyond(pair: Pair, loss: float) -> tuple[float, float]:
    """P- and Q-mass of the finite losses above `loss`."""
    p, q = pair.bin_masses(np.array([loss]))
    return float(p[1]), float(q[1])


class MixtureCumulant(StepCumulant):
    """E e^{zL} = (1 - share) E_usual e^{zL} + share E_rare e^{zL}, of two sampled Gaussians at the same tilt."""

    def __init__(self, usual: SampledGaussianCumulant, rare: SampledGaussianCumulant, share: float):
        self._cumulants, self._shares = (usual, rare), np.array([1 - share, share])
        self.steps, self.theta = usual.steps, usual.theta
        self.largest = min(usual.largest, rare.largest)
        self.left_out = (1 - share) * usual.left_out + share * rare.left_out
        self.moment = self.log_moment(self.theta)
        self.mean = self.cumulant_derivatives(self.theta)[1]

    def _weights(self, theta: float) -> np.ndarray:
        moments = np.array([cumulant.log_moment(theta) for cumulant in self._cumulants])
        return np.exp(np.log(self._shares) + moments - self.log_moment(theta))

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        moments = np.array([cumulant.log_moment(theta) for cumulant in self._cumulants])
        return self._mixed(moments)

    def _mixed(self, moments: np.ndarray) -> float:
        if moments.max() > SMALL_MOMENT:
            return float(np.logaddexp(*(np.log(self._shares) + moments)))
        return float(np.log1p(self._shares @ np.expm1(moments)))

    def log_moment_bound(self, theta: float) -> float:
        """Return the mixture of the bounds of both."""
        return self._mixed(np.array([cumulant.log_moment_bound(theta) for cumulant in self._cumulants]))

    def rounding(self) -> float:
        """Return the larger of the two, with units for the mixture itself."""
        return max(each.rounding() for each in self._cumulants) + UNIT * _MIXED * (1 + abs(self.moment))

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        weights, derivatives = (
            self._weights(theta),
            [cumulant.cumulant_derivatives(theta) for cumulant in self._cumulants],
        )
        means, variances = (np.array([cumulant_derivatives[k] for cumulant_derivatives in derivatives]) for k in (1, 2))
        mean = float(weights @ means)
        return self.log_moment(theta), mean, float(weights @ (variances + (means - mean) ** 2))

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        parts = [
            np.log(w) + cumulant.log_decay(t)
            for w, cumulant in zip(self._weights(self.theta), self._cumulants, strict=True)
        ]
        return np.minimum(np.logaddexp(*parts), 0.0)

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return sum(cumulant.nodes(frequency) for cumulant in self._cumulants)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        change, error = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        for weight, cumulant in zip(self._weights(self.theta), self._cumulants, strict=True):
            value, miss = cumulant.change(t, self.mean)
            change += weight * value
            error += weight * miss
        return logarithm_of(change, error + np.abs(change) * UNIT * _MIXED, self.steps)
