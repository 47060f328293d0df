"""Layers and their gradients: convolution, pooling, norms, embedding, losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.verification.calls import Call, rule, tensors_in
from tacit.verification.record_types import Public, Records, RecordType

BATCH_AXIS = "Keep the records on the batch axis"


def read_all(call: Call) -> None:
    """Arguments that are equal for all records."""
    call.read(*(name for name, value in call.given.items() if not isinstance(value, Tensor)))


def on_batch_axis(call: Call, kind: RecordType) -> Records | Public:
    """Require the records on the first axis."""
    if isinstance(kind, Records) and kind.axis != 0:
        call.refuse("the records are not on its batch axis", BATCH_AXIS)
    return kind if isinstance(kind, Records) else Public()


def public_weights(call: Call, *names: str) -> None:
    """Require arguments that follow no record."""
    for name in names:
        if name in call and call.records(call[name]) is not None:
            call.refuse(f"its {name} follows the records", "Give a public one")


def per_record(call: Call, kind: RecordType, outputs: list[bool]) -> list[RecordType]:
    """Outputs of which some are a record's, as `kind`, and the others sums over the batch."""
    whole = call.whole() if isinstance(kind, Records) else Public()
    return [kind if own else whole for own in outputs]


@rule("convolution", "mkldnn_convolution", "_slow_conv2d_forward", "slow_conv3d_forward", "_conv_depthwise2d")
def convolution(call: Call) -> RecordType:
    """The batch axis stands first; without one the first axis is that of the channels, and refuses."""
    value, weight = call["input"] if "input" in call else call["self"], call["weight"]
    read_all(call)
    public_weights(call, "weight", "bias")
    kind = call.records(value)
    if kind is not None and value.dim() < weight.dim():
        call.refuse("its input has no batch axis", BATCH_AXIS)
    return on_batch_axis(call, kind or Public())


@rule("convolution_backward")
def convolution_backward(call: Call) -> list[RecordType]:
    """The gradient of the input is a record's own; those of weight and bias are sums."""
    read_all(call)
    public_weights(call, "weight")
    kind = on_batch_axis(call, call.same_axis([call["grad_output"], call["input"]]))
    return per_record(call, kind, [True, False, False])


_SPATIAL = {"1d": 1, "2d": 2, "3d": 3}


def _spatial_axes(name: str) -> int:
    """How many of the last axes an operation such as avg_pool2d computes within."""
    return next((axes for part, axes in _SPATIAL.items() if part in name), 2)


@rule(
    *(f"{kind}_pool{axes}d{backward}" for kind in ("avg", "_adaptive_avg", "adaptive_max", "fractional_max")
      for axes in (2, 3) for backward in ("", "_backward")),
    *(f"max_pool{axes}d_with_indices{backward}" for axes in (2, 3) for backward in ("", "_backward")),
    *("max_unpool2d", "max_unpool3d", "pixel_shuffle", "pixel_unshuffle", "im2col", "col2im", "channel_shuffle"),
    *(f"{kind}_pad{axes}d{backward}" for kind in ("reflection", "replication") for axes in (1, 2, 3)
      for backward in ("", "_backward")),
    *(f"upsample_{kind}{backward}" for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d",
      "bicubic2d", "trilinear3d") for backward in ("", "_backward")),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)  # fmt: skip
def spatial(call: Call) -> RecordType:
    """Computes within the last one to three axes, and for `im2col` and shuffles within the channels too."""
    read_all(call)
    values = call.all_tensors()
    kind = call.same_axis(values)
    if isinstance(kind, Records):
        within = _spatial_axes(call.name)
        if any(part in call.name for part in ("shuffle", "im2col", "col2im")):
            within = values[0].dim() - 1
        if kind.axis >= values[0].dim() - within:
            call.refuse("it computes along the records", BATCH_AXIS)
    return kind


@rule("grid_sampler_2d", "grid_sampler_3d", "grid_sampler_2d_backward", "grid_sampler_3d_backward", "_pdist_forward",
      "affine_grid_generator")  # fmt: skip
def sampled(call: Call) -> RecordType:
    """Samples an image of each record at points of its own; all have the records on the batch axis."""
    read_all(call)
    kind = call.same_axis(call.all_tensors())
    if call.name == "aten._pdist_forward" and isinstance(kind, Records):
        call.refuse("it compares the records with each other")
    return on_batch_axis(call, kind)


@rule("constant_pad_nd")
def pad(call: Call) -> RecordType:
    """Pads the last axes; records must not be padded."""
    value, amounts = call["self"], call["pad"]
    call.read("value")
    kind = call.records(value)
    if kind is not None:
        place = 2 * (value.dim() - 1 - kind.axis)
        if any(amounts[place : place + 2]):
            call.refuse("it pads along the records", "Pad another axis")
    return kind or Public()


