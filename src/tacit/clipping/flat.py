"""Flat clipping: one bound on the L2 norm of a record's whole gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit.clipping.base import Clip, capped, check_bound

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FlatClip(Clip):
    """Scale every record's gradient g to factor(g) g with norm at most `clip_norm` (Abadi et al. 2016, Algorithm 1).

        factor(g) = min(1, clip_norm / |g|)

    A sum of clipped gradients moves by at most `clip_norm` when one record comes or goes.

    Args:
        clip_norm: in [1e-9, 1e12].
    """

    type: ClassVar[str] = "flat"
    clip_norm: float

    def __post_init__(self) -> None:
        check_bound("clip_norm", self.clip_norm)

    @property
    def sensitivity(self) -> float:
        return self.clip_norm

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        return capped(norms, self.clip_norm, rounding=rounding)
