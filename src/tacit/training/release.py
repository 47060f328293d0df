"""From a clipped sum to what may be released: the noise, the divisor, and the clip of the next step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.clipping import Clip
from tacit.gradients import GradientSum


@dataclass(frozen=True)
class Release:
    """What one step lets out.

    Attributes:
        mean: noisy mean gradient.
        noise_std: standard deviation of the noise on every coordinate of it.
        clip: the clip of the next step.
    """

    mean: GradientSum
    noise_std: float
    clip: Clip


def release(
    clip: Clip, total: GradientSum, norms: Tensor, noise: Tensor, noise_multiplier: float, expected_batch_size: float
) -> Release:
    """Make `total` noisy in place:  (sum + noise_multiplier * sensitivity * noise) / expected_batch_size.

    A clip that makes a mean itself does so first, and is not divided; see `Clip`.

    Args:
        norms: of the units drawn, shape (units,).
        noise: fresh N(0, 1) values, `noise_size` of them.
    """
    size = total.flat.numel()
    clip.finish(total.flat, len(norms))
    std, divisor = scales(clip, noise_multiplier, expected_batch_size)
    total.flat.add_(noise[:size] if clip.statistics else noise, alpha=std).div_(divisor)
    if clip.statistics:
        clip = clip.after(norms, noise[size:], noise_multiplier, expected_batch_size)
    return Release(total, std / divisor, clip)


def scales(clip: Clip, noise_multiplier: float, expected_batch_size: float) -> tuple[float, float]:
    """Standard deviation of the noise on the sum, and what the noisy sum is divided by."""
    return noise_multiplier * clip.sensitivity, 1.0 if clip.of_mean else expected_batch_size


def noise_size(clip: Clip, total: GradientSum) -> int:
    """How many normal values one step takes."""
    return total.flat.numel() + clip.statistics
