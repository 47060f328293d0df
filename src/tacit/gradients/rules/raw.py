"""Parameters that stand in arithmetic by themselves: scales, position tables, class tokens, learnt slopes.

Such a parameter is repeated for every example; the gradient of its copies is the per-example gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.contributions import Contribution, Rows

_ARITHMETIC = (
    (torch.add, Tensor.add, torch.add),
    (torch.sub, Tensor.sub, torch.sub),
    (torch.mul, Tensor.mul, torch.mul),
    (torch.div, Tensor.div, torch.div),
    (Tensor.__rsub__, None, torch.rsub),
    (Tensor.__rdiv__, None, lambda left, right: right / left),
)


def _copies(capture: Capture, parameter: Tensor, dims: int) -> Tensor:
    """One copy of `parameter` for each example, shape (B, 1, ..., *shape) `dims` axes or more, as a gradient root."""
    shape = parameter.shape[1:] if parameter.dim() == dims and parameter.shape[0] == 1 else parameter.shape
    if len(shape) >= dims:
        raise Uncovered(f"{capture.name(parameter)} has as many axes as what it is combined with")
    ones = (1,) * (dims - 1 - len(shape))
    copies = parameter.detach().reshape(1, *ones, *shape).expand(capture.batch, *ones, *shape)
    name = capture.name(parameter)
    assert name is not None

    def contribute(gradient: Tensor) -> list[Contribution]:
        return [Rows(name, gradient.reshape(capture.batch, *parameter.shape))]

    return capture.root(copies.detach(), (), contribute)


def _arithmetic(operation: Any) -> Any:
    def rule(capture: Capture, left: Any, right: Any, **options: Any) -> Tensor:
        left_name, right_name = capture.name(left), capture.name(right)
        other = right if left_name else left
        if (left_name and right_name) or not isinstance(other, Tensor):
            raise Uncovered(f"arithmetic on {left_name or right_name} alone")
        if capture.axis(other, 0) != 0:
            raise Uncovered(f"{left_name or right_name} is combined with something that has no batch axis in front")
        if left_name:
            return operation(_copies(capture, left, other.dim()), other, **options)
        return operation(other, _copies(capture, right, other.dim()), **options)

    return rule


for _function, _method, _operation in _ARITHMETIC:
    captures(*(known for known in (_function, _method) if known is not None))(_arithmetic(_operation))


@captures(Tensor.expand)
def expand(capture: Capture, parameter: Tensor, *sizes: Any) -> Tensor:
    """A class token: (1, ...) repeated along the batch."""
    shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    known = capture.axis(parameter.detach().expand(*shape), 0)
    if known != 0 or shape[0] != capture.batch or parameter.dim() != len(shape) or parameter.shape[0] != 1:
        raise Uncovered(f"expand repeats {capture.name(parameter)} along another axis than the batch")
    return _copies(capture, parameter, parameter.dim()).expand(*shape)


@captures(F.prelu)
def prelu(capture: Capture, input: Tensor, weight: Tensor) -> Tensor:
    """max(x, 0) + slope min(x, 0), the slope shared or one for each channel (axis 1)."""
    if capture.name(weight) is None or capture.axis(input, 0) != 0:
        raise Uncovered("prelu runs on an input without a batch axis")
    copies = _copies(capture, weight, 2 if weight.numel() > 1 else input.dim())
    if weight.numel() > 1:
        copies = copies.reshape(capture.batch, -1, *[1] * (input.dim() - 2))
    return input.clamp(min=0) + copies * input.clamp(max=0)
