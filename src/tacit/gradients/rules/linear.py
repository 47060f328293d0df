"""Fully connected layers with any leading axes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.outer_products import OuterProduct
from tacit.gradients.per_sample_gradients import DenseGradients, OuterProductSum, PerSampleGradients


@captures(F.linear)
def linear(capture: Capture, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_t = W a_t + c: the gradient of W is sum_t b_t a_t^T and that of c is sum_t b_t, b = d loss / d y.

    Args:
        capture: records what the backward pass needs.
        input: a, shape (B, ..., d).
        weight: W, shape (p, d).
        bias: c, shape (p,).

    Raises:
        Uncovered: the input is a parameter.
    """
    weight_name, bias_name = capture.name(weight), capture.name(bias)
    if capture.name(input):
        raise Uncovered(f"linear takes {capture.name(input)} as its input")
    input, axis = capture.batched(input, 1)
    kept = capture.keep(input)

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        if gradient.dim() == 2 and len(gradient) == capture.batch:
            if weight_name:
                yield OuterProduct(weight_name, gradient, kept, capture.buffers)
            if bias_name:
                yield DenseGradients(bias_name, gradient)
            return
        left = capture.by_record(gradient, axis, 1)
        if weight_name:
            yield OuterProductSum.of_positions(weight_name, left, capture.by_record(kept, axis, 1), capture.buffers)
        if bias_name:
            yield DenseGradients(bias_name, left.sum(1))

    return capture.root(F.linear(input, weight, bias), (kept,), gradients)


@captures(F.bilinear)
def bilinear(capture: Capture, first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_o = x^T W_o z + c_o: a linear layer of the products x_j z_k.

    Args:
        capture: records what the backward pass needs.
        first: x, shape (B, ..., j).
        second: z, shape (B, ..., k).
        weight: W, shape (o, j, k).
        bias: c, shape (o,).

    Raises:
        Uncovered: the inputs have no common batch axis.
    """
    if (axis := capture.axis(first, 1)) is None or first.shape[:-1] != second.shape[:-1]:
        raise Uncovered("bilinear runs on inputs without a batch axis")
    weight_name, bias_name = capture.name(weight), capture.name(bias)
    kept = capture.keep(first), capture.keep(second)
    output = torch.einsum("...j,ojk,...k->...o", first, weight.detach(), second)

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        left = capture.by_record(gradient, axis, 1)
        if weight_name:
            x, z = (capture.by_record(side, axis, 1) for side in kept)
            products = torch.einsum("btj,btk->btjk", x, z).flatten(2)
            yield OuterProductSum.of_positions(weight_name, left, products, capture.buffers)
        if bias_name:
            yield DenseGradients(bias_name, left.sum(1))

    return capture.root(output if bias is None else output + bias.detach(), kept, gradients)
