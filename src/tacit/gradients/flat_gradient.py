"""A gradient of every trainable parameter, laid out as one flat vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel


@dataclass(frozen=True)
class FlatGradient:
    """The gradient as one vector, and its parts by parameter.

    Attributes:
        flat: the vector.
        parts: parameter name -> view of `flat` with the parameter's shape, in the order of the parameters.

    Example:
        >>> from torch import nn
        >>> FlatGradient.zeros(dict(nn.Linear(2, 1).named_parameters())).flat
        tensor([0., 0., 0.])
    """

    flat: Tensor
    parts: dict[str, Tensor]

    @classmethod
    def zeros(cls, trainable: Mapping[str, nn.Parameter]) -> FlatGradient:
        """The gradient 0, in float32, or in float64 if any parameter is."""
        dtypes = {wide(parameter.dtype) for parameter in trainable.values()}
        device = next(iter(trainable.values())).device
        if any(parameter.device != device for parameter in trainable.values()):
            raise UnsupportedModel("the model has parameters on several devices. Move it to one.")
        size = sum(parameter.numel() for parameter in trainable.values())
        dtype = max(dtypes, key=lambda dtype: dtype.itemsize)
        return cls.of(torch.zeros(size, dtype=dtype, device=device), trainable)

    @classmethod
    def of(cls, flat: Tensor, trainable: Mapping[str, Tensor]) -> FlatGradient:
        """`flat` with its parts, one of the shape of every parameter."""
        parts = flat.split_with_sizes([parameter.numel() for parameter in trainable.values()])
        named = zip(trainable.items(), parts, strict=True)
        return cls(flat, {name: part.view(parameter.shape) for (name, parameter), part in named})


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type that gradients of `dtype` are clipped and summed in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
