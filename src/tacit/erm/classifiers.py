"""`DPLogisticRegression` and `DPLinearSVC`: private linear classifiers with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from tacit.accounting import Ledger
from tacit.erm.base import PrivateLinear, checked_rows, indices_of, same_length
from tacit.erm.losses import HuberHinge, Logistic, Loss, Softmax, clipped_chance, softmax
from tacit.erm.release import Method
from tacit.errors import InvalidInput
from tacit.tradeoff import Target

Array = np.ndarray


class PrivateClassifier(ClassifierMixin, PrivateLinear):
    """What the classifiers share."""

    classes: Sequence[object] | None
    classes_: Array

    def fit(self, X: Any, y: Any) -> PrivateClassifier:
        """Fit to rows X (n, columns) and labels y (n,); writes the ledger before any noise is drawn.

        Raises `InvalidInput` for data or settings that break their rule, before anything is spent.
        """
        X, targets = self._records(X, y, reset=True)
        self._fit(X, targets)
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores, (n,) of the second class for two classes, else (n, classes)."""
        check_is_fitted(self)
        scores = checked_rows(self, X, reset=False) @ self.coef_.T + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        """The class of the largest score, (n,)."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[places]

    def _records(self, X: Any, y: Any, *, reset: bool) -> tuple[Array, Array]:
        if y is None:
            raise InvalidInput(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        X = checked_rows(self, X, reset=reset)
        labels = column_or_1d(y, warn=True)
        same_length(X, labels)
        check_classification_targets(labels)
        declared = self.classes if reset else self.classes_
        self.classes_, places = indices_of(labels, declared, strict=self.strict)
        return X, places if len(self.classes_) > 2 else places.astype(float)

    def _undeclared(self) -> tuple[str, ...]:
        return (*super()._undeclared(), *(("classes",) if self.classes is None else ()))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        assert tags.classifier_tags is not None
        tags.classifier_tags.poor_score = True
        return tags


class DPLogisticRegression(PrivateClassifier):
    """Differentially private logistic regression, binary or multinomial.

    Minimises sum_i log(1 + e^{-m_i}) + (n regularization / 2) ||theta||^2 (softmax for more classes), theta with the
    intercept in it, over rows clipped to declared bounds and scaled into the unit ball (`Design`).

    Args:
        method: "objective", "output", "gradient" or "input", or a `Method` with settings of its own. The default,
            objective perturbation with the exact loss, is the most accurate proven one on the comparison's tables.
        variant: a name of `tacit.erm.METHODS[method]`; by default the family's proven default, pure where delta is 0.
        epsilon, delta: the guarantee of one fit; delta None means min(1e-5, n^-1.1), delta 0 asks for pure DP.
        target: any `Target` instead, e.g. `Advantage(0.1)`.
        relation: neighbouring relation of the guarantee.
        classes: every label that can occur, public. None reads them from y: a `LeakWarning`, and a guarantee that
            is only claimed.
        data_bounds: (low, high) of the columns, public; rows are clipped to them.
        norm_bound: L2 norm that rows are scaled down to, public; by default the largest that data_bounds allow.
            Without either, bounds are read from X: a `LeakWarning`, and a guarantee that is only claimed.
        regularization: lambda >= 0, or "auto": from n, p, the target and prior_norm alone.
        prior_norm: a public guess of the norm of the solution for unit rows.
        fit_intercept, intercept_scale: whether there is an intercept, and the constant that stands for it.
        slope_bound: in (0, 1]; below 1, gradients are those of logistic regression clipped to this norm (two classes),
            which halves the noise at the default; probabilities allow for it.
        ledger: spent from and written to, shared by every estimator that is given it (and by their clones).
        strict: leaks are errors.
        unsafe_seed: repeatable noise: nothing is private, and the ledger says so.
        unsafe_diagnostics: also computes `optimality_gap_`, which is not private.

    Attributes:
        coef_, intercept_, classes_: as in scikit-learn, in the units of X.
        ledger_, guarantee_, local_guarantee_, leakage_floor_, exchange_rate_: what was spent, and what it protects.
        facts_, regularization_, method_: public numbers of the release.
    """

    def __init__(
        self,
        *,
        method: str | Method = "objective",
        variant: str | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        relation: str = "add_remove",
        classes: Sequence[object] | None = None,
        data_bounds: tuple[Any, Any] | None = None,
        norm_bound: float | None = None,
        regularization: float | str = "auto",
        prior_norm: float = 12.0,
        fit_intercept: bool = True,
        intercept_scale: float = 0.5,
        slope_bound: float = 0.5,
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
        self.classes = classes
        self.data_bounds = data_bounds
        self.norm_bound = norm_bound
        self.regularization = regularization
        self.prior_norm = prior_norm
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.slope_bound = slope_bound
        self.ledger = ledger
        self.strict = strict
        self.unsafe_seed = unsafe_seed
        self.unsafe_diagnostics = unsafe_diagnostics

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

    def _loss(self) -> Loss:
        classes = len(self.classes_)
        return Logistic(self.slope_bound) if classes == 2 else Softmax(classes)


class DPLinearSVC(PrivateClassifier):
    """Differentially private linear support vector machine with the Huber-rounded hinge loss; two classes.

    Args:
        half_width: h > 0 of `HuberHinge`; its smoothness is 1 / (2h).

    All other parameters and attributes as in `DPLogisticRegression`.
    """

    def __init__(
        self,
        *,
        method: str | Method = "objective",
        variant: str | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        relation: str = "add_remove",
        classes: Sequence[object] | None = None,
        data_bounds: tuple[Any, Any] | None = None,
        norm_bound: float | None = None,
        regularization: float | str = "auto",
        prior_norm: float = 12.0,
        fit_intercept: bool = True,
        intercept_scale: float = 0.5,
        half_width: float = 0.5,
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
        self.classes = classes
        self.data_bounds = data_bounds
        self.norm_bound = norm_bound
        self.regularization = regularization
        self.prior_norm = prior_norm
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.half_width = half_width
        self.ledger = ledger
        self.strict = strict
        self.unsafe_seed = unsafe_seed
        self.unsafe_diagnostics = unsafe_diagnostics

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
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_class = False
        return tags
