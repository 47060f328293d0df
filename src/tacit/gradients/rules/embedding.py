"""Embedding tables: a per-sample gradient touches only the rows that the record looked up."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.embedding_rows import EmbeddingRows

_UNUSED = {"norm_type", "sparse"}


@captures(F.embedding, flexible=True)
def embedding(capture: Capture, input: Tensor, weight: Tensor, padding_idx: int | None = None, **named: Any) -> Tensor:
    """y_t = W[i_t]: row v of the gradient is the sum of b_t over i_t = v; rows at `padding_idx` get none.

    Args:
        capture: records what the backward pass needs.
        input: indices, shape (B, ...).
        weight: the table, shape (rows, width).
        padding_idx: row that gets no gradient.
        **named: `max_norm` and `scale_grad_by_freq` must be unset, as they depend on the whole batch.
    """
    name = _table(capture, weight, named)
    input, axis = capture.batched(input, 0)
    kept = capture.keep(input)

    def gradients(gradient: Tensor) -> Iterator[EmbeddingRows]:
        index = capture.by_record(kept, axis, 0)
        rows = capture.by_record(gradient, axis, 1)
        if padding_idx is not None:
            rows = rows.masked_fill((index == padding_idx % len(weight)).unsqueeze(-1), 0.0)
        yield EmbeddingRows(name, index, rows, weight.shape)

    return capture.root(F.embedding(input, weight), (kept,), gradients)


@captures(F.embedding_bag)
def embedding_bag(
    capture: Capture,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    **named: Any,
) -> Tensor:
    """Sum, mean or largest values of the rows of each bag; a record has one bag or more, one after the other.

    Every row of a bag gets its output gradient b times its weight (sum) or over the length of the bag (mean); of the
    largest values each sends its part of b to the row where it stands.

    Args:
        capture: records what the backward pass needs.
        input: indices, shape (B, length), or (indices,) with `offsets`.
        weight: the table, shape (rows, width).
        offsets: where each bag begins, shape (bags,).
        mode: "sum", "mean" or "max".
        per_sample_weights: weight of each index, for "sum"; must be no parameter.
        include_last_offset: whether `offsets` ends with the number of indices.
        padding_idx: row that is left out of every bag.
        **named: `max_norm` and `scale_grad_by_freq` must be unset, as they depend on the whole batch.

    Raises:
        Uncovered: the number of bags is no multiple of the batch.
    """
    name = _table(capture, weight, named)
    starts = None if offsets is None else offsets[: len(offsets) - include_last_offset]
    if capture.axis(input if starts is None else starts, 0) != 0:
        raise Uncovered("embedding_bag runs on bags that are no multiple of the batch")
    scales = None if per_sample_weights is None else per_sample_weights.detach()
    if starts is None:
        index, present = input, torch.ones_like(input, dtype=torch.bool)
    else:
        index, present = _bags(input, starts)
        scales = None if scales is None else _bags(scales, starts)[0]
    if padding_idx is not None:
        present = present & (index != padding_idx % len(weight))
    index, present = capture.keep(index), present.to(weight.dtype)

    def gradients(gradient: Tensor) -> Iterator[EmbeddingRows]:
        if mode == "max":
            values = F.embedding(index, weight.detach()).masked_fill(present.unsqueeze(2) == 0, -torch.inf)
            taken = torch.zeros_like(values).scatter_(1, values.argmax(1, keepdim=True), 1.0)
            share = taken * present.unsqueeze(2)
        else:
            share = (present if scales is None else present * scales).unsqueeze(2)
            share = share / present.sum(1).clamp(min=1).view(-1, 1, 1) if mode == "mean" else share
        rows = gradient.unsqueeze(1) * share
        shape = (capture.batch, -1)
        yield EmbeddingRows(name, index.reshape(shape), rows.reshape(*shape, rows.shape[2]), weight.shape)

    output = F.embedding_bag(
        input,
        weight.detach(),
        offsets,
        mode=mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )
    return capture.root(output, (index,), gradients)


def _bags(values: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Bags that start at `starts` of the flat `values`, filled up to the longest, and which places are real."""
    lengths = torch.diff(starts, append=starts.new_tensor([len(values)]))
    places = torch.arange(max(1, int(lengths.max())), device=values.device)
    present = places < lengths.unsqueeze(1)
    return values[(starts.unsqueeze(1) + places).clamp(max=len(values) - 1)] * present, present


def _table(capture: Capture, weight: Tensor, options: dict[str, Any]) -> str:
    """Name of the table; of all `options`, which torch hands on by name, those in `_UNUSED` change no gradient."""
    name = capture.name(weight)
    if name is None or any(options[key] is not None and options[key] is not False for key in options.keys() - _UNUSED):
        raise Uncovered("an embedding has max_norm or scale_grad_by_freq, which depend on the whole batch")
    return name
