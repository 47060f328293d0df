"""Mixed precision: the model computes in bfloat16; norms, clipped sums, noise and weights stay in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tacit import check

PRECISIONS = ("float32", "bfloat16")


class Autocast(nn.Module):
    """`module` under autocast to bfloat16, with outputs in float32.

    Only the forward pass and what autograd makes of it are in bfloat16. Norms and clipped sums are made in float32
    from the same activations and output gradients, so a clipped contribution stays within the bound.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        self._device = next(module.parameters()).device.type

    def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
        with torch.autocast(self._device, dtype=torch.bfloat16):
            outputs = self.module(*inputs, **named)
        return outputs.float() if isinstance(outputs, Tensor) else outputs


def at_precision(model: nn.Module, precision: str) -> nn.Module:
    """The model as the training step calls it, with the parameters of `model` itself."""
    check.choice("precision", precision, PRECISIONS)
    return Autocast(model) if precision == "bfloat16" else model
