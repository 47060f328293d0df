"""A gradient of every trainable parameter, laid out as one flat vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import UnsupportedModel


@dataclass(frozen=True)
class FlatGradient:
    """The gradient as one vector, and its parts by parameter.

    Attributes:
        flat: the vector.
        parts: parameter name -> view of `flat` with the parameter's shape, in the order of the parameters.
        slack: nu of a clipped sum: its sensitivity, rounding included, is 1 + nu times that of its clip; public.
        released_in: type that a release is rounded to, which the type of `flat` does not show; None for that one.

    Example:
        >>> from torch import nn
        >>> FlatGradient.zeros(dict(nn.Linear(2, 1).named_parameters())).flat
        tensor([0., 0., 0.])
    """

    flat: Tensor
    parts: dict[str, Tensor]
    slack: float = 0.0
    released_in: torch.dtype | None = None

    @classmethod
    def zeros(cls, trainable: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> FlatGradient:
        """The gradient 0, in float32, or in float64 if any parameter is; or in `dtype` if that is wider."""
        dtypes = {wide(parameter.dtype) for parameter in trainable.values()} | ({dtype} if dtype else set())
        device = next(iter(trainable.values())).device
        if any(parameter.device != device for parameter in trainable.values()):
            raise UnsupportedModel("the model has parameters on several devices. Move it to one.")
        size = sum(parameter.numel() for parameter in trainable.values())
        widest = max(dtypes, key=lambda dtype: dtype.itemsize)
        return cls.of(torch.zeros(size, dtype=widest, device=device), trainable)

    @classmethod
    def of(cls, flat: Tensor, trainable: Mapping[str, Tensor]) -> FlatGradient:
        """`flat` with its parts, one of the shape of every parameter."""
        parts = flat.split_with_sizes([parameter.numel() for parameter in trainable.values()])
        named = zip(trainable.items(), parts, strict=True)
        return cls(flat, {name: part.view(parameter.shape) for (name, parameter), part in named})

    def as_released(self) -> FlatGradient:
        """The gradient in the type of the model. Whether a batch was summed in a wider one is private."""
        if self.released_in is None or self.released_in == self.flat.dtype:
            return self
        return FlatGradient.of(self.flat.to(self.released_in), self.parts)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type that gradients of `dtype` are clipped and summed in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


class Total:
    """Sum of the parts of one logical batch: the part itself where there is one, else in double precision.

    Example:
        >>> from torch import nn
        >>> trainable = dict(nn.Linear(2, 1).named_parameters())
        >>> total = Total(trainable)
        >>> for _ in range(2):
        ...     total.add(FlatGradient.zeros(trainable))
        >>> total.gradient().flat.dtype
        torch.float64
    """

    def __init__(self, trainable: Mapping[str, Tensor]):
        self._trainable = trainable
        self._sum: Tensor | None = None
        self._parts = 0
        self._last: FlatGradient | None = None

    def add(self, part: FlatGradient) -> None:
        """Add `part`, which must not be used any more."""
        self._last = part
        if self._sum is None:
            self._sum = part.flat
        else:
            self._sum = self._sum.double() if self._parts == 1 else self._sum
            self._sum += part.flat
        self._parts += 1

    def gradient(self) -> FlatGradient:
        """The sum of all parts; zero without any."""
        if self._sum is None or self._last is None:
            return FlatGradient.zeros(self._trainable)
        found = FlatGradient.of(self._sum, self._trainable)
        return replace(found, slack=self._last.slack, released_in=self._last.released_in)