@rule("native_layer_norm", "_fused_rms_norm")
def layer_norm(call: Call) -> RecordType:
    """Normalises over the last axes, as many as `normalized_shape` has."""
    value, shape = call["input"], call["normalized_shape"]
    call.read("eps")
    public_weights(call, "weight", "bias")
    kind = call.records(value)
    if kind is not None and kind.axis >= value.dim() - len(shape):
        call.refuse("it normalises over the records", "Normalise over the axes of one record")
    return kind or Public()


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def layer_norm_backward(call: Call) -> list[RecordType]:
    """The gradient of the input is a record's own; those of weight and bias are sums."""
    value, shape = call["input"], call["normalized_shape"]
    call.read("output_mask")
    public_weights(call, "weight", "bias")
    kind = call.same_axis([call["grad_out"], value, *(call[name] for name in ("mean", "rstd") if name in call)])
    if isinstance(kind, Records) and kind.axis >= value.dim() - len(shape):
        call.refuse("it normalises over the records")
    return per_record(call, kind, [True, False, False])


@rule("native_group_norm")
def group_norm(call: Call) -> RecordType:
    """Normalises groups of channels of each entry of the batch axis."""
    read_all(call)
    public_weights(call, "weight", "bias")
    value = call["input"]
    if call["N"] != value.shape[0]:
        call.refuse("its batch is of another size than its input")
    return on_batch_axis(call, call.kind(value))


@rule("native_group_norm_backward")
def group_norm_backward(call: Call) -> list[RecordType]:
    """The gradient of the input is a record's own; those of weight and bias are sums."""
    read_all(call)
    public_weights(call, "weight")
    kind = call.same_axis([call["grad_out"], call["input"], call["mean"], call["rstd"]])
    return per_record(call, on_batch_axis(call, kind), [True, False, False])


_NORMALISES = "it normalises over the records"
_OTHER_NORM = "Use GroupNorm or InstanceNorm, or tacit.gradients.fix(model)"


@rule("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_native_batch_norm_legit_no_training")
def batch_norm(call: Call) -> RecordType | list[RecordType]:
    """With stored statistics an operation on every entry; with those of the batch, on every channel.

    Instance norm is the batch norm of (1, B C, ...): there the channels carry the records.
    """
    read_all(call)
    value = call["input"]
    kind = call.records(value)
    training = call["training"] if "training" in call else call["train"]
    others = [call[name] for name in ("weight", "bias", "running_mean", "running_var") if name in call]
    if kind is None:
        call.refuse("its statistics or weights follow the records", "Give public ones")
    if kind.axis != 1:
        if training:
            call.refuse(_NORMALISES, _OTHER_NORM)
        public_weights(call, "weight", "bias", "running_mean", "running_var")
        return [kind, Public(), Public()]
    _per_channel(call, others, kind)
    if training and any(call[name] is not None for name in ("running_mean", "running_var") if name in call):
        call.refuse("it keeps statistics of the records", "Set track_running_stats=False")
    return [kind, Records(0, kind.inner), Records(0, kind.inner)]


def _per_channel(call: Call, values: list[Tensor | None], kind: Records) -> None:
    for value in values:
        if value is not None and value.numel():
            own = call.records(value)
            if own is None:
                call.public(value, 0, kind.inner)
            elif own != Records(0, kind.inner):
                call.refuse("it meets values of different records")


@rule("native_batch_norm_backward", "cudnn_batch_norm_backward")
def batch_norm_backward(call: Call) -> list[RecordType]:
    """As the forward pass; with one record a channel, gradients of repeated weights are a record's own."""
    read_all(call)
    kind = call.same_axis([call["grad_out"] if "grad_out" in call else call["grad_output"], call["input"]])
    values = [
        call[name] for name in ("weight", "running_mean", "running_var", "save_mean", "save_invstd") if name in call
    ]
    if not isinstance(kind, Records):
        return [Public()] * 3
    if kind.axis != 1:
        if call["train"]:
            call.refuse(_NORMALISES, _OTHER_NORM)
        return per_record(call, kind, [True, False, False])
    _per_channel(call, values, kind)
    return [kind, Records(0, kind.inner), Records(0, kind.inner)]


@rule("embedding")
def embedding(call: Call) -> RecordType:
    """Rows of a public table at indices of the records."""
    read_all(call)
    public_weights(call, "weight")
    return call.kind(call["indices"])


@rule("embedding_dense_backward", "_embedding_bag_backward")
def embedding_backward(call: Call) -> RecordType:
    """The gradient of the table is a sum over the batch; counts of a word are counts of all records."""
    read_all(call)
    if call["scale_grad_by_freq"] and "scale_grad_by_freq" in call:
        call.refuse("it divides by how often the batch has a word", "Set scale_grad_by_freq=False")
    call.all_tensors()
    return call.whole()


@rule("_embedding_bag_per_sample_weights_backward")
def bag_weights_backward(call: Call) -> RecordType:
    """The gradients of the weights of each record's bag."""
    read_all(call)
    public_weights(call, "weight")
    kind = call.records(call["indices"])
    if kind is None or call.records(call["grad"]) != Records(0) or call.records(call["offset2bag"]) not in (kind, None):
        call.refuse("its bags follow positions in the batch", "Give indices of shape (batch, length), padded")
    call.read("offsets", "offset2bag")
    return kind


