"""Convolutions, and normalisations within one record: y = scale * n(x) + shift, where n has no parameters."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.per_sample_gradients import DenseGradients, OuterProductSum, PerSampleGradients


def _normalisation(operation: Callable[..., Tensor], of_channels: bool) -> Callable[..., Tensor]:
    """The rule of a normalisation whose scale and shift are those of channels (axis 1), or of the last axes.

    torch hands on the arguments of these functions by name from the third one on.
    """

    def rule(
        capture: Capture,
        input: Tensor,
        *sizes: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        normal = operation(input, *sizes, **options)
        if of_channels:
            return _affine(capture, normal.movedim(1, -1), weight, bias, 1).movedim(-1, 1)
        return _affine(capture, normal, weight, bias, len(sizes[0]))

    return rule


captures(F.layer_norm)(_normalisation(F.layer_norm, of_channels=False))
captures(F.rms_norm)(_normalisation(F.rms_norm, of_channels=False))
captures(F.group_norm)(_normalisation(F.group_norm, of_channels=True))
captures(F.instance_norm)(_normalisation(F.instance_norm, of_channels=True))


def _affine(capture: Capture, normal: Tensor, weight: Tensor | None, bias: Tensor | None, trailing: int) -> Tensor:
    """The output scale * normal + shift over the `trailing` last axes; gradients sum_t b_t normal_t and sum_t b_t."""
    weight_name, bias_name = capture.name(weight), capture.name(bias)
    normal, axis = capture.batched(normal, trailing)
    kept = capture.keep(normal)
    output = normal if weight is None else normal * weight.detach()
    output = output if bias is None else output + bias.detach()

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        if weight_name:
            yield DenseGradients(weight_name, capture.by_record(gradient * kept, axis, trailing).sum(1))
        if bias_name:
            yield DenseGradients(bias_name, capture.by_record(gradient, axis, trailing).sum(1))

    return capture.root(output, (kept,), gradients)


Sizes = int | Sequence[int]

# Copying runs along the innermost axis: window by window pays for kernels wider than this with a stride.
_WIDE_KERNEL = 4


def convolution(operation: Callable[..., Tensor], *order: str, transposed: bool = False) -> Callable[..., Tensor]:
    """The rule of a convolution whose arguments behind the weight come in this `order`.

    The gradient of the weight is sum_l b_l patch_l^T over output positions l, group by group. A transposed convolution
    exchanges the roles of input and output: sum_l a_l patch_l(b)^T over input positions l.
    """

    def rule(capture: Capture, input: Tensor, weight: Tensor, *given: Any, **named: Any) -> Tensor:
        options = dict(zip(order, given, strict=False)) | named
        layer = _Layer(capture, weight, **options)
        kept = layer.kept(input)

        def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
            positions, windowed = (kept, gradient) if transposed else (gradient, kept)
            return layer.gradients(positions, windowed, gradient)

        return capture.root(operation(input, weight, **options), (kept,), gradients)

    return rule


for _operation in (F.conv1d, F.conv2d, F.conv3d):
    captures(_operation)(convolution(_operation, "bias", "stride", "padding", "dilation", "groups"))
for _operation in (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d):
    _order = "bias", "stride", "padding", "output_padding", "groups", "dilation"
    captures(_operation)(convolution(_operation, *_order, transposed=True))


@dataclass(frozen=True)
class _Layer:
    """One call of a convolution, as torch describes it."""

    capture: Capture
    weight: Tensor
    bias: Tensor | None = None
    stride: Sizes = 1
    padding: Sizes | str = 0
    dilation: Sizes = 1
    groups: int = 1
    output_padding: Sizes = 0

    def kept(self, input: Tensor) -> Tensor:
        """The input for the backward pass; raises `Uncovered` unless its first axis is the batch."""
        axis = self.capture.axis(input, self.weight.dim() - 1)
        if input.dim() != self.weight.dim() or axis != 0:
            raise Uncovered("a convolution runs on an input without a batch axis")
        return self.capture.keep(input)

    def gradients(self, positions: Tensor, windowed: Tensor, gradient: Tensor) -> Iterator[PerSampleGradients]:
        """Per-sample gradients, given the gradient of the output.

        Args:
            positions: (N, p, *sizes): each position meets one window.
            windowed: (N, d, *sizes): the kernel slides over it.
            gradient: of the output, which is one of the two.
        """
        if name := self.capture.name(self.weight):
            patches = self._grouped(self._patches(windowed, positions.shape[2:])).mT
            yield OuterProductSum(name, self._grouped(positions.flatten(2)), patches, self.capture.buffers)
        if name := self.capture.name(self.bias):
            yield DenseGradients(name, self.capture.by_record(gradient.flatten(2).sum(2), 0, 1).sum(1))

    def _patches(self, windowed: Tensor, positions: Sequence[int]) -> Tensor:
        """Every window that the kernel sees, shape (N, channels * kernel size, positions)."""
        kernel = self.weight.shape[2:]
        dims = len(kernel)
        strides, dilations = _per_axis(self.stride, dims), _per_axis(self.dilation, dims)
        pads = _padding(self.padding, kernel, dilations)
        padded = (
            F.pad(windowed, [size for pair in reversed(pads) for size in pair]) if any(map(any, pads)) else windowed
        )
        by_window = kernel[-1] > _WIDE_KERNEL and strides[-1] > 1
        windows = padded
        for axis, (size, step, gap, count) in enumerate(zip(kernel, strides, dilations, positions, strict=True), 2):
            windows = windows.unfold(axis, (size - 1) * gap + 1, step).narrow(axis, 0, count)[..., ::gap]
        places, offsets = list(range(2, 2 + dims)), list(range(2 + dims, 2 + 2 * dims))
        width, length = padded.shape[1] * math.prod(kernel), math.prod(positions)
        order = [0, *places, 1, *offsets] if by_window else [0, 1, *offsets, *places]
        patches = self.capture.buffers.copy("patches", windows.permute(order))
        return patches.view(len(padded), length, width).mT if by_window else patches.view(len(padded), width, length)

    def _grouped(self, values: Tensor) -> Tensor:
        """(B * frames, channels, L) as (B, groups, channels / groups, frames * L)."""
        batch, groups = self.capture.batch, self.groups
        frames = len(values) // batch
        split = values.reshape(batch, frames, groups, values.shape[1] // groups, values.shape[2])
        return split[:, 0] if frames == 1 else split.permute(0, 2, 3, 1, 4).flatten(3)


def _padding(padding: Sizes | str, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    if padding == "same":
        spans = [gap * (size - 1) for size, gap in zip(kernel, dilation, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    sizes = _per_axis(0 if isinstance(padding, str) else padding, len(kernel))
    return [(size, size) for size in sizes]


def _per_axis(value: Sizes, dims: int) -> tuple[int, ...]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    return sizes * dims if len(sizes) == 1 else sizes
