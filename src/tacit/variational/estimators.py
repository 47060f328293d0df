"""`DPBayesianLogisticRegression` and `DPBayesianLinearRegression`: posteriors with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.base import checked_rows
from tacit.erm.classifiers import PrivateClassifier
from tacit.erm.regressors import DPLinearRegression
from tacit.erm.release import Release
from tacit.mechanisms import Gaussian
from tacit.tradeoff import Target
from tacit.variational.dpvi import infer
from tacit.variational.likelihoods import LogisticLikelihood, SoftmaxLikelihood
from tacit.variational.linear import LinearPosterior, noise_aware, noisy_statistics
from tacit.variational.posterior import Posterior

Array = np.ndarray


class DPBayesianLogisticRegression(PrivateClassifier):
    """Bayesian logistic (softmax) regression by private variational inference; see `tacit.variational.infer`.

    Rows are clipped to declared bounds and scaled into the unit ball, intercept included; prior and posterior are over
    the coefficients of those rows. The intervals are those of the released posterior: that noise moved its mean is not
    in them, so they are too short where epsilon is small.

    Args:
        epsilon, delta, target, relation, classes, data_bounds, norm_bound, fit_intercept, intercept_scale, ledger,
            strict, unsafe_seed: as in `tacit.erm.DPLogisticRegression`.
        noise_multiplier: noise std / clip_norm of every step; instead of epsilon and target.
        family: "mean_field" or "full_rank".
        prior_std: of every coefficient of unit rows, > 0.
        clip_norm: of one record's gradient, > 0.
        steps, batch_size: number of steps, and the expected size of a batch (at most all records).
        learning_rate: of Adam.

    Attributes:
        posterior_: the released `Posterior`, over unit rows.
        coef_, intercept_, classes_: of the posterior mean, in the units of X.
        ledger_, guarantee_, facts_: what was spent, and what it protects.
    """

    posterior_: Posterior

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        noise_multiplier: float | None = None,
        relation: str = "add_remove",
        classes: Sequence[object] | None = None,
        data_bounds: tuple[Any, Any] | None = None,
        norm_bound: float | None = None,
        family: str = "mean_field",
        prior_std: float = 10.0,
        clip_norm: float = 1.0,
        steps: int = 300,
        batch_size: int = 256,
        learning_rate: float = 0.2,
        fit_intercept: bool = True,
        intercept_scale: float = 0.5,
        ledger: Ledger | None = None,
        strict: bool = False,
        unsafe_seed: int | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.target = target
        self.noise_multiplier = noise_multiplier
        self.relation = relation
        self.classes = classes
        self.data_bounds = data_bounds
        self.norm_bound = norm_bound
        self.family = family
        self.prior_std = prior_std
        self.clip_norm = clip_norm
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.ledger = ledger
        self.strict = strict
        self.unsafe_seed = unsafe_seed

    def predict_proba(self, X: Any) -> Array:
        """Predictive class probabilities (n, classes): in closed form (probit) for two, over samples for more."""
        check_is_fitted(self)
        features = self.design_.features(checked_rows(self, X, reset=False))
        if len(self.classes_) > 2:
            return self.posterior_.predict_proba(features).double().numpy()
        chance = self.posterior_.predict_probit(features).double().numpy()
        return np.stack([1 - chance, chance], axis=1)

    def decision_function(self, X: Any) -> Array:
        """Log odds of the predictive probability, (n,), for two classes; else log probabilities (n, classes)."""
        chances = np.log(np.maximum(self.predict_proba(X), 1e-300))
        return chances[:, 1] - chances[:, 0] if len(self.classes_) == 2 else chances

    def credible_intervals(self, level: float = 0.9) -> Array:
        """Central marginal intervals of `coef_`, shape coef_.shape + (2,)."""
        check_is_fitted(self)
        ends = self.posterior_.interval(level).double().numpy()
        return np.stack([self._in_units_of_x(ends[:, k])[0] for k in (0, 1)], axis=-1)

    def _fit(self, X: Array, targets: Array) -> Release:
        records, classes = len(X), len(self.classes_)
        batch_size = check.count("batch_size", self.batch_size)
        terms = self._terms(X, self._target(records))
        features = self.design_.features(X)
        likelihood = LogisticLikelihood() if classes == 2 else SoftmaxLikelihood(classes)
        found = infer(
            likelihood,
            torch.from_numpy(features).float(),
            torch.from_numpy(targets).long(),
            clip_norm=self.clip_norm,
            steps=self.steps,
            sample_rate=min(1.0, batch_size / records),
            noise_multiplier=self.noise_multiplier,
            target=terms.target if self.noise_multiplier is None else None,
            family=self.family,
            prior_std=self.prior_std,
            learning_rate=self.learning_rate,
            ledger=terms.ledger,
            stream=terms.stream,
        )
        assert found.plan is not None
        mean = found.posterior.mean.double().numpy()
        facts = {"noise_multiplier": float(found.noise_multiplier or 0.0), "steps": float(self.steps)}
        self.posterior_ = found.posterior
        self.release_ = Release(
            mean.reshape(-1, features.shape[1]).T,
            found.plan.mechanism * found.plan.steps,
            terms.relation,
            terms.standing,
            facts=facts,
        )
        self.ledger_ = terms.ledger
        self.coef_, self.intercept_ = self._in_units_of_x(mean)
        return self.release_

    def _in_units_of_x(self, w: Array) -> tuple[Array, Array]:
        rows = 1 if len(self.classes_) == 2 else len(self.classes_)
        return self.design_.coefficients(w.reshape(rows, -1).T)


class DPBayesianLinearRegression(DPLinearRegression):
    """Bayesian linear regression from noisy sufficient statistics, whose noise is part of the model.

    The statistics are released once by a Gaussian mechanism; the posterior given them accounts for their noise
    (Bernstein & Sheldon 2019; see `tacit.variational.noise_aware`), so that its intervals cover. Rows are scaled into
    the unit ball and y to [-1, 1] by declared bounds; prior and noise are declared in those units.

    Args:
        epsilon, delta, target, relation, data_bounds, target_bounds, norm_bound, fit_intercept, intercept_scale,
            ledger, strict, unsafe_seed: as in `tacit.erm.DPLinearRegression`.
        noise_multiplier: noise std / sensitivity of the statistics; instead of epsilon and target.
        noise_std: of y given X, in units of half the range of y, > 0; public.
        prior_std: of every coefficient of unit rows, in the same units, > 0.
        components: draws of the unknown Gram matrix.

    Attributes:
        posterior_: a `LinearPosterior` over unit rows.
        coef_, intercept_: its mean, in the units of X and y.
        ledger_, guarantee_, facts_: what was spent, and what it protects.
    """

    posterior_: LinearPosterior

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        noise_multiplier: float | None = None,
        relation: str = "add_remove",
        data_bounds: tuple[Any, Any] | None = None,
        target_bounds: tuple[float, float] | None = None,
        norm_bound: float | None = None,
        noise_std: float = 0.25,
        prior_std: float = 2.0,
        components: int = 200,
        fit_intercept: bool = True,
        intercept_scale: float = 1.0,
        ledger: Ledger | None = None,
        strict: bool = False,
        unsafe_seed: int | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.target = target
        self.noise_multiplier = noise_multiplier
        self.relation = relation
        self.data_bounds = data_bounds
        self.target_bounds = target_bounds
        self.norm_bound = norm_bound
        self.noise_std = noise_std
        self.prior_std = prior_std
        self.components = components
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.ledger = ledger
        self.strict = strict
        self.unsafe_seed = unsafe_seed

    def credible_intervals(self, level: float = 0.9) -> Array:
        """Central marginal intervals of `coef_`, (columns, 2), the mechanism's noise included."""
        check_is_fitted(self)
        ends = self.posterior_.interval(level)
        half = (self.target_bounds_[1] - self.target_bounds_[0]) / 2
        return np.stack([self.design_.coefficients(ends[:, [k]])[0][0] * half for k in (0, 1)], axis=-1)

    def _fit(self, X: Array, targets: Array) -> Release:
        noise_std = check.positive("noise_std", self.noise_std)
        prior_std = check.positive("prior_std", self.prior_std)
        components = check.count("components", self.components)
        terms = self._terms(X, self._target(len(X)))
        multiplier = terms.gaussian() if self.noise_multiplier is None else self.noise_multiplier
        released = noisy_statistics(
            self.design_.features(X),
            np.clip(targets, -1.0, 1.0),
            noise_multiplier=check.positive("noise_multiplier", multiplier),
            ledger=terms.ledger,
            stream=terms.stream,
        )
        self.posterior_ = noise_aware(released, noise_std=noise_std, prior_std=prior_std, components=components)
        self.release_ = Release(
            self.posterior_.mean[:, None],
            Gaussian(multiplier),
            terms.relation,
            terms.standing,
            facts={"noise_multiplier": multiplier, "noise_std": released.std},
        )
        self.ledger_ = terms.ledger
        self.coef_, self.intercept_ = self.design_.coefficients(self.release_.theta)
        return self.release_
