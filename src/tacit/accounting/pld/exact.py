"""Exact engines for one step, two steps, and few steps with few atoms.

`Single`: delta is read off the masses above epsilon.

`Double`: delta(epsilon) = E_{L1} H_2(epsilon - L1), H_2 the exact delta of the second step alone. The outcomes of the
first step are put into bins of its loss. Merging a bin into one outcome gives a lower bound (data processing). Moving
its P- and Q-masses to the two ends of the bin, which keeps both, gives an upper one. Both meet the truth to second
order in the width of the bins, which are cut where the two differ most.

`Enumerated`: the sum over every pair of outcomes of a first and a second half of the run.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.accounting.pld.discrete_cumulants import DiscreteLoss
from tacit.accounting.pld.rounding import FUNCTION, MASS, UNIT, mass_units, pairwise_units, tail_units, tails
from tacit.accounting.pld.saddle_point import SMALLEST
from tacit.mechanisms.pairs import Pair
from tacit.root_finding import bisect


class Single:
    """delta(epsilon) = P(L > epsilon) - e^epsilon Q(L > epsilon) (THEORY.md, Theorem 3.1)."""

    theta = 1.0
    epsilon = 1.0

    def __init__(self, pair: Pair):
        self._pair = pair

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """The value with its rounding error, that of the place of epsilon included."""
        moved = self._pair.edge_error(abs(epsilon))
        p, q = self._pair.bin_masses(np.array([epsilon - moved, epsilon, epsilon + moved]))
        above_p, above_q, near = float(p[2] + p[3]), float(q[2] + q[3]), float(p[1] + p[2])
        given = float(np.exp(min(epsilon, 700.0))) * above_q if above_q else 0.0
        value = above_p - given
        error = UNIT * (_tail_units(self._pair, above_p) * above_p + _tail_units(self._pair, above_q) * given)
        if above_q < SMALLEST:
            log_q, miss = self._pair.log_q_above(epsilon)
            # Anything from none to all of P's mass may be given where even the logarithm is not known.
            given = min(float(np.exp(min(epsilon + log_q, 1.0))), above_p)
            lost = min(given * float(np.expm1(miss)), above_p) if miss < 1 else above_p
            value, error = above_p - given, UNIT * _tail_units(self._pair, above_p) * above_p + lost
        infinity_mass = self._pair.infinity_mass
        error += 2 * moved * near
        return float(infinity_mass + max(value - error, 0.0)), float(min(infinity_mass + value + error, 1.0))


def _tail_units(pair: Pair, mass: float) -> float:
    """Units of the relative error of a tail mass and of its product with e^epsilon (Lemma 2.4)."""
    added = len(pair.table[0]) if pair.table is not None else 0
    return float(mass_units(mass)) + FUNCTION + MASS + added


_CLOSE = 1.5e-7  # Relative width at which bins are no longer cut.
ROUGHLY = 1e-5  # The same for the many epsilons of a profile.
_SLACK = 5  # Bins that are good to this multiple of it are left alone.
_PASSES = 60  # Rounds of cutting at most.
_PIECES = 8  # Pieces of a bin in one round at most.
_MOST_NODES = 20_000  # Bins at most.


class Double:
    """The composition of two steps, at any epsilon."""

    def __init__(
        self, first: Pair, second: Pair, coarse_loss: DiscreteLoss, theta: float, epsilon: float, close: float = _CLOSE
    ):
        """`coarse_loss` gives the first edges; `theta` and `epsilon` say where to search from.

        Args:
            first: dominating pair of the first step.
            second: dominating pair of the second step.
            coarse_loss: losses of the composition on a coarse lattice; they give the first edges.
            theta: tilt from which to search, > 0.
            epsilon: epsilon from which to search.
            close: relative width of delta at which bins are no longer cut, > 0.
        """
        self._close = close
        self.theta, self.epsilon = theta, epsilon
        self._first, self._second = first, second
        atoms = np.array([atom for atom in first.atoms if np.isfinite(atom)])
        self._edges = np.unique(np.concatenate([coarse_loss.losses, atoms, atoms - 1e-12 * np.abs(atoms)]))

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon)."""
        low, high = 0.0, 1.0
        # Cells that are good enough are left alone, so that a search sees one smooth function.
        wanted = self._close * _SLACK
        for _ in range(_PASSES):
            lower, upper, error = self._cells(epsilon)
            low, high = float(lower.sum()) - error, float(upper.sum()) + error
            gap = upper - lower
            if gap.sum() <= wanted * high or len(gap) > _MOST_NODES:
                break
            wanted = self._close
            # As the gap of a bin falls with the third power of its width, these pieces reach it with fewest bins.
            roots = np.cbrt(gap)
            self._cut(np.clip(np.ceil(roots * np.sqrt(roots.sum() / (wanted * high))), 1, _PIECES).astype(int))
        infinity_mass = self._first.infinity_mass
        return infinity_mass + max(low, 0.0), min(infinity_mass + high, 1.0)

    def towards(self, delta: float) -> Double:
        """The same, with the place where its first few cells put `delta` as the one to search from."""
        top = max(2 * float(self._edges[-1]), 1e-12)
        _, high = bisect(lambda epsilon: self._cells(epsilon)[0].sum() > delta, 0.0, top, relative=1e-3)
        self.epsilon = high
        near, far = (float(self._cells(high * factor)[0].sum()) for factor in (1.0, 1.01))
        if near > far > 0:
            self.theta = float(np.log(near / far)) / (0.01 * high)
        return self

    def _cut(self, pieces: np.ndarray) -> None:
        """Cut each cell into so many; the first and the last, which have no end, at twice their only one."""
        edges, inner = self._edges, pieces[1:-1]
        cell = np.repeat(np.arange(len(inner)), inner - 1)
        place = 1 + np.arange(len(cell)) - np.repeat(np.cumsum(inner - 1) - (inner - 1), inner - 1)
        new = [edges[cell] + np.diff(edges)[cell] * place / inner[cell]]
        new += [np.array([min(2 * edges[0], -1e-12)])] if pieces[0] > 1 else []
        new += [np.array([max(2 * edges[-1], 1e-12)])] if pieces[-1] > 1 else []
        self._edges = np.unique(np.concatenate([edges, *new]))

    def _cells(self, epsilon: float) -> tuple[np.ndarray, np.ndarray, float]:
        """What each cell adds to the lower and to the upper bound, and the rounding error of the sum."""
        edges = self._edges
        p, q = self._first.bin_masses(edges)
        unknown = (p > 0) & (q < SMALLEST)
        with np.errstate(divide="ignore", invalid="ignore"):
            centre = np.where((p > 0) & ~unknown, np.log(p) - np.log(q), -np.inf)
        left, right = np.append(edges[0], edges), np.append(edges, edges[-1])
        centre = np.clip(centre, np.append(-np.inf, edges), np.append(edges, np.inf))
        value, error, size = self._single_delta(epsilon - np.concatenate([centre, edges]))
        merged, at_edge = value[: len(centre)], value[len(centre) :]
        width = np.maximum(right - left, 1e-300)
        share = np.where(unknown, 1.0, np.clip(np.expm1(left - centre) / np.expm1(-width), 0.0, 1.0))
        high = share * np.append(at_edge, 1.0) + (1 - share) * np.append(at_edge[0], at_edge)
        high[0], high[-1] = at_edge[0], 1.0
        ends = error[len(centre) :]
        unsure = np.maximum(error[: len(centre)], np.maximum(np.append(ends, 0.0), np.append(ends[0], ends)))
        # Errors of neighbouring cells cancel up to those of the tails that they are differences of.
        own = sum(mass_units(np.minimum(tails(m)[:-1], tails(m[::-1])[-2::-1])) for m in (p, q))
        own = UNIT * (own + pairwise_units(len(p)) + MASS)
        own += 2 * self._first.edge_error(float(np.abs(edges).max()))
        total = float((p * (unsure + own * np.append(size[len(centre) :], 2.0))).sum())
        return p * merged, np.maximum(p * high, p * merged), total

    def _single_delta(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """H_2 at any real epsilons, with its error and with P(L_2 > epsilon) + e^epsilon Q(L_2 > epsilon)."""
        points, place = np.unique(epsilons, return_inverse=True)
        finite = np.isfinite(points)
        above_p, above_q = self._above(points, finite)
        with np.errstate(divide="ignore", over="ignore"):
            given = np.exp(np.minimum(points, 1e9) + np.log(above_q))
        given = np.minimum(given, above_p)
        moved = np.array([self._second.edge_error(abs(float(np.clip(e, -1e9, 1e9)))) for e in _ends(points[finite])])
        moved = float(moved.max(initial=0.0))
        near = above_p
        if self._second.atoms or self._second.table is not None:
            near = self._above(points - 2 * moved, finite)[0]  # An atom may lie on the wrong side of its edge.
        size = above_p + given
        with np.errstate(invalid="ignore"):
            units = mass_units(above_p) + mass_units(above_q) + tail_units(len(points)) + FUNCTION + MASS
            units += np.where(np.isfinite(points), 2 * np.abs(points), 0.0)
        if self._second.table is not None:
            units += len(self._second.table[0])
        error = UNIT * units * size + 2 * moved * near
        # Where Q's mass is near the smallest double, anything from none to all of P's may be given.
        lost = (above_q < SMALLEST) & finite
        given[lost], error[lost] = above_p[lost] / 2, above_p[lost] / 2
        return (above_p - given + self._second.infinity_mass)[place], error[place], size[place]

    def _above(self, points: np.ndarray, finite: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P- and Q-masses of the second step's finite losses above increasing points, some of them infinite."""
        p, q = self._second.bin_masses(points[finite])
        above_p, above_q = np.zeros(len(points)), np.zeros(len(points))
        above_p[finite], above_q[finite] = (tails(mass)[1:-1] for mass in (p, q))
        above_p[points == -np.inf] = 1.0 - self._second.infinity_mass
        return above_p, above_q


def _ends(points: np.ndarray) -> list[float]:
    """The first and the last of increasing points."""
    return [float(points[0]), float(points[-1])] if len(points) else []


_TERMS = 96.0  # Units of a term besides its sums: two expm1 or exp, the masses' products, and six operations.
_ULP = 2 * UNIT  # For one sum or difference of two losses.
_FIRST_ORDER = 1.01  # e^d - 1 <= 1.01 d for the errors d < 1e-2 of losses.
_DIRECT = 600.0  # Up to here e^epsilon times a Q-mass neither overflows nor needs logarithms.
_LEAST = 1e-44  # P-mass below which an atom goes into the error.
_MOST = 400_000  # Outcomes of a half at most.
_FEW = 8  # Steps at most; halves of more have too many outcomes.


@dataclass(frozen=True)
class LossSums:
    """The summed losses of some steps, their masses under P and Q, and a bound on the error of each loss.

    `units` bound the relative rounding of the masses by products and sums.
    """

    loss: np.ndarray
    p: np.ndarray
    q: np.ndarray
    error: np.ndarray
    units: float = 0.0

    def plus(self, other: LossSums) -> LossSums:
        """All sums of two independent losses, equal ones together."""
        sums = np.add.outer(self.loss, other.loss)
        loss, place = np.unique(sums, return_inverse=True)
        place = place.ravel()
        p, q = (np.bincount(place, np.multiply.outer(a, b).ravel()) for a, b in ((self.p, other.p), (self.q, other.q)))
        error = np.zeros(len(loss))
        np.maximum.at(error, place, (np.add.outer(self.error, other.error) + _ULP * np.abs(sums)).ravel())
        return LossSums(loss, p, q, error, self.units + other.units + 1 + float(np.bincount(place).max()))


class Enumerated:
    """The composition of few steps with tables, at any epsilon.

    A loss that is off by d moves its term p (1 - e^{epsilon - l}) by q e^epsilon (e^d - 1), and may put an outcome of
    loss epsilon on the wrong side. Both matter where an atom at epsilon is far heavier than all losses above it.

    Args:
        first: summed losses of the first half of the steps.
        second: the same of the second half, in increasing order.
        left_out: P-mass of the outcomes that were not enumerated, in [0, 1].
        theta: tilt from which to search, > 0.
        epsilon: epsilon from which to search.
    """

    def __init__(self, first: LossSums, second: LossSums, left_out: float, theta: float, epsilon: float):
        self.theta, self.epsilon, self._left_out = theta, epsilon, left_out
        self._first, self._loss = first, second.loss
        p, q = second.p, second.q
        count = len(first.loss)
        self._units = first.units + second.units + _TERMS + pairwise_units(count) + tail_units(len(second.loss))
        self._above = [tails(column) for column in (p, q, p * np.expm1(-second.loss), q * second.error)]
        self._most_error = float(second.error.max())
        log_q = np.log(p) - second.loss
        self._log_above = np.append(np.logaddexp.accumulate(log_q[::-1])[::-1], -np.inf)

    @classmethod
    def of(cls, parts: Sequence[tuple[Pair, int]], theta: float, epsilon: float) -> Enumerated | None:
        """The engine, or None where a step has no table or there are too many runs."""
        if sum(steps for _, steps in parts) > _FEW or any(
            pair.table is None or pair.infinity_mass or pair.negative_infinity_mass for pair, _ in parts
        ):
            return None
        none = LossSums(np.zeros(1), np.ones(1), np.ones(1), np.zeros(1))
        halves = [none, none]
        left_out = 0.0
        for pair, steps in parts:
            assert pair.table is not None
            kept = pair.table[1] > _LEAST
            loss, p, error = (column[kept] for column in (*pair.table[:2], pair.table_error))
            # A Q-mass with the digits of its own loss, so that P - e^epsilon Q errs by no more than the loss does.
            one = LossSums(loss, p, p * np.exp(-loss), error + _ULP * (1 + np.abs(loss)))
            left_out += steps * float(pair.table[1][~kept].sum())
            for _ in range(steps):
                small = int(len(halves[1].loss) < len(halves[0].loss))
                if len(halves[small].loss) * len(one.loss) > 2 * _MOST:
                    return None
                halves[small] = halves[small].plus(one)
        return (
            cls(halves[0], halves[1], left_out, theta, epsilon) if max(len(h.loss) for h in halves) <= _MOST else None
        )

    def searched_from(self, theta: float, epsilon: float) -> Enumerated:
        """The same composition, searched from another tilt and epsilon."""
        found = copy.copy(self)
        found.theta, found.epsilon = theta, epsilon
        return found

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon).

        Where epsilon is close to the loss of the first half, 1 - e^{x - l} = -(e^x - 1) - e^x (e^{-l} - 1) keeps the
        digits that P - e^x Q would lose.
        """
        p = self._first.p
        x = epsilon - self._first.loss
        place = np.searchsorted(self._loss, x, side="right")
        above_p, change = self._above[0][place], self._above[2][place]
        near = np.abs(x) < 1
        turn = np.expm1(np.where(near, x, 0.0))
        given, unsure = self._given(epsilon, place)
        given, unsure = np.where(near, 0.0, given), np.where(near, 0.0, unsure)
        terms = np.where(near, -p * (turn * above_p + (1 + turn) * change), p * above_p - given)
        size = np.where(near, p * (np.abs(turn) * above_p + (1 + turn) * np.abs(change)), p * above_p + given)
        value = float(terms.sum())
        # P- and Q-masses of an outcome share the error of P's, at most that of the lightest for each of its steps.
        error = UNIT * (self._units * float(size.sum()) + _FEW * float(mass_units(_LEAST)) * value)
        error += float(unsure.sum()) + self._moved(epsilon, x)
        return max(value - error, 0.0), min(value + error + self._left_out, 1.0)

    def _moved(self, epsilon: float, x: np.ndarray) -> float:
        """A bound on what the errors of the losses change, outcomes next to epsilon included."""
        own = self._first.error + _ULP * (abs(epsilon) + np.abs(x))
        place = np.searchsorted(self._loss, x - own - self._most_error, side="left")
        mass, unsure = self._given(epsilon, place)
        if epsilon <= _DIRECT:
            others = np.exp(epsilon) * self._first.q * self._above[3][place]
        else:
            others = (mass + unsure) * self._most_error
        return _FIRST_ORDER * float(((mass + unsure) * own + others).sum())

    def _given(self, epsilon: float, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """e^epsilon times the Q-mass of each first loss with all second ones from `place` on, and a bound on its error.

        Beyond `_DIRECT` Q-masses may leave the range of doubles, and logarithms stand for them.
        """
        if epsilon <= _DIRECT:
            return np.exp(epsilon) * self._first.q * self._above[1][place], np.zeros(len(place))
        first, second = np.log(self._first.p) - self._first.loss, self._log_above[place]
        value = np.exp(np.minimum(epsilon + first + second, 1.0))
        size = epsilon + np.abs(first) + np.where(second > -np.inf, np.abs(second), 0.0) * len(self._loss)
        return value, value * np.expm1(_ULP * size)
