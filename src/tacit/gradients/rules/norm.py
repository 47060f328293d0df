"""Normalisations within one record: y = scale * n(x) + shift, where n has no parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, captures
from tacit.gradients.per_sample_gradients import DenseGradients, PerSampleGradients


@captures(F.layer_norm)
def layer_norm(
    capture: Capture,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean and variance over the last axes.

    Args:
        capture: records what the backward pass needs.
        input: shape (B, ...).
        normalized_shape: sizes of the last axes.
        weight: scale, of that shape.
        bias: shift, of that shape.
        eps: added to the variance, > 0.
    """
    shape = tuple(normalized_shape)
    return _affine(capture, F.layer_norm(input, shape, eps=eps), weight, bias, len(shape))


@captures(F.rms_norm)
def rms_norm(
    capture: Capture,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Root mean square over the last axes.

    Args:
        capture: records what the backward pass needs.
        input: shape (B, ...).
        normalized_shape: sizes of the last axes.
        weight: scale, of that shape.
        eps: added to the mean square; torch's default if None.
    """
    shape = tuple(normalized_shape)
    return _affine(capture, F.rms_norm(input, shape, eps=eps), weight, None, len(shape))


@captures(F.group_norm)
def group_norm(
    capture: Capture,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean and variance over groups of channels; channels are axis 1.

    Args:
        capture: records what the backward pass needs.
        input: shape (B, channels, ...).
        num_groups: divides the channels.
        weight: scale, shape (channels,).
        bias: shift, shape (channels,).
        eps: added to the variance, > 0.
    """
    return _channels(capture, F.group_norm(input, num_groups, eps=eps), weight, bias)


@captures(F.instance_norm)
def instance_norm(
    capture: Capture,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean and variance over the positions of each channel.

    Args:
        capture: records what the backward pass needs.
        input: shape (B, channels, ...).
        running_mean: shape (channels,), or None.
        running_var: shape (channels,), or None.
        weight: scale, shape (channels,).
        bias: shift, shape (channels,).
        use_input_stats: whether mean and variance are those of the input.
        momentum: of the running statistics.
        eps: added to the variance, > 0.
    """
    normal = F.instance_norm(input, running_mean, running_var, None, None, use_input_stats, momentum, eps)
    return _channels(capture, normal, weight, bias)


def _channels(capture: Capture, normal: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    last = _affine(capture, normal.movedim(1, -1), weight, bias, 1)
    return last.movedim(-1, 1)


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
