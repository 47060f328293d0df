"""Few steps with few atoms: every pair of a first and a second half of the run is looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.mechanisms.pairs import Pair

_UNIT = 2.0**-49
_LEAST = 1e-44
_MOST = 400_000
_FEW = 8

Sums = tuple[np.ndarray, np.ndarray, np.ndarray]


class Enumerated:
    """The composition of few steps with tables, to be asked anywhere."""

    def __init__(self, first: Sums, second: Sums, left_out: float, theta: float, epsilon: float):
        self.theta, self.epsilon, self._left_out = theta, epsilon, left_out
        self._first = first
        order = np.argsort(second[0])
        loss, p, q = (column[order] for column in second)
        self._loss = loss
        self._above = [_tails(column) for column in (p, q, p * np.expm1(-loss))]

    @classmethod
    def of(cls, parts: Sequence[tuple[Pair, int]], theta: float, epsilon: float) -> Enumerated | None:
        """The engine, or None where a step has no table or there are too many runs."""
        if sum(steps for _, steps in parts) > _FEW or any(
            pair.table is None or pair.infinite or pair.unseen for pair, _ in parts
        ):
            return None
        halves: list[Sums] = [(np.zeros(1), np.ones(1), np.ones(1)), (np.zeros(1), np.ones(1), np.ones(1))]
        left_out = 0.0
        for pair, steps in parts:
            assert pair.table is not None
            loss, p, q = pair.table
            kept = p > _LEAST
            left_out += steps * float(p[~kept].sum())
            for _ in range(steps):
                small = int(len(halves[1][0]) < len(halves[0][0]))
                if len(halves[small][0]) * int(kept.sum()) > 2 * _MOST:
                    return None
                halves[small] = _sum(halves[small], (loss[kept], p[kept], q[kept]))
        return cls(halves[0], halves[1], left_out, theta, epsilon) if max(map(len, _losses(halves))) <= _MOST else None

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound on delta(epsilon).

        Where epsilon is close to the loss of the first half, 1 - e^{x - l} = -(e^x - 1) - e^x (e^{-l} - 1) keeps the
        digits that P - e^x Q would lose.
        """
        loss, p, q = self._first
        x = epsilon - loss
        place = np.searchsorted(self._loss, x, side="right")
        above_p, above_q, change = (tail[place] for tail in self._above)
        near = np.abs(x) < 1
        turn = np.expm1(np.where(near, x, 0.0))
        with np.errstate(over="ignore"):
            given = np.where(near, 0.0, np.minimum(np.exp(min(epsilon, 700.0)) * q * above_q, p * above_p))
        terms = np.where(near, -p * (turn * above_p + (1 + turn) * change), p * above_p - given)
        size = np.where(near, p * (np.abs(turn) * above_p + (1 + turn) * np.abs(change)), p * above_p + given)
        value, error = float(terms.sum()), _UNIT * float(size.sum())
        return max(value - error, 0.0), min(value + error + self._left_out, 1.0)


def _losses(halves: Sequence[Sums]) -> list[np.ndarray]:
    return [loss for loss, _, _ in halves]


def _sum(one: Sums, other: Sums) -> Sums:
    """All sums of two independent losses, equal ones together."""
    loss, place = np.unique(np.add.outer(one[0], other[0]), return_inverse=True)
    p, q = (
        np.bincount(place.ravel(), np.multiply.outer(a, b).ravel()) for a, b in zip(one[1:], other[1:], strict=True)
    )
    return loss, p, q


def _tails(masses: np.ndarray) -> np.ndarray:
    """Sums over all entries from each one on, and 0 at the end."""
    return np.append(np.cumsum(masses[::-1])[::-1], 0.0)
