"""Convolutions and transposed convolutions in one, two and three dimensions: matrix products over patches."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.per_sample_gradients import Contribution, Outer, Rows

Sizes = int | Sequence[int]


@captures(F.conv1d, F.conv2d, F.conv3d)
def convolution(
    capture: Capture,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of the weight is sum_l b_l patch_l^T over output positions l, group by group."""
    dims = weight.dim() - 2
    axis = _first_axis(capture, input, weight)
    strides, dilations = _each(stride, dims), _each(dilation, dims)
    pads = _padding(padding, weight.shape[2:], dilations)
    kept = capture.keep(input)

    def contribute(gradient: Tensor) -> list[Contribution]:
        left = _grouped(capture, gradient.flatten(2), groups)
        found: list[Contribution] = []
        if name := capture.name(weight):
            padded = F.pad(kept, [size for pair in reversed(pads) for size in pair]) if any(map(any, pads)) else kept
            patches = _patches(capture, padded, weight.shape[2:], strides, dilations, gradient.shape[2:])
            found.append(Outer(name, left, _grouped(capture, patches, groups).mT, capture.scratch))
        if name := capture.name(bias):
            found.append(Rows(name, capture.by_example(gradient.flatten(2).sum(2), axis, 1).sum(1)))
        return found

    operation = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    return capture.root(operation(input, weight, bias, stride, padding, dilation, groups), (kept,), contribute)


@captures(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
def transposed(
    capture: Capture,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """A convolution with the roles of input and output exchanged: sum_l a_l patch_l(b)^T over input positions l."""
    dims = weight.dim() - 2
    axis = _first_axis(capture, input, weight)
    strides, dilations = _each(stride, dims), _each(dilation, dims)
    pads = [(size, size) for size in _each(padding, dims)]
    kept = capture.keep(input)

    def contribute(gradient: Tensor) -> list[Contribution]:
        found: list[Contribution] = []
        if name := capture.name(weight):
            padded = F.pad(gradient, [size for pair in reversed(pads) for size in pair])
            patches = _patches(capture, padded, weight.shape[2:], strides, dilations, kept.shape[2:])
            left = _grouped(capture, kept.flatten(2), groups)
            found.append(Outer(name, left, _grouped(capture, patches, groups).mT, capture.scratch))
        if name := capture.name(bias):
            found.append(Rows(name, capture.by_example(gradient.flatten(2).sum(2), axis, 1).sum(1)))
        return found

    operation = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    output = operation(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return capture.root(output, (kept,), contribute)


def _first_axis(capture: Capture, input: Tensor, weight: Tensor) -> int:
    axis = capture.axis(input, weight.dim() - 1)
    if input.dim() != weight.dim() or axis != 0:
        raise Uncovered("a convolution runs on an input without a batch axis")
    return axis


def _patches(
    capture: Capture,
    padded: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    positions: Sequence[int],
) -> Tensor:
    """Every window that a kernel sees, shape (N, channels * kernel size, positions)."""
    # Copying runs along the innermost axis: window by window for wide kernels with a stride, else position by position.
    by_window = kernel[-1] > 4 and stride[-1] > 1
    windows = padded
    for axis, (size, step, gap, count) in enumerate(zip(kernel, stride, dilation, positions, strict=True), start=2):
        windows = windows.unfold(axis, (size - 1) * gap + 1, step).narrow(axis, 0, count)[..., ::gap]
    dims = len(kernel)
    places, offsets = list(range(2, 2 + dims)), list(range(2 + dims, 2 + 2 * dims))
    width, length = padded.shape[1] * math.prod(kernel), math.prod(positions)
    order = [0, *places, 1, *offsets] if by_window else [0, 1, *offsets, *places]
    patches = capture.scratch.copy("patches", windows.permute(order))
    return patches.view(len(padded), length, width).mT if by_window else patches.view(len(padded), width, length)


def _grouped(capture: Capture, values: Tensor, groups: int) -> Tensor:
    """(B * frames, channels, L) as (B, groups, channels / groups, frames * L)."""
    frames = len(values) // capture.batch
    split = values.reshape(capture.batch, frames, groups, values.shape[1] // groups, values.shape[2])
    if frames == 1:
        return split[:, 0]
    return split.permute(0, 2, 3, 1, 4).flatten(3)


def _padding(padding: Sizes | str, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    if padding == "same":
        spans = [gap * (size - 1) for size, gap in zip(kernel, dilation, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    sizes = _each(0 if isinstance(padding, str) else padding, len(kernel))
    return [(size, size) for size in sizes]


def _each(value: Sizes, dims: int) -> tuple[int, ...]:
    sizes = (value,) if isinstance(value, int) else tuple(value)
    return sizes * dims if len(sizes) == 1 else sizes
