"""Attention and recurrent layers with their gradients, by the kernels of all devices."""

from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import rnn

from tacit.verification.calls import Call, refuse, rule
from tacit.verification.reads import user_line
from tacit.verification.record_types import PUBLIC, Records, RecordType, WholeBatch
from tacit.verification.rules.layers import BATCH_AXIS, on_batch_axis, per_record


@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
      "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_attention_math_for_mps", "_scaled_dot_product_cudnn_attention",
      "_scaled_dot_product_fused_attention_overrideable", public=())  # fmt: skip
def attention(call: Call) -> list[RecordType] | RecordType:
    """Queries, keys and values have the records on a batch axis; the mask is broadcast to it."""
    kind = call.same_axis([call["query"], call["key"], call["value"]])
    mask = _mask(call)
    if not isinstance(kind, Records):
        if call.records(mask) is not None:
            call.refuse("its mask alone follows the records", "Expand queries and keys to the records")
        return PUBLIC
    if call["return_debug_mask"]:
        call.unknown("its debug mask is not followed", "Leave return_debug_mask out")
    _check_attention(call, kind, mask)
    # Behind the result and the sums of its softmax stand seeds, lengths and offsets of a kernel.
    return [kind, kind, *[PUBLIC] * (len(call.function._schema.returns) - 2)]


def _mask(call: Call) -> Tensor | None:
    """The mask of attention, by the name that the kernel has for it."""
    return call["attn_mask"] if "attn_mask" in call else call["attn_bias"]


def _check_attention(call: Call, kind: Records, mask: Tensor | None) -> None:
    """Refuse attention between records, and a mask that is not each record's own or equal for all."""
    dims = call["query"].dim()
    call.apart(kind, range(dims - 2, dims), "it attends from record to record", BATCH_AXIS)
    if mask is not None:
        own = Records(mask.dim() - dims + kind.axis, kind.inner)
        call.own_or_equal(mask, own, "its mask is of other records")


@rule("_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_efficient_attention_backward",
      "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
      public=("philox_seed", "philox_offset", "cum_seq_q", "cum_seq_k"))  # fmt: skip
def attention_backward(call: Call) -> list[RecordType] | RecordType:
    """Gradients of queries, keys and values, each a record's own; that of a public mask is a sum."""
    names = ("grad_out", "grad_out_", "query", "key", "value", "out", "logsumexp")
    kind = call.same_axis([call[name] for name in names if name in call])
    mask = _mask(call)
    if not isinstance(kind, Records):
        return kind
    _check_attention(call, kind, mask)
    return [kind, kind, kind, call.records(mask) or call.whole()]


@rule("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", public=())
def recurrent(call: Call) -> list[RecordType] | RecordType:
    """A recurrent layer over (time, batch, features); its state has the records on the axis before the last."""
    _check_padded(call)
    weights = [name for name in call.given if name.startswith("weight")]
    call.require_public(*weights)
    skipped = (*weights, "workspace")
    values = [value for name, value in call.given.items() if isinstance(value, Tensor) and name not in skipped]
    call.all_tensors()
    kind = call.records(call["input"])
    if kind is None or kind.axis != 1 or kind.inner != 1:
        call.refuse("the records are not on its batch axis", BATCH_AXIS)
    for value in values:
        call.own_or_equal(value, Records(value.dim() - 2), _OTHER_STATE)
    state = Records(call["hx_"].dim() - 2)
    if call.name.endswith("backward"):
        return [kind, *[call.whole()] * 4, state, state]
    # The last output is the kernel's own memory for its backward pass.
    return [kind, state, state, PUBLIC]


_OTHER_STATE = "its state is of other records"


def _check_padded(call: Call) -> None:
    """Refuse packed sequences."""
    if call["batch_sizes"]:
        call.refuse("it runs over packed sequences of all records", "Pad to a public length")


