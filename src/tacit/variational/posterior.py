"""`Posterior`: released Gaussian posteriors that predict.

Reliability of predicted probabilities: their calibration in bins, and the expected calibration error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit import check
from tacit.variational.likelihoods import Likelihood, LogisticLikelihood


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predictions in equal-width bins of their confidence; empty bins are left out.

    Look at held-out or public records only: it is as private as they are.

    Attributes:
        confidence: mean predicted probability of each bin.
        frequency: share of right predictions in each bin.
        counts: predictions in each bin.

    Example:
        >>> Reliability(torch.tensor([0.5]), torch.tensor([0.75]), torch.tensor([4])).error
        0.25
    """

    confidence: Tensor
    frequency: Tensor
    counts: Tensor

    @property
    def error(self) -> float:
        """Expected calibration error: mean |frequency - confidence| over all predictions."""
        return float(((self.frequency - self.confidence).abs() * self.counts).sum() / self.counts.sum())


def reliability(probabilities: Tensor, targets: Tensor, *, bins: int = 10) -> Reliability:
    """Reliability of P(y = 1), shape (n,), against targets 0 and 1; or of the likeliest class, shape (n, classes).

    Two columns count as one probability, that of class 1.

    Raises:
        InvalidInput: the shapes do not fit together.

    Example:
        >>> reliability(torch.tensor([0.9, 0.9]), torch.tensor([1, 0])).frequency.tolist()
        [0.5]
    """
    if len(probabilities) != len(targets) or probabilities.dim() not in (1, 2) or not len(targets):
        raise check.fail("probabilities", f"of shape (n,) or (n, classes) for n = {len(targets)}", probabilities.shape)
    if probabilities.dim() == 2 and probabilities.shape[1] > 2:
        chance, guess = probabilities.max(1)
        right = guess == targets
    else:
        chance, right = (probabilities if probabilities.dim() == 1 else probabilities[:, 1]), targets == 1
    chance = chance.double()
    edges = torch.linspace(0, 1, check.count("bins", bins) + 1, dtype=torch.float64)[1:-1]
    place = torch.bucketize(chance.contiguous(), edges)
    counts = torch.bincount(place, minlength=bins)
    used = counts > 0
    confidence = torch.bincount(place, weights=chance, minlength=bins)[used] / counts[used]
    frequency = torch.bincount(place, weights=right.double(), minlength=bins)[used] / counts[used]
    return Reliability(confidence, frequency, counts[used])


def calibration_error(probabilities: Tensor, targets: Tensor, *, bins: int = 10) -> float:
    """Expected calibration error: `reliability(...).error`.

    Example:
        >>> round(calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([1, 1])), 3)
        0.1
    """
    return reliability(probabilities, targets, bins=bins).error


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
