"""Adaptive clipping (Andrew et al. 2021) with the arguments of Opacus."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tacit import check
from tacit.clipping import AdaptiveClip


@dataclass(frozen=True)
class BoundedAdaptiveClip(AdaptiveClip):
    """`AdaptiveClip` with its bound limited to [lowest, highest].

    Attributes:
        lowest: smallest bound, > 0.
        highest: largest bound.
    """

    lowest: float = 1e-9
    highest: float = 1e12

    def after(self, statistic: float, expected_batch_size: float) -> AdaptiveClip:
        """Clip of the next step, its bound limited to [lowest, highest]."""
        following = super().after(statistic, expected_batch_size)
        return replace(following, clip_norm=min(max(following.clip_norm, self.lowest), self.highest))


@dataclass(frozen=True)
class Adaptive:
    """Adaptive clipping by the arguments of Opacus (Andrew et al. 2021).

    Args:
        target_unclipped_quantile: share of the records to be left unclipped, in (0, 1).
        clipbound_learning_rate: > 0.
        max_clipbound: upper limit of the bound.
        min_clipbound: lower limit of the bound.
        unclipped_num_std: noise of the count of unclipped records; more than half the noise multiplier. None for 5
            times the noise multiplier, where the count costs half a percent.
    """

    target_unclipped_quantile: float = 0.5
    clipbound_learning_rate: float = 0.2
    max_clipbound: float = 1e12
    min_clipbound: float = 1e-9
    unclipped_num_std: float | None = None

    def split(self, max_grad_norm: float, noise_multiplier: float) -> tuple[AdaptiveClip, float]:
        """The clip, and the noise multiplier of the gradient that together with the count costs `noise_multiplier`.

        1 / noise_multiplier^2 = 1 / gradient_noise^2 + 1 / (2 unclipped_num_std)^2  (Theorem 1 there).
        """
        check.positive("noise_multiplier", noise_multiplier, "Adaptive clipping counts under noise.")
        check.real("max_clipbound", self.max_clipbound, low=self.min_clipbound, open_low=True)
        count = 2 * (5 * noise_multiplier if self.unclipped_num_std is None else self.unclipped_num_std)
        hint = f"It is more than half of noise_multiplier, {noise_multiplier:g}."
        check.real("unclipped_num_std", count / 2, low=noise_multiplier / 2, open_low=True, hint=hint)
        # A relative 1e-12 above the exact value, so that rounding never makes the step cost more than a flat one.
        gradient = (1 + 1e-12) / math.sqrt(noise_multiplier**-2 - count**-2)
        clip = BoundedAdaptiveClip(
            max_grad_norm,
            self.target_unclipped_quantile,
            self.clipbound_learning_rate,
            count / gradient,
            self.min_clipbound,
            self.max_clipbound,
        )
        return clip, gradient
