"""`Whitening`: estimates of a run with correlated noise, made into rows whose noise is independent again.

A run with correlated noise shows estimates e = x + K z. With K K^T = L L^T, the rows w = L^-1 e carry independent
noise, and a record that takes part in the steps p adds L^-1 p to them. For square C, K = C^-1 and L^-1 = C: the rows
are what was released. A tree releases more rows than there are steps; of its estimates, the row of a step is the mean
of the nodes that the step completes, of height j with a weight of 2^j (THEORY.md, Lemma 1.7a). What checks and audits
measure is measured on them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tacit.mechanisms import Strategy, ToeplitzStrategy
from tacit.noise.correlated import CorrelatedNoise

Array = NDArray[np.float64]


class Whitening:
    """Rows with independent noise, of the spread of z, made of the estimates of a run step by step.

    A step takes as long, and as much memory, as its noise did: the bands, buffers or levels of the strategy times the
    values of an estimate.

    Args:
        strategy: C of the run.

    Example:
        >>> from tacit.mechanisms import ToeplitzStrategy
        >>> rows = Whitening(ToeplitzStrategy(2, (1.0, 0.5), normalised=False))
        >>> [float(rows.add(np.ones(1))[0].round(3)) for _ in range(2)]
        [0.894, 1.342]
    """

    def __init__(self, strategy: Strategy):
        self.strategy = strategy
        self._encoder = CorrelatedNoise.of(strategy)

    def add(self, estimate: Array) -> Array:
        """The row of the next step, shape as `estimate`."""
        values = np.asarray(estimate, dtype=np.float64)
        rows = self._encoder.encode(values)
        if isinstance(self.strategy, ToeplitzStrategy):
            return rows
        nodes = rows.reshape(-1, len(values))
        return 2.0 ** np.arange(len(nodes)) @ nodes * _of_nodes(len(nodes))

    def of_patterns(self, patterns: Array) -> Array:
        """L^-1 p for participation patterns p, the columns of `patterns`, shape (n, patterns)."""
        rows = Whitening(self.strategy)
        return np.stack([rows.add(step) for step in patterns])

    def squared_norms(self, patterns: Iterable[Array]) -> Array:
        """|L^-1 p|^2 for participation patterns p, given step by step, each of shape (patterns,)."""
        rows = Whitening(self.strategy)
        return np.asarray(sum(np.square(rows.add(step)) for step in patterns))

    def pulled_back(self, rows: Array) -> Array:
        """(L^-1)^T rows: inner products of the rows, shape (n, canaries), with what each single step adds to them."""
        if not isinstance(self.strategy, ToeplitzStrategy):
            return _over_blocks(rows)
        from scipy.signal import fftconvolve  # Loads scipy.stats, and few ask for it.

        coefficients = np.array(self.strategy.coefficients)[::-1, None]
        found = fftconvolve(rows, coefficients, axes=0)[self.strategy.bands - 1 :]
        return found / self.strategy.scales[:, None]


def _of_nodes(completed: int | NDArray[np.int64]) -> Array:
    """1 / the standard deviation of sum_j 2^j z_j over so many nodes: sqrt(3 / (4^completed - 1))."""
    return np.sqrt(3 / (4.0**completed - 1))


def _over_blocks(rows: Array) -> Array:
    """Of a tree: for every step the sum, over the nodes that hold it, of their last step's row as that weighs them."""
    ends = np.arange(1, len(rows) + 1)
    scaled = rows * _of_nodes(np.log2(ends & -ends).astype(np.int64) + 1)[:, None]
    found = np.zeros_like(scaled)
    for height in range(len(rows).bit_length()):
        length = 2**height
        last = scaled[length - 1 :: length]
        found[: len(last) * length] += np.repeat(length * last, length, axis=0)
    return found
