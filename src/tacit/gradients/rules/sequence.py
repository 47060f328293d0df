"""Attention, and recurrent layers, unrolled in time, so that every gate has a gradient root.

The products of all inputs with the input weights are one gradient root: its gradient d_t at time t is that of the
gates, which gives every weight. With h the hidden states before each step,

    W_ih: sum_t d_t x_t^T     W_hh: sum_t d_t h_{t-1}^T     both biases: sum_t d_t
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.per_sample_gradients import DenseGradients, OuterProductSum, PerSampleGradients

State = tuple[Tensor, ...]
"""The hidden state and, for an LSTM, the cell state."""
Run = tuple[Tensor, State]
"""Outputs of a layer over the whole sequence, shape (T, B, H) or (T, B, projection), and its last state."""
Layer = Callable[[Capture, Tensor, State, Sequence[Tensor], bool], Run]


def _lstm(capture: Capture, x: Tensor, state: State, weights: Sequence[Tensor], backwards: bool) -> Run:
    """LSTM: i, f, g, o = gates;  c' = sigmoid(f) c + sigmoid(i) tanh(g);  h' = P (sigmoid(o) tanh(c'))."""
    weight, projection = weights[1].detach(), weights[-1] if len(weights) in (3, 5) else None
    gates, inner, shifts = _Gates(capture, x, weights, backwards), [], None
    if projection is not None and capture.name(projection):
        shifts = iter(gates.in_order(_projection_root(capture, gates, projection, inner).unbind()))

    def step(gate: Tensor, hidden: Tensor, cell: Tensor) -> State:
        i, f, g, o = torch.addmm(gate, hidden, weight.t()).chunk(4, 1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        if projection is not None:
            inner.append(hidden.detach())
            hidden = F.linear(hidden, projection.detach())
            hidden = hidden if shifts is None else hidden + next(shifts)
        return hidden, cell

    return gates.unrolled(state, step)


def _gru(capture: Capture, x: Tensor, state: State, weights: Sequence[Tensor], backwards: bool) -> Run:
    """GRU: r, z = sigmoid(gates);  n = tanh(x_n + r h_n);  h' = (1 - z) n + z h, h_n the hidden part of a gate."""
    weight, bias = weights[1].detach(), weights[3].detach() if len(weights) > 2 else None
    gates, resets = _Gates(capture, x, weights, backwards, together=False), []

    def step(gate: Tensor, hidden: Tensor) -> State:
        (x_r, x_z, x_n), (h_r, h_z, h_n) = gate.chunk(3, 1), F.linear(hidden, weight, bias).chunk(3, 1)
        reset, update = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        resets.append(reset.detach())
        new = (x_n + reset * h_n).tanh()
        return (new + update * (hidden - new),)

    outputs, last = gates.unrolled(state, step)
    gates.scale = torch.ones_like(gates.roots)
    gates.scale[..., -outputs.shape[2] :] = gates.stacked(resets)
    return outputs, last


def _simple(activation: Callable[[Tensor], Tensor]) -> Layer:
    """A plain recurrent layer: h' = tanh(gate) or max(gate, 0)."""

    def layer(capture: Capture, x: Tensor, state: State, weights: Sequence[Tensor], backwards: bool) -> Run:
        weight = weights[1].detach().t()
        gates = _Gates(capture, x, weights, backwards)
        return gates.unrolled(state, lambda gate, hidden: (activation(torch.addmm(gate, hidden, weight)),))

    return layer


class _Gates:
    """Products of the inputs with the input weights as a gradient root, and what its gradient gives.

    Attributes:
        roots: (T, B, gates).
        hidden: the hidden states before each step, (T, B, H).
        scale: what the hidden part of the gates is multiplied by; empty for 1.
    """

    def __init__(self, capture: Capture, x: Tensor, weights: Sequence[Tensor], backwards: bool, together: bool = True):
        self._order = -1 if backwards else 1
        self.hidden = self.scale = torch.empty(0)
        bias = None
        if len(weights) > 3:
            bias = weights[2].detach() + weights[3].detach() if together else weights[2].detach()
        names = [capture.name(weight) for weight in weights]
        kept = capture.keep(x)

        def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
            left = gradient.transpose(0, 1)
            inner = left * self.scale.transpose(0, 1) if len(self.scale) else left
            for name, side, right in ((names[0], left, kept), (names[1], inner, self.hidden)):
                if name:
                    yield OuterProductSum.of_positions(name, side, right.transpose(0, 1), capture.buffers)
            for name, side in zip(names[2:4], (left, inner), strict=False):
                if name and len(weights) > 3:
                    yield DenseGradients(name, side.sum(1))

        self.roots = capture.root(F.linear(x, weights[0].detach(), bias), (kept,), gradients)

    def in_order(self, steps: Sequence[Tensor]) -> Sequence[Tensor]:
        """One tensor for each time in the order in which they are run, or back."""
        return steps[:: self._order]

    def stacked(self, steps: Sequence[Tensor]) -> Tensor:
        """One tensor for each time that was run, in the order of time."""
        return torch.stack(list(self.in_order(steps)))

    def unrolled(self, state: State, step: Callable[..., State]) -> Run:
        """Outputs and last state of `step`, which takes the gates of one time and the state before it."""
        before, outputs = [], []
        for gate in self.in_order(self.roots.unbind()):
            before.append(state[0].detach())
            state = step(gate, *state)
            outputs.append(state[0])
        self.hidden = self.stacked(before)
        return self.stacked(outputs), state


def _projection_root(capture: Capture, gates: _Gates, weight: Tensor, inner: list[Tensor]) -> Tensor:
    """Zeros that are added to what the projection gives; their gradient is that of its output."""
    name = capture.name(weight)
    assert name is not None
    zeros = gates.roots.detach().new_zeros(*gates.roots.shape[:2], len(weight))

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        right = gates.stacked(inner).transpose(0, 1)
        yield OuterProductSum.of_positions(name, gradient.transpose(0, 1), right, capture.buffers)

    return capture.root(zeros, (), gradients)


def _rule(layer: Layer, states: int) -> Callable[..., Any]:
    """A rule for a whole module: any number of layers, one or two directions."""

    def rule(
        capture: Capture,
        input: Tensor,
        start: Any,
        weights: Any,
        has_biases: Any,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> tuple[Tensor, ...]:
        if not isinstance(has_biases, bool):
            raise Uncovered("a recurrent layer runs on a packed sequence")
        if input.dim() != 3 or capture.axis(input, 1) != (0 if batch_first else 1):
            raise Uncovered("a recurrent layer runs on an input without a batch axis where it expects one")
        directions = 2 if bidirectional else 1
        given = start if states == 2 else (start,)
        count = len(weights) // (layers * directions)
        x, last = input.transpose(0, 1) if batch_first else input, []
        for depth in range(layers):
            outputs = []
            for direction in range(directions):
                place = depth * directions + direction
                mine = weights[place * count : (place + 1) * count]
                result, state = layer(capture, x, tuple(state[place] for state in given), mine, direction == 1)
                outputs.append(result)
                last.append(state)
            x = outputs[0] if directions == 1 else torch.cat(outputs, 2)
            if dropout and train and depth < layers - 1:
                x = F.dropout(x, dropout, True)
        return (x.transpose(0, 1) if batch_first else x, *(torch.stack(parts) for parts in zip(*last, strict=True)))

    return rule


captures(torch.lstm)(_rule(_lstm, 2))
captures(torch.gru)(_rule(_gru, 1))
captures(torch.rnn_tanh)(_rule(_simple(torch.tanh), 1))
captures(torch.rnn_relu)(_rule(_simple(torch.relu), 1))


def _cell(capture: Capture, input: Tensor, hidden: Tensor, weights: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    w_ih, w_hh, b_ih, b_hh = (*weights, None, None)[:4]
    return capture.apply(F.linear, input, w_ih, b_ih), capture.apply(F.linear, hidden, w_hh, b_hh)


@captures(torch.lstm_cell, composite=True)
def lstm_cell(capture: Capture, input: Tensor, state: Sequence[Tensor], *weights: Tensor | None) -> tuple[Tensor, ...]:
    """One step of an LSTM as two linear layers.

    Args:
        capture: records what the backward pass needs.
        input: shape (B, d).
        state: hidden and cell state, each of shape (B, h).
        weights: two matrices, then two biases or none.
    """
    x, h = _cell(capture, input, state[0], weights)
    i, f, g, o = (x + h).chunk(4, 1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@captures(torch.gru_cell, composite=True)
def gru_cell(capture: Capture, input: Tensor, hidden: Tensor, *weights: Tensor | None) -> Tensor:
    """One step of a GRU as two linear layers.

    Args:
        capture: records what the backward pass needs.
        input: shape (B, d).
        hidden: shape (B, h).
        weights: two matrices, then two biases or none.
    """
    x, h = _cell(capture, input, hidden, weights)
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, 1), h.chunk(3, 1)
    new = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
    return new + (x_z + h_z).sigmoid() * (hidden - new)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """One step of a plain recurrent layer as two linear layers."""

    def cell(capture: Capture, input: Tensor, hidden: Tensor, *weights: Tensor | None) -> Tensor:
        x, h = _cell(capture, input, hidden, weights)
        return activation(x + h)

    return cell


captures(torch.rnn_tanh_cell, composite=True)(_plain_cell(torch.tanh))
captures(torch.rnn_relu_cell, composite=True)(_plain_cell(torch.relu))


@captures(F.multi_head_attention_forward, composite=True)
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
    capture: Capture, inputs: Sequence[Tensor], together: Tensor | None, separate: Any, bias: Tensor | None
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
