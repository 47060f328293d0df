"""Mixed precision: the model computes in bfloat16; norms, clipped sums, noise and weights stay in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit import check

PRECISIONS = ("float32", "bfloat16")


@contextmanager
def computed_in(model: nn.Module, precision: str) -> Iterator[None]:
    """Inside, calls of `model` run in `precision`, "float32" or "bfloat16" (autocast); outputs are float32 in both.

    Only the forward pass, and what autograd makes of it, is in bfloat16. Norms and clipped sums are made in float32
    from the same activations and output gradients, so a clipped contribution stays within the bound.
    """
    if check.choice("precision", precision, PRECISIONS) == "float32":
        yield
        return
    autocast = torch.autocast(next(model.parameters()).device.type, dtype=torch.bfloat16)

    def enter(module: nn.Module, inputs: Any) -> None:
        autocast.__enter__()

    def leave(module: nn.Module, inputs: Any, outputs: Any) -> Any:
        autocast.__exit__(None, None, None)
        return outputs.float() if isinstance(outputs, Tensor) else outputs

    # Hooks instead of a module around the model: parameters keep their names, on which clipping may depend.
    hooks = [model.register_forward_pre_hook(enter), model.register_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
