"""`DPLinearRegression` and `DPRidge`: private least squares with scikit-learn's interface."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tacit import check
from tacit.accounting import Ledger
from tacit.data.dataset import report
from tacit.data.places import bad_cells
from tacit.erm.base import PrivateLinear, checked_rows, same_length
from tacit.erm.losses import Loss, Squared
from tacit.erm.release import Method
from tacit.errors import InvalidInput
from tacit.tradeoff import Target

Array = np.ndarray


class DPLinearRegression(RegressorMixin, PrivateLinear):
    """Differentially private least squares.

    y is clipped to `target_bounds` and mapped to [-1, 1]; the loss is (s - y)^2 / 2, Huber's beyond `residual_bound`
    so that one record's gradient is bounded. The default method releases noisy second moments once.

    Args:
        target_bounds: (low, high) of y, public. None reads them from y: a `LeakWarning`, and a guarantee that is only
            claimed.
        residual_bound: B > 0, in units of half the range of y; method "input" needs none and ignores it.

    All other parameters and attributes as in `DPLogisticRegression`.
    """

    def __init__(
        self,
        *,
        method: str | Method = "input",
        variant: str | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        relation: str = "add_remove",
        data_bounds: tuple[Any, Any] | None = None,
        target_bounds: tuple[float, float] | None = None,
        norm_bound: float | None = None,
        regularization: float | str = "auto",
        prior_norm: float = 2.0,
        fit_intercept: bool = True,
        intercept_scale: float = 1.0,
        residual_bound: float = 1.0,
        ledger: Ledger | None = None,
        strict: bool = False,
        unsafe_seed: int | None = None,
        unsafe_diagnostics: bool = False,
    ):
        self.method = method
        self.variant = variant
        self.epsilon = epsilon
        self.delta = delta
        self.target = target
        self.relation = relation
        self.data_bounds = data_bounds
        self.target_bounds = target_bounds
        self.norm_bound = norm_bound
        self.regularization = regularization
        self.prior_norm = prior_norm
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.residual_bound = residual_bound
        self.ledger = ledger
        self.strict = strict
        self.unsafe_seed = unsafe_seed
        self.unsafe_diagnostics = unsafe_diagnostics

    def fit(self, X: Any, y: Any) -> DPLinearRegression:
        """Fit to rows X (n, columns) and answers y (n,); writes the ledger before any noise is drawn."""
        X, targets = self._records(X, y, reset=True)
        self._fit(X, targets)
        coefficients, intercepts = self.design_.coefficients(self.release_.theta)
        low, high = self.target_bounds_
        half = (high - low) / 2
        self.coef_ = coefficients[0] * half
        self.intercept_ = float(intercepts[0] * half + (low + high) / 2)
        return self

    def predict(self, X: Any) -> Array:
        """Predicted answers, (n,)."""
        check_is_fitted(self)
        return checked_rows(self, X, reset=False) @ self.coef_ + self.intercept_

    def _loss(self) -> Loss:
        return Squared(check.positive("residual_bound", self.residual_bound))

    def _records(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        if y is None:
            raise InvalidInput(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        X = checked_rows(self, X, reset=reset)
        answers = np.asarray(column_or_1d(y, warn=True), dtype=np.float64)
        same_length(X, answers)
        if not np.isfinite(answers).all():
            raise bad_cells("y", "finite, without NaN or inf", np.flatnonzero(~np.isfinite(answers)), ["y"])
        if reset:
            self.target_bounds_ = self._bounds(answers)
        low, high = self.target_bounds_
        return X, (np.clip(answers, low, high) - (low + high) / 2) * (2 / (high - low))

    def _bounds(self, answers: Array) -> tuple[float, float]:
        if self.target_bounds is None:
            report("target_bounds", "Pass target_bounds=(low, high) from public knowledge.", strict=self.strict)
            low, high = float(answers.min()), float(answers.max())
            return (low, high) if high > low else (low - 0.5, low + 0.5)
        if not isinstance(self.target_bounds, tuple | list) or len(self.target_bounds) != 2:
            raise check.fail("target_bounds", "a pair (low, high)", self.target_bounds)
        low = check.real("low of target_bounds", self.target_bounds[0])
        return low, check.real("high of target_bounds", self.target_bounds[1], low=low, open_low=True)

    def _undeclared(self) -> tuple[str, ...]:
        return (*super()._undeclared(), *(("target_bounds",) if self.target_bounds is None else ()))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        assert tags.regressor_tags is not None
        tags.regressor_tags.poor_score = True
        return tags


class DPRidge(DPLinearRegression):
    """Differentially private ridge regression: `DPLinearRegression` with a declared penalty.

    Args:
        alpha: > 0, the penalty (alpha / 2) ||theta||^2 beside sum (s - y)^2 / 2, in the units of scaled rows.
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        method: str | Method = "input",
        variant: str | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        relation: str = "add_remove",
        data_bounds: tuple[Any, Any] | None = None,
        target_bounds: tuple[float, float] | None = None,
        norm_bound: float | None = None,
        fit_intercept: bool = True,
        intercept_scale: float = 1.0,
        residual_bound: float = 1.0,
        ledger: Ledger | None = None,
        strict: bool = False,
        unsafe_seed: int | None = None,
        unsafe_diagnostics: bool = False,
    ):
        self.alpha = alpha
        super().__init__(
            method=method,
            variant=variant,
            epsilon=epsilon,
            delta=delta,
            target=target,
            relation=relation,
            data_bounds=data_bounds,
            target_bounds=target_bounds,
            norm_bound=norm_bound,
            fit_intercept=fit_intercept,
            intercept_scale=intercept_scale,
            residual_bound=residual_bound,
            ledger=ledger,
            strict=strict,
            unsafe_seed=unsafe_seed,
            unsafe_diagnostics=unsafe_diagnostics,
        )
