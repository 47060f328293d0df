"""`InputPerturbation`: a perturbed table for any other learner; `randomised_labels`: labels by randomised response."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.base import PUBLIC, PrivateEstimator, checked_rows, indices_of, target_for
from tacit.erm.design import Design, declared_bounds, largest_norm
from tacit.erm.release import Terms, guarantee_of, local_gaussian
from tacit.erm.solver import sum_rounding
from tacit.mechanisms import RandomizedResponse
from tacit.noise import SecureStream, Stream, rounded_gaussian
from tacit.noise.discrete import randomised_response
from tacit.relation import Relation
from tacit.tradeoff import TradeOff

Array = np.ndarray

# What the ledger records as assumed of the contributors.
SHARES = "every one of the n places sends its message, a removed record the message of a zero row"


def noisy_symmetric(stream: Stream, matrix: Array, std: float) -> Array:
    """A symmetric matrix with N(0, std^2) noise on its svec (off-diagonal entries times sqrt(2)).

    Args:
        stream: source of the noise.
        matrix: (p, p), symmetric.
        std: > 0.
    """
    above = np.triu_indices(len(matrix), 1)
    noisy = np.diag(rounded_gaussian(np.diag(matrix), stream, std=std))
    if len(above[0]):
        noisy[above] = rounded_gaussian(matrix[above], stream, std=std / math.sqrt(2))
    return noisy + np.triu(noisy, 1).T


@dataclass(kw_only=True, eq=False, repr=False)
class InputPerturbation(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """x -> clip(x) + N(0, s^2 I): each transformed row is mu-GDP locally, mu = 2 norm_bound / s, under replace-one.

    Rows are clipped to `data_bounds` and scaled down to `norm_bound`, and stay in their own units. Every call of
    `transform` draws new noise and adds a step to the ledger: transforming the same rows twice costs twice. Labels are
    not touched; see `randomised_labels`.

    Args:
        epsilon: of the local guarantee of one call; see `PrivateEstimator`.
        delta: of the local guarantee of one call.
        target: another local guarantee of one call, instead of epsilon and delta.
        data_bounds: (low, high) of the columns, public; the default is a constant, not read from the data.
        norm_bound: of a row's norm, public; the default is a constant, not read from the data.
        relation: of a new ledger; the local guarantee itself is replace-one.
        ledger: see `PrivateEstimator`.
        unsafe_seed: see `PrivateEstimator`.

    Attributes:
        ledger_: what was spent.
        local_guarantee_: guarantee of a row's own message.
        noise_std_: of every cell, in the units of X.

    Example:
        >>> import numpy as np
        >>> table = InputPerturbation(epsilon=1.0, delta=1e-5, unsafe_seed=0).fit_transform(np.zeros((3, 2)))
        >>> table.shape
        (3, 2)
    """

    data_bounds: tuple[Any, Any] = (-1.0, 1.0)
    norm_bound: float | None = None
    relation: str = "replace_one"

    def fit(self, X: Any, y: Any = None) -> InputPerturbation:
        """Calibrate to the number of rows; reads nothing else of X."""
        X = checked_rows(self, X, reset=True)
        low, high = declared_bounds(self.data_bounds, X.shape[1])
        norm = largest_norm(low, high, X.shape[1]) if self.norm_bound is None else self.norm_bound
        self.design_ = Design(low, high, check.positive("norm_bound", norm), 0.0)
        self.ledger_ = self._open_ledger()
        self.ledger_.assume(PUBLIC)
        self.ledger_.assume(SHARES)
        self.target_ = self._target(len(X))
        self.step_ = local_gaussian(self.target_)
        self.noise_std_ = self.step_.noise_multiplier * self.design_.norm_bound
        return self

    def transform(self, X: Any) -> Array:
        """Perturbed rows, float64 of the shape of X; one more step in the ledger."""
        check_is_fitted(self)
        rows = self.design_.clipped(checked_rows(self, X, reset=False))
        terms = self._terms()
        terms.charge(self.step_, "perturbed table", exact=True)
        return terms.noisy(rows, std=self.noise_std_, rounding=sum_rounding(1))

    @property
    def local_guarantee_(self) -> TradeOff:
        """Local guarantee of one row, against whoever sees its perturbed copy of one call."""
        check_is_fitted(self)
        return guarantee_of(self.step_, Relation.REPLACE_ONE, self._terms().standing)

    def _terms(self) -> Terms:
        return Terms(self.target_, self.ledger_, self._stream(), weakened=self._weakened)


def randomised_labels(
    y: Any, *, classes: Sequence[Any], epsilon: float, ledger: Ledger, stream: Stream | None = None
) -> Array:
    """K-ary randomised response: each label is kept with odds e^epsilon : 1 against every other class.

    epsilon-DP for each label under replace-one, recorded in `ledger`; e^epsilon / (e^epsilon + k - 1) are kept.

    Args:
        y: labels, (n,), each one of `classes`.
        classes: k >= 2 declared labels.
        epsilon: > 0.
        ledger: written to before any label is drawn.
        stream: source of the noise; the secure stream by default.

    Raises:
        InvalidInput: a label is not declared, or epsilon is not positive.

    Example:
        >>> from tacit.accounting import Ledger
        >>> from tacit.noise import SeededStream
        >>> randomised_labels([0, 1, 1], classes=[0, 1], epsilon=9.0, ledger=Ledger(), stream=SeededStream(0)).tolist()
        [0, 1, 1]
    """
    with check.reading("y", "one label for each record"):
        labels = np.asarray(y)
    known, places = indices_of(labels, classes, strict=True)
    check.positive("epsilon", epsilon)
    source = stream if stream is not None else SecureStream()
    terms = Terms(target_for(None, epsilon, 0.0, len(places)), ledger, source)
    terms.charge(RandomizedResponse(epsilon), "labels", exact=True)
    return known[randomised_response(source, places, len(known), epsilon)]
