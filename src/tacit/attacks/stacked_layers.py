"""Layers of stacked networks, their backward passes written out.

Activations have shape (models, batch, ...), images with channels last. Matrix products serve all models at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Layer(ABC):
    """One layer of every model of a group. `forward` keeps what the methods of the backward pass read."""

    @abstractmethod
    def forward(self, h: Tensor) -> Tensor:
        """Outputs for inputs (models, batch, ...)."""

    @abstractmethod
    def backward(self, delta: Tensor) -> Tensor:
        """Each record's loss gradient in the input, given that in the output; may overwrite the latter."""


class Weighted(Layer):
    """A layer with a weight and perhaps a bias.

    Args:
        name: of the module in the network.
        module: the layer of one model.

    Attributes:
        shapes: parameter name in the network -> shape of one model's part as it is stored.
        used: the same names -> (models, *shape) in the precision of products.
        gradients: the same names -> (models, *shape), where `write` puts the sum over the batch.
    """

    def __init__(self, name: str, module: nn.Module):
        self.weight, self.bias = f"{name}.weight", f"{name}.bias"
        self.shapes = {f"{name}.{key}": self.stored(value.data).shape for key, value in module.named_parameters()}
        self.used: Mapping[str, Tensor] = {}
        self.gradients: Mapping[str, Tensor] = {}

    @staticmethod
    @abstractmethod
    def stored(parameter: Tensor) -> Tensor:
        """A parameter (..., *shape in the network) as it is stored."""

    @staticmethod
    @abstractmethod
    def shown(parameter: Tensor) -> Tensor:
        """Stored parameters (models, ...) as (models, *shape in the network)."""

    @abstractmethod
    def write(self, delta: Tensor) -> None:
        """Put the sum over the batch of the gradients in weight and bias into `gradients`."""

    @abstractmethod
    def squared_norms(self, delta: Tensor) -> Tensor:
        """Squared L2 norm of each record's gradient in weight and bias, (models, batch)."""


class Dense(Weighted):
    """`nn.Linear`; weights are stored (inputs, outputs)."""

    _output: Tensor | None = None

    @staticmethod
    def stored(parameter: Tensor) -> Tensor:
        """Transpose a weight."""
        return parameter.mT.contiguous() if parameter.dim() > 1 else parameter

    @staticmethod
    def shown(parameter: Tensor) -> Tensor:
        """Transpose weights (models, inputs, outputs)."""
        return parameter.mT.contiguous() if parameter.dim() > 2 else parameter

    def forward(self, h: Tensor) -> Tensor:
        """One batched matrix product, into the same memory at each step: fresh pages cost as much as a small one."""
        self.input, weight = h, self.used[self.weight]
        if self._output is None or self._output.shape[:2] != h.shape[:2]:
            self._output = h.new_empty(*h.shape[:2], weight.shape[2])
        if self.bias in self.used:
            return torch.baddbmm(self.used[self.bias][:, None], h, weight, out=self._output)
        return torch.bmm(h, weight, out=self._output)

    def backward(self, delta: Tensor) -> Tensor:
        """The product with the transposed weights."""
        return torch.bmm(delta, self.used[self.weight].mT)

    def write(self, delta: Tensor) -> None:
        """sum_i h_i delta_i^T, and sum_i delta_i."""
        weight = self.gradients[self.weight]
        if weight.dtype == delta.dtype:
            torch.bmm(self.input.mT, delta, out=weight)
        else:
            weight.copy_(torch.bmm(self.input.mT, delta))
        if self.bias in self.gradients:
            torch.sum(delta, 1, dtype=weight.dtype, out=self.gradients[self.bias])

    def squared_norms(self, delta: Tensor) -> Tensor:
        """|delta|^2 (|h|^2 + 1): the gradient of the weight is an outer product, that of the bias is delta."""
        inputs = self.input.square().sum(-1) + (1 if self.bias in self.used else 0)
        return delta.square().sum(-1) * inputs


class Relu(Layer):
    """max(0, h), in place where the layer below does not read its output again."""

    def __init__(self, in_place: bool):
        self.in_place = in_place

    def forward(self, h: Tensor) -> Tensor:
        """max(0, h)."""
        self.output = h.relu_() if self.in_place else h.relu()
        return self.output

    def backward(self, delta: Tensor) -> Tensor:
        """Zero where the output is."""
        return torch.ops.aten.threshold_backward.grad_input(delta, self.output, 0, grad_input=delta)


class Tanh(Layer):
    """tanh(h)."""

    def forward(self, h: Tensor) -> Tensor:
        """tanh(h)."""
        self.output = h.tanh()
        return self.output

    def backward(self, delta: Tensor) -> Tensor:
        """The product with 1 - tanh^2."""
        return torch.ops.aten.tanh_backward(delta, self.output)


class Flatten(Layer):
    """`nn.Flatten`: the order of values is that of channels first."""

    def forward(self, h: Tensor) -> Tensor:
        """Shape (models, batch, values)."""
        self.shape = h.movedim(-1, 2).shape if h.dim() == 5 else h.shape
        return (h.movedim(-1, 2) if h.dim() == 5 else h).reshape(*h.shape[:2], -1)

    def backward(self, delta: Tensor) -> Tensor:
        """The shape of the input."""
        shaped = delta.view(self.shape)
        return shaped.movedim(2, -1).contiguous() if shaped.dim() == 5 else shaped
