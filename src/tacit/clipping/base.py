"""`Clip`: how per-sample gradients are bounded, and the sensitivity that follows.

Flat and automatic clipping: one bound on the L2 norm of the whole per-sample gradient.

Batch-mean clipping: the mean gradient of a batch is clipped, not the per-sample gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from tacit import check
from tacit.mechanisms import Gaussian

if TYPE_CHECKING:
    from torch import Tensor


class Clip(ABC):
    """A frozen, serialisable description of how per-sample gradients are clipped.

    Every per-sample gradient g is split into groups of parameters and scaled group by group. What one record adds to
    the sum then has L2 norm at most `sensitivity`, whatever its values; the noise multiplier is in units of that. One
    clip serves one step; `after` gives the clip of the next.

    Attributes:
        type: name in the JSON form.
        of_mean: whether `finish` turns the sum into a mean, which is then not divided by the expected batch size.
        statistics: number of noisy values that a step releases besides the gradient, 0 or 1.

    Example:
        >>> from tacit.clipping import FlatClip
        >>> isinstance(FlatClip(1.0), Clip), FlatClip(1.0).spec()
        (True, {'type': 'flat', 'clip_norm': 1.0})
    """

    type: ClassVar[str]
    of_mean: ClassVar[bool] = False
    statistics: ClassVar[int] = 0

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest change of the released sum (or mean), in L2 norm, when one record is added, removed or zeroed out."""

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
        """Change in place `flat`, the weighted sum of the gradients of `records` drawn records, and return it."""
        return flat

    def mechanism(self, noise_multiplier: float, unsafe_no_noise: bool = False) -> Gaussian:
        """The mechanism of one step with noise N(0, (noise_multiplier * sensitivity)^2 I) on the sum."""
        return Gaussian(noise_multiplier, unsafe_no_noise)

    def statistic(self, norms: Tensor) -> float:
        """What a step releases besides the gradient, before noise; 0 where `statistics` is 0.

        Args:
            norms: gradient norms of the records drawn, shape (records,); private.
        """
        return 0.0

    def statistic_std(self, noise_multiplier: float) -> float:
        """Standard deviation of the noise on `statistic`."""
        return 0.0

    def after(self, statistic: float, expected_batch_size: float) -> Clip:
        """The clip of the next step, from the noisy statistic of this one and the public size of its batch."""
        return self

    def spec(self) -> dict[str, Any]:
        """JSON form; `clip_from_spec` is its inverse."""
        return {"type": self.type} | {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class NormClip(Clip):
    """A clip whose bound on the whole gradient, `clip_norm`, is its sensitivity.

    Args:
        clip_norm: in [1e-9, 1e12].
    """

    clip_norm: float

    def __post_init__(self) -> None:
        check_bound("clip_norm", self.clip_norm)

    @property
    def sensitivity(self) -> float:
        """The clipping norm."""
        return self.clip_norm

    def factors(self, norms: Tensor, *, rounding: float) -> Tensor:
        """Factor min(1, clip_norm / norm) of every norm; 0 for a norm that is not finite."""
        return capped(norms, self.clip_norm, rounding=rounding)


def check_bound(name: str, value: object) -> float:
    """`value` as a bound on a norm, in [1e-9, 1e12]: it and its products are then ordinary float32 numbers."""
    return check.real(name, value, low=1e-9, high=1e12, hint="Use e.g. 1.0.")


# Units of rounding that a clipped norm may gain: in the norm, the factor and the product, with room to spare.
ROUNDINGS = 8


def capped(norms: Tensor, bound: float | Tensor, *, rounding: float, stability: float = 0.0) -> Tensor:
    """Factor min(1, bound / norm), or bound / (norm + stability) for a positive `stability`; 0 for a norm not finite.

    The bound is lowered by a few units of rounding, so that the clipped norm stays at or below it in exact arithmetic
    too.

    Args:
        norms: L2 norms >= 0, any shape.
        bound: on the clipped norms.
        rounding: machine epsilon of the arithmetic that made the norms and will apply the factors.
        stability: >= 0.
    """
    import torch

    lowered = bound * (1.0 - ROUNDINGS * rounding)
    if isinstance(lowered, torch.Tensor):
        factors = lowered.to(norms) / norms
    else:
        factors = torch.full_like(norms, lowered).div_(norms + stability if stability else norms)
    if not stability:
        factors.clamp_(max=1.0)
    # A factor too small for full precision could round up; it becomes 0, which contributes less.
    return torch.threshold_(torch.nan_to_num_(factors, nan=0.0), torch.finfo(norms.dtype).tiny, 0.0)


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
