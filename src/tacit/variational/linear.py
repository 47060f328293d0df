"""Noise-aware Bayesian linear regression from noisy sufficient statistics (Bernstein & Sheldon 2019).

`DPBayesianLogisticRegression` and `DPBayesianLinearRegression`: posteriors with scikit-learn's interface.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.estimators import PrivateClassifier, PrivateRegressor
from tacit.erm.linear_model import LinearModel
from tacit.erm.release import Release, ledger_and_stream
from tacit.erm.solver import are_unit_rows, finite_records, sum_rounding
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.noise import Stream, rounded_gaussian
from tacit.variational.dpvi import infer
from tacit.variational.likelihoods import LogisticLikelihood, SoftmaxLikelihood

Array = np.ndarray
# Sensitivity of (svec(x x^T), y x) for ||x|| <= 1 and |y| <= 1, where svec keeps the Frobenius norm.
SENSITIVITY = math.sqrt(2.0)
# Least eigenvalue of a Gram matrix, so that its Cholesky factor exists.
_LEAST_EIGENVALUE = 1e-9


@dataclass(frozen=True, eq=False)
class NoisyStatistics:
    """A = X^T X and b = X^T y with Gaussian noise of one standard deviation on svec(A) and b: all that is released.

    Attributes:
        gram: (d, d), symmetric.
        cross: (d,).
        std: of the noise on every coordinate of svec(A) and of b.
        ledger: its cost.
    """

    gram: Array
    cross: Array
    std: float
    ledger: Ledger


def noisy_statistics(
    features: Array,
    targets: Array,
    *,
    noise_multiplier: float,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
) -> NoisyStatistics:
    """Release the sufficient statistics by one Gaussian mechanism of sensitivity sqrt(2).

    Records with values that are not finite become blank (`tacit.erm.solver.finite_records`).

    Args:
        features: (n, d), rows of norm <= 1.
        targets: (n,), in [-1, 1].
        noise_multiplier: noise std / sensitivity, > 0.
        ledger: written to before the noise is drawn; a new one by default.
        stream: source of the noise; the secure stream by default.

    Raises:
        InvalidInput: a row is longer than 1, or a target outside [-1, 1].
    """
    features, targets = finite_records(features, targets)
    if not are_unit_rows(features) or float(np.abs(targets).max(initial=0)) > 1:
        raise InvalidInput("features must have rows of norm <= 1 and targets lie in [-1, 1]; got others. Scale them.")
    check.positive("noise_multiplier", noise_multiplier)
    ledger, stream = ledger_and_stream(ledger, stream, exact=True)
    ledger.add(Gaussian(noise_multiplier), note="sufficient statistics")
    std = noise_multiplier * SENSITIVITY
    paid = std * (1 + sum_rounding(len(targets)))
    gram = noisy_symmetric(stream, features.T @ features, paid)
    return NoisyStatistics(gram, rounded_gaussian(features.T @ targets, stream, std=paid), std, ledger)


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


@dataclass(frozen=True, eq=False)
class LinearPosterior:
    """Weighted Gaussian components over the coefficients.

    Attributes:
        weights: (k,), summing to 1.
        means: (k, d).
        covariances: (k, d, d).
    """

    weights: Array
    means: Array
    covariances: Array

    @property
    def mean(self) -> Array:
        """Posterior mean, (d,)."""
        return self.weights @ self.means

    @property
    def std(self) -> Array:
        """Marginal posterior standard deviations, (d,)."""
        inner = np.einsum("k,kii->i", self.weights, self.covariances)
        return np.sqrt(inner + self.weights @ (self.means - self.mean) ** 2)

    def sample(self, count: int, *, seed: int = 0) -> Array:
        """`count` coefficient vectors, (count, d); they cost no privacy."""
        random = np.random.default_rng(seed)
        chosen = random.choice(len(self.weights), size=check.count("count", count), p=self.weights)
        roots = np.linalg.cholesky(self.covariances[chosen])
        return self.means[chosen] + np.einsum("kij,kj->ki", roots, random.standard_normal(self.means[chosen].shape))

    def interval(self, level: float = 0.9, *, samples: int = 4000) -> Array:
        """Central marginal credible intervals, (d, 2)."""
        tail = (1 - check.probability("level", level, open_low=True, open_high=True)) / 2
        return np.quantile(self.sample(samples), [tail, 1 - tail], axis=0).T


def noise_aware(
    statistics: NoisyStatistics, *, noise_std: float, prior_std: float, components: int = 400, seed: int = 0
) -> LinearPosterior:
    """The posterior of theta given the noisy statistics, theta ~ N(0, prior_std^2 I), y ~ N(x^T theta, noise_std^2).

    Given the true Gram matrix A, b is N(A theta, noise_std^2 A), so that the released z_b is N(A theta, noise_std^2 A +
    std^2 I), and theta given z_b and A is Gaussian in closed form. A is not known: with a flat prior over positive
    semidefinite matrices it is z_A minus fresh noise, and each draw counts with its evidence
    N(z_b; 0, prior_std^2 A A + noise_std^2 A + std^2 I). As an estimate from draws this is exact in the limit of many
    `components`.

    Args:
        statistics: the release.
        noise_std: of the responses, declared.
        prior_std: of every coefficient.
        components: draws of A.
        seed: of those draws; no privacy rests on them.

    Raises:
        InvalidInput: an argument is out of range.
    """
    check.positive("noise_std", noise_std)
    check.positive("prior_std", prior_std)
    random, d = np.random.default_rng(seed), len(statistics.cross)
    draws = random.standard_normal((check.count("components", components), d * (d + 1) // 2))
    grams = np.stack([positive(statistics.gram - statistics.std * _symmetric(draw, d)) for draw in draws])
    unit = np.eye(d)
    error = noise_std**2 * grams + statistics.std**2 * unit
    whole = prior_std**2 * grams @ grams + error
    gain = prior_std**2 * np.linalg.solve(whole, grams).transpose(0, 2, 1)
    means = gain @ statistics.cross
    covariances = prior_std**2 * (unit - gain @ grams)
    sign, log_det = np.linalg.slogdet(whole)
    evidence = -0.5 * (log_det + np.einsum("i,kij,j->k", statistics.cross, np.linalg.inv(whole), statistics.cross))
    weights = np.exp(np.where(sign > 0, evidence, -np.inf) - evidence.max())
    return LinearPosterior(weights / weights.sum(), means, (covariances + covariances.transpose(0, 2, 1)) / 2)


def _symmetric(values: Array, d: int) -> Array:
    """The symmetric matrix whose svec (off-diagonal entries times sqrt(2)) is `values`."""
    matrix = np.zeros((d, d))
    upper = np.triu_indices(d)
    matrix[upper] = np.where(upper[0] == upper[1], values, values / math.sqrt(2))
    return matrix + np.triu(matrix, 1).T


def positive(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T


# Least probability whose logarithm is taken; smaller ones are not normal doubles.
_LEAST_PROBABILITY = 1e-300


@dataclass(kw_only=True, eq=False, repr=False)
class DPBayesianLogisticRegression(PrivateClassifier, LinearModel):
    """Bayesian logistic (softmax) regression by private variational inference; see `tacit.variational.infer`.

    Rows are clipped to declared bounds and scaled into the unit ball, intercept included; prior and posterior are over
    the coefficients of those rows. The intervals are those of the released posterior: that noise moved its mean is not
    in them, so they are too short where epsilon is small.

    Args:
        noise_multiplier: noise std / clip_norm of every step; instead of epsilon and target.
        family: "mean_field" or "full_rank".
        prior_std: of every coefficient of unit rows, > 0.
        clip_norm: of one record's gradient, > 0.
        steps: number of steps, >= 1.
        batch_size: expected size of a batch, at most all records.
        learning_rate: of Adam.

    All other parameters as in `tacit.erm.PrivateEstimator`, `PrivateModel`, `LinearModel` and `PrivateClassifier`.

    Attributes:
        posterior_: the released `Posterior`, over unit rows.
        coef_: of the posterior mean, in the units of the data.
        intercept_: of the posterior mean, in the units of the data.
        classes_: the declared classes.
        ledger_: what was spent.
        guarantee_: the guarantee of the release.
        facts_: public numbers of the release.

    Example:
        >>> x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
        >>> model = DPBayesianLogisticRegression(
        ...     noise_multiplier=1.0, steps=20, classes=[0, 1], data_bounds=(-1, 1), unsafe_seed=0
        ... )
        >>> model.fit(x, x[:, 0] > 0).posterior_.sample(5).shape
        torch.Size([5, 3])
    """

    noise_multiplier: float | None = None
    family: str = "mean_field"
    prior_std: float = 10.0
    clip_norm: float = 1.0
    steps: int = 300
    batch_size: int = 256
    learning_rate: float = 0.2

    def predict_proba(self, X: Any) -> Array:
        """Predictive class probabilities (n, classes): in closed form (probit) for two, over samples for more."""
        features = self._features(X)
        if len(self.classes_) > 2:
            return self.posterior_.predict_proba(features).double().numpy()
        chance = self.posterior_.predict_probit(features).double().numpy()
        return np.stack([1 - chance, chance], axis=1)

    def decision_function(self, X: Any) -> Array:
        """Log odds of the predictive probability, (n,), for two classes; else log probabilities (n, classes)."""
        chances = np.log(np.maximum(self.predict_proba(X), _LEAST_PROBABILITY))
        return chances[:, 1] - chances[:, 0] if len(self.classes_) == 2 else chances

    def credible_intervals(self, level: float = 0.9) -> Array:
        """Central marginal intervals of `coef_`, shape coef_.shape + (2,)."""
        self._released()
        ends = self.posterior_.interval(level).double().numpy()
        return np.stack([self._in_units_of_x(self._theta(ends[:, k]))[0] for k in (0, 1)], axis=-1)

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
            # Public by the declaration of every estimator; see `tacit.accounting.PLACES`.
            public_size=records,
            noise_multiplier=self.noise_multiplier,
            target=terms.target if self.noise_multiplier is None else None,
            family=self.family,
            prior_std=self.prior_std,
            learning_rate=self.learning_rate,
            ledger=terms.ledger,
            stream=terms.stream,
        )
        assert found.plan is not None
        self.posterior_ = found.posterior
        facts = {"noise_multiplier": float(found.noise_multiplier or 0.0), "steps": float(self.steps)}
        theta = self._theta(found.posterior.mean.double().numpy())
        return terms.release(theta, found.plan.mechanism * found.plan.steps, facts)

    def _theta(self, w: Array) -> Array:
        """The parameter vector as theta (p, k): one column a score."""
        scores = 1 if len(self.classes_) == 2 else len(self.classes_)
        return w.reshape(scores, -1).T


@dataclass(kw_only=True, eq=False, repr=False)
class DPBayesianLinearRegression(PrivateRegressor):
    """Bayesian linear regression from noisy sufficient statistics, whose noise is part of the model.

    The statistics are released once by a Gaussian mechanism; the posterior given them accounts for their noise
    (Bernstein & Sheldon 2019; see `tacit.variational.noise_aware`), so that its intervals cover. Rows are scaled into
    the unit ball and y to [-1, 1] by declared bounds; prior and noise are declared in those units.

    Args:
        noise_multiplier: noise std / sensitivity of the statistics; instead of epsilon and target.
        noise_std: of y given X, in units of half the range of y, > 0; public.
        prior_std: of every coefficient of unit rows, in the same units, > 0.
        components: draws of the unknown Gram matrix.

    All other parameters as in `tacit.erm.PrivateEstimator`, `PrivateModel`, `LinearModel` and `PrivateRegressor`.

    Attributes:
        posterior_: a `LinearPosterior` over unit rows.
        coef_: of the posterior mean, in the units of the data.
        intercept_: of the posterior mean, in the units of the data.
        ledger_: what was spent.
        guarantee_: the guarantee of the release.
        facts_: public numbers of the release.

    Example:
        >>> x = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
        >>> model = DPBayesianLinearRegression(
        ...     delta=1e-5, data_bounds=(-1, 1), target_bounds=(-1, 1), noise_std=0.05, unsafe_seed=0
        ... )
        >>> low, high = model.fit(x, x[:, 0] / 2).credible_intervals(0.99)[0]
        >>> bool(low < 0.5 < high)
        True
    """

    noise_multiplier: float | None = None
    noise_std: float = 0.25
    prior_std: float = 2.0
    components: int = 200

    def credible_intervals(self, level: float = 0.9) -> Array:
        """Central marginal intervals of `coef_`, (columns, 2), the mechanism's noise included."""
        self._released()
        ends = self.posterior_.interval(level)
        return np.stack([self._in_units_of_x(ends[:, [k]])[0] for k in (0, 1)], axis=-1)

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
        facts = {"noise_multiplier": multiplier, "noise_std": released.std}
        return terms.release(self.posterior_.mean[:, None], Gaussian(multiplier), facts)
