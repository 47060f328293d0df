"""Per-example gradients of any model by `torch.func`: slow, and right for every use of every parameter."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.clipping import Clip
from tacit.gradients.inputs import Inputs, Loss, losses_of, outputs_of, per_example, rows
from tacit.gradients.privacy_units import ALONE, PrivacyUnits

_ELEMENTS = 2**22  # per-example gradient values held at a time


def add_by_example(
    model: nn.Module,
    loss: Loss,
    inputs: Inputs,
    targets: Tensor,
    clip: Clip,
    sums: dict[str, Tensor],
    *,
    vectorised: bool,
    units: PrivacyUnits = ALONE,
) -> Tensor:
    """Add every unit's clipped gradient to `sums`, a chunk of per-example gradients at a time; unclipped norms.

    Every example runs through the model as a batch of one, so no layer can mix examples. `vectorised` uses
    `torch.func`, which not every model runs under.
    """
    norms = [next(iter(sums.values())).new_zeros(0)]
    values = sum(total.numel() for total in sums.values())
    size = max(1, _ELEMENTS // (values * units.size)) * units.size
    for start in range(0, len(targets), size):
        part = slice(start, start + size)
        x, y = rows(inputs, part), targets[part]
        found = by_vmap(model, loss, x, y) if vectorised else one_at_a_time(model, loss, x, y)[0]
        weights = None if units.weights is None else units.weights[part]
        norm, gradients = clipped_rows(_joined(found, units.size, weights), clip, units)
        norms.append(norm)
        for name, gradient in gradients.items():
            sums[name] += gradient.sum(0)
    return torch.cat(norms)


def one_at_a_time(model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Per-example gradients and losses by ordinary backward passes over batches of one."""
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found: dict[str, list[Tensor]] = {name: [] for name in trainable}
    losses = []
    with torch.enable_grad():
        for i in range(len(targets)):
            part = slice(i, i + 1)
            value = losses_of(loss, outputs_of(model, rows(inputs, part)), targets[part])
            losses.append(value.detach())
            given = [None] * len(trainable)
            if value.requires_grad:
                given = torch.autograd.grad(value.sum(), list(trainable.values()), allow_unused=True)
            for (name, parameter), gradient in zip(trainable.items(), given, strict=True):
                found[name].append(torch.zeros_like(parameter) if gradient is None else gradient)
    return {name: torch.stack(values).to(wide(values[0].dtype)) for name, values in found.items()}, torch.cat(losses)


def by_vmap(model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor) -> dict[str, Tensor]:
    """Per-example gradients, name -> (batch, *shape), by `torch.func`."""
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    frozen |= dict(model.named_buffers())

    def one_loss(parameters: dict[str, Tensor], example: Inputs, target: Tensor) -> Tensor:
        arguments = rows_of_one(example)
        positional, named = (arguments, {}) if isinstance(arguments, tuple) else ((), arguments)
        outputs = functional_call(model, parameters | frozen, positional, named)
        return per_example(loss(outputs, target.unsqueeze(0)), 1)[0]

    gradients = vmap(grad(one_loss), in_dims=(None, 0, 0), randomness="different")(trainable, inputs, targets)
    return {name: gradient.to(wide(gradient.dtype)) for name, gradient in gradients.items()}


def rows_of_one(example: Inputs) -> tuple[Tensor, ...] | dict[str, Tensor]:
    """One example as the arguments of a batch of one."""
    if isinstance(example, dict):
        return {name: value.unsqueeze(0) for name, value in example.items()}
    return tuple(value.unsqueeze(0) for value in (example if isinstance(example, tuple) else (example,)))


def _joined(gradients: dict[str, Tensor], size: int, weights: Tensor | None) -> dict[str, Tensor]:
    """Sums of the weighted gradients of every `size` records in a row."""
    if weights is not None:
        gradients = {name: gradient * _along(weights, gradient) for name, gradient in gradients.items()}
    if size == 1:
        return gradients
    return {name: gradient.unflatten(0, (-1, size)).sum(1) for name, gradient in gradients.items()}


def clipped_rows(
    gradients: dict[str, Tensor], clip: Clip, units: PrivacyUnits = ALONE
) -> tuple[Tensor, dict[str, Tensor]]:
    """Unclipped norms, and the clipped gradients.

    Rows that are not finite become 0. Rows whose squares overflow are first divided by their largest value, and their
    factor is that of the divided row. Squares that underflow hide less than 1e-15 of norm, far below any clip_norm.
    """
    # A sparse layer may be left without a weight.
    filled = [gradient for gradient in gradients.values() if gradient.numel()]
    largest = torch.stack([gradient.reshape(len(gradient), -1).abs().amax(1) for gradient in filled]).amax(0)
    bad = ~torch.isfinite(largest)
    scale = torch.where(~bad & (largest > 1e15), largest, torch.ones_like(largest))
    # Out of place throughout: two parameters may have been given one and the same gradient tensor.
    safe = {
        name: (gradient / _along(scale, gradient)).masked_fill(_along(bad, gradient), 0.0)
        for name, gradient in gradients.items()
    }
    squared = scale.new_zeros(units.count, len(scale))
    for name, gradient in safe.items():
        squared[units.groups.get(name, 0)] += gradient.reshape(len(gradient), -1).square().sum(1)
    norms = squared.double().sqrt() * scale.double()
    factors = clip.factors(norms.masked_fill(bad, torch.inf), rounding=torch.finfo(squared.dtype).eps) * scale.double()
    each = {name: factors[units.groups.get(name, 0)] for name in safe}
    clipped = {name: gradient * _along(each[name].to(gradient.dtype), gradient) for name, gradient in safe.items()}
    return norms.square().sum(0).sqrt().masked_fill(bad, torch.inf).to(squared.dtype), clipped


def _along(values: Tensor, gradient: Tensor) -> Tensor:
    return values.view(-1, *[1] * (gradient.dim() - 1))


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type that gradients of `dtype` are clipped and summed in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
