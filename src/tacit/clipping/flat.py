"""Flat clipping: one bound on the L2 norm of a record's whole gradient.

Automatic clipping: every gradient is normalised, so that the bound needs no tuning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit.clipping.base import Clip, capped, check_bound

if TYPE_CHECKING:
    from torch import Tensor
from tacit import check


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


@dataclass(frozen=True)
class AutomaticClip(Clip):
    """Scale every record's gradient g to g clip_norm / (|g| + stability), shorter than `clip_norm`.

    Small gradients are scaled up as well, so changing `clip_norm` only changes the learning rate.

    Args:
        clip_norm: in [1e-9, 1e12].
        stability: in [1e-6, 1e6]; keeps apart gradients that are small from such that are smaller.

    Source: Bu, Wang, Zha & Karypis 2022, "Automatic clipping", AUTO-S.
    """

    type: ClassVar[str] = "automatic"
    clip_norm: float = 1.0
    stability: float = 0.01

    def __post_init__(self) -> None:
        check_bound("clip_norm", self.clip_norm)
        check.real("stability", self.stability, low=1e-6, high=1e6, hint="Use e.g. 0.01.")

    @property
    def sensitivity(self) -> float:
        return self.clip_norm

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        return capped(norms, self.clip_norm, rounding=rounding, stability=self.stability)
