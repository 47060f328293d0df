"""`NoisyMean`: from a clipped sum to the noisy mean that is released."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.clipping import Clip
from tacit.gradients import FlatGradient
from tacit.noise import Stream, rounded_gaussian
from tacit.training.correlation import Correlation


@dataclass(frozen=True)
class Release:
    """Result of one step.

    Attributes:
        mean: noisy mean gradient.
        noise_std: standard deviation of the noise on every coordinate of it.
        clip: the clip of the next step.
    """

    mean: FlatGradient
    noise_std: float
    clip: Clip


class NoisyMean:
    """Releases noisy means of clipped sums:  (sum + N(0, (noise_multiplier * sensitivity (1 + nu))^2 I)) / divisor.

    The noise is exact: the released sum is the rounded Gaussian mechanism on the computed sum, see
    `tacit.noise.rounded_gaussian`. Rounding lets computed sums of neighbouring batches lie apart by the sensitivity
    times 1 + nu, nu the `slack` of the sum; the noise grows by as much, so its multiplier is the one that is recorded.
    Rounding to the type of the model, division, and all that the optimizer does are post-processing.

    Args:
        stream: source of the noise.
        correlation: that of the run; None for noise that is independent from step to step.
    """

    def __init__(self, stream: Stream, *, correlation: Correlation | None = None):
        self._stream, self._correlation = stream, correlation

    def __call__(
        self, clip: Clip, total: FlatGradient, norms: Tensor, noise_multiplier: float, expected_batch_size: float
    ) -> Release:
        """Make `total` noisy; it must not be used any more. A clip of the mean makes it first, and is not divided.

        Args:
            clip: the clip of this step.
            total: clipped sum, and its slack; overwritten.
            norms: gradient norms of the units drawn, shape (units,).
            noise_multiplier: noise std / sensitivity, >= 0.
            expected_batch_size: > 0.

        Returns:
            The noisy mean, the standard deviation of its noise, and the clip of the next step.

        Raises:
            InvalidInput: the sum is not finite.
        """
        clip.finish(total.flat, len(norms))
        std, divisor = scales(clip, noise_multiplier, expected_batch_size)
        if self._correlation is not None:
            return self._correlated(self._correlation, clip, total, std, divisor)
        std *= 1 + total.slack
        self._add_noise(total.flat, std)
        total = total.as_released()
        total.flat.div_(divisor)
        if clip.statistics:
            count = torch.tensor([clip.statistic(norms)], dtype=torch.float64)
            self._add_noise(count, clip.statistic_std(noise_multiplier))
            clip = clip.after(float(count), expected_batch_size)
        return Release(total, std / divisor, clip)

    def _correlated(
        self, correlation: Correlation, clip: Clip, total: FlatGradient, std: float, divisor: float
    ) -> Release:
        """The estimate of this sum from all rows that were released; see `tacit.noise.correlated`."""
        std *= 1 + correlation.slack(total.slack)
        rows = correlation.encode(total.flat, std)
        self._add_noise(rows, std)
        estimate, spread = correlation.decode(rows)
        kept = total.released_in if total.released_in is not None else total.flat.dtype
        mean = FlatGradient.of(estimate.div_(divisor).to(total.flat.device, kept), total.parts)
        return Release(mean, std * spread / divisor, clip)

    def _add_noise(self, values: Tensor, std: float) -> None:
        """Overwrite `values` with what may be released of them; as they are without noise."""
        if not std:
            return
        host = values.detach().cpu().contiguous()
        rounded_gaussian(host.numpy(), self._stream, std=std, out=host.numpy())
        if host.data_ptr() != values.data_ptr():
            values.copy_(host)


def scales(clip: Clip, noise_multiplier: float, expected_batch_size: float) -> tuple[float, float]:
    """Standard deviation of the noise on the sum, and divisor of the noisy sum."""
    return noise_multiplier * clip.sensitivity, 1.0 if clip.of_mean else expected_batch_size