@rule("_cudnn_rnn", "_cudnn_rnn_backward", public=("dropout_state", "weight_buf", "reserve"))
def recurrent_on_device(call: Call) -> list[RecordType]:
    """All recurrent layers in one kernel, over (time, batch, features) or (batch, time, features)."""
    _check_padded(call)
    if any(call.records(weight) is not None for weight in call["weight"]):
        call.refuse("its weight follows the records", "Give a public one")
    kind, state = Records(0 if call["batch_first"] else 1), Records(1)
    if call.records(call["input"]) != kind:
        call.refuse("the records are not on its batch axis", BATCH_AXIS)
    for name in ("output", "grad_output", "hx", "cx", "grad_hy", "grad_cy"):
        if (value := call.given.get(name)) is not None:
            call.own_or_equal(value, kind if name.endswith("output") else state, _OTHER_STATE)
    call.all_tensors()
    if call.name.endswith("backward"):
        return [kind, state, state, *[call.whole()] * len(call["weight"])]
    # The last outputs are the kernel's own memory for its backward pass, and a packed copy of the weights.
    return [kind, state, state, PUBLIC, PUBLIC]


@rule("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell_backward_impl",
      "_thnn_fused_gru_cell_backward", public=())  # fmt: skip
def recurrent_cell(call: Call) -> list[RecordType] | RecordType:
    """One step of a recurrent layer: gates and state of a record, and public biases, whose gradients are sums."""
    kind = on_batch_axis(call, call.aligned(call.all_tensors()))
    if "backward" not in call.name:
        return kind
    return per_record(call, kind, [True, True, False] if "lstm" in call.name else [True] * 3 + [False] * 2)


@rule("_pack_padded_sequence")
def packed(call: Call) -> list[RecordType] | RecordType:
    """Sequences of one length, as `PACKING` has them: row t B + i of the result is step t of record i."""
    value, lengths, first = call["input"], call["lengths"], call["batch_first"]
    steps = value.shape[1 if first else 0]
    if call.records(lengths) is not None or not bool((lengths == steps).all()):
        call.refuse("its rows are those of all records together", "Pack by torch.nn.utils.rnn.pack_padded_sequence")
    if call.kind(value) != Records(0 if first else 1):
        call.refuse("the records are not on its batch axis", BATCH_AXIS)
    return [Records(0), call.whole()]


def _order(mode: Any, frame: FrameType, func: Callable[..., Any], args: Any) -> Any:
    order = torch.arange(len(args[0]))
    mode.storages.assign(order, WholeBatch("sort", user_line(frame)), "sort", "")
    return args[0], order


def _in_place(mode: Any, frame: FrameType, func: Callable[..., Any], args: Any) -> Any:
    return args[0] if isinstance(args[-1], Tensor) else func(*args)


def _pack(mode: Any, frame: FrameType, func: Callable[..., Any], args: Any) -> Any:
    value, lengths, first = args
    if frame.f_locals.get("enforce_sorted"):
        why = "it wants the records in the order of their lengths, which others of the batch decide"
        refuse("pack_padded_sequence", user_line(frame), why, "Give enforce_sorted=False")
    return func(value, torch.full((len(lengths),), value.shape[1 if first else 0]), first)


def _unpack(mode: Any, frame: FrameType, func: Callable[..., Any], args: Any) -> Any:
    if frame.f_locals.get("total_length") is None:
        why = "its result is as long as the longest record of the batch"
        refuse("pad_packed_sequence", user_line(frame), why, "Give total_length=inputs.shape[1]")
    padded, lengths = func(*args)
    lengths = torch.full_like(lengths, len(args[1]))  # The kernel writes them unseen.
    mode.storages.assign(lengths, Records(0), "pad_packed_sequence", "")
    return padded, lengths


PACKING = {
    "sort": _order,
    "index_select": _in_place,
    "__getitem__": _in_place,
    # `invert_permutation` writes all of it.
    "empty_like": lambda mode, frame, func, args: torch.zeros_like(*args),
    "_pack_padded_sequence": _pack,
    "_pad_packed_sequence": _unpack,
}
"""What functions that torch's packing of sequences calls do in a typed pass: all records have the full length.

How many rows a step has follows the lengths of all records, and no row of one record follows another's. With the full
length for all and the records in their order, the operations between packing and padding have the types that they have
for any lengths. Orders and numbers of rows stay numbers of the whole batch, which no value of a record may meet.
"""
PACKING_FILES = (rnn.__file__, torch.nn.modules.rnn.__file__)
