"""Layers of stacked networks, their backward passes written out.

Activations have shape (models, batch, ...), images with channels last: there the convolutions of oneDNN need no copies,
and pooling is a maximum of shifted slices that vectorises. Matrix products serve all models at once. Convolutions run
model by model: a grouped one was measured to be up to five times slower in its backward pass (docs/speed.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_BYTES_CACHED = 2**19  # of activations that are pooled at a time
_BYTES_AT_ONCE = 2**26  # of per-sample gradients, from which norms are taken


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


class Conv(Weighted):
    """`nn.Conv2d`; weights are stored (outputs, height, width, channels)."""

    def __init__(self, name: str, module: nn.Conv2d):
        super().__init__(name, module)
        self.setting = (list(module.stride), [int(size) for size in module.padding], list(module.dilation))

    @staticmethod
    def stored(parameter: Tensor) -> Tensor:
        """Channels last."""
        return parameter.movedim(-3, -1).contiguous() if parameter.dim() > 1 else parameter

    @staticmethod
    def shown(parameter: Tensor) -> Tensor:
        """Channels before height and width."""
        return parameter.movedim(-1, -3).contiguous() if parameter.dim() > 2 else parameter

    def _weight(self, place: int) -> Tensor:
        return _channels_first(self.used[self.weight][place])

    def forward(self, h: Tensor) -> Tensor:
        """One convolution for each model."""
        self.input, biases = h, self.used.get(self.bias)
        parts = [
            F.conv2d(_channels_first(x), self._weight(place), None if biases is None else biases[place], *self.setting)
            for place, x in enumerate(h)
        ]
        return _joined(parts)

    def _backward(self, place: int, delta: Tensor, wanted: list[bool]) -> Any:
        arguments = (_channels_first(delta[place]), _channels_first(self.input[place]), self._weight(place))
        sizes = [delta.shape[-1]] if wanted[2] else None
        return torch.ops.aten.convolution_backward(*arguments, sizes, *self.setting, False, [0, 0], 1, wanted)

    def backward(self, delta: Tensor) -> Tensor:
        """The transposed convolution of each model."""
        return _joined([self._backward(place, delta, [True, False, False])[0] for place in range(len(delta))])

    def write(self, delta: Tensor) -> None:
        """sum_i sum_l delta_il patch_il^T over positions l, and the sum of delta."""
        biased = self.bias in self.gradients
        for place in range(len(delta)):
            _, weight, bias = self._backward(place, delta, [False, True, biased])
            self.gradients[self.weight][place].copy_(weight.permute(0, 2, 3, 1))
            if biased:
                self.gradients[self.bias][place].copy_(bias)

    def squared_norms(self, delta: Tensor) -> Tensor:
        """From per-sample gradients, a few records at a time."""
        records = max(1, _BYTES_AT_ONCE // (delta.element_size() * math.prod(self.shapes[self.weight])))
        norms = [
            torch.cat([self._norms_of(*part) for part in zip(x.split(records), d.split(records), strict=True)])
            for x, d in zip(self.input, delta, strict=True)
        ]
        return torch.stack(norms)

    def _norms_of(self, x: Tensor, delta: Tensor) -> Tensor:
        stride, padding, dilation = self.setting
        patches = F.unfold(_channels_first(x), self.shapes[self.weight][1:3], *map(tuple, (dilation, padding, stride)))
        flat = delta.flatten(1, 2)
        squares = torch.bmm(patches, flat).square().sum((1, 2))
        return squares + flat.sum(1).square().sum(1) if self.bias in self.used else squares


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


class MaxPool(Layer):
    """`nn.MaxPool2d` without padding, first along the width and then along the height.

    A maximum of shifted slices vectorises; torch's kernel takes several times as long. Of equal values the first takes
    the gradient, as in torch: of the upper row, and in the row the left one.
    """

    def __init__(self, module: nn.MaxPool2d):
        sizes, steps = _sizes(module.kernel_size), _sizes(module.stride)
        self.along_width, self.along_height = (2, sizes[1], steps[1]), (1, sizes[0], steps[0])

    def forward(self, h: Tensor) -> Tensor:
        """Maxima, of some records at a time so that they stay in the cache."""
        self.input, parts = h, []
        for part in _cached(h.flatten(0, 1)):
            rows = reduce(torch.maximum, _windows(part, *self.along_width))
            parts.append(reduce(torch.maximum, _windows(rows, *self.along_height)))
        return torch.cat(parts).unflatten(0, h.shape[:2])

    def backward(self, delta: Tensor) -> Tensor:
        """Each gradient to the first of the largest values of its window; these are found anew from the input."""
        below, inputs = torch.zeros_like(self.input), _cached(self.input.flatten(0, 1))
        sizes = [len(part) for part in inputs]
        for part, d, out in zip(
            inputs, delta.flatten(0, 1).split(sizes), below.flatten(0, 1).split(sizes), strict=True
        ):
            rows = reduce(torch.maximum, _windows(part, *self.along_width))
            between = torch.zeros_like(rows)
            _spread(d, rows, between, self.along_height)
            _spread(between, part, out, self.along_width)
        return below


def _spread(delta: Tensor, values: Tensor, below: Tensor, along: tuple[int, int, int]) -> None:
    """Add the gradient of each window's maximum along an axis of `values` to the place of that maximum in `below`."""
    best, *later = _windows(values, *along)
    exceeds = []
    for value in later:
        exceeds.append(torch.gt(value, best, out=torch.empty_like(delta)))
        best = torch.maximum(best, value) if value is not later[-1] else best
    first, *targets = _windows(below, *along)
    for target, larger in zip(targets[::-1], exceeds[::-1], strict=True):
        target.add_(larger.mul_(delta))
        delta = delta - larger
    first.add_(delta)


