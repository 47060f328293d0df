"""The cumulant of Poisson-subsampled Gaussian steps, alike or of unlike noises, on the nodes of one rule (Lemma 6.8).

With y the exponent of a mixture 1 - p + p e^y, the loss of an add/remove step depends on y alone, and its noise enters
by the normal density of y only. So all steps of a schedule share nodes, losses and the bound on the rule's error, which
is a closed form (THEORY.md, Lemma 6.8). Under replace-one y is the noise over its variance, and losses differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from tacit.accounting.pld.quadrature import ROUNDED, log_decay, log_mix, moment_rounding, shifted_sums, weight_units
from tacit.accounting.pld.rounding import COMPLEX_LOGARITHM, MASS, UNIT, pairwise_units
from tacit.accounting.pld.step_cumulants import StepCumulant, Unsuitable, logarithm_of, nearer_tails, tilted_masses
from tacit.mechanisms.pairs.gaussian import SampledGaussian

_DEPTHS = np.geomspace(0.05, 0.95, 12)  # Depths of strips to try, as shares of the deepest; any depth gives a bound.
_MET = 6.0  # log of how much the ends may add to the error that is aimed at before a shallower strip is taken.
_GROWTH = 5.0  # log of how much larger than the moment a raised integrand may be: two digits of rounding.


@dataclass(frozen=True)
class Schedule:
    """Steps of one kind: noise, rate and count of each, with arrays of shape (steps,), and `bend` of `between`."""

    kind: SampledGaussian
    sigma: np.ndarray
    rate: np.ndarray
    count: np.ndarray
    bend: np.ndarray | float = 0.0

    @classmethod
    def of(cls, members: Sequence[tuple[SampledGaussian, int]]) -> Schedule:
        """The schedule of pairs of one kind with the number of times that they run."""
        sigma, rate = (np.array([getattr(pair, name) for pair, _ in members]) for name in ("sigma", "rate"))
        return cls(members[0][0].kind, sigma, rate, np.array([float(count) for _, count in members]))

    @property
    def shared(self) -> bool:
        """Whether all steps have the same losses at the nodes."""
        return not self.kind.symmetric and bool(np.ptp(self.rate) == 0)

    def between(self, ends: tuple[float, float]) -> Schedule:
        """The same, told that noise lies between these places: largest w (1 - w) there of the mixture divided by."""
        if not self.kind.symmetric and self.kind.loss_sign > 0:
            return self
        exponent = -ends[0] - self.variance[:, 0] / 2 if self.kind.symmetric else ends[1]
        sampled = self.rate * np.exp(np.minimum(exponent, _LARGEST_EXPONENT))
        odds = np.minimum(sampled / np.maximum(1 - self.rate, UNIT), 1.0)
        return replace(self, bend=odds / (1 + odds) ** 2)

    @property
    def variance(self) -> np.ndarray:
        """Variance of y of each step, shape (steps, 1)."""
        return self.sigma[:, None] ** -2.0

    @property
    def shift(self) -> np.ndarray:
        """Minus the mean of y where the record is left out."""
        return np.zeros_like(self.variance) if self.kind.symmetric else self.variance / 2

    def places(self, step: int, ends: tuple[float, float]) -> tuple[float, float]:
        """The y of an interval of noise, in standard deviations, of one step."""
        low, high = (end / float(self.sigma[step]) - float(self.shift[step, 0]) for end in ends)
        return low, high

    def on_line(self, y: np.ndarray, step: np.ndarray | float, height: float) -> tuple[np.ndarray, np.ndarray]:
        """Return log of P-density times step, shape (steps, nodes), and losses, shape (1 or steps, nodes)."""
        z = y + 1j * height
        log_mass = -((z + self.shift) ** 2) / (2 * self.variance) - 0.5 * np.log(2 * np.pi * self.variance / step**2)
        mixed = self._mixes(z)
        loss = mixed[0] - mixed[1] if self.kind.symmetric else self.kind.loss_sign * mixed[0]
        log_mass = log_mass + mixed[0] if self.kind.symmetric or self.kind.loss_sign > 0 else log_mass
        return (log_mass, loss) if height else (np.real(log_mass), np.real(loss))

    def units(self, y: np.ndarray, step: np.ndarray | float, height: float) -> tuple[np.ndarray, np.ndarray]:
        """Units of log masses and of losses at the nodes (Lemma 6.4), shapes of `on_line`.

        Nodes are known to four units and the variance to eight. Under replace-one it moves the mixtures as well.
        """
        z, far = y + 1j * height, float(np.abs(y).max()) + abs(height)
        place = 4 * far + (8 * self.variance if self.kind.symmetric else 0.0)
        loss: np.ndarray = np.zeros((1, len(y)))
        for sign, mixed in zip((1.0, -1.0), self._mixes(z), strict=False):
            exponent = sign * z - self.variance / 2 if self.kind.symmetric else z
            weight = np.exp(np.real(np.log(self._column) + exponent - mixed))
            loss = loss + weight * place + 64 * np.abs(np.expm1(-mixed)) + COMPLEX_LOGARITHM * np.abs(mixed)
        away = np.abs(z + self.shift)
        square = away**2 / (2 * self.variance)
        scale = 8 * np.abs(np.log(2 * np.pi * self.variance / step**2)) + 16
        return MASS + 16 * square + (6 + 4 * far / self.variance) * away + scale + loss, loss

    def masses_outside(self, ends: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
        """P- and Q-masses of each step at places outside of the ends."""
        places = np.array(ends)
        found = [ndtr((places[0] - mean) * self.sigma) + ndtr((mean - places[1]) * self.sigma) for mean in self._means]
        return self._mixed(found)

    def cells(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P and Q of each step between neighbouring places: masses and nearer tails, shape (steps, 2, cells)."""
        found: list[np.ndarray] = []
        for mean in self._means:
            at = (edges - mean[:, None]) * self.sigma[:, None]
            below, above = ndtr(at), ndtr(-at)
            masses = np.where(above[:, :-1] < 0.5, above[:, :-1] - above[:, 1:], below[:, 1:] - below[:, :-1])
            found.append(np.stack([masses, nearer_tails(below, above)], axis=1))
        return self._mixed(found)

    @property
    def _column(self) -> np.ndarray:
        return self.rate[:1, None] if self.shared else self.rate[:, None]

    @property
    def _means(self) -> list[np.ndarray]:
        """Means of y without the record, with it and, under replace-one, with its replacement."""
        base, variance = -self.shift[:, 0], self.variance[:, 0]
        return [base, base + variance, base - variance] if self.kind.symmetric else [base, base + variance]

    def _mixed(self, found: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        rate = self.rate.reshape(-1, *[1] * (found[0].ndim - 1))
        base, *moved = found
        mixed = [np.maximum((1 - rate) * base + rate * one, 0.0) for one in moved]
        if self.kind.symmetric:
            return mixed[0], mixed[1]
        base = np.maximum(base, 0.0)
        return (mixed[0], base) if self.kind.loss_sign > 0 else (base, mixed[0])

    def _mixes(self, z: np.ndarray) -> list[np.ndarray]:
        """Log of each mixture at places z, shape (1 or steps, nodes)."""
        if self.kind.symmetric:
            return [self._log_mix(sign * z - self.variance / 2) for sign in (1.0, -1.0)]
        return [self._log_mix(np.broadcast_to(z, (len(self._column), len(z))))]

    def _log_mix(self, y: np.ndarray) -> np.ndarray:
        if np.ptp(self.rate) == 0:
            return log_mix(float(self.rate[0]), y + 0j)
        return np.stack([log_mix(float(rate), row + 0j) for rate, row in zip(self.rate, y, strict=True)])


@dataclass(frozen=True)
class SharedRule:
    """Nodes on Im y = height, and how far the rule misses a moment: relative to it, and for each unit at its ends.

    The strip reaches from height - depth to height + depth; height is 0, or depth with the sign of the loss (6.8).
    """

    step: float
    depth: float
    height: float

    def growth(self, schedule: Schedule, theta: float) -> np.ndarray:
        """Return log of how much larger the integrand may be in the strip than on the real line, shape (steps,)."""
        top = self.depth + abs(self.height)
        falls = -0.5 * max(theta, 0.0) * np.log1p(-4 * schedule.bend * np.sin(top / 2) ** 2)
        return top**2 / (2 * schedule.variance[:, 0]) + falls

    def relative(self, schedule: Schedule, theta: float) -> np.ndarray:
        """Return bounds on the error relative to the moment, the ends left out, shape (steps,)."""
        exponent = 2 * np.pi * self.depth / self.step
        return 2 * np.exp(np.minimum(self.growth(schedule, theta) - exponent, 700.0)) / -np.expm1(-exponent)

    def at_ends(self, schedule: Schedule, theta: float) -> np.ndarray:
        """Return factors of the two densities at the ends, per unit of y, that add to the error, shape (steps,)."""
        return (self.step + abs(self.height)) * np.exp(np.minimum(self.growth(schedule, theta), 700.0))


def coarsest_rule(
    schedule: Schedule, theta: float, log_tolerance: float, at_ends: np.ndarray, *, raised: bool
) -> SharedRule:
    """The coarsest rule that misses about e^log_tolerance of each moment, best of those whose ends add little to it.

    Args:
        schedule: the steps.
        theta: > 0, the tilt.
        log_tolerance: log of the error that is aimed at, relative to each moment.
        at_ends: tilted densities at the ends, relative to the moments, shape (steps,).
        raised: whether nodes lie on a raised line, where the error does not depend on the frequency.
    """
    most = float(np.sqrt(2 * _GROWTH * schedule.variance.min()))
    depths = np.minimum(_DEPTHS * np.pi / 2, most) if raised else _DEPTHS * np.pi
    found: list[tuple[bool, float, SharedRule]] = []
    for depth in depths.tolist():
        rule = SharedRule(1.0, depth, schedule.kind.loss_sign * depth if raised else 0.0)
        need = float(rule.growth(schedule, theta).max()) + float(np.log(2.0)) - log_tolerance
        rule = replace(rule, step=2 * np.pi * depth / max(need, 1.0))
        met = np.all(rule.at_ends(schedule, theta) * at_ends <= np.exp(log_tolerance + _MET))
        found.append((bool(met), rule.step, rule))
    return max(found, key=lambda each: each[:2])[2]


def midpoints(ends: tuple[float, float], step: float) -> tuple[np.ndarray, float]:
    """The midpoints of equal steps between the ends, at most `step` long, and their length."""
    count = max(int(np.ceil((ends[1] - ends[0]) / step)), 1)
    length = (ends[1] - ends[0]) / count
    return ends[0] + length * (np.arange(count) + 0.5), length


MOST_NODES = 20_000  # More nodes cost more than a lattice.
_LOG_TOLERANCE = -32.0  # log of the relative error of all steps at which a rule aims; what it misses is bounded.
_SPARE = 10.0  # Nodes lighter than that by e^-10 are dropped, and added to the error.
_LARGEST_EXPONENT = 600.0  # Beyond it exponentials of losses overflow, and steps are taken one by one.
_EDGES = 200  # Cells of the places in the bound of the decay at low frequencies.
_BLOCKS = 64  # Blocks of neighbours in that bound; any give one.
_HEIGHTS = np.array([0.15, 0.35, 0.6, 0.9])  # Heights of the raised lines of that bound; any choice gives one.
_HIGHEST = 1.5  # Largest height.
_DECAY, _DECAY_SPARE = -50.0, 10.0  # log of what |phi| of all steps should fall to before the rule's error is reached.
_LOST = 2.0**-40  # Relative error of the masses outside of the ends: 2^13 units.
_VALUES = 1 << 20  # Characteristic functions of so many steps and frequencies at a time, which bounds the memory.


class ScheduleCumulant(StepCumulant):
    """All steps of a schedule as a single one."""

    steps = 1

    def __init__(
        self,
        members: Sequence[tuple[SampledGaussian, int]],
        theta: float,
        largest: float,
        ends: Sequence[tuple[int, tuple[float, float]]],
    ):
        """Nodes between the places of `ends`.

        Args:
            members: pairs of one kind with the number of times that they run, best by growing noise.
            theta: > 0, the tilt.
            largest: the largest tilt that is asked.
            ends: intervals of noise, in standard deviations, that some of the members need, with their indices.

        Raises:
            Unsuitable: nodes would be too many, or moments beyond the doubles.
        """
        self.schedule, self.theta, self.largest = Schedule.of(members), theta, largest
        self.log_tolerance = _LOG_TOLERANCE - float(np.log(self.schedule.count.sum()))
        lows, highs = zip(*(self.schedule.places(step, end) for step, end in ends), strict=True)
        self._ends = min(lows), max(highs)
        self.schedule = self.schedule.between(self._ends)
        self._at_ends = self.schedule.on_line(np.array(self._ends), 1.0, 0.0)
        self._y, self._step = self._real()
        self._log_mass, self._loss = self.schedule.on_line(self._y, self._step, 0.0)
        self._mass = np.exp(self._log_mass)
        self._lost = self.schedule.masses_outside(self._ends)
        self.left_out = float(self.schedule.count @ self._lost[0])
        self._decay: tuple[np.ndarray, np.ndarray] = np.zeros(0), np.zeros(0)
        self.moment = self._moments(theta)
        self._centre = float(self.cumulant_derivatives(theta)[1] / self.schedule.count.sum())

    def _real(self) -> tuple[np.ndarray, np.ndarray | float]:
        """The nodes on the real line, and the steps between them."""
        at_ends = self._end_shares(self.theta, np.zeros(len(self.schedule.sigma)))
        y, self._rule = self._nodes(coarsest_rule(self.schedule, self.theta, self.log_tolerance, at_ends, raised=False))
        return y, self._rule.step

    def _line_for(self, frequency: float) -> tuple[np.ndarray, np.ndarray | float, float, np.ndarray | float]:
        """Nodes for frequencies up to this one, their steps and height, and twice what they miss, as of `_missed`."""
        at_ends = self._end_shares(self.theta, self.moment)
        y, rule = self._nodes(coarsest_rule(self.schedule, self.theta, self.log_tolerance, at_ends, raised=True))
        return y, rule.step, rule.height, 2 * self._missed(rule)

    def _nodes(self, rule: SharedRule) -> tuple[np.ndarray, SharedRule]:
        if (self._ends[1] - self._ends[0]) / rule.step > MOST_NODES:
            raise Unsuitable
        y, step = midpoints(self._ends, rule.step)
        return y, SharedRule(step, rule.depth, rule.height)

    def _change(self, theta: float) -> np.ndarray:
        """e^{theta L} - 1 + theta (e^{-L} - 1), whose expectation is that of e^{theta L} - 1 if no mass is outside."""
        return np.expm1(theta * self._loss) + theta * np.expm1(-self._loss)

    def _overflows(self, theta: float) -> bool:
        return max(theta * float(self._loss.max()), -float(self._loss.min())) > _LARGEST_EXPONENT

    def _moments(self, theta: float) -> np.ndarray:
        """Log moment of each step."""
        if self._overflows(theta):
            exponent = self._log_mass + theta * self._loss
            top = exponent.max(axis=1)
            return top + np.log(np.exp(exponent - top[:, None]).sum(axis=1))
        p_lost, q_lost = self._lost
        return np.log1p(self._expected(self._change(theta)) - p_lost - theta * (p_lost - q_lost))

    def _expected(self, values: np.ndarray) -> np.ndarray:
        """Sum of the P-masses of each step times values at the nodes."""
        return self._mass @ values[0] if len(values) < len(self._mass) else (self._mass * values).sum(axis=1)

    def log_moment(self, theta: float) -> float:
        """Return the sum of the log moments of all steps."""
        return float(self.schedule.count @ self._moments(theta))

    def _miss(self, theta: float) -> np.ndarray | float:
        """Bounds on the error of the rule in the moments at theta, relative to them."""
        relative = self._rule.relative(self.schedule, theta)
        at_ends = self._end_shares(theta, self._moments(theta))
        return (relative + self._rule.at_ends(self.schedule, theta) * at_ends) / np.maximum(1 - relative, UNIT)

    def _end_shares(self, theta: float, moments: np.ndarray) -> np.ndarray:
        """The tilted densities at the ends, relative to the moments."""
        log_mass, loss = self._at_ends
        return np.exp(np.minimum(log_mass + theta * loss - moments[:, None], 700.0)).sum(axis=1)

    def _unsure(self, theta: float) -> np.ndarray:
        """What the nodes miss, relative to the moment, also of E_P 1 = E_P e^{-L} = 1 less the masses outside."""
        p_miss, q_miss = (
            self._miss(rate) * np.exp(self._moments(rate)) + _LOST * lost
            for rate, lost in zip((0.0, -1.0), self._lost, strict=True)
        )
        others = (1 + abs(theta)) * p_miss + abs(theta) * q_miss + self._beyond(theta)
        return self._miss(theta) + others * np.exp(-self._moments(theta))

    def _beyond(self, theta: float) -> float:
        """What noise that is neither between the ends nor left out adds to a moment at most."""
        return 0.0

    def log_moment_bound(self, theta: float) -> float:
        """Return an upper bound on `log_moment`, rounding left out."""
        return float(self.schedule.count @ (self._moments(theta) + np.log1p(self._unsure(theta))))

    def rounding(self) -> float:
        """Return the sum of the bounds on the rounding errors of all steps (Lemma 6.5)."""
        return float(self.schedule.count @ self._roundings)

    @property
    def _roundings(self) -> np.ndarray:
        units = self.schedule.units(self._y, self._step, 0.0)
        sums = 2 * pairwise_units(len(self._y)) + 2 * len(self._y) * (len(units[1]) < len(units[0]))
        direct = self._overflows(self.theta)
        summed = moment_rounding(self._log_mass, self._loss, self.theta, self.moment, units, sums, direct)
        summed += UNIT * len(self.moment) * np.abs(self.moment)  # The sum over the steps.
        return summed + 2 * self._unsure(self.theta)

    def cumulant_derivatives(self, theta: float) -> tuple[float, float, float]:
        """Return `log_moment` with its first two derivatives, the latter for searches only."""
        value = self._moments(theta)
        weights = np.exp(self._log_mass + theta * self._loss - value[:, None])
        mean = (weights * self._loss).sum(axis=1)
        square = (weights * self._loss**2).sum(axis=1)
        count = self.schedule.count
        return float(count @ value), float(count @ mean), float(count @ np.maximum(square - mean**2, 0.0))

    def mean_and_variance(self) -> tuple[float, float]:
        """Return the place around which `log_phi` is taken, and the variance."""
        return float(self._centre * self.schedule.count.sum()), self.cumulant_derivatives(self.theta)[2]

    def log_decay(self, t: np.ndarray) -> np.ndarray:
        """Return an upper bound on log |phi| over each [t_j, t_{j+1}], and for the last beyond.

        Steps that share their losses are bounded in blocks of neighbours, each by the least masses in its cells.
        """
        if not np.array_equal(t, self._decay[0]):  # Smoothing by more and more asks the same again.
            self._decay = t, self._log_decay(t)
        return self._decay[1]

    def _log_decay(self, t: np.ndarray) -> np.ndarray:
        y = np.linspace(*self._ends, _EDGES + 1)
        (p, p_tail), (q, q_tail) = (np.moveaxis(side, 1, 0) for side in self.schedule.cells(y))
        loss = self.schedule.on_line(y, 1.0, 0.0)[1]
        weights = tilted_masses(p, q, (p_tail, q_tail), self.theta, self.moment[:, None])
        if loss[0, 0] > loss[0, -1]:
            loss, weights = loss[:, ::-1], weights[:, ::-1]
        if len(loss) == 1:
            decay = log_decay(loss[0], np.minimum.reduceat(weights, self._blocks, axis=0), t)
        else:
            decay = np.array([log_decay(edges, row, t) for edges, row in zip(loss, weights, strict=True)])
        decay[:, -1] = 0.0
        decay = np.minimum(decay, self._raised_decay(t[:-1]))
        if beyond := self._beyond(self.theta):
            decay = np.minimum(np.log(np.exp(decay) + beyond * float(np.exp(-self.moment.min()))), 0.0)
        return np.add.reduceat(self.schedule.count, self._blocks) @ decay

    @cached_property
    def _blocks(self) -> np.ndarray:
        """The first step of each block: one for each step where losses are not shared."""
        size = max(1, len(self.moment) // _BLOCKS) if self.schedule.shared else 1
        return np.arange(0, len(self.moment), size)

    def _raised_decay(self, t: np.ndarray) -> np.ndarray:
        """Return log of the sums of |e^{(theta + it) L}| over raised nodes and of what the rules miss (Lemma 6.7)."""
        bound = np.zeros((len(self._blocks), len(t)))
        heights = _HEIGHTS if len(bound) == len(self.moment) else _HEIGHTS[::2]
        for height in (heights * min(2 * float(np.median(self.schedule.variance)) ** 0.5, _HIGHEST)).tolist():
            shape = SharedRule(1.0, height, self.schedule.kind.loss_sign * height)
            wanted = _DECAY / float(self.schedule.count.sum()) - _DECAY_SPARE
            need = float(shape.growth(self.schedule, self.theta).min()) - wanted
            step = max(2 * np.pi * height / need, float(np.mean(self._step)) / 4)
            y, rule = self._nodes(SharedRule(step, shape.depth, shape.height))
            log_mass, loss = self.schedule.on_line(y, rule.step, rule.height)
            sizes = np.exp(np.minimum(np.real(log_mass) + self.theta * np.real(loss) - self.moment[:, None], 700.0))
            sizes = np.maximum.reduceat(sizes, self._blocks, axis=0)
            falls = [np.exp(-np.multiply.outer(np.imag(row), t)) for row in loss]
            size = sizes @ falls[0] if len(falls) == 1 else np.stack([a @ b for a, b in zip(sizes, falls, strict=True)])
            miss = np.maximum.reduceat(self._missed(rule), self._blocks)[:, None] * (1 + ROUNDED)
            bound = np.minimum(bound, np.log(size * (1 + ROUNDED) + miss + np.finfo(float).tiny))
        return bound

    def _missed(self, rule: SharedRule) -> np.ndarray:
        """What a raised rule misses of each characteristic function, with what the moments themselves do."""
        relative, at_ends = (bound(self.schedule, self.theta) for bound in (rule.relative, rule.at_ends))
        return relative * (1 + self._unsure(self.theta)) + at_ends * self._end_shares(self.theta, self.moment)

    def nodes(self, frequency: float) -> int:
        """Return the nodes of all steps."""
        return 2 * self._mass.size

    def log_phi(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log phi of all steps at each t, and a bound on its error."""
        value, error = np.zeros(len(t), dtype=complex), np.zeros(len(t))
        for part, change, miss in self.changes(t, self._centre):
            log_phi, slack = logarithm_of(change, miss, self.schedule.count[part, None])
            value += log_phi.sum(axis=0)
            error += (slack + UNIT * (len(self.moment) + 2) * np.abs(log_phi)).sum(axis=0)
        return value, error

    def changes(self, t: np.ndarray, mean: float) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """E_theta e^{it(L - mean)} - 1 of each step, and a bound on its error, for some of the steps at a time."""
        y, step, height, missed = self._line_for(float(t[-1]))
        log_mass, loss = self.schedule.on_line(y, step, height)
        exponent = log_mass + self.theta * loss - self.moment[:, None]
        mass, unsure = self.schedule.units(y, step, height)
        mass = weight_units(log_mass, loss, self.theta, self.moment[:, None], (mass, unsure))
        unsure = unsure + 2 * abs(mean)
        light = np.real(exponent) < self.log_tolerance - _SPARE
        dropped = np.where(light, np.exp(np.real(exponent)), 0.0).sum(axis=1) + missed
        kept = ~light.all(axis=0)
        weights, offset = np.where(light, 0.0, np.exp(exponent))[:, kept], (loss - mean)[:, kept]
        mass, unsure = np.broadcast_to(mass, light.shape)[:, kept], np.broadcast_to(unsure, loss.shape)[:, kept]
        rows, roundings = max(1, _VALUES // len(t)) if len(offset) == 1 else 1, self._roundings
        for start in range(0, len(weights), rows):
            part = slice(start, start + rows)
            own = part if len(offset) > 1 else slice(None)
            change, miss = shifted_sums(weights[part], offset[own][0], t, float(t[1]), mass[part], unsure[own][0])
            yield part, change, miss + dropped[part, None] + np.abs(change) * roundings[part, None]
