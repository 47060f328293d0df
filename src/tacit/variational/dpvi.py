"""DPVI, differentially private variational inference: gradient perturbation of the evidence lower bound.

`Posterior`: released Gaussian posteriors that predict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adagrad, Adam, Optimizer

from tacit import check
from tacit.accounting import Ledger
from tacit.noise import Stream
from tacit.tradeoff import Target
from tacit.training import Callback, Functions, Plan, fit, fit_nonprivate
from tacit.variational.likelihoods import Likelihood, LogisticLikelihood, LogJoint, check_captured

FAMILIES = ("mean_field", "full_rank")
OPTIMIZERS = ("adam", "adagrad")


class VariationalModel(nn.Module):
    """Per-record expected log likelihood under q = N(mean, factor factor^T), by one reparametrised sample a step.

    The sample e ~ N(0, I) is a buffer that is drawn anew between steps; it depends on no data, and one sample for a
    whole batch keeps every record's gradient a function of that record alone.

    Args:
        likelihood: see `tacit.variational.likelihoods`.
        features: columns of the inputs.
        family: "mean_field" or "full_rank".
        prior_std: of every parameter, > 0.

    Example:
        >>> from tacit.variational import LogisticLikelihood
        >>> model = VariationalModel(LogisticLikelihood(), 2, family="mean_field", prior_std=1.0)
        >>> float(model.divergence())
        0.0
    """

    mean: nn.Parameter
    e: Tensor

    def __init__(self, likelihood: Likelihood, features: int, *, family: str, prior_std: float):
        super().__init__()
        self.likelihood, self.family = likelihood, check.choice("family", family, FAMILIES)
        self.prior_std = check.positive("prior_std", prior_std)
        size = likelihood.size(features)
        self.mean = nn.Parameter(torch.zeros(size))
        self.log_std = nn.Parameter(torch.zeros(size))
        self.below = nn.Parameter(torch.zeros(size, size)) if family == "full_rank" else None
        self.register_buffer("e", torch.zeros(size))

    def factor(self) -> Tensor:
        """Standard deviations, or the lower triangular factor."""
        if self.below is None:
            return self.log_std.exp()
        return torch.tril(self.below, diagonal=-1) + torch.diag(self.log_std.exp())

    def parameters_sampled(self) -> Tensor:
        """Parameters mean + factor e of the step's sample."""
        factor = self.factor()
        return self.mean + (factor * self.e if factor.dim() == 1 else factor @ self.e)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Negative log likelihood of each record, shape (batch,)."""
        return -self.likelihood.log_likelihood(self.parameters_sampled(), inputs, targets)

    def divergence(self) -> Tensor:
        """KL(q || prior), prior N(0, prior_std^2 I); it is free of the data, so that it carries no noise.

        With a prior of the model's own, an unbiased estimate from the step's sample.
        """
        if isinstance(self.likelihood, LogJoint) and self.likelihood.log_prior is not None:
            return -self.likelihood.log_prior(self.parameters_sampled()) - self.log_std.sum()
        factor, variance = self.factor(), self.prior_std**2
        trace = (factor.square().sum() + self.mean.square().sum()) / variance
        size = len(self.mean)
        return 0.5 * (trace - size + size * math.log(variance)) - self.log_std.sum()

    def posterior(self) -> Posterior:
        """The released posterior."""
        return Posterior(self.mean.detach().clone(), self.factor().detach().clone(), self.likelihood)


def _samples(model: VariationalModel, seed: int) -> Callback:
    """Draws the sample of each step; the generator is none of the model's, whose passes draw nothing."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*_: object) -> None:
        model.e.copy_(torch.randn(model.e.shape, generator=generator))

    draw()
    return Functions(on_step=draw)


