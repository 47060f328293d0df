"""Multi-head attention as torch has it in one function: linear projections, then attention without parameters."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, composes


@composes(F.multi_head_attention_forward)
def attention(
    capture: Capture,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """softmax(q k^T / sqrt(d) + mask) v of every head; query is (T, B, E), key and value are (S, B, ...).

    Args:
        capture: records what the backward pass needs.
        query: shape (T, B, E).
        key: shape (S, B, ...).
        value: shape (S, B, ...).
        embed_dim_to_check: not used; the shapes are checked by the layers.
        num_heads: divides E.
        in_proj_weight: the three input projections in one; None where they are separate.
        in_proj_bias: of the three input projections.
        bias_k: appended to the keys.
        bias_v: appended to the values.
        add_zero_attn: whether a zero key and value are appended.
        dropout_p: probability of dropout, in [0, 1].
        out_proj_weight: of the output projection, shape (E, E).
        out_proj_bias: of the output projection, shape (E,).
        training: whether dropout is on.
        key_padding_mask: keys to leave out, shape (B, S).
        need_weights: whether the attention weights are returned.
        attn_mask: pairs of positions to leave out, shape (T, S) or (B num_heads, T, S).
        use_separate_proj_weight: whether the three projections are separate parameters.
        q_proj_weight: of the query.
        k_proj_weight: of the key.
        v_proj_weight: of the value.
        static_k: must be None.
        static_v: must be None.
        average_attn_weights: whether the returned weights are the mean over heads.
        is_causal: a hint that the mask is causal.

    Raises:
        Uncovered: there is no batch axis, or keys are static.
    """
    if query.dim() != 3 or static_k is not None or static_v is not None:
        weights = (in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, out_proj_weight)
        names = [name for weight in weights if (name := capture.name(weight))]
        raise capture.uncovered("attention without a batch axis or with static keys uses {}", names)
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    projected = _projections(capture, (query, key, value), in_proj_weight, separate, in_proj_bias)
    length, batch, width = projected[0].shape
    extra = (bias_k is not None) + add_zero_attn
    for place, bias in enumerate((bias_k, bias_v), start=1):
        if bias is not None:
            repeated = capture.apply(Tensor.expand, bias, 1, batch, -1)
            projected[place] = torch.cat([projected[place], repeated])
    q, k, v = (x.reshape(len(x), batch, num_heads, -1).permute(1, 2, 0, 3) for x in projected)
    if add_zero_attn:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    mask = _mask(attn_mask, key_padding_mask, q, extra)
    dropout = dropout_p if training else 0.0
    weights = None
    if need_weights:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), dropout, dropout > 0)
        found = weights @ v
    else:
        causal = is_causal and mask is None
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    joined = found.permute(2, 0, 1, 3).reshape(length, batch, width)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return capture.apply(F.linear, joined, out_proj_weight, out_proj_bias), weights


def _projections(
    capture: Capture,
    inputs: tuple[Tensor, Tensor, Tensor],
    together: Tensor | None,
    separate: tuple[Any, Any, Any] | None,
    bias: Tensor | None,
) -> list[Tensor]:
    """Query, key and value; one product where the three have the same input and one weight."""
    query, key, value = inputs
    if separate is None and query is key and key is value:
        return list(capture.apply(F.linear, query, together, bias).chunk(3, -1))
    weights = capture.apply(Tensor.chunk, together, 3) if separate is None else separate
    biases = [None] * 3 if bias is None else capture.apply(Tensor.chunk, bias, 3)
    return [capture.apply(F.linear, x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def _mask(attn: Tensor | None, padding: Tensor | None, q: Tensor, extra: int) -> Tensor | None:
    """Both masks as one term of the scores, (B or 1, heads or 1, T, S)."""
    found = None
    if attn is not None:
        found = _term(attn, q)
        found = found.view(-1, q.shape[1], *found.shape[1:]) if found.dim() == 3 else found
    if padding is not None:
        rows = _term(padding, q)[:, None, None]
        found = rows if found is None else found + rows
    return F.pad(found, (0, extra)) if extra and found is not None else found


def _term(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, -math.inf)
