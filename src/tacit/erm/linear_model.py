"""`PrivateModel`: what private models share; `LinearModel`: those with coefficients; `ConvexModel`: those of a loss."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tacit import check
from tacit.calibration import smallest
from tacit.data.dataset import report
from tacit.erm.base import PUBLIC, PUBLIC_SIZE, QUOTES_NOTHING, PrivateEstimator, checked_rows
from tacit.erm.design import Design, column_bounds, largest_norm, smallest_ball
from tacit.erm.gradient import CHECK_SHARE, MORE, NUMBERS, QUANTILE_SHARE, TWO, Shape, lead_of_classes, lead_of_numbers
from tacit.erm.losses import Loss
from tacit.erm.objective import method_of
from tacit.erm.quantiles import CosineDesign, distributions, mechanism_of
from tacit.erm.release import Method, Release, Terms
from tacit.erm.solver import Problem
from tacit.erm.transformers import categories_of, split_bill
from tacit.erm.weights import record_shares
from tacit.errors import InvalidInput, UtilityWarning
from tacit.mechanisms import Gaussian
from tacit.relation import Relation
from tacit.tradeoff import Epsilon, Mu, Target, TradeOff

Array = np.ndarray


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateModel(PrivateEstimator, ABC):
    """Base of the private classifiers and regressors: declared bounds, the fit, and the guarantee of its release.

    Args:
        data_bounds: (low, high) of the columns, public; rows are clipped to them.
        norm_bound: L2 norm that rows are scaled down to, public; by default the largest that data_bounds allow.
            Without either, bounds are read from X: a `LeakWarning`, and a guarantee that is only claimed.
        strict: leaks are errors.

    All other parameters as in `PrivateEstimator`.
    """

    data_bounds: tuple[Any, Any] | None = None
    norm_bound: float | None = None
    strict: bool = False
    _sparse = False

    def fit(self, X: Any, y: Any, **further: Any) -> Self:
        """Fit to rows X (n, columns) and targets y (n,); writes the ledger before any noise is drawn.

        Args:
            X: rows.
            y: one answer for each.
            **further: none; other estimators take `sample_weight`.

        Raises:
            InvalidInput: data or settings break their rule, before anything is spent.
        """
        for name in further:
            hint = "DPLogisticRegression, DPLinearSVC, DPRidge and DPLinearRegression take sample_weight."
            raise check.fail(name, f"left out of the fit of {type(self).__name__}", "a value", hint)
        return self._fitted(*self._records(X, y, reset=True))

    def _fitted(self, X: Array, targets: Array, *weights: Array | float) -> Self:
        self._refuse_set(self._unread())
        self.release_ = self._fit(X, targets, *weights)
        self._describe()
        return self

    @property
    def guarantee_(self) -> TradeOff:
        """Central guarantee of this fit alone; `ledger_` has everything that was spent."""
        return self._released().guarantee

    def privacy_summary(self, delta: float = 1e-5) -> str:
        """Guarantee of the fit at `delta` with its standing, as a line of text."""
        return self._released().summary(check.probability("delta", delta))

    @property
    def facts_(self) -> dict[str, float]:
        """Public numbers of the release: noise scale, sensitivity, strength, steps."""
        return dict(self._released().facts)

    def _refuse_set(self, names: tuple[str, ...]) -> None:
        """Raise `InvalidInput` where one of these parameters was set, which the fit would ignore."""
        defaults = {each.name: each.default for each in fields(self)}
        for name in names:
            value, default = getattr(self, name), defaults[name]
            if value is not default and value != default:
                hint = "Nothing else in these settings reads it."
                raise check.fail(name, f"left at its default {default!r}", value, hint)

    def _released(self) -> Release:
        check_is_fitted(self)
        return self.release_

    def _terms(self, X: Array, target: Target) -> Terms:
        """Terms under which X may be used for `target`; sets `design_` and `ledger_`."""
        sized = getattr(self, "public_size", None) is not None  # else settings follow the number of records
        self.ledger_, stream = self._open_ledger(sized=sized), self._stream()
        self.design_ = self._design(X)
        self.ledger_.assume(PUBLIC_SIZE if sized else PUBLIC)
        return Terms(target, self.ledger_, stream, self._undeclared(), sized, self._weakened)

    def _unread(self) -> tuple[str, ...]:
        """Parameters that a fit with these settings does not read; they must keep their defaults."""
        return ()

    def _undeclared(self) -> tuple[str, ...]:
        """What a fit reads from the data because no argument declares it."""
        return ("data_bounds",) if self.data_bounds is None and self.norm_bound is None else ()

    def _design(self, X: Array) -> Design:
        columns, constant = X.shape[1], self._constant()
        given = None if self.norm_bound is None else check.positive("norm_bound", self.norm_bound)
        if self.data_bounds is not None:
            low, high = column_bounds(self.data_bounds, columns)
            if given is None:
                return Design.of_box(low, high, constant, sparse=self._sparse and constant > 0)
            if constant:
                return Design(low, high, given, constant, *smallest_ball(low, high, given, columns))
            return Design(low, high, given, constant)
        if given is not None:
            return Design(-math.inf, math.inf, given, constant)
        how = "Pass data_bounds=(low, high) or norm_bound=... from public knowledge."
        report("data_bounds", how, strict=self.strict, stacklevel=6)
        low, high = X.min(axis=0), X.max(axis=0)
        return Design(low, high, largest_norm(low, high, columns), constant)

    def _shape(self, size: int, columns: int, target: Target, kind: str) -> Shape:
        """What is public of the fit."""
        relation = Relation.parse(self.relation)
        if isinstance(target, Epsilon) and target.delta == 0:
            return Shape(size, columns, 0.0, kind)
        multiplier = smallest("noise_multiplier", Gaussian, target, relation=relation).value
        return Shape(size, columns, relation.sensitivity / multiplier, kind)

    def _constant(self) -> float:
        """The constant that stands for the intercept; 0 without one."""
        return 0.0

    def _features(self, X: Any) -> Array:
        """Unit rows of X, which are checked first."""
        check_is_fitted(self)
        return self.design_.features(checked_rows(self, X, reset=False))

    def _rows_and_answers(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        """Checked rows and one answer for each of them."""
        if y is None:
            raise InvalidInput(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        X = checked_rows(self, X, reset=reset)
        with check.reading("y", "one answer for each row", keep=QUOTES_NOTHING):
            answers = column_or_1d(y, warn=True)
        check.that(len(X) == len(answers), "y", f"of length {len(X)}, one answer for each row of X", len(answers))
        return X, answers

    def _describe(self) -> None:
        """Set the fitted attributes that follow from `release_`."""

    @abstractmethod
    def _fit(self, X: Array, targets: Array) -> Release:
        """Release the parameters for checked records."""

    @abstractmethod
    def _records(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        """Checked rows, and targets as the loss expects them; with `reset`, what is declared of them is settled."""


@dataclass(kw_only=True, eq=False, repr=False)
class AdditiveModel(PrivateModel):
    """A private model that may be one of cosines of private distribution functions.

    Args:
        features: "cosines" fits an additive model on private distribution functions, which are paid from the same
            budget (`CosineFeatures`; needs data_bounds); None the rows as they are; "auto" chooses by the rule of
            `tacit.erm.gradient`.
        categorical: columns of codes, by place or name, for cosines; see `DPBoostedTrees`.

    All other parameters as in `PrivateModel`.
    """

    features: str | None = "auto"
    categorical: Sequence[Any] = ()

    def _takes_cosines(self, shape: Shape, *, free: bool = True, plain: bool = True) -> bool:
        """Whether this fit is on cosines: by the rule where settings are `plain`, refused where they are not `free`."""
        check.choice("features", self.features or "none", ("auto", "cosines", "none"))
        free = free and self.data_bounds is not None and shape.mu > 0
        if self.features == "auto":
            return free and (bool(self.categorical) or (plain and self.norm_bound is None and shape.cosines()))
        if self.features == "cosines" and not free:
            hint = "They need data_bounds, delta > 0, and the method that the rule gives them."
            raise check.fail("features", 'None or "auto" with these settings', self.features, hint)
        return self.features == "cosines"

    def _categories(self, shape: Shape) -> tuple[dict[int, int], tuple[Array, Array]]:
        """Column -> number of its codes, and the declared ends of all columns."""
        low, high = column_bounds(self.data_bounds, shape.columns)
        return categories_of(self, self.categorical, low, high), (low, high)

    def _cosine_share(self, shape: Shape) -> float:
        """Share of mu^2 for the distribution functions of the columns that are no categories."""
        return QUANTILE_SHARE if len(self._categories(shape)[0]) < shape.columns else 0.0

    def _cosine_design(self, X: Array, shape: Shape, terms: Terms, multiplier: float) -> CosineDesign:
        """Cosines of distribution functions that are released here, at `multiplier`."""
        categories, ends = self._categories(shape)
        known = distributions(X, *ends, terms, multiplier=multiplier, size=shape.records, categories=categories)
        return CosineDesign(known, categories, self._constant())


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(PrivateModel):
    """A private model whose released parameters are the coefficients of unit rows.

    Args:
        fit_intercept: whether there is an intercept.
        intercept_scale: > 0, the constant that stands for the intercept in a row.

    All other parameters as in `PrivateModel`.
    """

    fit_intercept: bool = True
    intercept_scale: float = 0.5

    def _constant(self) -> float:
        return check.positive("intercept_scale", self.intercept_scale) if self.fit_intercept else 0.0

    def _unread(self) -> tuple[str, ...]:
        return (*super()._unread(), *(() if self.fit_intercept else ("intercept_scale",)))

    def _describe(self) -> None:
        self.coef_, self.intercept_ = self._in_units_of_x(self.release_.theta)

    def _in_units_of_x(self, theta: Array) -> tuple[Array, Any]:
        """Coefficients and intercept for raw rows, from theta (p, k)."""
        return self.design_.coefficients(theta)


@dataclass(kw_only=True, eq=False, repr=False)
class ConvexModel(LinearModel, AdditiveModel):
    """A linear model that minimises a regularised convex loss by one of `tacit.erm.METHODS`.

    Args:
        method: "objective" (pure where delta is 0), "gradient", or a `Method` with settings of its own; "auto" chooses
            by the rule of `tacit.erm.gradient`, from public shape alone, and `method_` says what.
        features: "auto", "cosines" or None; see `AdditiveModel`. Cosines need method "auto", and `coef_` then belongs
            to `design_.inputs(X)`.
        categorical: columns of codes, by place or name, for cosines; see `DPBoostedTrees`.
        regularization: lambda >= 0, or "auto": from n, p, the target and prior_norm alone.
        prior_norm: a public guess of the norm of the solution for unit rows.
        public_size: declared number of records, from which strength, steps, rates and the default delta derive; then
            the guarantee holds for add/remove whatever the true number is. None takes the number of records itself,
            which is public then, and certifies "zero_out" in place of "add_remove".
        weight_bound: > 0, public: a larger `sample_weight` of `fit` counts as this one.

    All other parameters as in `LinearModel`.
    """

    method: str | Method = "auto"
    regularization: float | str = "auto"
    prior_norm: float = 12.0
    public_size: int | None = None
    weight_bound: float = 1.0
    _weighted = False
    _near = ""
    _of_loss: ClassVar[tuple[str, ...]] = ()  # parameters that its loss alone reads

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> Self:
        """Fit to rows X (n, columns) and targets y (n,); writes the ledger before any noise is drawn.

        With weights the loss of record i is min(w_i, b) / b times that of an unweighted fit, b = weight_bound (and
        times the weight of its class over the largest, see `DPLogisticRegression`): no record moves the released
        parameters by more than an unweighted one could, by the proof of `tacit.erm.solver.Problem`. What a fit costs
        and how much noise it adds do not depend on the weights.

        Args:
            X: rows.
            y: one answer for each.
            sample_weight: (n,), finite and >= 0; part of the record that they belong to, so as private as the rest.

        Raises:
            InvalidInput: data or settings break their rule, before anything is spent.
        """
        X, targets = self._records(X, y, reset=True)
        self._weighted, self._near = sample_weight is not None, ""
        self._fitted(X, targets, self._shares(targets, sample_weight))
        if self._near:
            self._warn_of_constant()
        return self

    def _shares(self, targets: Array, sample_weight: Any) -> Array | float:
        """The weight of each record as a share of the largest."""
        return 1.0 if sample_weight is None else record_shares(sample_weight, len(targets), self.weight_bound)

    def _fit(self, X: Array, targets: Array, weights: Array | float = 1.0) -> Release:
        size = len(X) if self.public_size is None else check.count("public_size", self.public_size)
        target = self._target(size)
        shape = self._shape(size, X.shape[1], target, self._kind())
        plain = self.regularization == "auto" and "prior_norm" not in self._set()
        if self._takes_cosines(shape, free=self.method == "auto", plain=plain):
            return self._additive(X, targets, weights, target, shape)
        by_rule = "objective" if "prior_norm" in self._set() else shape.method()
        named = by_rule if self.method == "auto" else self.method
        self.method_ = method_of(named, target)
        self._sparse = self.method == "auto" and self._kind() == MORE and self.method_.family == "gradient"
        if self._sparse:
            self.method_ = shape.sparse()
        self._refuse_set((*self._unread_by(self.method_), "categorical"))
        if np.ndim(weights) and self.method_.family == "input":
            hint = "It perturbs records or their sums, in which weights have no place."
            raise check.fail("method", "objective or gradient for weighted data", self.method_.family, hint)
        terms = self._terms(X, target)
        problem = self._problem(X, targets, weights)
        problem = problem.with_strength(self._strength(problem, terms))
        if self.method == "auto" and self.method_.family == "gradient":
            (steps, last), mechanism = split_bill(terms, (1 - CHECK_SHARE, Gaussian), (CHECK_SHARE, Gaussian))
            release = replace(self._released_by_steps(problem, terms, steps, last), mechanism=mechanism)
        else:
            release, self.lead_ = self.method_.release(problem, terms), None
            if self.method == "auto" and shape.few:
                self._near = f"is expected {{}}: {size:,} records times mu give {shape.signal:.1f} for each column"
        strength = release.facts.get("strength", problem.strength)
        self.regularization_ = strength / problem.size
        return release

    def _additive(self, X: Array, targets: Array, weights: Array | float, target: Target, shape: Shape) -> Release:
        """Distribution functions for a tenth of mu^2, then full-batch steps on their cosines for the rest."""
        share = self._cosine_share(shape)
        terms = self._terms(X, target)
        parts = (share, mechanism_of), (1 - share - CHECK_SHARE, Gaussian), (CHECK_SHARE, Gaussian)
        (first, second, third), mechanism = split_bill(terms, *parts)
        self.design_ = self._cosine_design(X, shape, terms, first)
        self.method_ = shape.additive(self._loss(), self.design_.largest)
        problem = self._problem(X, targets, weights)
        problem = problem.with_strength(self._strength(problem, terms))
        release = self._released_by_steps(problem, terms, second, third)
        self.regularization_ = problem.strength / problem.size
        return replace(release, mechanism=mechanism, facts={**release.facts, "quantile_share": share})

    def _released_by_steps(self, problem: Problem, terms: Terms, steps: float, check: float) -> Release:
        """Noisy steps, and the lead of what they found over the constant answer, at these noise multipliers."""
        release = self.method_.release(problem, replace(terms, target=Mu(terms.relation.sensitivity / steps)))
        measured = lead_of_numbers if self._kind() == NUMBERS else lead_of_classes
        scores, size = problem.features @ release.theta, problem.size
        self.lead_ = measured(scores, problem.targets, terms, multiplier=check, size=size)
        if self.lead_.near:
            self._near = f"is {{}}: lead {self.lead_.value:.3g} for each record, noise {self.lead_.noise:.2g}"
        if self.lead_.value < 0 and self._kind() == NUMBERS and problem.constant:
            # The mean was released with the lead, and errs less.
            theta = np.zeros_like(release.theta)
            theta[-1] = self.lead_.mean / problem.features[0, -1]
            return replace(release, theta=theta)
        return release

    def _warn_of_constant(self) -> None:
        """Warn that the model is near the constant answer; what is told is public or was paid for."""
        what = "mean" if self._kind() == NUMBERS else "most frequent class"
        told = self._near.format(f"near the {what}")
        advice = "Raise epsilon, add records or leave out columns."
        warnings.warn(f"{type(self).__name__} {told}. {advice}", UtilityWarning, stacklevel=3)

    def plot(self, path: str) -> None:
        """Draw the additive model into a picture file: what each column adds to the scores, from released numbers."""
        import matplotlib.pyplot as plt

        check_is_fitted(self)
        if not isinstance(self.design_, CosineDesign):
            raise check.fail("features", "cosines for a plot", self.features, "Other models have coefficients: coef_.")
        names = list(getattr(self, "feature_names_in_", ()))
        curves = self.design_.curves(np.atleast_2d(self.coef_))
        figure, axes = plt.subplots(len(curves), 1, figsize=(5, 1.6 * len(curves)), squeeze=False, sharey=True)
        for (column, (values, added)), axis in zip(curves.items(), axes[:, 0], strict=True):
            axis.plot(values, added, drawstyle="steps-mid" if column in self.design_.categories else "default")
            axis.set_xlabel(names[column] if names else f"column {column}")
        figure.tight_layout()
        figure.savefig(path)
        plt.close(figure)

    def _kind(self) -> str:
        """The kind of answers, by which the rule of "auto" goes."""
        return TWO if self._loss().outputs == 1 else MORE

    def _set(self) -> set[str]:
        """Names of the parameters that are not at their defaults."""
        return {each.name for each in fields(self) if getattr(self, each.name) is not each.default}

    def _strength(self, problem: Problem, terms: Terms) -> float:
        """Strength n lambda: the method's own choice for "auto", else the declared one."""
        if self.regularization == "auto":
            return self.method_.strength(problem, terms, check.positive("prior_norm", self.prior_norm))
        hint = 'Use "auto" or a number such as 0.001.'
        return problem.size * check.real("regularization", self.regularization, low=0.0, hint=hint)

    def _unread(self) -> tuple[str, ...]:
        more = ("prior_norm",) if self.regularization != "auto" else ()
        more += () if self._weighted else ("weight_bound",)
        return (*super()._unread(), *more)

    def _unread_by(self, method: Method) -> tuple[str, ...]:
        """Parameters that `method` does not read."""
        prior = () if method.reads_prior_norm else ("prior_norm",)
        size = () if method.any_size else ("public_size",)
        return (*prior, *size, *(() if method.reads_loss else self._of_loss))

    def _problem(self, X: Array, targets: Array, weights: Array | float = 1.0) -> Problem:
        features, intercept = self.design_.features(X), bool(self.design_.intercept_scale)
        size, norm = self.public_size, 1 / self.design_.reach
        return Problem(features, targets, self._loss(), 0.0, intercept, size, norm, weights)

    @abstractmethod
    def _loss(self) -> Loss:
        """Loss of one record."""
