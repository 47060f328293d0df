"""Layers of stacked networks for images (models, batch, height, width, channels).

With channels last the convolutions of oneDNN need no copies. They run model by model: the weight gradients of a grouped
convolution of several models take longer than theirs one by one (docs/speed.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.attacks.stacked_layers import Layer, Weighted

_BYTES_CACHED = 2**19  # of activations that are pooled at a time
_BYTES_AT_ONCE = 2**26  # of per-sample gradients, from which norms are taken


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


def image_layer(name: str, module: nn.Module) -> Layer | None:
    """The stacked layer of a module for images; None for what is not known to be the same stacked."""
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
