"""Where a tensor comes from that no observed operation made: a number of the source, or a value of unknown origin."""

from __future__ import annotations

import gc
import sys
from types import CellType

import torch
from torch import Tensor

from tacit.verification.reads import is_own


def is_literal(value: Tensor, own: set[int]) -> bool:
    """Whether `value`, first met as an argument, is a number that torch wrapped, or counts, or is all zero or one.

    A number such as the 0 of `x[0] = 0`, or a constant of TorchScript, becomes a tensor that nothing in Python holds.

    Args:
        value: the tensor.
        own: identities of the containers by which the call under way holds it.
    """
    if not value.numel() or (value.dim() == 0 and not _is_held(value, own)):
        return True
    first = value.detach().flatten()[0]
    if value.numel() > 1 and bool((first == 0) | (first == 1)) and bool((value == first).all()):
        return True
    counts = torch.arange(value.shape[-1], device=value.device) if value.numel() > 1 else None
    return counts is not None and not value.is_complex() and bool((value.detach() == counts).all())


def _is_held(value: Tensor, own: set[int]) -> bool:
    """Whether a variable, a closure or a container holds `value`."""
    frame = sys._getframe(2)
    while frame is not None:
        if not is_own(frame) and id(value) in set(map(id, frame.f_locals.values())):
            return True
        frame = frame.f_back
    # Without a generator expression: it would hold the value in a cell of its own.
    return any(
        isinstance(each, CellType | dict | list | tuple | set) and id(each) not in own for each in _holders(value)
    )


def _holders(value: Tensor) -> list[object]:
    return gc.get_referrers(value)
