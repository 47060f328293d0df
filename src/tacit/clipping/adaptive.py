"""Adaptive clipping: the clipping norm follows a private estimate of a quantile of the gradient norms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from tacit import check
from tacit.clipping.base import NormClip
from tacit.mechanisms import Gaussian

if TYPE_CHECKING:
    from torch import Tensor

# Clipping norms that every clip accepts.
_LOWEST, _HIGHEST = 1e-9, 1e12
# A step changes the clipping norm by a factor of e^5 at most: more would only follow a very noisy count.
_LARGEST_MOVE = 5.0


@dataclass(frozen=True)
class AdaptiveClip(NormClip):
    """Flat clipping at a bound that moves towards the `quantile` of the norms (Andrew et al. 2021, Algorithm 1).

    Besides the clipped sum a step releases the noisy count  sum_i (b_i - 1/2) + N(0, s^2),  b_i = 1 for a record whose
    gradient has norm at most `clip_norm`, else 0. A record adds at most clip_norm to the sum and, thanks to the shift,
    at most 1/2 to the count. In units of both noises it moves the pair by at most

        sqrt(1 / noise_multiplier^2 + (1/2)^2 / s^2) = 1 / z,   z = noise_multiplier / sqrt(1 + 1 / count_noise^2)

    where s = noise_multiplier * count_noise / 2: the step is exactly one Gaussian mechanism of noise multiplier z,
    which is what the ledger records (Theorem 1 there). Then clip_norm *= exp(-learning_rate (share - quantile)), where
    share = noisy count / expected batch size + 1/2.

    Args:
        clip_norm: the bound of this step, in [1e-9, 1e12].
        quantile: share of the records to be left unclipped, in (0, 1).
        learning_rate: > 0.
        count_noise: noise of the count over its sensitivity, in units of noise_multiplier; 10 costs .5 percent of z.

    Example:
        >>> import torch
        >>> clip = AdaptiveClip(1.0, quantile=0.5, learning_rate=0.2)
        >>> round(clip.after(clip.statistic(torch.tensor([0.5, 0.6])), 2.0).clip_norm, 3)
        0.905
    """

    type: ClassVar[str] = "adaptive"
    statistics: ClassVar[int] = 1
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check.probability("quantile", self.quantile, open_low=True, open_high=True)
        check.positive("learning_rate", self.learning_rate)
        check.real("count_noise", self.count_noise, low=1e-3, high=1e6, hint="Use e.g. 10.0.")

    def mechanism(self, noise_multiplier: float, unsafe_no_noise: bool = False) -> Gaussian:
        """The Gaussian mechanism that releases the sum and the count together."""
        base = super().mechanism(noise_multiplier, unsafe_no_noise)
        return replace(base, noise_multiplier=base.noise_multiplier / math.sqrt(1 + self.count_noise**-2))

    def contributions(self, norms: Tensor) -> Tensor:
        """Contribution b_i - 1/2 of every record; 0 where the gradient is not finite, as for an absent record."""
        return ((norms <= self.clip_norm).to(norms.dtype) - 0.5) * norms.isfinite()

    def statistic(self, norms: Tensor) -> float:
        """The count  sum_i (b_i - 1/2)."""
        return float(self.contributions(norms).double().sum())

    def statistic_std(self, noise_multiplier: float) -> float:
        """Standard deviation s = noise_multiplier * count_noise / 2 of the noise on the count."""
        return 0.5 * noise_multiplier * self.count_noise

    def after(self, statistic: float, expected_batch_size: float) -> AdaptiveClip:
        """The clip after one geometric step of the clipping norm, from the noisy count."""
        excess = statistic / expected_batch_size + 0.5 - self.quantile
        move = min(max(-self.learning_rate * excess, -_LARGEST_MOVE), _LARGEST_MOVE)
        return replace(self, clip_norm=min(max(self.clip_norm * math.exp(move), _LOWEST), _HIGHEST))
