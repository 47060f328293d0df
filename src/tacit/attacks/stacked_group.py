"""One training step of a group of stacked networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from tacit.attacks.reference_models import Recipe
from tacit.clipping import FlatClip
from tacit.noise import Stream


class Group:
    """Fully connected ReLU networks of one shape, their weights stacked in one flat parameter.

    Args:
        widths: of the input, the hidden layers and the output.
        first: initial weight matrices of each model, (inputs, outputs) each; biases begin at 0.
        recipe: optimizer, clipping, noise and precision.
    """

    def __init__(self, widths: Sequence[int], first: Sequence[Sequence[np.ndarray]], recipe: Recipe):
        self.recipe, models = recipe, len(first)
        self.dtype = torch.bfloat16 if recipe.precision == "bfloat16" else torch.float32
        sizes = [size for a, b in pairwise(widths) for size in (models * a * b, models * b)]
        self._flat = torch.nn.Parameter(torch.zeros(sum(sizes)))
        self._gradient = torch.zeros(sum(sizes))
        self._flat.grad = self._gradient
        self._used = self._flat.data if self.dtype == torch.float32 else torch.zeros_like(self._flat, dtype=self.dtype)
        self.weights, self.biases = _layers(self._flat.data, sizes, widths, models)
        self._gradients = _layers(self._gradient, sizes, widths, models)
        self._used_layers = _layers(self._used, sizes, widths, models)
        for place, matrices in enumerate(first):
            for weight, matrix in zip(self.weights, matrices, strict=True):
                weight[place] = torch.from_numpy(matrix)
        self._clip = FlatClip(recipe.clip_norm) if recipe.clip_norm is not None else None
        if recipe.optimizer == "adam":
            self._optimizer: torch.optim.Optimizer = torch.optim.Adam([self._flat], lr=recipe.learning_rate, fused=True)
        else:
            self._optimizer = torch.optim.SGD([self._flat], lr=recipe.learning_rate, momentum=recipe.momentum)

    def step(self, inputs: Tensor, labels: Tensor, kept: Tensor | None, stream: Stream) -> None:
        """Update every model on its own batch.

        Args:
            inputs: (models, batch, width) in `self.dtype`.
            labels: (models, batch).
            kept: (models, batch), 1 for records that count and 0 for padding; None if all do.
            stream: source of the noise of private models.
        """
        if self._used is not self._flat.data:
            self._used.copy_(self._flat.data)
        activations, logits = self._forward(inputs)
        error = _error(logits, labels)
        if self._clip is None:
            # Dividing the errors by the batch size divides every gradient, and they are the smallest tensor.
            self._write_gradients(activations, self._backward(activations, error.div_(inputs.shape[1])))
        else:
            self._write_private(activations, self._backward(activations, error), kept, self._clip, stream)
        if self.recipe.l2_penalty:
            for gradient, weight in zip(self._gradients[0], self.weights, strict=True):
                gradient.add_(weight, alpha=2 * self.recipe.l2_penalty)
        self._optimizer.step()

    def _forward(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        """The input of every layer, and the logits in float32."""
        activations, h = [inputs], inputs
        weights, biases = self._used_layers
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if layer < len(weights) - 1:
                activations.append(h.relu_())
                h = activations[-1]
        return activations, h.float()

    def _backward(self, activations: list[Tensor], error: Tensor) -> list[Tensor]:
        """Every example's loss gradient with respect to the output of every layer, (models, batch, width) each."""
        deltas = [error.to(self.dtype)]
        for weight, activation in zip(self._used_layers[0][:0:-1], activations[:0:-1], strict=True):
            below = torch.bmm(deltas[0], weight.transpose(1, 2))
            deltas.insert(0, torch.ops.aten.threshold_backward(below, activation, 0))
        return deltas

    def _write_private(
        self, activations: list[Tensor], deltas: list[Tensor], kept: Tensor | None, clip: FlatClip, stream: Stream
    ) -> None:
        """(sum of clipped gradients + N(0, (noise_multiplier clip_norm)^2)) / expected batch size."""
        factors = clip.factors(_norms(activations, deltas), rounding=torch.finfo(torch.float32).eps)
        weighting = (factors if kept is None else factors * kept)[..., None] / self.recipe.batch_size
        self._write_gradients(activations, [delta * weighting for delta in deltas])
        if self.recipe.noise_multiplier:
            noise = torch.empty_like(self._gradient)
            stream.fill_normal(noise.numpy())
            std = self.recipe.noise_multiplier * clip.sensitivity
            self._gradient.add_(noise, alpha=std / self.recipe.batch_size)

    def _write_gradients(self, activations: list[Tensor], deltas: list[Tensor]) -> None:
        """Sums over the batch, in float32."""
        for weight, bias, h, delta in zip(*self._gradients, activations, deltas, strict=True):
            if self.dtype == torch.float32:
                torch.bmm(h.transpose(1, 2), delta, out=weight)
            else:
                weight.copy_(torch.bmm(h.transpose(1, 2), delta))
            bias.copy_(delta.sum(1, keepdim=True, dtype=torch.float32))


def _error(logits: Tensor, labels: Tensor) -> Tensor:
    """Softmax - one-hot, the gradient of each example's cross-entropy with respect to its logits."""
    error = torch.softmax(logits, dim=-1)
    flat = error.view(-1, error.shape[-1])
    flat[torch.arange(len(flat)), labels.reshape(-1)] -= 1
    return error


def _norms(activations: list[Tensor], deltas: list[Tensor]) -> Tensor:
    """L2 norm of each example's gradient in all weights and biases, shape (models, batch)."""
    squares = [delta.square().sum(-1) * (h.square().sum(-1) + 1) for h, delta in zip(activations, deltas, strict=True)]
    return torch.stack(squares).sum(0).sqrt()


def _layers(
    flat: Tensor, sizes: Sequence[int], widths: Sequence[int], models: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Views of `flat`: the weights (models, inputs, outputs) and biases (models, 1, outputs) of every layer."""
    parts = flat.split_with_sizes(list(sizes))
    pairs = list(pairwise(widths))
    weights = [part.view(models, a, b) for part, (a, b) in zip(parts[::2], pairs, strict=True)]
    return weights, [part.view(models, 1, b) for part, (_, b) in zip(parts[1::2], pairs, strict=True)]