class MeanPool(Layer):
    """`nn.AvgPool2d`."""

    def __init__(self, module: nn.AvgPool2d):
        sizes = (module.kernel_size, module.stride, module.padding)
        self.setting = (*map(_sizes, sizes), module.ceil_mode, module.count_include_pad, module.divisor_override)

    def forward(self, h: Tensor) -> Tensor:
        """Means."""
        self.input = h
        return _of_models(torch.ops.aten.avg_pool2d(_images(h), *self.setting), len(h))

    def backward(self, delta: Tensor) -> Tensor:
        """Its share of each gradient to every place."""
        below = torch.ops.aten.avg_pool2d_backward(_images(delta), _images(self.input), *self.setting)
        return _of_models(below, len(delta))


class Pad(Layer):
    """`nn.ZeroPad2d`."""

    def __init__(self, padding: Iterable[int]):
        self.left, self.right, self.top, self.bottom = padding

    def forward(self, h: Tensor) -> Tensor:
        """With zeros around each image."""
        return F.pad(h, (0, 0, self.left, self.right, self.top, self.bottom))

    def backward(self, delta: Tensor) -> Tensor:
        """Without the border."""
        return F.pad(delta, (0, 0, -self.left, -self.right, -self.top, -self.bottom))


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


def layers_of(network: nn.Module, *, images: bool) -> list[Layer] | str:
    """The stacked layers of a network, or the name of the first thing in it that cannot be stacked.

    Args:
        network: of one model.
        images: whether its inputs are (channels, height, width).

    Example:
        >>> len(layers_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), images=False))
        3
        >>> layers_of(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), images=True)
        'BatchNorm2d'
    """
    layers: list[Layer] = []
    for name, module in _sequence(network):
        found = _layer_of(name, module, images, bool(layers) and isinstance(layers[-1], Weighted))
        if found is None:
            return type(module).__name__
        images = images and not isinstance(found, Flatten)
        layers.append(found)
    names = [name for layer in layers if isinstance(layer, Weighted) for name in layer.shapes]
    whole = names == list(network.state_dict()) and all(value.requires_grad for value in network.parameters())
    return layers if names and whole and not images else "a parameter used twice, frozen or outside of the layers"


def _sequence(network: nn.Module, prefix: str = "") -> Iterable[tuple[str, nn.Module]]:
    if type(network) is not nn.Sequential:
        yield prefix, network
        return
    for name, module in network.named_children():
        yield from _sequence(module, f"{prefix}.{name}" if prefix else name)


def _layer_of(name: str, module: nn.Module, images: bool, after_weights: bool) -> Layer | None:
    """None for what is not known to be the same stacked; kinds are exact, as a subclass may do anything."""
    kind = type(module)
    if module._forward_hooks or module._forward_pre_hooks:
        return None
    if kind is nn.Linear and not images:
        return Dense(name, module)
    if isinstance(module, nn.ReLU) and kind is nn.ReLU:
        return Relu(after_weights)
    if kind is nn.Tanh:
        return Tanh()
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
        return Flatten()
    return _image_layer(name, module) if images else None


def _image_layer(name: str, module: nn.Module) -> Layer | None:
    if type(module) is nn.Conv2d:
        plain = module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
        return Conv(name, module) if plain else None
    if type(module) is nn.ZeroPad2d:
        return Pad(module.padding)
    if isinstance(module, nn.MaxPool2d) and type(module) is nn.MaxPool2d:
        plain = _sizes(module.padding) == [0, 0] and _sizes(module.dilation) == [1, 1]
        return MaxPool(module) if plain and not module.ceil_mode and not module.return_indices else None
    return MeanPool(module) if isinstance(module, nn.AvgPool2d) and type(module) is nn.AvgPool2d else None


def _sizes(size: int | Sequence[int]) -> list[int]:
    return [size, size] if isinstance(size, int) else list(size)


def _channels_first(values: Tensor) -> Tensor:
    """(n, height, width, channels) as torch names the axes, without a copy."""
    return values.permute(0, 3, 1, 2)


def _joined(parts: list[Tensor]) -> Tensor:
    """Images of each model as one tensor (models, batch, height, width, channels)."""
    last = [part.permute(0, 2, 3, 1) for part in parts]
    return last[0][None] if len(last) == 1 else torch.stack(last)


def _cached(records: Tensor) -> tuple[Tensor, ...]:
    return records.split(max(1, _BYTES_CACHED // (records[0].numel() * records.element_size())))


def _windows(h: Tensor, axis: int, size: int, step: int) -> list[Tensor]:
    """For each offset in a window along an axis the values of all windows there."""
    span = (h.shape[axis] - size) // step * step + 1
    ends = (slice(None),) * axis
    return [h[(*ends, slice(offset, offset + span, step))] for offset in range(size)]


def _images(h: Tensor) -> Tensor:
    """The images of all models as torch names their axes."""
    return _channels_first(h.flatten(0, 1))


def _of_models(images: Tensor, models: int) -> Tensor:
    return images.permute(0, 2, 3, 1).unflatten(0, (models, -1))
