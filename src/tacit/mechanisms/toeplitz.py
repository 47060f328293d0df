"""`ToeplitzStrategy`: the matrix C of correlated noise C^-1 z, its columns, its sensitivity and its error.

`TreeStrategy`: the matrix of tree aggregation, whose rows are the sums over the nodes of a binary tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit import check
from tacit.errors import InvalidInput


@dataclass(frozen=True)
class TreeStrategy:
    """C with one row of ones over each block of 2^h steps that begins at a multiple of 2^h and ends within the run.

    Prefix sums are estimated from the noisy nodes by Honaker's estimator from below (Honaker 2015; Kairouz et al. 2021,
    arXiv:2103.00039). Entries are 0 and 1, so that the largest ||C (x - x')|| is that of equal contributions.

    Args:
        iterations: n >= 1, steps of the run.

    Example:
        >>> round(TreeStrategy(1000).sensitivity() ** 2, 6)
        10.0
    """

    iterations: int

    def __post_init__(self) -> None:
        check.count("iterations", self.iterations)

    @property
    def bands(self) -> int:
        """Steps that one contribution reaches: all."""
        return self.iterations

    @property
    def levels(self) -> int:
        """Heights of nodes: floor(log2 n) + 1."""
        return self.iterations.bit_length()

    def sensitivity(self, *, participations: int = 1, separation: int | None = None) -> float:
        """A bound on ||C (x - x')|| for records of norm 1 that take part so often, so many steps apart.

        A node of length L holds at most m = min(k, ceil(L / s)) of a record's steps, and the floor(n / L) nodes of a
        level k in sum, so a level adds at most what as many nodes of m as there can be, and one of the rest, add to the
        square (THEORY.md, Theorem 1.7). It is reached by a single participation, and by one in every s steps where s is
        a power of 2 and k s <= n.

        Args:
            participations: k >= 1, steps that use one record; counted as at most ceil(n / separation).
            separation: s >= 1, steps between the starts of two of them; n by default.
        """
        apart = self.iterations if separation is None else check.count("separation", separation)
        often = min(check.count("participations", participations), -(-self.iterations // apart))
        return float(sum(self._of_level(2**height, often, apart) for height in range(self.levels))) ** 0.5

    def _of_level(self, length: int, often: int, apart: int) -> int:
        """The largest sum of squares of participations in the nodes of one length."""
        most, nodes = min(often, -(-length // apart)), self.iterations // length
        full = min(often // most, nodes)
        return full * most**2 + (often - full * most) ** 2 * (full < nodes)

    def row_norms(self) -> np.ndarray:
        """Standard deviation of the noise on every step at sigma 1: that of the difference of two prefix estimates.

        Nodes in both estimates cancel. Left are the node of height h that the step completes, and the nodes of heights
        below h inside of it, whose covariance with it obeys K_h = (v_{h-1} + K_{h-1}) / (1 + 2 v_{h-1}), K_0 = 0.
        """
        variance = honaker_variances(self.levels)
        shared = np.zeros(self.levels)
        for height in range(1, self.levels):
            below = variance[height - 1]
            shared[height] = (below + shared[height - 1]) / (1 + 2 * below)
        inside = np.concatenate([[0.0], np.cumsum(variance)[:-1]])
        steps = np.arange(1, self.iterations + 1)
        completed = np.log2(steps & -steps).astype(int)
        return np.sqrt(variance + inside - 2 * shared)[completed]

    def over(self, iterations: int) -> TreeStrategy:
        """The strategy of a run of so many steps."""
        return TreeStrategy(iterations)

    def spec(self) -> dict[str, Any]:
        """Return the JSON form, without the number of iterations."""
        return {"kind": "tree"}


def honaker_variances(levels: int) -> np.ndarray:
    """v_h = 2^h / (2^{h+1} - 1), h < levels: variance of the estimate of a node from noisy sums in its subtree."""
    height = np.arange(levels)
    return 2.0**height / (2.0 ** (height + 1) - 1)


_MOST_COLUMNS = 1024  # Of matrices whose products of columns are formed: their number is the square, some 10 MB.
_ROUNDING = 1e-9  # Column norms are rounded up by this: sums of squares of up to 1e6 positive terms lose below 2e-10.


@dataclass(frozen=True)
class ToeplitzStrategy:
    """A lower triangular n x n matrix C, scaled to columns of norm at most 1.

    T has `coefficients` c_0, c_1, ..., c_{b-1} below its diagonal. C = T diag(d)^-1 with d_j = ||T e_j|| where it is
    `normalised`, so that every column has norm 1; else d_j = ||c|| throughout, which exceeds the norms of the last
    b - 1 columns. A run releases x + C^-1 z, z of independent N(0, sigma^2) entries: post-processing of C x + z, also
    where x_t depends on earlier releases (Denisov et al. 2022, arXiv:2202.08312, Theorem 2.1).

    Args:
        iterations: n >= 1, steps of the run.
        coefficients: c_0 > 0, c_1, ..., at most n numbers.
        normalised: whether every column is scaled by itself.
        buffers: (theta_i, omega_i) of a buffered linear Toeplitz matrix, c_0 = 1 and c_k = sum_i omega_i theta_i^{k-1}
            for all k < n, theta_i in [0, 1) and omega_i >= 0; `coefficients` then follow from them, and are left out.

    Raises:
        InvalidInput: a field breaks its rule.

    Example:
        >>> ToeplitzStrategy(4, (1.0, 0.5)).bands
        2
    """

    iterations: int
    coefficients: tuple[float, ...] = ()
    normalised: bool = True
    buffers: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        check.count("iterations", self.iterations)
        if self.buffers:
            self._check_buffers()
        object.__setattr__(self, "coefficients", tuple(float(value) for value in self.coefficients))
        check.instance("normalised", self.normalised, bool, "true or false")
        if not 1 <= len(self.coefficients) <= self.iterations:
            raise check.fail("coefficients", f"1 to {self.iterations} numbers", f"{len(self.coefficients)}")
        check.positive("first of coefficients", self.coefficients[0])
        if not np.isfinite(self.coefficients).all():
            raise InvalidInput("coefficients must be finite numbers.")

    def _check_buffers(self) -> None:
        pairs = tuple((float(decay), float(weight)) for decay, weight in self.buffers)
        if self.normalised or not all(0 <= decay < 1 and 0 <= weight < np.inf for decay, weight in pairs):
            raise InvalidInput(
                "buffers must be decays in [0, 1) with weights >= 0, of a matrix that is not normalised."
            )
        decays, weights = (np.array(values) for values in zip(*pairs, strict=True))
        found = (1.0, *(weights @ decays[:, None] ** np.arange(self.iterations - 1)).tolist())
        if self.coefficients not in ((), found):
            raise InvalidInput("coefficients must be left out where buffers are given; they follow from them.")
        object.__setattr__(self, "buffers", pairs)
        object.__setattr__(self, "coefficients", found)

    @property
    def bands(self) -> int:
        """Diagonals of C, the main one included."""
        return len(self.coefficients)

    @cached_property
    def _norms(self) -> np.ndarray:
        """Norm of every column of T."""
        inside = np.minimum(np.arange(self.iterations, 0, -1), self.bands)
        return np.cumsum(np.square(self.coefficients))[inside - 1] ** 0.5

    @cached_property
    def scales(self) -> np.ndarray:
        """d_0, ..., d_{n-1}."""
        return self._norms if self.normalised else np.full(self.iterations, self._norms[0])

    @cached_property
    def column_norms(self) -> np.ndarray:
        """Norm of every column of C, rounded up."""
        return np.minimum(self._norms / self.scales * (1 + _ROUNDING), 1 + _ROUNDING)

    def sensitivity(self, *, participations: int = 1, separation: int | None = None) -> float:
        """A bound on ||C (x - x')|| for records of norm 1 that take part so often, so many steps apart.

        - One participation: the largest column norm.
        - `separation` >= bands: columns of one record are orthogonal, so the sum of squared norms, exactly the largest
          over all patterns where columns are normalised: sqrt(participations) (Choquette-Choo et al. 2023).
        - Otherwise, |c| replaced by its smallest non-increasing majorant, the pattern 0, s, 2s, ... is the worst
          (Kalinin & Lampert 2024, arXiv:2405.13763, Theorem 2); only for matrices that are not normalised. Where that
          replaces anything, also the sum of |C^T C| over a pattern of rows and one of columns for each
          (Choquette-Choo et al. 2023, arXiv:2306.08153), whichever is smaller.

        Args:
            participations: k >= 1, steps that use one record; counted as at most ceil(n / separation).
            separation: s >= 1, steps between the starts of two of them; n by default.

        Raises:
            InvalidInput: a normalised matrix with more bands than `separation`.
        """
        apart = self.iterations if separation is None else check.count("separation", separation)
        often = min(check.count("participations", participations), -(-self.iterations // apart))
        if often == 1 or self.bands <= apart:
            return float(self.column_norms.max()) * often**0.5
        check.that(not self.normalised, "bands of a normalised matrix", f"at most separation = {apart}", self.bands)
        majorant = np.maximum.accumulate(np.abs(self.coefficients)[::-1])[::-1]
        total = np.zeros(self.iterations)
        for start in range(0, often * apart, apart):
            length = min(self.bands, self.iterations - start)
            total[start : start + length] += majorant[:length]
        found = float(np.linalg.norm(total)) / float(self.scales[0]) * (1 + _ROUNDING)
        if np.array_equal(majorant, self.coefficients) or self.iterations > _MOST_COLUMNS:
            return found
        return min(found, self._by_products(often, apart))

    def _by_products(self, often: int, apart: int) -> float:
        """The bound from |C^T C|: for each row the best pattern of columns, and the best pattern of rows."""
        columns = np.zeros((self.iterations, self.iterations))
        for k, value in enumerate(self.coefficients):
            columns += value * np.eye(self.iterations, k=-k)
        products = np.abs(columns.T @ columns)
        # Products of sums that cancel lose up to this of the sum of their absolute terms.
        products += _ROUNDING * (np.abs(columns).T @ np.abs(columns))
        whole = _best_pattern(_best_pattern(products, often, apart)[None, :], often, apart)
        return float(whole[0] ** 0.5 / self.scales[0]) * (1 + _ROUNDING)

    def squared_errors(self) -> np.ndarray:
        """Variance of every released prefix sum at sigma 1: e_i = sum_j B_ij^2 with B = A C^-1, A of ones."""
        n = self.iterations
        first = np.ones(n)
        impulse = np.zeros(n)
        impulse[0] = 1.0
        plain = np.cumsum(solved(self.coefficients, first) ** 2) * self.scales[0] ** 2
        if not self.normalised or self.bands == 1:
            return plain
        # Only the last b - 1 columns of T have another scale: their rows are corrected one by one.
        inverse = solved(self.coefficients, impulse)
        start = n - self.bands + 1
        whole = solved(self.coefficients, first) * self.scales[0]
        for row in range(start, n):
            values = whole[row::-1].copy()
            for column in range(start, row + 1):
                less = (self.scales[0] - self.scales[column]) * first[row - column]
                values[: column + 1] -= less * inverse[column::-1]
            plain[row] = float(values @ values)
        return plain

    def spec(self) -> dict[str, Any]:
        """Return the JSON form, without the number of iterations."""
        if self.buffers:
            return {"kind": "buffered_toeplitz", "buffers": [list(pair) for pair in self.buffers]}
        return {"kind": "toeplitz", "coefficients": list(self.coefficients), "normalised": self.normalised}

    def over(self, iterations: int) -> ToeplitzStrategy:
        """The strategy of a run of so many steps, with these coefficients."""
        if self.buffers:
            return ToeplitzStrategy(iterations, normalised=False, buffers=self.buffers)
        return ToeplitzStrategy(iterations, self.coefficients[:iterations], self.normalised)

    def row_norms(self) -> np.ndarray:
        """Norm of every row of C^-1: the standard deviation of the noise on every step at sigma 1."""
        impulse = np.zeros(self.iterations)
        impulse[0] = 1.0
        return np.sqrt(np.cumsum(solved(self.coefficients, impulse) ** 2)) * self.scales


def _best_pattern(values: np.ndarray, often: int, apart: int) -> np.ndarray:
    """For each row the largest sum of `often` entries at most that are `apart` or more from each other."""
    count = values.shape[1]
    best = np.zeros((len(values), count + apart))
    for _ in range(often):
        best[:, :count] = values + best[:, apart:]
        best = np.maximum.accumulate(best[:, ::-1], axis=1)[:, ::-1]
    return best[:, 0]


def solved(coefficients: Sequence[float] | np.ndarray, values: np.ndarray) -> np.ndarray:
    """T^-1 v for the lower triangular Toeplitz matrix T of these coefficients.

    Args:
        coefficients: c_0 > 0, c_1, ..., of the diagonals; others are 0.
        values: v, shape (n,).
    """
    from scipy.signal import lfilter  # Loads scipy.stats, and few ask for it.

    return np.asarray(lfilter([1.0], coefficients, values))
