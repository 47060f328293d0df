"""`Whitening`: estimates of a run with correlated noise, made into rows whose noise is independent again.

A run with correlated noise shows estimates e = x + K z. With K K^T = L L^T, the rows w = L^-1 e carry independent
noise, and a record that takes part in the steps p adds L^-1 p to them. For square C, K = C^-1 and L^-1 = C: the rows
are what was released. What checks and audits measure is measured on them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.signal import fftconvolve

from tacit import check
from tacit.mechanisms import Strategy, ToeplitzStrategy
from tacit.noise.correlated import CorrelatedNoise

# Of a tree, whose factor L is dense: so many make a factor of 128 MB in a second.
_MOST_STEPS = 4096

Array = NDArray[np.float64]


class Whitening:
    """Rows with independent noise, of the spread of z, made of the estimates of a run step by step.

    Args:
        strategy: C of the run; see `whitened`.

    Raises:
        InvalidInput: the strategy is not one that is whitened.

    Example:
        >>> from tacit.mechanisms import ToeplitzStrategy
        >>> rows = Whitening(ToeplitzStrategy(2, (1.0, 0.5), normalised=False))
        >>> [float(rows.add(np.ones(1))[0].round(3)) for _ in range(2)]
        [0.894, 1.342]
    """

    def __init__(self, strategy: Strategy):
        if not whitened(strategy):
            raise check.fail("iterations of a tree", f"at most {_MOST_STEPS} to be whitened", strategy.iterations)
        self.strategy = strategy
        self._encoder = CorrelatedNoise.of(strategy)
        self._seen: list[Array] = []
        self._inverse = None if isinstance(strategy, ToeplitzStrategy) else _inverse_factor(strategy)

    def add(self, estimate: Array) -> Array:
        """The row of the next step, shape as `estimate`."""
        values = np.asarray(estimate, dtype=np.float64)
        if self._inverse is None:
            return self._encoder.encode(values)
        self._seen.append(values)
        return self._inverse[len(self._seen) - 1, : len(self._seen)] @ np.stack(self._seen)

    def of_patterns(self, patterns: Array) -> Array:
        """L^-1 p for participation patterns p, the columns of `patterns`, shape (n, patterns)."""
        rows = Whitening(self.strategy)
        return np.stack([rows.add(step) for step in patterns])

    def pulled_back(self, rows: Array) -> Array:
        """(L^-1)^T rows: inner products of the rows, shape (n, canaries), with what each single step adds to them."""
        if self._inverse is not None:
            return self._inverse.T @ rows
        assert isinstance(self.strategy, ToeplitzStrategy)
        coefficients = np.array(self.strategy.coefficients)[::-1, None]
        found = fftconvolve(rows, coefficients, axes=0)[self.strategy.bands - 1 :]
        return found / self.strategy.scales[:, None]


def whitened(strategy: Strategy) -> bool:
    """Whether `Whitening` takes `strategy`: any Toeplitz matrix, trees of up to 4,096 steps.

    Example:
        >>> from tacit.mechanisms import TreeStrategy
        >>> whitened(TreeStrategy(5000))
        False
    """
    return isinstance(strategy, ToeplitzStrategy) or strategy.iterations <= _MOST_STEPS


def _inverse_factor(strategy: Strategy) -> Array:
    """L^-1 of estimates that are made of more rows than there are steps."""
    steps = strategy.iterations
    noise = CorrelatedNoise.of(strategy)
    counts = [len(noise.encode(np.zeros(1))) for _ in range(steps)]
    every, noise = np.eye(sum(counts)), CorrelatedNoise.of(strategy)
    estimates, start = [], 0
    for count in counts:
        noise.encode(np.zeros(len(every)))
        estimates.append(noise.decode(every[start : start + count].reshape(-1)))
        start += count
    factor = np.linalg.cholesky(np.stack(estimates) @ np.stack(estimates).T)
    return solve_triangular(factor, np.eye(steps), lower=True)
