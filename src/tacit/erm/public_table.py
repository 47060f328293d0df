"""`PublicTable` and `PublicImputer`: frames as features, and missing cells filled, by declared constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from tacit import check
from tacit.data.declarations import Declarations, schema_of
from tacit.data.files import listed
from tacit.data.table import frame
from tacit.erm.base import QUOTES_NOTHING, numeric_rows

Array = np.ndarray

_TARGET = "\0"  # a schema needs a target; no column of a frame has this name


@dataclass(kw_only=True, eq=False, repr=False)
class PublicTable(TransformerMixin, BaseEstimator):
    """The columns of a data frame as features in [0, 1] by one declaration; nothing is learned, so nothing is spent.

    Numbers are clipped to their bounds and scaled to [0, 1], dates likewise, categories become one 0/1 column each, as
    `tacit.data.table` does it. Keys are names of columns or patterns such as "lab_*"; every column must be declared or
    dropped. Frames of pandas, polars and Arrow, and mappings of columns.

    Args:
        bounds: column -> (low, high).
        categories: column -> every value that can occur; "" among them admits missing cells.
        dates: column -> (first, last), and a format of `strptime` where cells are not ISO 8601.
        fill: column -> public constant in place of a missing number or date.
        indicator: columns of `fill` that get a further feature, 1 where the cell was missing.
        missing: texts or numbers that stand for a missing cell.
        drop: columns to leave out.

    Raises:
        InvalidInput: at `fit` or `transform`: a column is not declared, or a cell breaks its declaration.

    Example:
        >>> table = PublicTable(bounds={"age": (0, 100)}, categories={"ward": ["north", "south"]}, fill={"age": 50})
        >>> table.fit_transform({"age": [41, None], "ward": ["south", "north"]}).round(2).tolist()
        [[0.41, 0.0, 1.0], [0.5, 1.0, 0.0]]
    """

    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[object]] = field(default_factory=dict)
    dates: Mapping[str, Sequence[object]] = field(default_factory=dict)
    fill: Mapping[str, object] = field(default_factory=dict)
    indicator: Sequence[str] = ()
    missing: Sequence[str] = ()
    drop: Sequence[str] = ()

    def fit(self, X: Any, y: Any = None) -> PublicTable:
        """Find the declaration of every column; no cell is read."""
        names = list(frame(X))
        declared = Declarations(target=_TARGET, **self.get_params(deep=False))
        # Without rows nothing can be read off: what is not declared shows as read.
        empty = dict.fromkeys([*names, _TARGET], np.zeros(0))
        schema, read = schema_of(declared, empty, toml=False)
        undeclared = [name for found in read.values() for name in found]
        if undeclared:
            hint = "Add them to bounds, categories or dates, or to drop."
            raise check.fail("every column", "declared", check.Told(f"no declaration of {listed(undeclared)}"), hint)
        self.schema_, self.n_features_in_ = schema, len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def transform(self, X: Any) -> Array:
        """Features, float64 (n, features)."""
        check_is_fitted(self)
        return self.schema_.encode(frame(X)).astype(float)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns, of categories with their value."""
        check_is_fitted(self)
        return np.array(self.schema_.features, dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # columns have names
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PublicImputer(TransformerMixin, BaseEstimator):
    """Missing numbers (NaN or None) become public constants; nothing is learned, so nothing is spent.

    Args:
        fill: one number, or one for each column; the middle of its declared bounds is a good one.
        indicator: add a 0/1 column for each column, 1 where its cell was missing.

    Raises:
        InvalidInput: at `fit`: `fill` is no finite number for each column.

    Example:
        >>> PublicImputer(fill=5.0).fit_transform([[1.0], [float("nan")]]).ravel().tolist()
        [1.0, 5.0]
    """

    fill: float | Sequence[float] = 0.0
    indicator: bool = False

    def fit(self, X: Any, y: Any = None) -> PublicImputer:
        """Check the shape of X and the declared constants."""
        columns = self._rows(X, reset=True).shape[1]
        try:
            self.fill_ = np.broadcast_to(np.asarray(self.fill, dtype=float), (columns,))
        except (TypeError, ValueError):
            raise check.fail("fill", f"a number, or one for each of {columns} columns", self.fill) from None
        if not np.isfinite(self.fill_).all():
            raise check.fail("fill", "finite", self.fill)
        return self

    def transform(self, X: Any) -> Array:
        """Filled rows, float64, beside them the indicators where asked."""
        check_is_fitted(self)
        X = self._rows(X, reset=False)
        gone = np.isnan(X)
        filled = np.where(gone, self.fill_, X)
        return np.hstack([filled, gone.astype(float)]) if self.indicator else filled

    def _rows(self, X: Any, *, reset: bool) -> Array:
        return numeric_rows(
            self, X, reset=reset, finite="allow-nan", keep=(*QUOTES_NOTHING, "Input X contains infinity")
        )

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns, then name_missing of the indicators."""
        check_is_fitted(self)
        names: Any = _check_feature_names_in(self, input_features)
        more = [f"{name}_missing" for name in names] if self.indicator else []
        return np.array([*names, *more], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
