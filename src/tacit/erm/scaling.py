"""`PrivateScaler`: standardisation whose means and deviations are paid for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from tacit.accounting import Ledger
from tacit.erm.base import PUBLIC, checked_rows, ledger_of, stream_of, target_for
from tacit.erm.design import declared_bounds
from tacit.erm.release import Terms, guarantee_of
from tacit.mechanisms import Gaussian
from tacit.noise import gaussian
from tacit.tradeoff import Target, TradeOff

Array = np.ndarray


class PrivateScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """x -> (clip(x) - mean) / deviation with a private mean and deviation of every column.

    With u in [-1, 1] the column mapped by its declared bounds, a record's (u, u^2) over all d columns has norm at most
    sqrt(2 d); their sum is released once by the Gaussian mechanism. Deviations are kept above 1 / 100 of the bounds.

    Args:
        epsilon, delta, target: the guarantee of one fit.
        data_bounds: (low, high) of the columns, public; the default is a constant, not read from the data.
        relation, ledger, unsafe_seed: as in `DPLogisticRegression`.

    Attributes:
        mean_, scale_: (columns,), in the units of X.
        ledger_, guarantee_.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        data_bounds: tuple[Any, Any] = (-1.0, 1.0),
        relation: str = "add_remove",
        ledger: Ledger | None = None,
        unsafe_seed: int | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.target = target
        self.data_bounds = data_bounds
        self.relation = relation
        self.ledger = ledger
        self.unsafe_seed = unsafe_seed

    def fit(self, X: Any, y: Any = None) -> PrivateScaler:
        """Release the moments; writes the ledger before any noise is drawn."""
        X = checked_rows(self, X, reset=True)
        n, columns = X.shape
        low, high = (np.broadcast_to(end, (columns,)) for end in declared_bounds(self.data_bounds, columns))
        middle, half = (low + high) / 2, np.where(high > low, (high - low) / 2, 1.0)
        unit = (np.clip(X, low, high) - middle) / half
        self.ledger_ = ledger_of(self.ledger, self.relation)
        self.ledger_.assume(PUBLIC)
        target = target_for(self.target, self.epsilon, self.delta, n)
        terms = Terms(target, self.ledger_, stream_of(self.unsafe_seed))
        self.step_, self.standing_ = Gaussian(terms.gaussian()), terms.standing
        terms.charge(self.step_, "means and deviations")
        std = self.step_.noise_multiplier * math.sqrt(2 * columns)
        sums = np.stack([unit.sum(axis=0), (unit**2).sum(axis=0)])
        first, second = (sums + gaussian(terms.stream, sums.shape, std=std)) / n
        first = np.clip(first, -1.0, 1.0)
        self._low, self._high = low, high
        self.mean_ = middle + half * first
        self.scale_ = half * np.sqrt(np.clip(second - first**2, 1e-4, 1.0))
        return self

    def transform(self, X: Any) -> Array:
        """Standardised rows, float64 of the shape of X."""
        check_is_fitted(self)
        return (np.clip(checked_rows(self, X, reset=False), self._low, self._high) - self.mean_) / self.scale_

    @property
    def guarantee_(self) -> TradeOff:
        """The guarantee of one fit."""
        check_is_fitted(self)
        return guarantee_of(self.step_, self.ledger_.relation, self.standing_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
