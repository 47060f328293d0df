"""Preprocessing: `PublicScaler` and `PublicOneHot` by declared constants alone, `PrivateScaler` by paid statistics.

Columns of a table by their kind, and the split of one bill between their statistics and a model.

`PublicTable` and `PublicImputer`: frames as features, and missing cells filled, by declared constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from tacit import check
from tacit.data.declarations import Declarations, schema_of
from tacit.data.files import bad_cells, listed
from tacit.data.table import frame
from tacit.erm.base import PUBLIC, PUBLIC_SIZE, QUOTES_NOTHING, PrivateEstimator, checked_rows, numeric_rows
from tacit.erm.design import column_bounds
from tacit.erm.release import Terms, guarantee_of
from tacit.erm.solver import MOST_RECORDS, sum_rounding
from tacit.mechanisms import Compose, Gaussian, Mechanism
from tacit.tradeoff import TradeOff

Array = np.ndarray

MOST_CATEGORIES = 4096
"""Codes of a column of categories, at most."""


def categories_of(estimator: Any, categorical: Sequence[Any], low: Array, high: Array) -> dict[int, int]:
    """Column -> number of its codes, from the declared bounds 0 and high.

    Args:
        estimator: whose `feature_names_in_` names its columns.
        categorical: columns by place or name.
        low: (p,), declared; 0 for a column of categories.
        high: (p,), declared; the last code.

    Raises:
        InvalidInput: a column is unknown, or its bounds are not 0 and a whole number.
    """
    names = list(getattr(estimator, "feature_names_in_", ()))
    found: dict[int, int] = {}
    for each in categorical:
        place = names.index(each) if isinstance(each, str) and each in names else each
        if isinstance(place, bool) or not isinstance(place, int | np.integer) or not 0 <= place < len(low):
            raise check.fail("categorical", f"columns of X by name or place below {len(low)}", each)
        if low[place] != 0 or high[place] != np.floor(high[place]) or not 1 <= high[place] < MOST_CATEGORIES:
            hint = f"Declare data_bounds 0 and the last code, below {MOST_CATEGORIES}, for it."
            raise check.fail("categorical", "columns of codes 0, 1, ...", each, hint)
        found[int(place)] = int(high[place]) + 1
    return found


def member_codes(values: Array, count: int) -> Array:
    """The codes 0, ..., count - 1 as integers; `count` for any other value."""
    known = (values >= 0) & (values < count) & (values == np.floor(values))
    return np.where(known, values, count).astype(np.int64)


def split_bill(terms: Terms, *parts: tuple[float, Callable[[float], Mechanism]]) -> tuple[tuple[float, ...], Mechanism]:
    """Noise multipliers of releases that together meet the target, and their composition.

    Gaussian releases compose to mu^2 = mu_1^2 + mu_2^2 + ... also where a later one is chosen by an earlier one.

    Args:
        terms: of all.
        parts: the share of mu^2 of each, which add up to 1, and what it releases at a noise multiplier; a share of 0
            leaves its part out.
    """
    paid = [(1 / math.sqrt(share), part) for share, part in parts if share]

    def build(multiplier: float) -> Mechanism:
        return Compose.of(*(pair for scale, part in paid for pair in part(scale * multiplier).parts()))

    multiplier = terms.noise_multiplier(build)
    return tuple(multiplier / math.sqrt(share) if share else math.inf for share, _ in parts), build(multiplier)


# Lower bound on a released deviation, squared and in units of half the declared range: a constant column, or noise that
# exceeds its variance, gives a deviation of 1 / 100 instead of a division by zero.
_LEAST_VARIANCE = 1e-4


@dataclass(kw_only=True, eq=False, repr=False)
class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """x -> (clip(x, low, high) - center) / scale: the declared box becomes [-1, 1] in every column.

    Nothing is learned from the data, so nothing is spent.

    Args:
        data_bounds: (low, high) of the columns, numbers or one value for each column.

    Example:
        >>> PublicScaler(data_bounds=(0, 10)).fit_transform([[0.0], [5.0], [12.0]]).ravel().tolist()
        [-1.0, 0.0, 1.0]
    """

    data_bounds: tuple[Any, Any] = (0.0, 1.0)

    def fit(self, X: Any, y: Any = None) -> PublicScaler:
        """Check the shape of X and the declared constants; no value of X is read beyond that."""
        columns = checked_rows(self, X, reset=True).shape[1]
        self._low, self._high = low, high = column_bounds(self.data_bounds, columns)
        self.center_ = (low + high) / 2
        self.scale_ = np.where(high > low, (high - low) / 2, 1.0)
        return self

    def transform(self, X: Any) -> Array:
        """Scaled rows, float64 of the shape of X."""
        check_is_fitted(self)
        return (np.clip(checked_rows(self, X, reset=False), self._low, self._high) - self.center_) / self.scale_


@dataclass(kw_only=True, eq=False, repr=False)
class PublicOneHot(TransformerMixin, BaseEstimator):
    """One 0/1 column for each declared category of each column; nothing is learned, so nothing is spent.

    Args:
        categories: for each column the list of its values, or one list of values for every column. None is refused:
            they are not read from the data.
        unknown: "error" for an undeclared value, or "zero" for a row of zeros in its place.

    Example:
        >>> PublicOneHot(categories=["a", "b"]).fit_transform([["a"], ["b"]]).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    categories: Sequence[Any] | None = None
    unknown: str = "error"

    def fit(self, X: Any, y: Any = None) -> PublicOneHot:
        """Check the shape of X and the declared categories."""
        X = self._cells(X, reset=True)
        check.choice("unknown", self.unknown, ("error", "zero"))
        if self.categories is None:
            hint = "Pass the values of every column from public knowledge; reading them from the data would leak."
            raise check.fail("categories", "declared", None, hint)
        shared = all(isinstance(known, str) or not isinstance(known, Sequence) for known in self.categories)
        lists = [self.categories] * X.shape[1] if shared else self.categories
        if len(lists) != X.shape[1] or not all(len(known) for known in lists):
            raise check.fail("categories", f"a list of values for each of {X.shape[1]} columns", self.categories)
        self.categories_ = [list(known) for known in lists]
        return self

    def transform(self, X: Any) -> Array:
        """Indicator columns, float64 (n, all categories)."""
        check_is_fitted(self)
        X = self._cells(X, reset=False)
        with check.reading("X", "cells that can be compared with the categories"):
            kind = object if X.dtype == bool else X.dtype
            blocks = [X[:, [place]] == np.array(each, dtype=kind) for place, each in enumerate(self.categories_)]
        missed = np.stack([~block.any(axis=1) for block in blocks], axis=1)
        if self.unknown == "error" and missed.any():
            rows, places = np.nonzero(missed)
            names = getattr(self, "feature_names_in_", range(X.shape[1]))
            truths = any(isinstance(each, bool | np.bool_) for each in X[:1].ravel())
            hint = "Declare True and False for truth values" if truths else "Declare every value"
            hint += ", or pass unknown='zero' for a row of zeros."
            named = [names[place] for place in np.unique(places)]
            raise bad_cells("X", "one of the declared categories in every cell", rows, named, hint)
        return np.hstack(blocks).astype(float)

    def _cells(self, X: Any, *, reset: bool) -> Array:
        with check.reading("X", "a table of cells", keep=QUOTES_NOTHING):
            return validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)  # type: ignore[return-value]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the form column_category."""
        check_is_fitted(self)
        names: Any = _check_feature_names_in(self, input_features)
        pairs = zip(names, self.categories_, strict=True)
        return np.array([f"{name}_{value}" for name, known in pairs for value in known], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PaidTransformer(PrivateEstimator):
    """Base of the transformers that release statistics of every column.

    Args:
        data_bounds: (low, high) of the columns, public; the default is a constant, not read from the data.
        public_size: declared number of records; see `tacit.erm.linear_model.ConvexModel`.
    """

    data_bounds: tuple[Any, Any] = (-1.0, 1.0)
    public_size: int | None = None

    def _opened(self, X: Array) -> tuple[Terms, int]:
        """Terms of a release about X and its public size; sets bounds, `ledger_`, `relation_` and `standing_`."""
        n = len(X) if self.public_size is None else check.count("public_size", self.public_size)
        sized = self.public_size is not None
        if len(X) > (MOST_RECORDS * n if sized else n):
            raise check.fail("public_size", f"at least 1/{MOST_RECORDS} of the number of records", n)
        self._low, self._high = column_bounds(self.data_bounds, X.shape[1])
        self.ledger_ = self._open_ledger(sized=sized)
        self.ledger_.assume(PUBLIC_SIZE if sized else PUBLIC)
        terms = Terms(self._target(n), self.ledger_, self._stream(), sized=sized, weakened=self._weakened)
        self.relation_, self.standing_ = terms.certified, terms.standing
        return terms, n

    @property
    def guarantee_(self) -> TradeOff:
        """Guarantee of one fit."""
        check_is_fitted(self)
        return guarantee_of(vars(self)["step_"], self.relation_, self.standing_)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateScaler(OneToOneFeatureMixin, TransformerMixin, PaidTransformer):
    """x -> (clip(x) - mean) / deviation with a private mean and deviation of every column.

    With u in [-1, 1] the column mapped by its declared bounds, a record's (u, u^2) over all d columns has norm at most
    sqrt(2 d); their sum is released once by the Gaussian mechanism.

    Args:
        data_bounds: (low, high) of the columns, public; the default is a constant, not read from the data.
        public_size: declared number of records that sums are divided by; see `tacit.erm.linear_model.ConvexModel`.
        epsilon: see `PrivateEstimator`.
        delta: see `PrivateEstimator`.
        target: see `PrivateEstimator`.
        relation: see `PrivateEstimator`.
        ledger: see `PrivateEstimator`.
        unsafe_seed: see `PrivateEstimator`.

    Attributes:
        mean_: (columns,), in the units of X.
        scale_: (columns,), in the units of X.
        ledger_: what was spent.
        guarantee_: the guarantee of the release.

    Example:
        >>> import numpy as np
        >>> scaler = PrivateScaler(epsilon=5.0, delta=1e-5, data_bounds=(0, 10), unsafe_seed=0)
        >>> bool(abs(scaler.fit(np.full((1000, 1), 7.0)).mean_[0] - 7) < 0.1)
        True
    """

    def fit(self, X: Any, y: Any = None) -> PrivateScaler:
        """Release the moments; writes the ledger before any noise is drawn."""
        X = checked_rows(self, X, reset=True)
        columns = X.shape[1]
        terms, n = self._opened(X)
        most = n if self.public_size is None else MOST_RECORDS * n
        low, high = self._low, self._high
        middle, half = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)
        unit = (np.clip(X, low, high) - middle) / half
        self.step_ = Gaussian(terms.gaussian())
        terms.charge(self.step_, "means and deviations", exact=True)
        std = self.step_.noise_multiplier * math.sqrt(2 * columns)
        sums = np.stack([unit.sum(axis=0), (unit**2).sum(axis=0)])
        first, second = terms.noisy(sums, std=std, rounding=sum_rounding(most)) / n
        first = np.clip(first, -1.0, 1.0)
        self.mean_ = middle + half * first
        self.scale_ = half * np.sqrt(np.clip(second - first**2, _LEAST_VARIANCE, 1.0))
        return self

    def transform(self, X: Any) -> Array:
        """Standardised rows, float64 of the shape of X."""
        check_is_fitted(self)
        return (np.clip(checked_rows(self, X, reset=False), self._low, self._high) - self.mean_) / self.scale_


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
        check.that(np.isfinite(self.fill_).all(), "fill", "finite", self.fill)
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
