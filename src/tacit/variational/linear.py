"""Noise-aware Bayesian linear regression from noisy sufficient statistics (Bernstein & Sheldon 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.accounting import Ledger
from tacit.erm.input import noisy_symmetric
from tacit.erm.records import are_unit_rows, finite_records
from tacit.erm.release import ledger_and_stream
from tacit.erm.rounding import sum_rounding
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.noise import Stream, rounded_gaussian

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

    Records with values that are not finite become blank (`tacit.erm.records.finite_records`).

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
    grams = np.stack([_positive(statistics.gram - statistics.std * _symmetric(draw, d)) for draw in draws])
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


def naive_posterior(statistics: NoisyStatistics, *, noise_std: float, prior_std: float) -> LinearPosterior:
    """The usual posterior with the noisy statistics taken for the true ones: its intervals are too short."""
    gram = _positive(statistics.gram)
    precision = gram / noise_std**2 + np.eye(len(gram)) / prior_std**2
    covariance = np.linalg.inv(precision)
    return LinearPosterior(np.ones(1), (covariance @ statistics.cross / noise_std**2)[None], covariance[None])


def _symmetric(values: Array, d: int) -> Array:
    """The symmetric matrix whose svec (off-diagonal entries times sqrt(2)) is `values`."""
    matrix = np.zeros((d, d))
    upper = np.triu_indices(d)
    matrix[upper] = np.where(upper[0] == upper[1], values, values / math.sqrt(2))
    return matrix + np.triu(matrix, 1).T


def _positive(matrix: Array) -> Array:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, _LEAST_EIGENVALUE)) @ vectors.T
