"""Flat and automatic clipping: one bound on the L2 norm of the whole per-sample gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit import check
from tacit.clipping.base import NormClip, capped

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FlatClip(NormClip):
    """Scale every per-sample gradient g to norm at most `clip_norm` (Abadi et al. 2016, Algorithm 1).

        factor(g) = min(1, clip_norm / |g|)

    A sum of clipped gradients changes by at most `clip_norm` when one record is added or removed.

    Args:
        clip_norm: in [1e-9, 1e12].

    Example:
        >>> import torch
        >>> FlatClip(1.0).factors(torch.tensor([0.5, 4.0]), rounding=1e-7)
        tensor([1.0000, 0.2500])
    """

    type: ClassVar[str] = "flat"


@dataclass(frozen=True)
class AutomaticClip(NormClip):
    """Scale every per-sample gradient g to g clip_norm / (|g| + stability), shorter than `clip_norm`.

    Small gradients are scaled up as well, so changing `clip_norm` only changes the learning rate.

    Args:
        clip_norm: in [1e-9, 1e12].
        stability: in [1e-6, 1e6]; keeps small gradients shorter than larger ones.

    Source: Bu, Wang, Zha & Karypis 2022, "Automatic clipping", AUTO-S.

    Example:
        >>> import torch
        >>> AutomaticClip(1.0).factors(torch.tensor([0.49, 3.99]), rounding=1e-7)
        tensor([2.0000, 0.2500])
    """

    type: ClassVar[str] = "automatic"
    clip_norm: float = 1.0
    stability: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check.real("stability", self.stability, low=1e-6, high=1e6, hint="Use e.g. 0.01.")

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        """Factor clip_norm / (norm + stability) of every norm; 0 for a norm that is not finite."""
        return capped(norms, self.clip_norm, rounding=rounding, stability=self.stability)
