"""Per-example gradients of any model by `torch.func`: slow, and right for every use of every parameter."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.clipping import FlatClip
from tacit.gradients.batch import Inputs, Loss, per_example, rows

_ELEMENTS = 2**22  # per-example gradient values held at a time


def clipped_sum_by_example(
    model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor, clip: FlatClip
) -> tuple[dict[str, Tensor], Tensor]:
    """Clipped gradient sum and unclipped norms, from per-example gradients made a chunk at a time.

    Every example runs through the model as a batch of one, so no layer can mix examples.
    """
    sums = {
        name: torch.zeros_like(parameter, dtype=_wide(parameter.dtype), memory_format=torch.contiguous_format)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    norms = [next(iter(sums.values())).new_zeros(0)]
    for gradients in _chunks(model, loss, inputs, targets):
        norm, factor = _clip_rows(gradients, clip)
        norms.append(norm)
        for name, gradient in gradients.items():
            sums[name] += torch.tensordot(factor.to(gradient.dtype), gradient, dims=1)
    return sums, torch.cat(norms)


def _chunks(model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor) -> Iterator[dict[str, Tensor]]:
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    frozen |= dict(model.named_buffers())

    def one_loss(parameters: dict[str, Tensor], example: Inputs, target: Tensor) -> Tensor:
        arguments = rows_of_one(example)
        positional, named = (arguments, {}) if isinstance(arguments, tuple) else ((), arguments)
        outputs = functional_call(model, parameters | frozen, positional, named)
        return per_example(loss(outputs, target.unsqueeze(0)), 1)[0]

    size = max(1, _ELEMENTS // sum(parameter.numel() for parameter in trainable.values()))
    each = vmap(grad(one_loss), in_dims=(None, 0, 0), randomness="different")
    for start in range(0, len(targets), size):
        part = slice(start, start + size)
        gradients = each(trainable, rows(inputs, part), targets[part])
        yield {name: gradient.to(_wide(gradient.dtype)) for name, gradient in gradients.items()}


def rows_of_one(example: Inputs) -> tuple[Tensor, ...] | dict[str, Tensor]:
    """One example as the arguments of a batch of one."""
    if isinstance(example, dict):
        return {name: value.unsqueeze(0) for name, value in example.items()}
    return tuple(value.unsqueeze(0) for value in (example if isinstance(example, tuple) else (example,)))


def _clip_rows(gradients: dict[str, Tensor], clip: FlatClip) -> tuple[Tensor, Tensor]:
    """Norm and factor of every row; rows that are not finite become 0, rows whose squares overflow are rescaled first.

    A rescaled row is divided by its largest value (in place), and its factor is that of the divided row. Squares that
    underflow hide less than 1e-15 of norm, far below the smallest clip_norm.
    """
    largest = torch.stack([gradient.flatten(1).abs().amax(1) for gradient in gradients.values()]).amax(0)
    bad = ~torch.isfinite(largest)
    far = ~bad & (largest > 1e15)
    scale = torch.where(far, largest, torch.ones_like(largest)).double()
    if bad.any() or far.any():
        for gradient in gradients.values():
            gradient[bad] = 0.0
            gradient[far] /= largest[far].view(-1, *[1] * (gradient.dim() - 1))
    squared = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients.values()]).sum(0)
    norm = squared.double().sqrt() * scale
    factor = clip.factors(norm, rounding=torch.finfo(squared.dtype).eps) * scale * ~bad
    return norm.masked_fill(bad, torch.inf).to(squared.dtype), factor.to(squared.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