@rule("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(call: Call) -> list[RecordType]:
    """Bags of one length, as two-dimensional indices give them: bag i holds the indices of record i."""
    read_all(call)
    public_weights(call, "weight")
    indices, offsets, weights = call["indices"], call["offsets"], call["per_sample_weights"]
    kind = call.records(indices)
    if kind is None or len(indices) != kind.inner * call.count:
        call.refuse("its offsets follow the records", "Give indices of shape (batch, length)")
    starts = torch.arange(len(offsets), device=offsets.device) * kind.inner
    if call.records(offsets) is not None or not torch.equal(offsets, starts.to(offsets.dtype)):
        call.refuse("its bags follow positions in the batch", "Give indices of shape (batch, length), padded")
    if weights is not None and call.aligned([indices, weights]) != kind:
        call.refuse("its weights follow other records")
    return [Records(0), kind, Records(0), Records(0)]


@rule("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss", "multilabel_margin_loss_forward")
def class_loss(call: Call) -> RecordType | list[RecordType]:
    """A loss of each record's scores and classes; with a reduction, a number of the whole batch."""
    read_all(call)
    public_weights(call, "weight")
    kind = on_batch_axis(call, call.same_axis([call["self"], call["target"]]))
    if kind == Public() or call["self"].dim() < (4 if "2d" in call.name else 2):
        call.refuse("its scores have no batch axis", BATCH_AXIS)
    if call["reduction"]:
        return [call.whole(), Public() if _is_size(call) else call.whole(_WEIGHED)]
    return [kind, kind if call.name.startswith("aten.multilabel") else Public()]


def _is_size(call: Call) -> bool:
    """Whether what a reduced loss of classes is divided by is its number of targets, or nothing."""
    counted = "ignore_index" not in call or bool((call["target"] != call["ignore_index"]).all())
    return call["reduction"] == _SUM or (call["weight"] is None and counted)


_SUM = 2
_WEIGHED = 'Use reduction="none": class weights and ignored targets make a mean divide by a private number'


_OF_CLASSES = {"cross_entropy", "cross_entropy_loss", "nll_loss", "nll_loss2d", "nll_loss_nd"}


def ignores_targets(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a loss of classes is given a target that it leaves out: the type of its mean follows that value."""
    target = kwargs.get("target", args[1] if len(args) > 1 else None)
    if getattr(function, "__name__", "") not in _OF_CLASSES or not isinstance(target, Tensor):
        return False
    ignored = kwargs.get("ignore_index", args[4] if len(args) > 4 else -100)
    with torch._C.DisableTorchFunctionSubclass():
        return not target.is_floating_point() and bool((target == ignored).any())


@rule("nll_loss_backward", "nll_loss2d_backward", "multi_margin_loss_backward", "multilabel_margin_loss_backward")
def class_loss_backward(call: Call) -> RecordType:
    """The gradient of such a loss; with a mean, it divides by a number of the whole batch."""
    read_all(call)
    public_weights(call, "weight", "total_weight")
    if call["reduction"] not in (0, _SUM) and not call.undone:
        call.refuse("it divides by a number of the whole batch", 'Use reduction="none"')
    names = ("grad_output", "self", "target", "is_target")
    return on_batch_axis(call, call.same_axis([call[name] for name in names if name in call]))


@rule("_ctc_loss")
def ctc_loss(call: Call) -> list[RecordType]:
    """Log-probabilities (time, batch, classes), targets (batch, length)."""
    read_all(call)
    scores, targets = call["log_probs"], call["targets"]
    lengths = [call[name] for name in ("input_lengths", "target_lengths")]
    kind, own = call.records(scores), call.records(targets)
    if kind != Records(1) or own not in (None, Records(0)) or targets.dim() != 2:
        call.refuse("its targets are of all records together", "Give targets of shape (batch, length)")
    if any(len(set(value)) > 1 for value in lengths if not isinstance(value, Tensor)):
        call.refuse("its lengths are numbers read from the batch", "Give them as tensors")
    _own_or_equal(call, [targets, *lengths])
    return [Records(0), Records(0)]


@rule("_ctc_loss_backward")
def ctc_loss_backward(call: Call) -> RecordType:
    """The gradient of the log-probabilities."""
    read_all(call)
    call.all_tensors()
    if call.records(call["log_probs"]) != Records(1):
        call.refuse("the records are not on its batch axis", BATCH_AXIS)
    _own_or_equal(call, [call["grad"], call["targets"], call["input_lengths"], call["target_lengths"]])
    return Records(1)


def _own_or_equal(call: Call, values: list[Any]) -> None:
    """Require tensors with an entry for each record to be the records' own, or equal for all."""
    for value in tensors_in(values):
        if call.records(value) is None:
            call.public(value, 0, 1)