@dataclass(frozen=True, eq=False)
class Inference:
    """A finished inference.

    Attributes:
        posterior: the released posterior.
        ledger: its cost; None without privacy.
        history: rows of the training.
        plan: of the private training; None without privacy.

    Example:
        >>> from tacit.variational import LogisticLikelihood
        >>> Inference(Posterior(torch.zeros(2), torch.ones(2), LogisticLikelihood()), None).noise_multiplier is None
        True
    """

    posterior: Posterior
    ledger: Ledger | None
    history: Any = ()
    plan: Plan | None = None

    @property
    def noise_multiplier(self) -> float | None:
        """Noise multiplier of every step; None without privacy."""
        return None if self.plan is None else float(self.plan.noise_multiplier)  # type: ignore[arg-type]


def infer(
    likelihood: Likelihood,
    inputs: Tensor,
    targets: Tensor,
    *,
    clip_norm: float,
    steps: int,
    sample_rate: float,
    public_size: int | None = None,
    noise_multiplier: float | None = None,
    target: Target | None = None,
    family: str = "mean_field",
    prior_std: float = 1.0,
    optimizer: str = "adam",
    learning_rate: float = 0.1,
    delta: float | None = None,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
) -> Inference:
    """Maximise the evidence lower bound by DP-SGD on the variational parameters (Jaelkoe, Dikmen & Honkela 2017).

        ELBO = sum_i E_q log p(y_i | x_i, w) - KL(q || prior)

    Every step clips the gradient of each drawn record's expected log likelihood to `clip_norm`, adds noise to the sum,
    and adds the exact gradient of the divergence, which no record enters. The variational parameters themselves are
    released, so samples of the posterior are free. Standing: proven, unless the likelihood reads data besides its
    arguments that `LogJoint.public` does not name.

    Args:
        likelihood: see `tacit.variational.likelihoods`.
        inputs: (n, features), with a column of ones if an intercept is wanted.
        targets: (n,).
        clip_norm: > 0, of one record's gradient.
        steps: >= 1.
        sample_rate: of Poisson sampling, in (0, 1].
        public_size: public number of records, >= 1, which sums and divergence are divided by; without it n decides
            both, and add_remove is stated as zero_out.
        noise_multiplier: noise std / clip_norm of every step, > 0; or give `target`.
        target: the guarantee to meet.
        family: "mean_field" or "full_rank".
        prior_std: of every parameter, > 0; not used where the likelihood has its own prior.
        optimizer: "adam" or "adagrad".
        learning_rate: > 0, of the optimizer.
        delta: at which epsilon is reported.
        ledger: written to before every step; a new one by default.
        stream: source of batches and noise; the secure stream by default.
        seed: public, of the reparametrisation noise.
        callbacks: of the training.

    Raises:
        InvalidInput: an argument is out of range.

    Example:
        >>> from tacit.variational import LogisticLikelihood
        >>> x, y = torch.randn(50, 2), torch.arange(50) % 2
        >>> settings = {"clip_norm": 1.0, "steps": 5, "sample_rate": 0.2, "noise_multiplier": 1.0, "public_size": 50}
        >>> infer(LogisticLikelihood(), x, y, **settings).posterior.mean.shape
        torch.Size([2])
    """
    model = VariationalModel(likelihood, inputs.shape[1], family=family, prior_std=prior_std)
    ledger = ledger if ledger is not None else Ledger()
    size = len(targets) if public_size is None else check.count("public_size", public_size)
    check_captured(likelihood, (inputs, targets), ledger)
    found = fit(
        model,
        {"inputs": inputs, "targets": targets},
        targets,
        loss=first,
        optimizer=_optimizer(model, optimizer, learning_rate, size),
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        target=target,
        sample_rate=sample_rate,
        public_size=public_size,
        steps=steps,
        delta=delta,
        ledger=ledger,
        stream=stream,
        callbacks=[_samples(model, seed), *callbacks],
    )
    return Inference(model.posterior(), found.ledger, found.history, found.plan)


