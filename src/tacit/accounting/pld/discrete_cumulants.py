"""Cumulants of steps with finitely many losses, and of a step that is one of two, picked by a coin both sides see.

Cumulants of the steps of a composition at one tilt, one class for each kind of pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from tacit.accounting.pld.quadrature import (
    SMALL_MOMENT,
    direct_moment,
    log_decay,
    moment_rounding,
    reach,
    shifted_sums,
    weight_units,
)
from tacit.accounting.pld.rounding import FUNCTION, MASS, UNIT, mass_units, pairwise_units
from tacit.accounting.pld.saddle_point import Summand
from tacit.accounting.pld.schedule_cumulant import ScheduleCumulant
from tacit.accounting.pld.step_cumulants import (
    GaussianCumulant,
    StepCumulant,
    Unsuitable,
    logarithm_of,
    tilted_masses,
)
from tacit.mechanisms.pairs.base import (
    LOG_TOLERANCE,
    MixedPair,
    Nodes,
    Pair,
    exponential_tilt,
    weighted_mean_and_variance,
)
from tacit.mechanisms.pairs.gaussian import GaussianPair, SampledGaussian


@dataclass(frozen=True)
class DiscreteLoss(Summand):
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
        log_p, loss = np.log(self.real.p[self.real.p > 0]), self.real.loss[self.real.p > 0]
        units, summed = self._units(log_p, self.real.loss), 2 * pairwise_units(len(loss))
        direct = direct_moment(log_p, loss, self.theta, self.moment) or not self.moment
        rounding = moment_rounding(log_p, loss, self.theta, np.array(self.moment), units, summed, direct)
        # Masses that are missing from a small moment move it, too.
        return float(np.exp(LOG_TOLERANCE)) * (3 + 3 * self.theta) + float(rounding) + UNIT * FUNCTION * (not direct)

    def _units(self, log_p: np.ndarray, loss: np.ndarray) -> tuple[np.ndarray, float]:
        """What masses and losses of the pair's nodes lose: those of its tables or closed forms."""
        moved = self.pair.edge_error(float(np.abs(loss).max(initial=0.0))) / UNIT
        return mass_units(np.exp(log_p)), moved

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
            units = self._units(log_p, loss)
            mass = weight_units(log_p, loss, self.theta, self.moment, units)
            block, moved = slice(start, stop), units[1] + 2 * abs(self.mean)
            (value[block],), (size[block],) = shifted_sums(
                weights[None], loss - self.mean, t[block], float(t[1]), mass[None], moved
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

    def __init__(self, usual: ScheduleCumulant, rare: ScheduleCumulant, share: float):
        """Both are the cumulants of as many steps, each of one kind."""
        self._cumulants, self._shares = (usual, rare), np.array([1 - share, share])
        self.steps, self.theta = int(usual.schedule.count.sum()), usual.theta
        self.largest = min(usual.largest, rare.largest)
        self.left_out = (1 - share) * usual.left_out + share * rare.left_out
        self.moment = self.log_moment(self.theta)
        self.mean = self.cumulant_derivatives(self.theta)[1]

    def _each(self, asked: Callable[[ScheduleCumulant], Any]) -> np.ndarray:
        """What both cumulants answer, for one step."""
        return np.array([asked(cumulant) for cumulant in self._cumulants]) / self.steps

    def _weights(self, theta: float) -> np.ndarray:
        moments = self._each(lambda cumulant: cumulant.log_moment(theta))
        return np.exp(np.log(self._shares) + moments - self._mixed(moments))

    def log_moment(self, theta: float) -> float:
        """Return log E_P e^{theta L} of one step."""
        return self._mixed(self._each(lambda cumulant: cumulant.log_moment(theta)))

    def _mixed(self, moments: np.ndarray) -> float:
        if moments.max() > SMALL_MOMENT:
            return float(np.logaddexp(*(np.log(self._shares) + moments)))
        return float(np.log1p(self._shares @ np.expm1(moments)))

    def log_moment_bound(self, theta: float) -> float:
        """Return the mixture of the bounds of both."""
        return self._mixed(self._each(lambda cumulant: cumulant.log_moment_bound(theta)))

    def rounding(self) -> float:
        """Return the larger of the two, with units for the mixture itself."""
        return float(self._each(lambda cumulant: cumulant.rounding()).max()) + UNIT * _MIXED * (1 + abs(self.moment))

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives."""
        weights = self._weights(theta)
        _, means, variances = self._each(lambda cumulant: cumulant.cumulant_derivatives(theta)).T
        mean = float(weights @ means)
        return self.log_moment(theta), mean, float(weights @ (variances + (means - mean) ** 2))

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}]."""
        decays = self._each(lambda cumulant: cumulant.log_decay(t))
        return np.minimum(np.logaddexp(*(np.log(self._weights(self.theta))[:, None] + decays)), 0.0)

    def nodes(self, frequency: float) -> int:
        """Return the finite losses with their masses."""
        return sum(cumulant.nodes(frequency) for cumulant in self._cumulants)

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        change, error = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        for weight, cumulant in zip(self._weights(self.theta), self._cumulants, strict=True):
            ((_, (value,), (miss,)),) = cumulant.changes(t, self.mean)
            change += weight * value
            error += weight * miss
        return logarithm_of(change, error + np.abs(change) * UNIT * _MIXED, self.steps)


SampledSteps = list[tuple[SampledGaussian, int]]
"""Sampled Gaussians with the number of times that they run."""
_FEW = 3  # From so many sampled Gaussians of a kind on, one set of nodes costs less than one each.
_PANEL = 0.5  # Width of a panel in log noise, a factor of 1.65: wider ones need more nodes.
_LEAST_DELTA = -700.0  # log of delta below which, or where none is known, no more noise is covered.
_WIDEST = 2000.0  # Longest interval of noise, in units of min(1, sigma), whose nodes a line can afford.


def grouped(members: SampledSteps, key: Callable[[SampledGaussian], Hashable]) -> list[SampledSteps]:
    """The members of each key together."""
    groups: dict[Hashable, SampledSteps] = {}
    for pair, steps in members:
        groups.setdefault(key(pair), []).append((pair, steps))
    return list(groups.values())


def cumulants_of(
    parts: Sequence[tuple[Pair, int]], theta: float, log_delta: float, *, limited: bool = False
) -> list[StepCumulant]:
    """Return the cumulant of every part at one tilt, several sampled Gaussians of a kind as one.

    Args:
        parts: pairs with the number of times that they run.
        theta: > 0, the tilt.
        log_delta: log of the delta in question; P-masses far below it may be left out.
        limited: take discrete Gaussians for continuous ones, up to the frequency where that ends.

    Raises:
        Unsuitable: some part has no cumulant at a reasonable cost.
    """
    found: list[StepCumulant] = []
    singles, panels = _panels(parts)
    for pair, steps in singles:
        gaussian, limit = pair.gaussian_limit() if limited else (pair, np.inf)
        found.append(_cumulant(gaussian, steps, theta, log_delta))
        found[-1].limit = limit
    return found + [_schedule(panel, theta, log_delta) for panel in panels]


def _panels(parts: Sequence[tuple[Pair, int]]) -> tuple[list[tuple[Pair, int]], list[SampledSteps]]:
    """Return the parts that are taken one by one, and the sampled Gaussians of a kind and of similar noise.

    Those of one rate share their losses, others only their nodes.
    """
    sampled = [(pair, steps) for pair, steps in parts if isinstance(pair, SampledGaussian)]
    singles = [(pair, steps) for pair, steps in parts if not isinstance(pair, SampledGaussian)]
    many = Counter((pair.kind, pair.rate) for pair, _ in sampled)
    panels: list[SampledSteps] = []
    for members in grouped(sampled, lambda pair: (pair.kind, pair.rate * (many[pair.kind, pair.rate] >= _FEW))):
        least = min(np.log(pair.sigma) for pair, _ in members)
        for cell in grouped(members, lambda pair, least=least: np.floor((np.log(pair.sigma) - least) / _PANEL)):
            if len(cell) >= _FEW:
                panels.append(cell)
            else:
                singles.extend(cell)
    return singles, panels


def _schedule(members: SampledSteps, theta: float, log_delta: float) -> StepCumulant:
    """Return the cumulant of a panel, with the places that its corners need."""
    members = sorted(members, key=lambda member: member[0].sigma)
    steps = sum(count for _, count in members)
    sigma, rate = ([getattr(pair, name) for pair, _ in members] for name in ("sigma", "rate"))
    corners = {int(find(values)) for values in (sigma, rate) for find in (np.argmin, np.argmax)}
    largest, ends = zip(*(_covered(members[k][0], steps, theta, log_delta) for k in corners), strict=True)
    return ScheduleCumulant(members, theta, min(largest), list(zip(corners, ends, strict=True)))


@singledispatch
def _cumulant(pair: Pair, steps: int, theta: float, log_delta: float) -> StepCumulant:
    return DiscreteCumulant(pair, steps, theta, _log_ignored(steps, log_delta))


@_cumulant.register
def _(pair: GaussianPair, steps: int, theta: float, log_delta: float) -> StepCumulant:
    return GaussianCumulant(pair.mu * steps**0.5, theta)


@_cumulant.register
def _(pair: MixedPair, steps: int, theta: float, log_delta: float) -> StepCumulant:
    usual, rare = (_cumulant(one, steps, theta, log_delta) for one in (pair.usual, pair.rare))
    if not (isinstance(usual, ScheduleCumulant) and isinstance(rare, ScheduleCumulant)):
        raise Unsuitable
    return MixtureCumulant(usual, rare, pair.share)


@_cumulant.register
def _(pair: SampledGaussian, steps: int, theta: float, log_delta: float) -> StepCumulant:
    largest, ends = _covered(pair, steps, theta, log_delta)
    return ScheduleCumulant([(pair, steps)], theta, largest, [(0, ends)])


def _covered(pair: SampledGaussian, steps: int, theta: float, log_delta: float) -> tuple[float, tuple[float, float]]:
    """Return the largest tilt that is affordable and the noise, in standard deviations, that it needs."""
    log_cut, log_ignored = _log_cut(steps), _log_ignored(steps, log_delta)
    own = reach(pair, theta, log_cut, log_ignored)
    if own is None or own[1] - own[0] > _WIDEST * min(1.0, pair.sigma):
        raise Unsuitable
    for largest in (3 * theta + 5, 2 * theta + 3, 1.5 * theta, 1.2 * theta, 1.05 * theta):
        ends = reach(pair, largest, log_cut, log_ignored)
        if ends is not None and ends[1] - ends[0] < min(20 + 2 * (own[1] - own[0]), _WIDEST * min(1.0, pair.sigma)):
            ends = (min(own[0], ends[0]), max(own[1], ends[1]))
            return largest, ends
    return theta, own


def _log_cut(steps: int) -> float:
    """Return log of a share of one step that `steps` may lose: e^-38 = 3e-17 is below a rounding unit."""
    return -38.0 - np.log(steps)


def _log_ignored(steps: int, log_delta: float) -> float:
    """Return log of the P-mass of one step that does not matter at this delta."""
    known = max(min(log_delta, 0.0), _LEAST_DELTA) if np.isfinite(log_delta) else _LEAST_DELTA
    return known + _log_cut(steps)
