"""`CorrelatedNoise`: the rows of C x that a matrix mechanism releases step by step, and x + C^-1 z made of them.

Noise is not subtracted from noise here. At step t the rows of C x that step t completes are computed from the sums so
far, `rounded_gaussian` releases them, w = C x + z, and every later value is a function of released rows: the estimate
C^-1 w = x + C^-1 z is post-processing, whatever its rounding. So each step is one exact release of a computed sum.

Memory is 2 (bands - 1) vectors in double precision for banded matrices, 2 for each buffer, 2 for each level of a tree.
The sums of earlier steps are among them and are as private as the data: `state` is for seeded runs, which keep nothing
secret anyway, and nothing here can be pickled.

`Whitening`: estimates of a run with correlated noise, made into rows whose noise is independent again.

A run with correlated noise shows estimates e = x + K z. With K K^T = L L^T, the rows w = L^-1 e carry independent
noise, and a record that takes part in the steps p adds L^-1 p to them. For square C, K = C^-1 and L^-1 = C: the rows
are what was released. A tree releases more rows than there are steps; of its estimates, the row of a step is the mean
of the nodes that the step completes, of height j with a weight of 2^j (THEORY.md, Lemma 1.7a). What checks and audits
measure is measured on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tacit.errors import TrainingMisuse
from tacit.mechanisms import Strategy, ToeplitzStrategy, TreeStrategy
from tacit.mechanisms.toeplitz import honaker_variances

_UNIT = 2.0**-53
_KEPT = ("_sums", "_estimates")  # attributes of a noise that its checkpoint holds
Vector = NDArray[np.float64]


class CorrelatedNoise(ABC):
    """The rows of C x, one step after another, and estimates of x from their noisy releases.

    Args:
        strategy: C.

    Attributes:
        steps: number of steps encoded.

    Example:
        >>> noise = CorrelatedNoise.of(ToeplitzStrategy(4, (1.0, 0.5), normalised=False))
        >>> for x in np.ones((4, 1)):
        ...     rows = noise.encode(x)
        ...     print(noise.decode(rows))
        [1.]
        [1.]
        [1.]
        [1.]
    """

    def __init__(self, strategy: Strategy):
        self.strategy, self.steps = strategy, 0
        self._size: int | None = None

    @staticmethod
    def of(strategy: Strategy) -> CorrelatedNoise:
        """That of a strategy, before the first step."""
        if isinstance(strategy, TreeStrategy):
            return _Tree(strategy)
        return _Buffered(strategy) if strategy.buffers else _Banded(strategy)

    def encode(self, sums: Vector) -> Vector:
        """The rows of C x that are complete with this step's x, one after another; what is released next.

        Raises:
            TrainingMisuse: the run is over, or the number of values changed.
        """
        if self.steps >= self.strategy.iterations:
            raise TrainingMisuse(
                f"a run with correlated noise must end after the {self.strategy.iterations} steps that it was planned "
                "for; got another step. Plan more steps."
            )
        if self._size not in (None, len(sums)):
            raise TrainingMisuse("parameters must not be frozen or added during a run with correlated noise.")
        if self._size is None:
            self._size = len(sums)
            self._sums, self._estimates = np.zeros((2, self._width, len(sums)))
        rows = self._encode(np.asarray(sums, dtype=np.float64))
        self.steps += 1
        return rows

    @abstractmethod
    def decode(self, rows: Vector) -> Vector:
        """The estimate of this step's x, from the noisy `rows` of `encode` and those before."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Bound on the rounding of one row of C x, in units of the largest norm of a sum."""

    def slack(self, of_sums: float, units: int) -> float:
        """Nu of a run: share by which C x and C x', as computed, may lie further apart than the sensitivity.

        At most 2 n rows carry the rounding of both; the sensitivity of C is at least 1 - 1e-9.

        Args:
            of_sums: nu of one sum.
            units: most units of a batch, each of norm at most 1 + `of_sums`.
        """
        rows = 2 * self.strategy.iterations
        return of_sums + 2 * rows**0.5 * self.rounding * units * (1 + of_sums) * (1 + 1e-6)

    @property
    def spread(self) -> float:
        """Standard deviation of the noise on the estimate of the step that was encoded last, at sigma 1."""
        if not hasattr(self, "_row_norms"):
            self._row_norms = self.strategy.row_norms()
        return float(self._row_norms[self.steps - 1])

    def state(self) -> dict[str, Any]:
        """What a seeded run keeps in a checkpoint; private sums are in it."""
        own = {name: getattr(self, name).copy() for name in _KEPT} if self._size is not None else {}
        return {"steps": self.steps, "arrays": own}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.steps = state["steps"]
        for name, values in state["arrays"].items():
            setattr(self, name, values)
            self._size = values.shape[-1]

    def __reduce__(self) -> NoReturn:
        raise TypeError("correlated noise cannot be copied or saved: it holds sums of private gradients.")

    _width: int  # number of vectors of sums, and of estimates, that are kept

    @abstractmethod
    def _encode(self, sums: Vector) -> Vector: ...


