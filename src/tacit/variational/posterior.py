"""`Posterior` and `Samples`: released Gaussian posteriors, and released parameter vectors, that predict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit import check
from tacit.variational.likelihoods import Likelihood, LogisticLikelihood
from tacit.variational.reliability import Reliability, reliability

# Seed of the samples behind `predict_proba`, so that equal calls agree; no privacy rests on it.
_GENERATOR_SEED = 0


@dataclass(frozen=True, eq=False)
class Posterior:
    """N(mean, factor factor^T) over the parameters of `likelihood`; everything here is post-processing of a release.

    Attributes:
        mean: shape (d,).
        factor: lower triangular, shape (d, d); or the standard deviations, shape (d,), of a mean-field posterior.
        likelihood: the model of the parameters.

    Example:
        >>> Posterior(torch.zeros(2), torch.ones(2), LogisticLikelihood()).interval(0.9).shape
        torch.Size([2, 2])
    """

    mean: Tensor
    factor: Tensor
    likelihood: Likelihood

    @property
    def std(self) -> Tensor:
        """Marginal standard deviations, shape (d,)."""
        return self.factor.abs() if self.factor.dim() == 1 else self.factor.square().sum(1).sqrt()

    @property
    def covariance(self) -> Tensor:
        """Posterior covariance, shape (d, d)."""
        return torch.diag(self.factor.square()) if self.factor.dim() == 1 else self.factor @ self.factor.T

    def sample(self, count: int, *, seed: int | None = None) -> Tensor:
        """`count` parameter vectors, shape (count, d); they cost no privacy."""
        generator = torch.Generator()
        generator.manual_seed(seed) if seed is not None else generator.seed()
        return self.mean + self._scaled(torch.randn(check.count("count", count), len(self.mean), generator=generator))

    def predict_proba(self, inputs: Tensor | np.ndarray, *, samples: int = 200) -> Tensor:
        """Predictive class probabilities (n, classes), averaged over posterior samples (fixed, so repeatable)."""
        x = torch.as_tensor(inputs, dtype=self.mean.dtype)
        draws = self.sample(samples, seed=_GENERATOR_SEED)
        return torch.stack([self.likelihood.predict(w, x) for w in draws]).mean(0)

    def calibration(self, inputs: Tensor | np.ndarray, targets: Tensor, *, bins: int = 10) -> Reliability:
        """Reliability of the predictive probabilities on held-out records."""
        return reliability(self.predict_proba(inputs), targets, bins=bins)

    def predict_probit(self, inputs: Tensor | np.ndarray) -> Tensor:
        """P(y = 1) by MacKay's approximation sigmoid(m^T x / sqrt(1 + pi x^T S x / 8)), shape (n,); logistic only."""
        if not isinstance(self.likelihood, LogisticLikelihood):
            raise check.fail("likelihood", "logistic for the probit approximation", type(self.likelihood).__name__)
        x = torch.as_tensor(inputs, dtype=self.mean.dtype)
        variance = self._spread(x)
        return torch.sigmoid(x @ self.mean / torch.sqrt(1 + math.pi * variance / 8))

    def interval(self, level: float = 0.9) -> Tensor:
        """Central marginal credible intervals, shape (d, 2)."""
        level = check.probability("level", level, open_low=True, open_high=True)
        reach = math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
        return torch.stack([self.mean - reach * self.std, self.mean + reach * self.std], 1)

    def _scaled(self, noise: Tensor) -> Tensor:
        return noise * self.factor if self.factor.dim() == 1 else noise @ self.factor.T

    def _spread(self, x: Tensor) -> Tensor:
        """Predictive variance x^T S x of every row."""
        projected = x * self.factor if self.factor.dim() == 1 else x @ self.factor
        return projected.square().sum(1)


@dataclass(frozen=True, eq=False)
class Samples:
    """Parameter vectors that were released in place of a posterior, shape (count, d).

    Example:
        >>> Samples(torch.zeros(3, 2), LogisticLikelihood()).predict_proba(torch.ones(1, 2)).tolist()
        [[0.5, 0.5]]
    """

    values: Tensor
    likelihood: Likelihood

    def predict_proba(self, inputs: Tensor | np.ndarray) -> Tensor:
        """Predictions averaged over the samples."""
        x = torch.as_tensor(inputs, dtype=self.values.dtype)
        return torch.stack([self.likelihood.predict(w, x) for w in self.values]).mean(0)
