"""`Clip`: how one record's gradient is bounded, and the sensitivity that follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from tacit import check
from tacit.mechanisms import Gaussian

if TYPE_CHECKING:
    from torch import Tensor


class Clip(ABC):
    """A frozen, serialisable description of how contributions to a sum are bounded.

    Every record's gradient g is cut into groups of parameters and scaled group by group, so that what the record adds
    has L2 norm at most `sensitivity` in all, whatever its values; noise is measured in units of that. One clip serves
    one step; `after` gives the clip of the next.

    Attributes:
        type: name in the JSON form.
        of_mean: whether `finish` turns the sum into a mean, which is then not divided by the expected batch size.
        statistics: how many noisy numbers a step releases besides the gradient.
    """

    type: ClassVar[str]
    of_mean: ClassVar[bool] = False
    statistics: ClassVar[int] = 0

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """L2 norm by which the released sum (or mean) moves at most when one record comes, goes or is zeroed."""

    def groups(self, names: Sequence[str]) -> dict[str, int]:
        """The group of every parameter, numbered from 0; one group for all unless overridden."""
        return dict.fromkeys(names, 0)

    @abstractmethod
    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        """Factor >= 0 of every group of every record; a record with a norm that is NaN or infinite gets only zeros.

        Args:
            norms: L2 norms, shape (groups, records).
            rounding: machine epsilon of the arithmetic that made the norms and will apply the factors.
        """

    def finish(self, flat: Tensor, records: int) -> Tensor:
        """`flat`, the weighted sum of the gradients of `records` drawn records, after a last change in place."""
        return flat

    def mechanism(self, noise_multiplier: float, unsafe_no_noise: bool = False) -> Gaussian:
        """What one step is to an accountant, the noise on the sum being N(0, (noise_multiplier * sensitivity)^2 I)."""
        return Gaussian(noise_multiplier, unsafe_no_noise)

    def after(self, norms: Tensor, noise: Tensor, noise_multiplier: float, expected_batch_size: float) -> Clip:
        """The clip of the next step.

        Args:
            norms: gradient norms of the records drawn, shape (records,); private.
            noise: `statistics` fresh N(0, 1) values.
        """
        return self

    def spec(self) -> dict[str, Any]:
        """JSON form; `clip_from_spec` is its inverse."""
        return {"type": self.type} | {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


def check_bound(name: str, value: object) -> float:
    """`value` as a bound on a norm, in [1e-9, 1e12]: it and its products are then ordinary float32 numbers."""
    return check.real(name, value, low=1e-9, high=1e12, hint="Use e.g. 1.0.")


def capped(norms: Tensor, bound: float | Tensor, *, rounding: float, stability: float = 0.0) -> Tensor:
    """min(1, bound / norm), or bound / (norm + stability) for a positive `stability`; 0 for a norm not finite.

    The bound is lowered by a few units of rounding, so that the clipped norm stays at or below it in exact arithmetic
    too.
    """
    import torch

    lowered = bound * (1.0 - 8 * rounding)
    if isinstance(lowered, torch.Tensor):
        factors = lowered.to(norms) / norms
    else:
        factors = torch.full_like(norms, lowered).div_(norms + stability if stability else norms)
    if not stability:
        factors.clamp_(max=1.0)
    # A factor too small for full precision could round up; it becomes 0, which contributes less.
    return torch.threshold_(torch.nan_to_num_(factors, nan=0.0), torch.finfo(norms.dtype).tiny, 0.0)
