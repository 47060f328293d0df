"""`DPLinearRegression` and `DPRidge`: private least squares with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from tacit import check
from tacit.data.dataset import report
from tacit.data.files import bad_cells
from tacit.erm.base import QUOTES_NOTHING, checked_rows
from tacit.erm.linear_model import ConvexModel, LinearModel
from tacit.erm.losses import Loss, Squared
from tacit.erm.release import Method, Terms
from tacit.erm.solver import Problem

Array = np.ndarray


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, LinearModel):
    """Base of the private regressors: y is clipped to declared bounds and mapped to [-1, 1].

    Args:
        target_bounds: (low, high) of y, public. None reads them from y: a `LeakWarning`, and a guarantee that is only
            claimed.

    All other parameters as in `LinearModel`.
    """

    target_bounds: tuple[float, float] | None = None
    intercept_scale: float = 1.0

    def predict(self, X: Any) -> Array:
        """Predicted answers, (n,)."""
        self._released()
        return self.design_.inputs(checked_rows(self, X, reset=False)) @ self.coef_ + self.intercept_

    def _in_units_of_x(self, theta: Array) -> tuple[Array, Any]:
        coefficients, intercepts = super()._in_units_of_x(theta)
        low, high = self.target_bounds_
        half = (high - low) / 2
        return coefficients[0] * half, float(intercepts[0] * half + (low + high) / 2)

    def _records(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        X, answers = self._rows_and_answers(X, y, reset=reset)
        with check.reading("y", "numbers", keep=QUOTES_NOTHING):
            answers = np.asarray(answers, dtype=np.float64)
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
            # Equal answers leave no range; any width keeps the map to [-1, 1] defined.
            return (low, high) if high > low else (low - 0.5, low + 0.5)
        if not isinstance(self.target_bounds, tuple | list) or len(self.target_bounds) != 2:
            raise check.fail("target_bounds", "a pair (low, high)", self.target_bounds)
        low = check.real("low of target_bounds", self.target_bounds[0])
        return low, check.real("high of target_bounds", self.target_bounds[1], low=low, open_low=True)

    def _undeclared(self) -> tuple[str, ...]:
        return (*super()._undeclared(), *(("target_bounds",) if self.target_bounds is None else ()))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.regressor_tags is not None
        tags.regressor_tags.poor_score = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearRegression(PrivateRegressor, ConvexModel):
    """Differentially private least squares.

    The loss is (s - y)^2 / 2 for y in [-1, 1], Huber's beyond `residual_bound` so that one record's gradient is
    bounded. The default method is `tacit.erm.gradient`'s; "input" releases noisy second moments once.

    Args:
        target_bounds: (low, high) of y, public; see `PrivateRegressor`.
        residual_bound: B > 0, in units of half the range of y; method "input" needs none and refuses another than 1.

    All other parameters and attributes as in `DPLogisticRegression`, less classes and slope_bound.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
        >>> model = DPLinearRegression(
        ...     epsilon=2.0, delta=1e-5, data_bounds=(-1, 1), target_bounds=(-1, 1), unsafe_seed=0
        ... )
        >>> bool(abs(model.fit(x, x[:, 0] / 2).coef_[0] - 0.5) < 0.1)
        True
    """

    prior_norm: float = 2.0
    residual_bound: float = 1.0

    def _unread_by(self, method: Method) -> tuple[str, ...]:
        return (*super()._unread_by(method), *(() if method.reads_loss else ("residual_bound",)))

    def _family(self, *, pure: bool) -> str:
        return "input" if self.variant is not None else super()._family(pure=pure)

    def _binary(self) -> bool:
        return False

    def _loss(self) -> Loss:
        return Squared(check.positive("residual_bound", self.residual_bound))


@dataclass(kw_only=True, eq=False, repr=False)
class DPRidge(DPLinearRegression):
    """Differentially private ridge regression: `DPLinearRegression` with a declared penalty.

    Args:
        alpha: > 0, the penalty (alpha / 2) ||theta||^2 beside sum (s - y)^2 / 2, in the units of scaled rows; methods
            whose proof or noise needs a larger one take that, and `regularization_` says which.

    All other parameters and attributes as in `DPLinearRegression`, less regularization and prior_norm.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
        >>> model = DPRidge(alpha=1.0, epsilon=2.0, delta=1e-5, data_bounds=(-1, 1), target_bounds=(-1, 1))
        >>> model.fit(x, x[:, 0] / 2).predict(x).shape
        (2000,)
    """

    alpha: float = 1.0
    # No parameters of a ridge regression, whose penalty is alpha.
    regularization: float | str = field(default="auto", init=False)
    prior_norm: float = field(default=2.0, init=False)

    def _strength(self, problem: Problem, terms: Terms) -> float:
        return check.positive("alpha", self.alpha)
