"""Fully connected layers with any leading axes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.per_sample_gradients import Contribution, Outer, Rows, Single


@captures(F.linear)
def linear(capture: Capture, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_t = W a_t + c: the gradient of W is sum_t b_t a_t^T and that of c is sum_t b_t, b = d loss / d y."""
    weight_name, bias_name = capture.name(weight), capture.name(bias)
    if capture.name(input):
        raise Uncovered(f"linear takes {capture.name(input)} as its input")
    input, axis = capture.batched(input, 1)
    kept = capture.keep(input)

    def contribute(gradient: Tensor) -> list[Contribution]:
        found: list[Contribution] = []
        if gradient.dim() == 2 and len(gradient) == capture.batch:
            if weight_name:
                found.append(Single(weight_name, gradient, kept, capture.scratch))
            if bias_name:
                found.append(Rows(bias_name, gradient))
            return found
        left = capture.by_example(gradient, axis, 1)
        if weight_name:
            right = capture.by_example(kept, axis, 1)
            found.append(Outer(weight_name, left.mT.unsqueeze(1), right.unsqueeze(1), capture.scratch))
        if bias_name:
            found.append(Rows(bias_name, left.sum(1)))
        return found

    return capture.root(F.linear(input, weight, bias), (kept,), contribute)


@captures(F.bilinear)
def bilinear(capture: Capture, first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_o = x^T W_o z + c_o: a linear layer of the products x_j z_k."""
    if (axis := capture.axis(first, 1)) is None or first.shape[:-1] != second.shape[:-1]:
        raise Uncovered("bilinear runs on inputs without a batch axis")
    weight_name, bias_name = capture.name(weight), capture.name(bias)
    kept = capture.keep(first), capture.keep(second)
    output = torch.einsum("...j,ojk,...k->...o", first, weight.detach(), second)

    def contribute(gradient: Tensor) -> list[Contribution]:
        left = capture.by_example(gradient, axis, 1)
        found: list[Contribution] = []
        if weight_name:
            x, z = (capture.by_example(side, axis, 1) for side in kept)
            products = torch.einsum("btj,btk->btjk", x, z).flatten(2)
            found.append(Outer(weight_name, left.mT.unsqueeze(1), products.unsqueeze(1), capture.scratch))
        if bias_name:
            found.append(Rows(bias_name, left.sum(1)))
        return found

    return capture.root(output if bias is None else output + bias.detach(), kept, contribute)
