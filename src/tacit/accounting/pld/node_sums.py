"""Sums of exponentials over nodes, and worst-case bounds on their rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.accounting.pld.quadrature import Line, mixes, posterior
from tacit.accounting.pld.rounding import (
    COMPLEX_FUNCTION,
    COMPLEX_LOGARITHM,
    FUNCTION,
    MASS,
    UNIT,
    dot_units,
    pairwise_units,
)
from tacit.mechanisms.pairs import SampledGaussian


@dataclass(frozen=True)
class NodeUnits:
    """Rounding of nodes in units: relative of their masses, absolute of their losses (Lemma 6.4)."""

    mass: np.ndarray
    loss: np.ndarray | float

    def of_weights(self, log_mass: np.ndarray, loss: np.ndarray, theta: float, log_moment: float) -> np.ndarray:
        """Relative units of e^{log_mass + theta loss - log_moment}.

        Args:
            log_mass: log of the P-mass of each node.
            loss: loss of each node.
            theta: tilt.
            log_moment: log of the sum.
        """
        exponent = np.abs(log_mass) + abs(theta) * np.abs(loss) + abs(log_moment)
        return self.mass + abs(theta) * self.loss + 2 * exponent + FUNCTION


def line_units(pair: SampledGaussian, line: Line) -> NodeUnits:
    """Units of nodes on a line: each mixture L(y) loses those of y with its slope, of e^y - 1 and of itself."""
    far = float(np.abs(line.u).max()) + abs(line.height)
    place = 4 * far / pair.sigma + 2 / pair.sigma**2 - 4 * float(np.log(pair.rate))
    loss = np.zeros(len(line.u))
    z = line.u + 1j * line.height
    for (_, mixed), weight in zip(mixes(pair, z), posterior(pair, z), strict=True):
        loss += np.abs(weight) * place + 64 * np.abs(np.expm1(-mixed)) + COMPLEX_LOGARITHM * np.abs(mixed)
    return NodeUnits(MASS + 4 * far**2 + 4 * abs(float(np.log(line.step))) + loss, loss)


def moment_rounding(log_mass: np.ndarray, loss: np.ndarray, theta: float, log_moment: float, units: NodeUnits) -> float:
    """A bound on the rounding error of log sum e^{log_mass + theta loss} (Lemma 6.5).

    A small moment is sum e^{log_mass} c, c = e^{theta loss} - 1 + theta (e^{-loss} - 1) >= 0: masses lose
    relative to c, losses with its slope theta (e^{theta loss} - e^{-loss}), c itself in units of the two that cancel.

    Args:
        log_mass: log of the P-mass of each node.
        loss: loss of each node.
        theta: tilt.
        log_moment: the log of the sum.
        units: what the nodes lose.
    """
    summed = 2 * pairwise_units(len(loss))
    direct = np.exp(log_mass + theta * loss - log_moment)
    direct = direct @ (units.of_weights(log_mass, loss, theta, log_moment) + summed)
    if direct_moment(log_mass, loss, theta, log_moment):
        return UNIT * float(direct)
    up, down = np.expm1(theta * loss), np.expm1(-loss)
    size = (units.mass + 2 * np.abs(log_mass) + FUNCTION + summed) * np.abs(up + theta * down)
    size = size + theta * np.abs(up - down) * units.loss + 2 * (FUNCTION + 2) * (np.abs(up) + theta * np.abs(down))
    return UNIT * (float(np.exp(log_mass) @ size) + FUNCTION) if abs(log_moment) else UNIT * float(direct)


def direct_moment(log_mass: np.ndarray, loss: np.ndarray, theta: float, log_moment: float) -> bool:
    """Whether log E e^{theta L} is taken as it is: where it is large, or where a term of the other way overflows.

    Args:
        log_mass: log of the P-mass of each node.
        loss: loss of each node.
        theta: tilt.
        log_moment: log of the sum.
    """
    largest = max(float((log_mass + theta * loss).max()), float((log_mass - loss).max()))
    exponent = max(theta * float(loss.max()), -float(loss.min()))
    return abs(log_moment) > SMALL_MOMENT or largest > 0 or exponent > VOID


VOID = 700.0
"""Largest argument of an exponential: an error of e^700 voids a bound as well as an infinite one."""

SMALL_MOMENT = 0.5  # log of a moment up to which 1 is taken from it term by term; either way is exact.
_CHUNK = 1024  # Nodes of one matrix product, which bounds the memory.


def shifted_sum(
    weights: np.ndarray, offset: np.ndarray, t: np.ndarray, spacing: float, mass: np.ndarray, loss: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """`shifted_sums` of one row.

    Args:
        weights: w, complex, shape (nodes,).
        offset: l, complex, shape (nodes,).
        t: frequencies, multiples of `spacing`, shape (frequencies,).
        spacing: distance of the frequencies, > 0.
        mass: units of the relative error of w, shape (nodes,).
        loss: units of the error of l, shape (nodes,) or one for all.
    """
    value, error = shifted_sums(weights[None], offset, t, spacing, mass[None], loss)
    return value[0], error[0]


def shifted_sums(
    weights: np.ndarray, offset: np.ndarray, t: np.ndarray, spacing: float, mass: np.ndarray, loss: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """sum_k w_k (e^{i t l_k} - 1) for complex w and l with Im l >= 0, and a bound on its rounding error (Lemma 6.6).

    The t are multiples of `spacing`. With t = (row a + b) spacing the sum is a product of two matrices: of
    e^x - 1 = A at the multiples of row and e^y - 1 = B below row, e^{x + y} - 1 = A B + A + B keeps its digits.

    Args:
        weights: w, complex, shape (sums, nodes).
        offset: l, complex, shape (nodes,).
        t: frequencies, multiples of `spacing`, shape (frequencies,).
        spacing: distance of the frequencies, > 0.
        mass: units of the relative error of w, shape (sums, nodes).
        loss: units of the error of l, shape (nodes,) or one for all.
    """
    index = np.rint(t / spacing).astype(int)
    row = 1 << int(np.ceil(np.log2(len(t) + 1) / 2))
    heads, place = np.unique(index // row, return_inverse=True)
    value = np.zeros((len(weights), len(heads), row), dtype=complex)
    size = np.zeros((len(weights), len(heads), row))
    sums = dot_units(min(weights.shape[1], _CHUNK)) + weights.shape[1] / _CHUNK
    units = np.abs(weights) * (mass + 2 * COMPLEX_FUNCTION + sums + MASS)
    for start in range(0, weights.shape[1], _CHUNK):
        part = slice(start, start + _CHUNK)
        step = 1j * spacing * offset[part]
        a, b = (np.expm1(np.multiply.outer(count, step)) for count in (heads * row, np.arange(row)))
        for total, (left, right), terms in ((value, (a, b), weights), (size, (np.abs(a), np.abs(b)), units)):
            for k, w in enumerate(terms[:, part]):
                total[k] += (left * w) @ right.T + (left @ w)[:, None] + right @ w
    drift = np.multiply.outer(np.abs(weights) @ (loss + 16 * np.abs(offset)), t)
    return value[:, place, index % row], UNIT * (size[:, place, index % row] + drift)
