"""Training of one shadow model by the ordinary modules of torch: for networks that cannot be stacked."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.attacks.batches import Step
from tacit.attacks.reference_models import Recipe
from tacit.clipping import FlatClip
from tacit.gradients import ClippedSum
from tacit.noise import Stream


def train_alone(
    model: nn.Module, data: tuple[Tensor, Tensor], steps: Iterable[Step], recipe: Recipe, stream: Stream
) -> dict[str, Tensor]:
    """Train `model` on each batch, and return its state by name.

    Args:
        model: trained in place; products are in the precision of its parameters.
        data: inputs and labels of all records.
        steps: batches of one model, as `batches` gives them.
        recipe: optimizer, clipping and noise.
        stream: source of the noise of private models.

    Raises:
        UnsupportedModel: the recipe is private, and the model mixes records.
    """
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    values = list(parameters.values())
    if recipe.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(values, lr=recipe.learning_rate, fused=True)
    else:
        optimizer = torch.optim.SGD(values, lr=recipe.learning_rate, momentum=recipe.momentum)
    clip = FlatClip(recipe.clip_norm) if recipe.clip_norm is not None else None
    clipped = ClippedSum(model, clip) if clip is not None else None
    for index, kept in steps:
        rows = index[0] if kept is None else index[0][kept[0] > 0]
        inputs, labels = data[0][rows], data[1][rows]
        if clip is None or clipped is None:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
        else:
            sums = clipped(_losses, inputs, labels)[0].as_released().parts if len(rows) else {}
            for name, value in parameters.items():
                noise = torch.empty(value.numel())
                stream.fill_normal(noise.numpy())
                total = noise.view_as(value).mul_((recipe.noise_multiplier or 0.0) * clip.sensitivity)
                value.grad = ((total + sums[name]) if name in sums else total).to(value.dtype) / recipe.batch_size
        for value in values:
            if recipe.l2_penalty and value.dim() > 1 and value.grad is not None:
                value.grad.add_(value.detach(), alpha=2 * recipe.l2_penalty)
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")
