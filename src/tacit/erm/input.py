"""Input perturbation that is proven: Gaussian noise on summed statistics (mode A2), on tables, and on labels.

`InputPerturbation`: a perturbed table for any other learner; `randomised_labels`: labels by randomised response.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.base import PUBLIC, PrivateEstimator, checked_rows, indices_of, target_for
from tacit.erm.design import Design, declared_bounds, largest_norm
from tacit.erm.losses import HuberHinge, Logistic, Squared
from tacit.erm.release import Method, Release, Terms, guarantee_of, local_gaussian
from tacit.erm.solver import Problem, check_unit_rows, sum_rounding
from tacit.mechanisms import Gaussian, RandomizedResponse
from tacit.noise import SecureStream, Stream, rounded_gaussian
from tacit.noise.discrete import randomised_response
from tacit.relation import Relation
from tacit.tradeoff import TradeOff

Array = np.ndarray

# What the ledger records as assumed of the contributors.
SHARES = "every one of the n places sends its message, a removed record the message of a zero row"


def moments(problem: Problem) -> tuple[float, Array]:
    """Curvature h and answers (n, k) of the quadratic approximation of the loss: h theta^T H theta / 2 - g theta.

    H = sum x x^T, g = sum x answer^T. Squared loss: h = 1, answer = y, exact for |y| <= 1. Logistic loss:
    log 2 - m / 2 + m^2 / 8, its expansion at 0, so h = 1/4 and answer = +-1/2. Softmax likewise: h = 1/k and answer
    e_y - 1/k (the expansion's curvature is at most that of h I on the scores). Huber hinge: h = 1, answer = +-1.
    """
    loss, y = problem.loss, problem.targets
    if isinstance(loss, Squared):
        return 1.0, np.clip(y, -1.0, 1.0)[:, None]
    if isinstance(loss, Logistic):
        return 0.25, (y - 0.5)[:, None]
    if isinstance(loss, HuberHinge):
        return 1.0, (2.0 * y - 1.0)[:, None]
    return 1 / loss.outputs, np.eye(loss.outputs)[y] - 1 / loss.outputs


def answer_bound(problem: Problem) -> float:
    """Bound on the norm of one record's answer in `moments`."""
    loss = problem.loss
    if isinstance(loss, Squared | HuberHinge):
        return 1.0
    return 0.5 if isinstance(loss, Logistic) else math.sqrt(1 - 1 / loss.outputs)


def ridge(problem: Problem, curvature: float, second: Array, first: Array, floor: float) -> Array:
    """Ridge solution (h H + strength I)^{-1} g after raising H's eigenvalues to 0 and the strength to `floor`.

    Args:
        problem: which declares the strength.
        curvature: h.
        second: (p, p), noisy H; symmetrised here.
        first: (p, k), noisy g.
        floor: >= 0, public.
    """
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    lifted = curvature * np.maximum(values, 0.0) + max(problem.strength, floor)
    return vectors @ ((vectors.T @ first) / lifted[:, None])


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


@dataclass(frozen=True)
class Aggregate(Method):
    """A2, sufficient statistics perturbation: the trainer sees only sum_i (phi_i + w_i).

    phi_i = (a svec(x x^T), c x answer^T / A), w_i ~ N(0, s^2 / n I).

    ||phi_i|| <= Phi = sqrt(a^2 + c^2), so the sum is one Gaussian step, mu = Phi / s (zero-out: the record's
    contribution is zeroed, its share of noise kept) or `replaced` / s (replace-one), whatever is computed from it. Each
    contributor adds its own w_i before a secure sum, so against whoever sees a single message it has
    mu_local = `replaced` sqrt(n) / s: the exchange rate between local and central is exactly sqrt(n) under replace-one.
    theta solves the ridge equations of `moments`, with the strength lifted to the spectral norm that the noise has
    in expectation, a public number.

    Args:
        second_share: a^2 / Phi^2 in (0, 1), how much of the budget the second moments get.

    Source: sufficient statistics perturbation (Vu & Slavkovic 2009; Wang 2018), distributed; derived here.

    Example:
        >>> Aggregate(second_share=0.3).second_share
        0.3
    """

    family: ClassVar[str] = "input"
    reads_loss: ClassVar[bool] = False
    name: ClassVar[str] = "aggregate"
    second_share: float = 0.5

    def __post_init__(self) -> None:
        check.probability("second_share", self.second_share, open_low=True, open_high=True)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the ridge solution of the noisy sums."""
        check_unit_rows(problem.features)
        n, width = problem.records, problem.shape[0]
        step = Gaussian(terms.gaussian())
        # Accountants take a replaced record to move the sum by 2; it moves it by `replaced`.
        moved = self.replaced / 2 if terms.relation is Relation.REPLACE_ONE else 1.0
        std = step.noise_multiplier * moved
        terms.ledger.assume(SHARES)
        terms.charge(step, "sum of perturbed statistics", exact=True)
        second, first = self.statistics(problem, terms, std)
        curvature, _ = moments(problem)
        floor = curvature * math.sqrt(2 * width) * std / math.sqrt(self.second_share)
        facts = {"noise_std": std, "local_noise_std": std / math.sqrt(n), "strength": max(problem.strength, floor)}
        theta = ridge(problem, curvature, second, first, floor)
        return terms.release(theta, step, facts, local_mu=self.replaced * math.sqrt(n) / std)

    @property
    def replaced(self) -> float:
        """Sensitivity under replace-one in units of Phi: sqrt(2 + c^4 / (2 a^2)), or 2 c where c^2 > 2 a^2; below 2.

        With u = <x, x'>, ||phi - phi'||^2 <= a^2 (|x|^4 + |x'|^4 - 2 u^2) + c^2 (|x|^2 + |x'|^2 + 2 |u|), answers being
        the worst opposite ones. For a given u it grows with |x| and |x'|, so both are 1: 2 - 2 a^2 u^2 + 2 c^2 |u|,
        which is largest at |u| = min(1, c^2 / (2 a^2)).
        """
        a, c = self.second_share, 1 - self.second_share
        u = min(1.0, c / (2 * a))
        return math.sqrt(2 - 2 * a * u**2 + 2 * c * u)

    def statistics(self, problem: Problem, terms: Terms, std: float) -> tuple[Array, Array]:
        """Sums of x x^T and of x answer^T with the sum of the contributors' noise, in their own units.

        The n shares of variance std^2 / n add up to one draw of variance std^2.
        """
        a, c = math.sqrt(self.second_share), math.sqrt(1 - self.second_share)
        _, answers = moments(problem)
        second = problem.features.T @ problem.features
        first = problem.features.T @ answers
        scale, rounding = std * answer_bound(problem) / c, sum_rounding(problem.most_records)
        return (
            noisy_symmetric(terms.stream, second, std / a * (1 + rounding)),
            terms.noisy(first, std=scale, rounding=rounding),
        )


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
