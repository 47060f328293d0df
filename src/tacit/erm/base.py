"""What the scikit-learn estimators share: checks, public scaling, the private fit, and its fitted attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import check
from tacit.accounting import Ledger
from tacit.data.dataset import report
from tacit.data.places import bad_cells
from tacit.erm.design import Design, declared_bounds, largest_norm, smallest_ball
from tacit.erm.losses import Loss
from tacit.erm.methods import method_of
from tacit.erm.release import Method, Release, Terms
from tacit.erm.solver import Problem, minimise
from tacit.noise import SecureStream, SeededStream
from tacit.relation import Relation
from tacit.tradeoff import Epsilon, Target, TradeOff
from tacit.training.plan import warn_about_delta

Array = np.ndarray

PUBLIC = "The number of training records and every declared bound, class and setting are public."
DIAGNOSTICS = "unsafe_diagnostics: the optimality gap was computed from the data without being paid for"


class PrivateLinear(BaseEstimator):
    """Base of the private linear models; see `DPLogisticRegression` for the parameters that all of them share."""

    method: str | Method
    variant: str | None
    epsilon: float
    delta: float | None
    target: Target | None
    relation: str
    data_bounds: tuple[Any, Any] | None
    norm_bound: float | None
    regularization: float | str
    prior_norm: float
    intercept_scale: float
    fit_intercept: bool
    ledger: Ledger | None
    strict: bool
    unsafe_seed: int | None
    unsafe_diagnostics: bool
    release_: Release
    design_: Design

    @property
    def guarantee_(self) -> TradeOff:
        """The central guarantee of this fit alone; `ledger_` has everything that was spent."""
        return self._released().guarantee

    @property
    def local_guarantee_(self) -> TradeOff | None:
        """What a record's own message reveals, where the data themselves were perturbed; else None."""
        return self._released().local_guarantee

    @property
    def leakage_floor_(self) -> TradeOff | None:
        """For claimed guarantees: leakage that an instance covered by the claim is proven to have."""
        return self._released().floor

    @property
    def exchange_rate_(self) -> float | None:
        """mu of the local guarantee over mu of the central one; sqrt(n) for aggregated statistics of n contributors."""
        return None if self.local_guarantee_ is None else self._released().exchange_rate

    def privacy_summary(self, delta: float = 1e-5) -> str:
        """What the fit protects, for printing: central and local guarantees at `delta`, standings, exchange rate."""
        return self._released().summary(check.probability("delta", delta))

    @property
    def facts_(self) -> dict[str, float]:
        """Public numbers of the release: noise scale, sensitivity, strength, steps."""
        return dict(self._released().facts)

    def optimality_gap(self, X: Any, y: Any) -> float:
        """(F(theta) - min F) / n on the given records, at the fitted regularisation: for whoever holds the data."""
        check_is_fitted(self)
        X, targets = self._records(X, y, reset=False)
        return mean_gap(self._problem(X, targets), self.release_.theta)

    def _released(self) -> Release:
        check_is_fitted(self)
        return self.release_

    def _fit(self, X: Array, targets: Array) -> Release:
        """Release theta for checked records; sets every fitted attribute but the labels'."""
        records = len(X)
        target = self._target(records)
        chosen = method_of(self.method, self.variant, target)
        terms = self._terms(X, target)
        bare = self._problem(X, targets, strength=0.0)
        if self.regularization == "auto":
            prior = check.positive("prior_norm", self.prior_norm)
            strength = chosen.strength(bare, terms, prior)
        else:
            hint = 'Use "auto" or a number such as 0.001.'
            strength = records * check.real("regularization", self.regularization, low=0.0, hint=hint)
        problem = bare.with_strength(strength)
        self.release_ = chosen.release(problem, terms)
        self.ledger_ = terms.ledger
        self.method_ = chosen
        self.regularization_ = self.release_.facts.get("strength", strength) / records
        self.coef_, self.intercept_ = self.design_.coefficients(self.release_.theta)
        if self.unsafe_diagnostics:
            terms.ledger.mark_unsafe("unsafe_diagnostics")
            terms.ledger.assume(DIAGNOSTICS)
            self.optimality_gap_ = self._gap(problem)
        return self.release_

    def _terms(self, X: Array, target: Target) -> Terms:
        """Terms under which X may be used for `target`, once its `design_` is known."""
        ledger, stream = ledger_of(self.ledger, self.relation), stream_of(self.unsafe_seed)
        self.design_ = self._design(X)
        ledger.assume(PUBLIC)
        return Terms(target, ledger, stream, self._undeclared())

    def _undeclared(self) -> tuple[str, ...]:
        """What a fit reads from the data because no argument declares it."""
        return ("data_bounds",) if self.data_bounds is None and self.norm_bound is None else ()

    def _gap(self, problem: Problem) -> float:
        return mean_gap(problem.with_strength(self.regularization_ * problem.records), self.release_.theta)

    def _problem(self, X: Array, targets: Array, strength: float | None = None) -> Problem:
        features = self.design_.features(X)
        held = self.regularization_ * len(X) if strength is None else strength
        return Problem(features, targets, self._loss(), held, constant=bool(self.design_.intercept_scale))

    def _design(self, X: Array) -> Design:
        columns = X.shape[1]
        how = "Pass data_bounds=(low, high) or norm_bound=... from public knowledge."
        low, high = -math.inf, math.inf
        if self.data_bounds is not None:
            low, high = declared_bounds(self.data_bounds, columns)
        elif self.norm_bound is None:
            report("data_bounds", how, strict=self.strict, stacklevel=6)
            low, high = X.min(axis=0), X.max(axis=0)
        norm = largest_norm(low, high, columns) if self.norm_bound is None else self.norm_bound
        norm, constant = check.positive("norm_bound", norm), self._constant()
        if not constant or self.data_bounds is None:
            return Design(low, high, norm, constant)
        return Design(low, high, norm, constant, *smallest_ball(low, high, norm, columns))

    def _constant(self) -> float:
        """The constant that stands for the intercept; 0 without one."""
        return check.positive("intercept_scale", self.intercept_scale) if self.fit_intercept else 0.0

    def _target(self, records: int) -> Target:
        return target_for(self.target, self.epsilon, self.delta, records)

    def _loss(self) -> Loss:
        raise NotImplementedError

    def _records(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        raise NotImplementedError


def mean_gap(problem: Problem, theta: Array) -> float:
    """(F(theta) - min F) / n, short by at most 1e-9: a gradient norm g is within g^2 / (2 strength) of the minimum."""
    tolerance = max(math.sqrt(2e-9 * problem.strength * problem.records), 1e-6)
    return problem.mean_gap(theta, minimise(problem, tolerance=tolerance).theta)


def target_for(target: Target | None, epsilon: float | None, delta: float | None, records: int) -> Target:
    """`target`, or `Epsilon(epsilon, delta)` with delta = min(1e-5, n^-1.1) unless given; warns where delta >= 1/n."""
    if target is not None:
        if not isinstance(target, Target):
            raise check.fail("target", "a Target such as Advantage(0.1), Mu(0.5) or Epsilon(1, 1e-6)", target)
        return target
    chosen = min(1e-5, float(records) ** -1.1) if delta is None else delta
    warn_about_delta(chosen, records)
    return Epsilon(check.positive("epsilon", epsilon, "Use a finite number such as 1.0."), chosen)


def ledger_of(ledger: Ledger | None, relation: str | Relation) -> Ledger:
    """The ledger to spend from: `ledger` itself, or a new one under `relation`."""
    if ledger is None:
        return Ledger(relation=relation)
    if not isinstance(ledger, Ledger):
        raise check.fail("ledger", "a tacit Ledger or None", ledger)
    if ledger.relation is not Relation.parse(relation):
        raise check.fail("relation", f"that of the given ledger, {ledger.relation.value}", str(relation))
    return ledger


def stream_of(seed: int | None) -> SecureStream | SeededStream:
    """The secure stream, or a seeded one, which a ledger marks as unsafe."""
    return SecureStream() if seed is None else SeededStream(check.count("unsafe_seed", seed, minimum=0))


def checked_rows(estimator: BaseEstimator, X: Any, *, reset: bool) -> Array:
    """X as float64 (rows, columns), its shape and names checked; cells that are not finite are named."""
    array: Any = validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
    finite = np.isfinite(array)
    if not finite.all():
        rows, places = np.nonzero(~finite)
        names = getattr(estimator, "feature_names_in_", range(array.shape[1]))
        raise bad_cells("X", "finite, without NaN or inf", rows, [names[i] for i in np.unique(places)])
    return array


def same_length(X: Array, y: Array) -> None:
    """Raise `InvalidInput` unless there is one answer for each row."""
    if len(X) != len(y):
        raise check.fail("y", f"of length {len(X)}, one answer for each row of X", len(y))


def indices_of(y: Array, classes: Sequence[object] | Array | None, *, strict: bool) -> tuple[Array, Array]:
    """(classes, index of each label); undeclared classes are read from y, which is a leak.

    Raises `InvalidInput` for labels outside the classes and for one class only.
    """
    found = np.unique(y)
    if classes is None:
        report("classes", "Pass classes=[...] from public knowledge.", strict=strict, stacklevel=6)
        known = found
    else:
        given = list(classes)
        known = np.unique(np.asarray(given))
        if len(known) != len(given):
            raise check.fail("classes", "a list of different labels", given)
    if len(known) < 2:
        raise check.fail("classes", "at least two", known.tolist(), "A model of one class learns nothing.")
    unknown = [label for label in found.tolist() if label not in set(known.tolist())]
    if unknown:
        raise check.fail("y", f"labels of the declared classes {known.tolist()[:10]}", unknown[:5])
    if len(found) < 2:
        raise check.fail("y", "labels of at least two classes", found.tolist())
    return known, np.searchsorted(known, y)