def infer_nonprivate(
    likelihood: Likelihood,
    inputs: Tensor,
    targets: Tensor,
    *,
    steps: int,
    sample_rate: float,
    family: str = "mean_field",
    prior_std: float = 1.0,
    optimizer: str = "adam",
    learning_rate: float = 0.1,
    stream: Stream | None = None,
    seed: int = 0,
) -> Inference:
    """The same inference WITHOUT clipping, noise or any privacy: the reference.

    Args:
        likelihood: see `tacit.variational.likelihoods`.
        inputs: (n, features).
        targets: (n,).
        steps: >= 1.
        sample_rate: of Poisson sampling, in (0, 1].
        family: "mean_field" or "full_rank".
        prior_std: of every parameter, > 0.
        optimizer: "adam" or "adagrad".
        learning_rate: > 0, of the optimizer.
        stream: source of the batches.
        seed: public, of the reparametrisation noise.

    Raises:
        InvalidInput: an argument is out of range.

    Example:
        >>> from tacit.variational import LogisticLikelihood
        >>> x, y = torch.randn(50, 2), torch.arange(50) % 2
        >>> infer_nonprivate(LogisticLikelihood(), x, y, steps=5, sample_rate=0.2).ledger is None
        True
    """
    model = VariationalModel(likelihood, inputs.shape[1], family=family, prior_std=prior_std)
    fit_nonprivate(
        model,
        {"inputs": inputs, "targets": targets},
        targets,
        loss=first,
        optimizer=_optimizer(model, optimizer, learning_rate, len(targets)),
        sample_rate=sample_rate,
        steps=steps,
        stream=stream,
        callbacks=[_samples(model, seed)],
    )
    return Inference(model.posterior(), None)


def first(losses: Tensor, targets: Tensor) -> Tensor:
    """Loss of a model whose outputs are the losses already."""
    return losses


def _optimizer(model: VariationalModel, name: str, learning_rate: float, records: int) -> Optimizer:
    """The optimizer, which adds the divergence's gradient per record to the private mean before it steps."""
    kind = {"adam": Adam, "adagrad": Adagrad}[check.choice("optimizer", name, OPTIMIZERS)]
    made = kind(model.parameters(), lr=check.positive("learning_rate", learning_rate))

    def add_divergence(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        with torch.enable_grad():
            own = [parameter for parameter in model.parameters() if parameter.requires_grad]
            gradients = torch.autograd.grad(model.divergence() / records, own)
        for parameter, gradient in zip(own, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    made.register_step_pre_hook(add_divergence)
    return made


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
        noise = torch.randn(check.count("count", count), len(self.mean), generator=generator)
        return self.mean + (noise * self.factor if self.factor.dim() == 1 else noise @ self.factor.T)

    def predict_proba(self, inputs: Tensor | np.ndarray, *, samples: int = 200) -> Tensor:
        """Predictive class probabilities (n, classes), averaged over posterior samples (fixed, so repeatable)."""
        x = torch.as_tensor(inputs, dtype=self.mean.dtype)
        draws = self.sample(samples, seed=_GENERATOR_SEED)
        return torch.stack([self.likelihood.predict(w, x) for w in draws]).mean(0)

    def predict_probit(self, inputs: Tensor | np.ndarray) -> Tensor:
        """P(y = 1) by MacKay's approximation sigmoid(m^T x / sqrt(1 + pi x^T S x / 8)), shape (n,); logistic only."""
        if not isinstance(self.likelihood, LogisticLikelihood):
            raise check.fail("likelihood", "logistic for the probit approximation", type(self.likelihood).__name__)
        x = torch.as_tensor(inputs, dtype=self.mean.dtype)
        variance = (x * self.factor if self.factor.dim() == 1 else x @ self.factor).square().sum(1)
        return torch.sigmoid(x @ self.mean / torch.sqrt(1 + math.pi * variance / 8))

    def interval(self, level: float = 0.9) -> Tensor:
        """Central marginal credible intervals, shape (d, 2)."""
        level = check.probability("level", level, open_low=True, open_high=True)
        reach = math.sqrt(2) * float(torch.erfinv(torch.tensor(level, dtype=torch.float64)))
        return torch.stack([self.mean - reach * self.std, self.mean + reach * self.std], 1)
