"""One training step of a group of stacked networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from tacit.attacks.reference_models import Recipe
from tacit.attacks.stacked_layers import Layer, Weighted
from tacit.clipping import FlatClip
from tacit.noise import Stream

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


class Group:
    """Networks of one shape, their weights stacked in one flat parameter.

    Args:
        layers: of the networks, for this group alone.
        first: initial parameters of each model by name, as the network shapes them.
        recipe: optimizer, clipping, noise and precision.
    """

    def __init__(self, layers: Sequence[Layer], first: Sequence[Mapping[str, Tensor]], recipe: Recipe):
        self.recipe, self.layers = recipe, layers
        self.dtype = DTYPES[recipe.precision]
        held = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.weighted = [layer for layer in layers if isinstance(layer, Weighted)]
        shapes = {name: (len(first), *shape) for layer in self.weighted for name, shape in layer.shapes.items()}
        self._flat = torch.nn.Parameter(torch.zeros(sum(map(prod, shapes.values())), dtype=held))
        self._flat.grad = self._gradient = torch.zeros_like(self._flat)
        self._used = self._flat.data if self.dtype == held else torch.zeros_like(self._flat, dtype=self.dtype)
        self.held = _views(self._flat.data, shapes)
        used, self.gradients = _views(self._used, shapes), _views(self._gradient, shapes)
        for layer in self.weighted:
            layer.used = {name: used[name] for name in layer.shapes}
            layer.gradients = {name: self.gradients[name] for name in layer.shapes}
            for name in layer.shapes:
                self.held[name].copy_(torch.stack([layer.stored(model[name]) for model in first]))
        self._clip = FlatClip(recipe.clip_norm) if recipe.clip_norm is not None else None
        self._error: Tensor | None = None
        if recipe.optimizer == "adam":
            self._optimizer: torch.optim.Optimizer = torch.optim.Adam([self._flat], lr=recipe.learning_rate, fused=True)
        else:
            self._optimizer = torch.optim.SGD(
                [self._flat], lr=recipe.learning_rate, momentum=recipe.momentum, fused=True
            )

    def parameters(self) -> dict[str, Tensor]:
        """Copies of the parameters of all models by name, (models, *shape in the network)."""
        return {name: layer.shown(self.held[name]).clone() for layer in self.weighted for name in layer.shapes}

    def step(self, inputs: Tensor, labels: Tensor, kept: Tensor | None, stream: Stream) -> None:
        """Update every model on its own batch.

        Args:
            inputs: (models, batch, ...) in `self.dtype`, images with channels last.
            labels: (models, batch).
            kept: (models, batch), 1 for records that count and 0 for padding; None if all do.
            stream: source of the noise of private models.
        """
        error = self.errors(self.forward(inputs), labels)
        if self._clip is None:
            # Dividing the errors by the batch size divides every gradient, and they are the smallest tensor.
            for layer, delta in self.deltas(error.mul_(1 / inputs.shape[1])):
                layer.write(delta)
        else:
            self._write_private(error, kept, self._clip, stream)
        if self.recipe.l2_penalty:
            for name, gradient in self.gradients.items():
                if gradient.dim() > 2:
                    gradient.add_(self.held[name], alpha=2 * self.recipe.l2_penalty)
        self._optimizer.step()

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits of every model."""
        if self._used is not self._flat.data:
            self._used.copy_(self._flat.data)
        h = inputs
        for layer in self.layers:
            h = layer.forward(h)
        return h

    def deltas(self, error: Tensor) -> list[tuple[Weighted, Tensor]]:
        """For every layer with weights each record's loss gradient in its output."""
        found, delta = [], error.to(self.dtype)
        for layer in self.layers[::-1]:
            if isinstance(layer, Weighted):
                found.append((layer, delta))
                if layer is self.weighted[0]:
                    break
            delta = layer.backward(delta)
        return found

    def errors(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Softmax - one-hot, the gradient of each record's cross-entropy in its logits."""
        logits = logits.to(self._flat.dtype)
        if self._error is None or self._error.shape != logits.shape:
            self._error = torch.empty_like(logits)
        torch.softmax(logits, dim=-1, out=self._error)
        return self._error.scatter_add_(2, labels[..., None], self._error.new_full((), -1).expand(*labels.shape, 1))

    def _write_private(self, error: Tensor, kept: Tensor | None, clip: FlatClip, stream: Stream) -> None:
        """(sum of clipped gradients + N(0, (noise_multiplier clip_norm)^2)) / expected batch size."""
        deltas = self.deltas(error)
        factors = clip.factors(norms(deltas), rounding=torch.finfo(torch.float32).eps)
        weighting = (factors if kept is None else factors * kept) / self.recipe.batch_size
        for layer, delta in deltas:
            layer.write(delta * weighting.view(*weighting.shape, *[1] * (delta.dim() - 2)))
        if self.recipe.noise_multiplier:
            noise = torch.empty_like(self._gradient)
            stream.fill_normal(noise.numpy())
            std = self.recipe.noise_multiplier * clip.sensitivity
            self._gradient.add_(noise, alpha=std / self.recipe.batch_size)


def norms(deltas: Sequence[tuple[Weighted, Tensor]]) -> Tensor:
    """L2 norm of each record's gradient in all parameters, (models, batch)."""
    return torch.stack([layer.squared_norms(delta) for layer, delta in deltas]).sum(0).sqrt()


def _views(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    parts = flat.split_with_sizes([prod(shape) for shape in shapes.values()])
    return {name: part.view(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}
