"""`PrivateQuantiles`: private distribution functions of columns; the median, quantiles and histogram of one column.

`CosineFeatures`: an additive model's cosines of private distribution functions, as transformer and in estimators.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from tacit import check
from tacit.erm.base import checked_rows
from tacit.erm.design import SAFE
from tacit.erm.release import Terms
from tacit.erm.transformers import PaidTransformer, categories_of, member_codes
from tacit.mechanisms import Gaussian, Mechanism

Array = np.ndarray

LEVELS = 12
"""Levels of the dyadic histogram below the whole range: cells of 1/4096 of it at the finest."""
# A node is split while its noisy count exceeds this share of the records, and so many deviations of the noise.
_LEAST_SHARE, _LEAST_DEVIATIONS = 1 / 32, 4.0


@dataclass(frozen=True, eq=False)
class Distribution:
    """A released distribution function, linear between its knots.

    Args:
        knots: ascending, the first and last are the declared range.
        shares: F at the knots, from 0 to 1.

    Example:
        >>> Distribution(np.array([0.0, 4.0]), np.array([0.0, 1.0])).at(np.array([1.0])).tolist()
        [0.25]
    """

    knots: Array
    shares: Array

    def at(self, values: Array) -> Array:
        """F(x) in [0, 1]."""
        return np.interp(values, self.knots, self.shares)

    def quantile(self, shares: Array) -> Array:
        """The inverse of F, in the units of x."""
        return np.interp(shares, self.shares, self.knots)


def distributions(
    X: Array, low: Array, high: Array, terms: Terms, *, multiplier: float, size: int, categories: Collection[int] = ()
) -> dict[int, Distribution]:
    """Private distribution function of every column but `categories`, by an adaptive dyadic histogram.

    A record lies in one node of each column and level, so the counts of one level have L2 sensitivity sqrt(p), and the
    `LEVELS` levels compose adaptively: which nodes are split follows from released counts alone. Counts are whole
    numbers, so their sums are exact and the noise needs no allowance for rounding.

    Args:
        X: finite rows (n, p), p >= 1; clipped to the range.
        low: (p,), declared.
        high: (p,), declared.
        terms: of the release; `mechanism_of(multiplier)` is charged before any count is drawn, if any is.
        multiplier: noise multiplier of all levels together.
        size: public number of records, the count of the whole range.
        categories: columns left out.
    """
    numeric = [each for each in range(X.shape[1]) if each not in categories]
    if not numeric:
        return {}
    columns, X, low, high = len(numeric), X[:, numeric], low[numeric], high[numeric]
    terms.charge(mechanism_of(multiplier), "distribution functions", exact=True)
    std = multiplier * math.sqrt(LEVELS) * math.sqrt(columns)
    counts = _cells(X, low, high)
    column, place, count = np.arange(columns), np.zeros(columns, dtype=np.int64), np.full(columns, float(size))
    split, leaves = np.full(columns, True), []
    for level in range(1, LEVELS + 1):
        leaves.append(_leaves(column, place, count, ~split, level - 1))
        column, place, count = column[split], place[split], count[split]
        exact = counts.reshape(columns, 2**level, -1).sum(axis=2)
        pairs = np.stack([exact[column, 2 * place], exact[column, 2 * place + 1]], axis=1).astype(np.float64)
        noisy = terms.noisy(pairs, std=std)
        left = np.clip(noisy[:, 0] + (count - noisy.sum(axis=1)) / 2, 0.0, count)  # children agree with their parent
        column, place = np.repeat(column, 2), np.stack([2 * place, 2 * place + 1], axis=1).ravel()
        count = np.stack([left, count - left], axis=1).ravel()
        split = count > max(size * _LEAST_SHARE, _LEAST_DEVIATIONS * std)
    leaves.append(_leaves(column, place, count, np.full(len(column), True), LEVELS))
    found = np.concatenate(leaves)
    parts = (_joined(found[found[:, 0] == each], low[each], high[each], size) for each in range(columns))
    return dict(zip(numeric, parts, strict=True))


def mechanism_of(multiplier: float) -> Mechanism:
    """What `distributions` releases: `LEVELS` Gaussian steps that together have this noise multiplier."""
    return Gaussian(multiplier * math.sqrt(LEVELS)) * LEVELS


def _cells(X: Array, low: Array, high: Array) -> Array:
    """Records in each of the finest cells of every column, (p, 2^LEVELS)."""
    cells = 2**LEVELS
    half = np.where(high > low, high / 2 - low / 2, 1.0)
    shares = (np.clip(X, low, high) / 2 - low / 2) / half
    place = np.clip(np.floor(shares * cells), 0, cells - 1).astype(np.int64)
    return np.stack([np.bincount(place[:, each], minlength=cells) for each in range(X.shape[1])])


def _leaves(column: Array, place: Array, count: Array, chosen: Array, level: int) -> Array:
    """(column, left edge in finest cells, count) of the chosen nodes."""
    return np.stack([column, place * 2 ** (LEVELS - level), count], axis=1)[chosen]


def _joined(leaves: Array, low: float, high: float, size: int) -> Distribution:
    leaves = leaves[np.argsort(leaves[:, 1])]
    edges = np.append(leaves[:, 1], 2.0**LEVELS) / 2**LEVELS
    shares = np.minimum(np.append(0.0, np.cumsum(leaves[:, 2])) / size, 1.0)
    shares[-1] = 1.0
    return Distribution(low * (1 - edges) + high * edges, shares)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateQuantiles(OneToOneFeatureMixin, TransformerMixin, PaidTransformer):
    """x -> F(x) in [0, 1] with a private distribution function F of every column; also its quantiles and histogram.

    Args:
        data_bounds: (low, high) of the columns, public; the default is a constant, not read from the data.
        public_size: declared number of records; see `tacit.erm.linear_model.ConvexModel`.
        epsilon: see `PrivateEstimator`.
        delta: see `PrivateEstimator`.
        target: see `PrivateEstimator`.
        relation: see `PrivateEstimator`.
        ledger: see `PrivateEstimator`.
        unsafe_seed: see `PrivateEstimator`.

    Attributes:
        distributions_: one `Distribution` for each column.
        ledger_: what was spent.
        guarantee_: the guarantee of the release.

    Example:
        >>> model = PrivateQuantiles(epsilon=5.0, delta=1e-5, data_bounds=(0, 8), unsafe_seed=0)
        >>> bool(abs(model.fit(np.full((1000, 1), 3.0)).quantile(0.5)[0] - 3) < 0.1)
        True
    """

    def fit(self, X: Any, y: Any = None) -> PrivateQuantiles:
        """Release the distribution functions; writes the ledger before any noise is drawn."""
        X = checked_rows(self, X, reset=True)
        terms, self.size_ = self._opened(X)
        multiplier = terms.noise_multiplier(mechanism_of)
        self.step_ = mechanism_of(multiplier)
        found = distributions(X, self._low, self._high, terms, multiplier=multiplier, size=self.size_)
        self.distributions_ = list(found.values())
        return self

    def transform(self, X: Any) -> Array:
        """F of every cell, float64 of the shape of X."""
        check_is_fitted(self)
        X = checked_rows(self, X, reset=False)
        return np.stack([each.at(X[:, place]) for place, each in enumerate(self.distributions_)], axis=1)

    def quantile(self, shares: float | Sequence[float]) -> Array:
        """Quantiles of every column in its units, (columns,) of one share in [0, 1] or (shares, columns).

        Raises:
            InvalidInput: a share is outside of [0, 1].
        """
        check_is_fitted(self)
        wanted = np.asarray(shares, dtype=np.float64)
        check.that(((wanted >= 0) & (wanted <= 1)).all(), "shares", "in [0, 1]", shares)
        return np.stack([each.quantile(wanted) for each in self.distributions_], axis=-1)

    def histogram(self, column: int = 0, bins: int = 10) -> tuple[Array, Array]:
        """Private counts of equal bins over the declared range of a column and the edges, as `numpy.histogram`."""
        check_is_fitted(self)
        edges = np.linspace(self._low[column], self._high[column], check.count("bins", bins) + 1)
        return self.size_ * np.diff(self.distributions_[column].at(edges)), edges


def private_quantiles(values: Any, shares: float | Sequence[float], **settings: Any) -> Array:
    """Private quantiles of one column.

    Args:
        values: (n,), finite.
        shares: in [0, 1].
        settings: of `PrivateQuantiles`, such as epsilon and data_bounds.

    Raises:
        InvalidInput: values or settings break their rule.

    Example:
        >>> found = private_quantiles(np.arange(1000.0), [0.25, 0.75], epsilon=9.0, delta=1e-5, data_bounds=(0, 1000))
        >>> bool(abs(found - [250, 750]).max() < 60)
        True
    """
    return _of_one(values, settings).quantile(shares)[..., 0]


def private_median(values: Any, **settings: Any) -> float:
    """Private median of one column; arguments as in `private_quantiles`.

    Example:
        >>> bool(abs(private_median(np.arange(1000.0), epsilon=9.0, delta=1e-5, data_bounds=(0, 1000)) - 500) < 60)
        True
    """
    return float(private_quantiles(values, 0.5, **settings))


def private_histogram(values: Any, *, bins: int = 10, **settings: Any) -> tuple[Array, Array]:
    """Private counts of one column in equal bins of its declared range, and the edges.

    Args:
        values: (n,), finite.
        bins: number of bins.
        settings: of `PrivateQuantiles`.

    Example:
        >>> counts, edges = private_histogram(np.arange(1000.0), bins=2, epsilon=9.0, delta=1e-5, data_bounds=(0, 1000))
        >>> bool(abs(counts - 500).max() < 60)
        True
    """
    return _of_one(values, settings).histogram(bins=bins)


def _of_one(values: Any, settings: dict[str, Any]) -> PrivateQuantiles:
    column = np.asarray(values)
    if column.ndim != 1:
        raise check.fail("values", "of shape (n,), one column", column.shape)
    return PrivateQuantiles(**settings).fit(column[:, None])


WAVES = 8
_STEPS_OF_CURVES = 64


@dataclass(frozen=True, eq=False)
class CosineDesign:
    """Rows of norm at most 1 of cosines and indicators; takes the place of `Design` in a linear model.

    A numeric column gives the block w_k cos(pi k F(x)), k = 1, ..., 8, w_k proportional to 1 / k, of norm 1 in mean
    square for uniform F(x) and at most sqrt(2); a column of m categories its indicators less 1 / m, of norm below 1.
    All are divided by sqrt(p + q), the constant c put beside them, and the row divided by its largest norm,
    sqrt((2 p + q) / (p + q) + c^2).

    Args:
        known: numeric column -> its released distribution.
        categories: column of categories -> their number.
        intercept_scale: c >= 0; 0 leaves the intercept out.
    """

    known: Mapping[int, Distribution]
    categories: Mapping[int, int]
    intercept_scale: float

    @property
    def reach(self) -> float:
        """Largest norm of a row over that without the constant."""
        return self.largest / math.sqrt(self.largest**2 - self.intercept_scale**2)

    @property
    def largest(self) -> float:
        """Bound on the norm of a row before it is scaled to 1."""
        numeric, words = len(self.known), len(self.categories)
        return math.sqrt((2 * numeric + words) / (numeric + words) + self.intercept_scale**2)

    def inputs(self, x: Array) -> Array:
        """The blocks of every column, in the order of the columns, divided by sqrt(p + q)."""
        width = len(self.known) + len(self.categories)
        return np.hstack([self.block(each, x[:, each]) for each in range(width)]) / math.sqrt(width)

    def block(self, column: int, values: Array) -> Array:
        """Cosines or indicators of one column."""
        if column in self.known:
            waves = np.arange(1, WAVES + 1)
            weights = math.sqrt(2 / (1 / waves**2).sum()) / waves
            return weights * np.cos(math.pi * waves * self.known[column].at(values)[:, None])
        count = self.categories[column]
        codes = member_codes(values, count)
        block = np.zeros((len(values), count + 1))
        block[np.arange(len(values)), codes] = 1.0
        return (block[:, :count] - 1 / count) * (codes < count)[:, None]

    def features(self, x: Array) -> Array:
        """Feature rows with the constant last; every norm is at most 1."""
        rows = self.inputs(x)
        if self.intercept_scale:
            rows = np.hstack([rows, np.full((len(rows), 1), self.intercept_scale)])
        return rows * (SAFE / self.largest)

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients (k, features) for `inputs` and intercepts (k,), from theta (p, k)."""
        scale = SAFE / self.largest
        if not self.intercept_scale:
            return theta.T * scale, np.zeros(theta.shape[1])
        return theta[:-1].T * scale, theta[-1] * (scale * self.intercept_scale)

    def curves(self, coefficients: Array) -> dict[int, tuple[Array, Array]]:
        """Column -> (values, what each adds to the scores, (values, k)): the additive model, column by column."""
        width = len(self.known) + len(self.categories)
        found, start = {}, 0
        for column in range(width):
            if column in self.known:
                values = self.known[column].quantile(np.linspace(0, 1, _STEPS_OF_CURVES))
            else:
                values = np.arange(float(self.categories[column]))
            block = self.block(column, values) / math.sqrt(width)
            end = start + block.shape[1]
            found[column] = (values, block @ coefficients[:, start:end].T)
            start = end
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class CosineFeatures(TransformerMixin, PaidTransformer):
    """Cosines of private distribution functions, and indicators of categories: rows of norm at most sqrt(2).

    Args:
        categorical: columns of codes, by place or name; see `DPBoostedTrees`.
        data_bounds: see `PrivateQuantiles`.
        public_size: see `PrivateQuantiles`.
        epsilon: see `PrivateEstimator`.
        delta: see `PrivateEstimator`.
        target: see `PrivateEstimator`.
        relation: see `PrivateEstimator`.
        ledger: see `PrivateEstimator`.
        unsafe_seed: see `PrivateEstimator`.

    Example:
        >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
        >>> CosineFeatures(epsilon=1.0, delta=1e-5).fit_transform(x).shape
        (500, 16)
    """

    categorical: Sequence[Any] = ()

    def fit(self, X: Any, y: Any = None) -> CosineFeatures:
        """Release the distribution functions; writes the ledger before any noise is drawn."""
        X = checked_rows(self, X, reset=True)
        terms, size = self._opened(X)
        categories = categories_of(self, self.categorical, self._low, self._high)
        if len(categories) == X.shape[1]:
            raise check.fail("categorical", "not all columns", self.categorical, "Use PublicOneHot, which is free.")
        multiplier = terms.noise_multiplier(mechanism_of)
        self.step_ = mechanism_of(multiplier)
        ends = self._low, self._high
        known = distributions(X, *ends, terms, multiplier=multiplier, size=size, categories=categories)
        self.design_ = CosineDesign(known, categories, 0.0)
        return self

    def transform(self, X: Any) -> Array:
        """The blocks of every column, float64 (n, features)."""
        check_is_fitted(self)
        return self.design_.inputs(checked_rows(self, X, reset=False))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the form column_k."""
        check_is_fitted(self)
        names: Any = _check_feature_names_in(self, input_features)
        counts = [self.design_.categories.get(each, WAVES) for each in range(len(names))]
        pairs = zip(names, counts, strict=True)
        return np.array([f"{name}_{each}" for name, count in pairs for each in range(1, count + 1)], dtype=object)
