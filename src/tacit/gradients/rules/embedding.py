"""Embedding tables: gradients touch only the rows that an example looked up."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.contributions import Contribution, Lookup


@captures(F.embedding)
def embedding(
    capture: Capture,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """y_t = W[i_t]: row v of the gradient is the sum of b_t over i_t = v; rows at `padding_idx` get none."""
    name = _table(capture, weight, max_norm, scale_grad_by_freq)
    input, axis = capture.batched(input, 0)
    kept = capture.keep(input)

    def contribute(gradient: Tensor) -> list[Contribution]:
        index = capture.by_example(kept, axis, 0)
        return [
            Lookup(
                name, index, _unpadded(capture.by_example(gradient, axis, 1), index, padding_idx, weight), weight.shape
            )
        ]

    return capture.root(F.embedding(input, weight), (kept,), contribute)


@captures(F.embedding_bag)
def embedding_bag(
    capture: Capture,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sum or mean of the rows of each bag, one bag an example: every row gets b, times its weight or 1 / length."""
    name = _table(capture, weight, max_norm, scale_grad_by_freq)
    if mode == "max" or input.dim() != 2 or (per_sample_weights is not None and per_sample_weights.requires_grad):
        raise Uncovered(f"embedding_bag uses {name} with mode={mode!r} on indices of {input.dim()} axes")
    capture.axis(input, 1)
    index = capture.keep(input)
    counted = torch.ones_like(index, dtype=weight.dtype)
    if padding_idx is not None:
        counted = (index != padding_idx % len(weight)).to(weight.dtype)
    share = counted if per_sample_weights is None else counted * per_sample_weights.detach()
    if mode == "mean":
        share = counted / counted.sum(1, keepdim=True).clamp(min=1)

    def contribute(gradient: Tensor) -> list[Contribution]:
        return [Lookup(name, index, gradient.unsqueeze(1) * share.unsqueeze(2), weight.shape)]

    output = F.embedding_bag(
        input, weight.detach(), mode=mode, per_sample_weights=per_sample_weights, padding_idx=padding_idx
    )
    return capture.root(output, (index,), contribute)


def _table(capture: Capture, weight: Tensor, max_norm: float | None, scale_grad_by_freq: bool) -> str:
    name = capture.name(weight)
    if name is None or max_norm is not None or scale_grad_by_freq:
        raise Uncovered("an embedding has max_norm or scale_grad_by_freq, which depend on the whole batch")
    return name


def _unpadded(gradient: Tensor, index: Tensor, padding_idx: int | None, weight: Tensor) -> Tensor:
    if padding_idx is None:
        return gradient
    return gradient.masked_fill((index == padding_idx % len(weight)).unsqueeze(-1), 0.0)
