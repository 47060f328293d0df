"""Batch-mean clipping: the mean gradient of a batch is clipped, not the per-sample gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit.clipping.base import ROUNDINGS, NormClip

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BatchMeanClip(NormClip):
    """Clip the mean gradient of the batch to `clip_norm` and add noise to it, as Jayaraman & Evans (2019) compare it.

    The sensitivity is 2 clip_norm under any relation: one record may turn a mean of length `clip_norm` around. The
    noise N(0, (noise_multiplier * 2 clip_norm)^2 I) is added to the mean and not divided by the batch size. It is about
    2 x batch size times the noise of per-sample clipping. Under replace_one accountants double the sensitivity once
    more, which is more than needed.

    Args:
        clip_norm: in [1e-9, 1e12].

    Example:
        >>> BatchMeanClip(1.0).sensitivity
        2.0
    """

    type: ClassVar[str] = "batch_mean"
    of_mean: ClassVar[bool] = True

    @property
    def sensitivity(self) -> float:
        """Twice the clipping norm."""
        return 2 * self.clip_norm

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        """1 for every record with a gradient that is finite."""
        return norms.isfinite().to(norms.dtype)

    def finish(self, flat: Tensor, records: int) -> Tensor:
        """The clipped mean; zero for a mean that is not finite."""
        import torch

        flat.div_(max(records, 1))
        largest = float(flat.abs().max()) if flat.numel() else 0.0
        if not largest < torch.finfo(flat.dtype).max:
            return flat.zero_()
        norm = largest * float((flat / (largest or 1.0)).double().square().sum().sqrt())
        bound = self.clip_norm * (1.0 - ROUNDINGS * torch.finfo(flat.dtype).eps)
        if norm > bound:
            flat.div_(largest).mul_(bound / norm * largest)
        return flat
