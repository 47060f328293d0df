"""Private linear estimators with scikit-learn's interface: logistic regression, support vectors, ridge."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import ClassifierTags, RegressorTags, Tags
from sklearn.utils.multiclass import check_classification_targets

from tacit import check
from tacit.data.dataset import report
from tacit.data.declarations import pair
from tacit.data.files import bad_cells
from tacit.erm.base import QUOTES_NOTHING, checked_rows, indices_of
from tacit.erm.gradient import NUMBERS
from tacit.erm.linear_model import ConvexModel, LinearModel, PrivateModel
from tacit.erm.losses import HuberHinge, Logistic, Loss, Softmax, Squared, clipped_chance, softmax
from tacit.erm.release import Terms
from tacit.erm.solver import Problem
from tacit.erm.weights import class_shares
from tacit.errors import InvalidInput

Array = np.ndarray


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateModel):
    """Base of the private classifiers.

    Args:
        classes: every label that can occur, public. None reads them from y: a `LeakWarning`, and a guarantee that
            is only claimed.

    All other parameters as in `PrivateModel`.
    """

    classes: Sequence[object] | None = None

    @abstractmethod
    def decision_function(self, X: Any) -> Array:
        """Scores, (n,) of the second class for two classes, else (n, classes)."""

    def predict(self, X: Any) -> Array:
        """The class of the largest score, (n,)."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[places]

    def _records(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        X, labels = self._rows_and_answers(X, y, reset=reset)
        declared = self.classes if reset else self.classes_
        if declared is None:
            check_classification_targets(labels)
        self.classes_, places = indices_of(labels, declared, strict=self.strict)
        return X, places if len(self.classes_) > 2 else places.astype(float)

    def _undeclared(self) -> tuple[str, ...]:
        return (*super()._undeclared(), *(("classes",) if self.classes is None else ()))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(poor_score=True)
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(PrivateClassifier, ConvexModel):
    """A classifier whose scores are linear in the columns of X.

    Args:
        class_weight: class -> weight > 0 in the loss, public; 1 for a class that is not named. A record counts by its
            class's share of the largest weight.

    All other parameters as in `PrivateClassifier` and `ConvexModel`.
    """

    class_weight: Mapping[Any, float] | None = None

    def decision_function(self, X: Any) -> Array:
        """Scores in the units of the loss, (n,) of the second class for two classes, else (n, classes)."""
        self._released()
        scores = self.design_.inputs(checked_rows(self, X, reset=False)) @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _shares(self, targets: Array, sample_weight: Any) -> Array | float:
        shares = super()._shares(targets, sample_weight)
        if self.class_weight is None:
            return shares
        return shares * class_shares(self.class_weight, self.classes_)[targets.astype(int)]


@dataclass(kw_only=True, eq=False, repr=False)
class DPLogisticRegression(LinearClassifier):
    """Differentially private logistic regression, binary or multinomial.

    Minimises sum_i log(1 + e^{-m_i}) + (n regularization / 2) ||theta||^2 (softmax for more classes), theta with the
    intercept in it, over rows clipped to declared bounds and scaled into the unit ball (`Design`). With declared boxes
    and enough records the rule takes an additive model; else objective perturbation for two classes and noisy gradients
    for more.

    Args:
        method: see `ConvexModel`.
        features: see `ConvexModel`.
        categorical: see `ConvexModel`.
        regularization: see `ConvexModel`.
        prior_norm: see `ConvexModel`.
        public_size: see `ConvexModel`.
        weight_bound: see `ConvexModel`.
        class_weight: class -> weight > 0 in the loss, public; see `LinearClassifier`.
        epsilon: see `PrivateEstimator`.
        delta: see `PrivateEstimator`.
        target: see `PrivateEstimator`.
        relation: see `PrivateEstimator`.
        ledger: see `PrivateEstimator`.
        unsafe_seed: see `PrivateEstimator`.
        data_bounds: see `PrivateModel`.
        norm_bound: see `PrivateModel`.
        strict: see `PrivateModel`.
        classes: every label that can occur, public; see `PrivateClassifier`.
        fit_intercept: see `LinearModel`.
        intercept_scale: see `LinearModel`.
        slope_bound: in (0, 1]; below 1, gradients are those of logistic regression clipped to this norm (two classes),
            which halves the noise at the default; probabilities allow for it.

    Attributes:
        coef_: as in scikit-learn, in the units of X.
        intercept_: as in scikit-learn, in the units of X.
        classes_: as in scikit-learn.
        ledger_: what was spent.
        guarantee_: central guarantee of the release.
        facts_: public numbers of the release.
        regularization_: the regularization of the release.
        method_: the method of the release.
        lead_: a `Lead` over the constant answer, measured with noise where "auto" takes noisy steps; else None.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
        >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], data_bounds=(-1, 1), unsafe_seed=0)
        >>> bool(model.fit(x, x[:, 0] > 0).score(x, x[:, 0] > 0) > 0.8)
        True
    """

    slope_bound: float = 0.5

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, (n, classes)."""
        scores = self.decision_function(X)
        if scores.ndim > 1:
            return softmax(scores)
        chance = clipped_chance(scores, self.slope_bound)
        return np.stack([1 - chance, chance], axis=1)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))

    def _unread(self) -> tuple[str, ...]:
        return (*super()._unread(), *(("slope_bound",) if len(self.classes_) > 2 else ()))

    def _loss(self) -> Loss:
        classes = len(self.classes_)
        return Logistic(self.slope_bound) if classes == 2 else Softmax(classes)


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearSVC(LinearClassifier):
    """Differentially private linear support vector machine with the Huber-rounded hinge loss; two classes.

    Args:
        half_width: h > 0 of `HuberHinge`; its smoothness is 1 / (2h).

    All other parameters and attributes as in `DPLogisticRegression`.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
        >>> model = DPLinearSVC(epsilon=2.0, delta=1e-5, classes=[0, 1], data_bounds=(-1, 1), unsafe_seed=0)
        >>> bool(model.fit(x, x[:, 0] > 0).score(x, x[:, 0] > 0) > 0.8)
        True
    """

    half_width: float = 0.5
    features: str | None = None
    _of_loss = ("half_width",)

    def _records(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        X, targets = super()._records(X, y, reset=reset)
        if len(self.classes_) > 2:
            raise InvalidInput(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"classes must be two; got {len(self.classes_)}. Use DPLogisticRegression."
            )
        return X, targets

    def _loss(self) -> Loss:
        return HuberHinge(self.half_width)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(poor_score=True, multi_class=False)
        return tags


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
        hint = "For classes use DPLogisticRegression(classes=[...])."
        name = getattr(y, "name", None)
        told = "y" if name is None else f"y, the column {name},"
        with check.reading(told, "numbers", keep=QUOTES_NOTHING, hint=hint):
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
        return pair("target_bounds", self.target_bounds)

    def _undeclared(self) -> tuple[str, ...]:
        return (*super()._undeclared(), *(("target_bounds",) if self.target_bounds is None else ()))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags = RegressorTags(poor_score=True)
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
        ...     epsilon=2.0, delta=1e-5, data_bounds=(-1, 1), target_bounds=(-1, 1), features=None, unsafe_seed=0
        ... )
        >>> bool(abs(model.fit(x, x[:, 0] / 2).coef_[0] - 0.5) < 0.1)
        True
    """

    prior_norm: float = 2.0
    residual_bound: float = 1.0
    _of_loss = ("residual_bound",)

    def _kind(self) -> str:
        return NUMBERS

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
