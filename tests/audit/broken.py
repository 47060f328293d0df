"""Trainers that claim the privacy of DP-SGD and do not have it, each for one reason seen in the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit.gradients.inputs import Loss
from tacit.mechanisms import Gaussian, Mechanism
from tacit.noise import SecureStream, Stream
from tacit.sampling import PoissonSampler
from tacit.training import fit, private_step

Places = tuple[Tensor, Tensor]
Update = Callable[[Places, Tensor], None]


@dataclass(frozen=True)
class Claim:
    """What every trainer here says that it does."""

    clip_norm: float
    noise_multiplier: float
    sample_rate: float
    steps: int

    @property
    def mechanism(self) -> Mechanism:
        """The whole claimed run."""
        return Gaussian(self.noise_multiplier).poisson(self.sample_rate) * self.steps


class Repeating(Stream):
    """Draws the same noise again and again."""

    secure = False

    def __init__(self) -> None:
        self._words: dict[int, np.ndarray] = {}

    def bits(self, count: int) -> np.ndarray:
        return self._words.setdefault(count, SecureStream().bits(count)).copy()


def sound(claim: Claim, model: nn.Module, inputs: Places, targets: Tensor, *, loss: Loss, optimizer: Optimizer) -> None:
    """The production path: what is claimed is what runs."""
    fit(
        model,
        inputs,
        targets,
        loss=loss,
        optimizer=optimizer,
        clip_norm=claim.clip_norm,
        noise_multiplier=claim.noise_multiplier,
        sample_rate=claim.sample_rate,
        steps=claim.steps,
    )


def no_noise(
    claim: Claim, model: nn.Module, inputs: Places, targets: Tensor, *, loss: Loss, optimizer: Optimizer
) -> None:
    """Clips, and adds nothing."""
    _private(claim, model, inputs, targets, loss, optimizer, noise=0.0)


def half_noise(
    claim: Claim, model: nn.Module, inputs: Places, targets: Tensor, *, loss: Loss, optimizer: Optimizer
) -> None:
    """Adds half of the claimed noise."""
    _private(claim, model, inputs, targets, loss, optimizer, noise=claim.noise_multiplier / 2)


def double_rate(
    claim: Claim, model: nn.Module, inputs: Places, targets: Tensor, *, loss: Loss, optimizer: Optimizer
) -> None:
    """Samples every record twice as often as claimed."""
    _private(claim, model, inputs, targets, loss, optimizer, rate=2 * claim.sample_rate)


def reused_noise(
    claim: Claim, model: nn.Module, inputs: Places, targets: Tensor, *, loss: Loss, optimizer: Optimizer
) -> None:
    """Draws the noise once and adds it at every step."""
    _private(claim, model, inputs, targets, loss, optimizer, stream=Repeating())


def mean_clipped(
    claim: Claim, model: nn.Module, inputs: Places, targets: Tensor, *, loss: Loss, optimizer: Optimizer
) -> None:
    """Clips the mean gradient of the batch, not each record's, and adds the noise meant for a sum divided by n q."""
    size = claim.sample_rate * len(targets)
    std = claim.noise_multiplier * claim.clip_norm / size
    parameters = list(model.parameters())

    def update(x: Places, y: Tensor) -> None:
        gradients = torch.autograd.grad(loss(model(*x), y).mean(), parameters)
        norm = torch.sqrt(sum((g.square().sum() for g in gradients), torch.zeros(())))
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient * (claim.clip_norm / norm).clamp(max=1) + std * torch.randn_like(gradient)
        optimizer.step()

    _sampled(claim.sample_rate, claim.steps, inputs, targets, update)


BROKEN = {
    "no noise": no_noise,
    "half the noise": half_noise,
    "clips the batch mean": mean_clipped,
    "noise reused": reused_noise,
    "twice the rate": double_rate,
}


def _private(
    claim: Claim,
    model: nn.Module,
    inputs: Places,
    targets: Tensor,
    loss: Loss,
    optimizer: Optimizer,
    *,
    noise: float | None = None,
    rate: float | None = None,
    stream: Stream | None = None,
) -> None:
    """Private steps with something else than claimed."""
    level = claim.noise_multiplier if noise is None else noise
    update = private_step(
        model,
        optimizer,
        loss,
        clip_norm=claim.clip_norm,
        noise_multiplier=level,
        expected_batch_size=claim.sample_rate * len(targets),
        stream=stream,
        unsafe_no_noise=level == 0.0,
    )
    _sampled(claim.sample_rate if rate is None else rate, claim.steps, inputs, targets, update)


def _sampled(rate: float, steps: int, inputs: Places, targets: Tensor, update: Update) -> None:
    sampler = PoissonSampler(len(targets), rate)
    for _ in range(steps):
        batch = sampler.issue()
        sampler.redeem(batch)
        index = torch.from_numpy(batch.indices)
        if len(index):
            update((inputs[0][index], inputs[1][index]), targets[index])
