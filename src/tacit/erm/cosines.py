"""`CosineFeatures`: an additive model's cosines of private distribution functions, as transformer and in estimators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from tacit import check
from tacit.erm.base import checked_rows
from tacit.erm.quantiles import Distribution, distributions, mechanism_of
from tacit.erm.transformers import PaidTransformer, categories_of, member_codes

Array = np.ndarray

WAVES = 8
_STEPS_OF_CURVES = 64
# Shrinks unit rows so that rounding errors of sums over columns leave their norm at most 1.
_SAFE = 1 - 1e-12


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
        return rows * (_SAFE / self.largest)

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients (k, features) for `inputs` and intercepts (k,), from theta (p, k)."""
        scale = _SAFE / self.largest
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
        numeric = [each for each in range(X.shape[1]) if each not in categories]
        if not numeric:
            raise check.fail("categorical", "not all columns", self.categorical, "Use PublicOneHot, which is free.")
        multiplier = terms.noise_multiplier(mechanism_of)
        self.step_ = mechanism_of(multiplier)
        ends = self._low[numeric], self._high[numeric]
        found = distributions(X[:, numeric], *ends, terms, multiplier=multiplier, size=size)
        self.design_ = CosineDesign(dict(zip(numeric, found, strict=True)), categories, 0.0)
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
