"""`InputPerturbation`: a perturbed table for any other learner; labels by randomised response."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from tacit import check
from tacit.accounting import Ledger
from tacit.calibration import smallest
from tacit.erm.base import PUBLIC, checked_rows, indices_of, ledger_of, stream_of, target_for
from tacit.erm.design import Design, declared_bounds, largest_norm
from tacit.erm.input import SHARES
from tacit.erm.release import Terms, guarantee_of
from tacit.mechanisms import Gaussian, RandomizedResponse
from tacit.noise import Stream, gaussian
from tacit.relation import Relation
from tacit.tradeoff import Target, TradeOff

Array = np.ndarray


class InputPerturbation(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """x -> clip(x) + N(0, s^2 I): each transformed row is mu-GDP locally, mu = 2 norm_bound / s, under replace-one.

    Rows are clipped to `data_bounds` and scaled down to `norm_bound`, and stay in their own units. Every call of
    `transform` draws new noise and adds a step to the ledger: transforming the same rows twice costs twice. Labels are
    not touched; see `randomised_labels`.

    Args:
        epsilon, delta, target: the local guarantee of one call; delta None means min(1e-5, n^-1.1).
        data_bounds, norm_bound: public; the defaults are constants, not read from the data.
        relation: of a new ledger; the local guarantee itself is replace-one.
        ledger, unsafe_seed: as in `DPLogisticRegression`.

    Attributes:
        ledger_, local_guarantee_, noise_std_.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        data_bounds: tuple[Any, Any] = (-1.0, 1.0),
        norm_bound: float | None = None,
        relation: str = "replace_one",
        ledger: Ledger | None = None,
        unsafe_seed: int | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.target = target
        self.data_bounds = data_bounds
        self.norm_bound = norm_bound
        self.relation = relation
        self.ledger = ledger
        self.unsafe_seed = unsafe_seed

    def fit(self, X: Any, y: Any = None) -> InputPerturbation:
        """Calibrate to the number of rows; reads nothing else of X."""
        X = checked_rows(self, X, reset=True)
        low, high = declared_bounds(self.data_bounds, X.shape[1])
        norm = largest_norm(low, high, X.shape[1]) if self.norm_bound is None else self.norm_bound
        self.design_ = Design(low, high, check.positive("norm_bound", norm), 0.0)
        self.ledger_ = ledger_of(self.ledger, self.relation)
        self.ledger_.assume(PUBLIC)
        self.ledger_.assume(SHARES)
        self.target_ = target_for(self.target, self.epsilon, self.delta, len(X))
        found = smallest("noise_multiplier", Gaussian, self.target_, relation=Relation.REPLACE_ONE)
        self.step_ = Gaussian(found.value)
        self.noise_std_ = self.step_.noise_multiplier * self.design_.norm_bound
        return self

    def transform(self, X: Any) -> Array:
        """Perturbed rows, float64 of the shape of X; one more step in the ledger."""
        check_is_fitted(self)
        rows = self.design_.clipped(checked_rows(self, X, reset=False))
        terms = self._terms()
        terms.charge(self.step_, "perturbed table")
        return rows + gaussian(terms.stream, rows.shape, std=self.noise_std_)

    @property
    def local_guarantee_(self) -> TradeOff:
        """Of one row, against whoever sees its perturbed copy of one call."""
        check_is_fitted(self)
        return guarantee_of(self.step_, Relation.REPLACE_ONE, self._terms().standing)

    def _terms(self) -> Terms:
        return Terms(self.target_, self.ledger_, stream_of(self.unsafe_seed))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


def randomised_labels(
    y: Any, *, classes: Sequence[Any], epsilon: float, ledger: Ledger, stream: Stream | None = None
) -> Array:
    """Labels of which each is kept with odds e^epsilon : 1 against every other class (k-ary randomised response).

    epsilon-DP for each label under replace-one, recorded in `ledger`; e^epsilon / (e^epsilon + k - 1) are kept.

    Args:
        y: labels, (n,), each one of `classes`.
        classes: k >= 2 declared labels.
        epsilon: > 0.
    """
    known, places = indices_of(np.asarray(y), classes, strict=True)
    check.positive("epsilon", epsilon)
    source = stream if stream is not None else stream_of(None)
    terms = Terms(target_for(None, epsilon, 0.0, len(places)), ledger, source)
    terms.charge(RandomizedResponse(epsilon), "labels")
    others = len(known) - 1
    flipped = source.uniform(len(places)) > 1 / (1 + others * math.exp(-epsilon))
    moves = 1 + np.minimum((source.uniform(len(places)) * others).astype(int), others - 1)
    return known[(places + flipped * moves) % len(known)]
