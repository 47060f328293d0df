"""`InputPerturbation`, a perturbed table for any other learner, and `randomised_labels`, its labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.base import PUBLIC, PrivateEstimator, checked_rows, indices_of, target_for
from tacit.erm.design import Design, declared_bounds, largest_norm
from tacit.erm.release import Terms, guarantee_of
from tacit.erm.solver import sum_rounding
from tacit.mechanisms import RandomizedResponse
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import uniform_integers
from tacit.relation import Relation
from tacit.tradeoff import TradeOff
from tacit_papers.input_perturbation.input_methods import SHARES, local_gaussian


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

    def transform(self, X: Any) -> np.ndarray:
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
) -> np.ndarray:
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


def randomised_response(stream: Stream, answers: np.ndarray, count: int, epsilon: float) -> np.ndarray:
    """Each of `answers` kept with odds of at most e^epsilon : 1 against every other of `count`, in integers.

    An answer stays where a random word is below K, the largest integer with K (count - 1) <= E (2^64 - K) for a
    rational E <= e^epsilon.

    Args:
        stream: source of the bits.
        answers: in 0, ..., count - 1, shape (n,).
        count: number of possible answers, >= 2.
        epsilon: > 0.

    Raises:
        InvalidInput: `count` is below 2, or epsilon not positive.

    Example:
        >>> from tacit.noise import SeededStream
        >>> randomised_response(SeededStream(0), np.array([0, 1]), 2, 40.0).tolist()
        [0, 1]
    """
    others = check.count("count", count, minimum=2) - 1
    odds = Fraction(math.exp(min(check.positive("epsilon", epsilon), 600.0))) * (1 - Fraction(1, 2**50))
    kept = stream.bits(len(answers)) < np.uint64(min(int(2**64 * odds / (odds + others)), 2**64 - 1))
    moves = np.zeros(len(answers), np.int64)
    moves[~kept] = 1 + uniform_integers(stream, others, int((~kept).sum()))
    return (answers + moves) % count