class _Banded(CorrelatedNoise):
    """Banded Toeplitz matrices: the last b - 1 scaled sums, and as many estimates, in a ring."""

    def __init__(self, strategy: ToeplitzStrategy):
        super().__init__(strategy)
        self._coefficients, self._scales = np.array(strategy.coefficients), strategy.scales
        self._width = len(self._coefficients) - 1

    @property
    def rounding(self) -> float:
        """A division by the scale, a product and b - 1 additions for each value."""
        bands = len(self._coefficients)
        return (bands + 2) * _UNIT * float(np.abs(self._coefficients).sum() / self._scales.min()) * (1 + 1e-6)

    def _weights(self, step: int) -> Vector:
        """Coefficient of every place of the ring: step s lies at s mod (b - 1)."""
        return self._coefficients[(step - 1 - np.arange(self._width)) % self._width + 1]

    def _encode(self, sums: Vector) -> Vector:
        scaled = sums / self._scales[self.steps]
        rows = self._coefficients[0] * scaled
        if len(self._sums):
            rows += self._weights(self.steps) @ self._sums
            self._sums[self.steps % len(self._sums)] = scaled
        return rows

    def decode(self, rows: Vector) -> Vector:
        step = self.steps - 1
        scaled = np.asarray(rows, dtype=np.float64)
        if len(self._estimates):
            scaled = scaled - self._weights(step) @ self._estimates
        scaled = scaled / self._coefficients[0]
        if len(self._estimates):
            self._estimates[step % len(self._estimates)] = scaled
        return scaled * self._scales[step]


class _Buffered(CorrelatedNoise):
    """Buffered linear Toeplitz matrices: one sum with decaying weights for each buffer, and one of estimates."""

    def __init__(self, strategy: ToeplitzStrategy):
        super().__init__(strategy)
        self._decays, self._weights = (np.array(values) for values in zip(*strategy.buffers, strict=True))
        self._width, self._norm = len(self._decays), float(strategy.scales[0])

    @property
    def rounding(self) -> float:
        """A sum that is k steps old has met 2 (k + 1) roundings, sum_k (k + 1) theta^k = (1 - theta)^-2."""
        left, n = 1 - self._decays, float(self.strategy.iterations)
        old = float(self._weights @ np.minimum(left**-2, n * n))
        largest = 1 + float(self._weights @ np.minimum(1 / left, n))
        return _UNIT * (2 * old + (len(left) + 3) * largest) / self._norm * (1 + 1e-6)

    def _encode(self, sums: Vector) -> Vector:
        rows = (sums + self._weights @ self._sums) / self._norm
        self._sums *= self._decays[:, None]
        self._sums += sums
        return rows

    def decode(self, rows: Vector) -> Vector:
        estimate = np.asarray(rows, dtype=np.float64) * self._norm - self._weights @ self._estimates
        self._estimates *= self._decays[:, None]
        self._estimates += estimate
        return estimate


class _Tree(CorrelatedNoise):
    """Tree aggregation: for each level the node that waits for its sibling, as a sum and as an estimate."""

    def __init__(self, strategy: TreeStrategy):
        super().__init__(strategy)
        self._width = strategy.levels
        self._variances = honaker_variances(self._width)

    @property
    def rounding(self) -> float:
        """A node sums at most n steps, each in at most `levels` additions."""
        return self._width * _UNIT * self.strategy.iterations * (1 + 1e-6)

    def _encode(self, sums: Vector) -> Vector:
        nodes, height = [sums], 0
        while self.steps >> height & 1:
            nodes.append(self._sums[height] + nodes[-1])
            height += 1
        self._sums[height] = nodes[-1]
        return np.concatenate(nodes)

    def decode(self, rows: Vector) -> Vector:
        step = self.steps - 1
        nodes = np.asarray(rows, dtype=np.float64).reshape(-1, self._estimates.shape[1])
        before = np.zeros(nodes.shape[1])
        found = nodes[0]
        for height, node in enumerate(nodes[1:]):
            # The subtree's estimate has the variance 2 v, the node itself 1.
            below = 2 * self._variances[height]
            before += self._estimates[height]
            found = (below * node + self._estimates[height] + found) / (1 + below)
        self._estimates[(step + 1 & -(step + 1)).bit_length() - 1] = found
        return found - before


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

    def add(self, estimate: Vector) -> Vector:
        """The row of the next step, shape as `estimate`."""
        values = np.asarray(estimate, dtype=np.float64)
        rows = self._encoder.encode(values)
        if isinstance(self.strategy, ToeplitzStrategy):
            return rows
        nodes = rows.reshape(-1, len(values))
        return 2.0 ** np.arange(len(nodes)) @ nodes * _of_nodes(len(nodes))

    def squared_norms(self, patterns: Iterable[Vector]) -> Vector:
        """|L^-1 p|^2 for participation patterns p, given step by step, each of shape (patterns,)."""
        rows = Whitening(self.strategy)
        return np.asarray(sum(np.square(rows.add(step)) for step in patterns))

    def pulled_back(self, rows: Vector) -> Vector:
        """(L^-1)^T rows: inner products of the rows, shape (n, canaries), with what each single step adds to them."""
        if not isinstance(self.strategy, ToeplitzStrategy):
            return _over_blocks(rows)
        from scipy.signal import fftconvolve  # Loads scipy.stats, and few ask for it.

        coefficients = np.array(self.strategy.coefficients)[::-1, None]
        found = fftconvolve(rows, coefficients, axes=0)[self.strategy.bands - 1 :]
        return found / self.strategy.scales[:, None]


def _of_nodes(completed: int | NDArray[np.int64]) -> Vector:
    """1 / the standard deviation of sum_j 2^j z_j over so many nodes: sqrt(3 / (4^completed - 1))."""
    return np.sqrt(3 / (4.0**completed - 1))


def _over_blocks(rows: Vector) -> Vector:
    """Of a tree: for every step the sum, over the nodes that hold it, of their last step's row as that weighs them."""
    ends = np.arange(1, len(rows) + 1)
    scaled = rows * _of_nodes(np.log2(ends & -ends).astype(np.int64) + 1)[:, None]
    found = np.zeros_like(scaled)
    for height in range(len(rows).bit_length()):
        length = 2**height
        last = scaled[length - 1 :: length]
        found[: len(last) * length] += np.repeat(length * last, length, axis=0)
    return found
