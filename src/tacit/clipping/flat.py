"""Flat clipping: one bound on the L2 norm of a record's whole gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit import check

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FlatClip:
    """Scale every record's gradient g to factor(g) g with norm at most `clip_norm` (Abadi et al. 2016, Algorithm 1).

    factor(g) = min(1, clip_norm / |g|), lowered by a few units of rounding so that the clipped norm stays at or
    below `clip_norm` in exact arithmetic too. The sensitivity that the accountant relies on travels with the clip:
    a sum of clipped gradients moves by at most `clip_norm` when one record comes or goes.

    Args:
        clip_norm: in [1e-9, 1e12], so that it and its products are ordinary float32 numbers.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        check.real("clip_norm", self.clip_norm, low=1e-9, high=1e12, hint="Use e.g. 1.0.")

    @property
    def sensitivity(self) -> float:
        """L2 norm of the largest contribution."""
        return self.clip_norm

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        """Factor in [0, 1] of every gradient norm, shape (batch,); a norm that is NaN or infinite gives exactly 0.

        Args:
            norms: L2 norms.
            rounding: machine epsilon of the arithmetic that made the norms and will apply the factors.
        """
        import torch

        bound = self.clip_norm * (1.0 - 8 * rounding)
        factors = torch.full_like(norms, bound).div_(norms).clamp_(max=1.0)
        # A factor too small for full precision could round up; it becomes 0, which contributes less.
        return torch.threshold_(torch.nan_to_num_(factors, nan=0.0), torch.finfo(norms.dtype).tiny, 0.0)
