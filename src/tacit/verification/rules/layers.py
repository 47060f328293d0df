"""Layers and their gradients: convolution, pooling, norms, embedding, losses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.verification.calls import Call, rule, tensors_in
from tacit.verification.record_types import PUBLIC, Public, Records, RecordType

_MOST_AXES = 64  # of a tensor of torch
BATCH_AXIS = "Keep the records on the batch axis"


def on_batch_axis(call: Call, kind: Records | Public | None) -> Records | Public:
    """Require the records on the first axis."""
    return call.apart(kind, range(1, _MOST_AXES), "the records are not on its batch axis", BATCH_AXIS)


def per_record(call: Call, kind: RecordType, outputs: list[bool]) -> list[RecordType]:
    """Outputs of which some are a record's, as `kind`, and the others sums over the batch."""
    whole = call.whole() if isinstance(kind, Records) else PUBLIC
    return [kind if own else whole for own in outputs]


@rule("convolution", "mkldnn_convolution", "_slow_conv2d_forward", "slow_conv3d_forward", "_conv_depthwise2d",
      public=("weight", "bias"))  # fmt: skip
def convolution(call: Call) -> RecordType:
    """The batch axis stands first; without one the first axis is that of the channels, and refuses."""
    value, weight = call["input"] if "input" in call else call["self"], call["weight"]
    if value.dim() < weight.dim() and call.records(value) is not None:
        call.refuse("its input has no batch axis", BATCH_AXIS)
    return on_batch_axis(call, call.records(value))


@rule("convolution_backward", "native_group_norm_backward", public=("weight",))
def on_batch_axis_backward(call: Call) -> list[RecordType]:
    """The gradient of the input is a record's own; those of weight and bias are sums."""
    names = ("grad_output", "grad_out", "input", "mean", "rstd")
    kind = on_batch_axis(call, call.same_axis([call[name] for name in names if name in call]))
    return per_record(call, kind, [True, False, False])


# End of the name of an operation such as avg_pool2d, and how many of the last axes it computes within.
_SPATIAL = {"1d": 1, "2d": 2, "3d": 3}


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
    public=(),
)  # fmt: skip
def spatial(call: Call) -> RecordType:
    """Computes within the last one to three axes, and for `im2col` and shuffles within the channels too."""
    values = call.all_tensors()
    dims = values[0].dim()
    within = next((axes for part, axes in _SPATIAL.items() if part in call.name), 2)
    if any(part in call.name for part in ("shuffle", "im2col", "col2im")):
        within = dims - 1
    return call.apart(call.same_axis(values), range(dims - within, dims), "it computes along the records", BATCH_AXIS)


@rule("grid_sampler_2d", "grid_sampler_3d", "grid_sampler_2d_backward", "grid_sampler_3d_backward", "_pdist_forward",
      "affine_grid_generator", public=())  # fmt: skip
def sampled(call: Call) -> RecordType:
    """Samples an image of each record at points of its own; all have the records on the batch axis."""
    kind = call.same_axis(call.all_tensors())
    if call.name == "aten._pdist_forward" and isinstance(kind, Records):
        call.refuse("it compares the records with each other")
    return on_batch_axis(call, kind)


@rule("constant_pad_nd")
def pad(call: Call) -> RecordType:
    """Pads the last axes; records must not be padded."""
    value, amounts = call["self"], call["pad"]
    call.read("value")
    padded = [value.dim() - 1 - place // 2 for place, amount in enumerate(amounts) if amount]
    return call.apart(call.records(value), padded, "it pads along the records", "Pad another axis")


@rule("native_layer_norm", "_fused_rms_norm", public=("weight", "bias"))
def layer_norm(call: Call) -> RecordType:
    """Normalises over the last axes, as many as `normalized_shape` has."""
    value, shape = call["input"], call["normalized_shape"]
    axes = range(value.dim() - len(shape), value.dim())
    return call.apart(call.records(value), axes, _NORMALISES, "Normalise over the axes of one record")


@rule("native_layer_norm_backward", "_fused_rms_norm_backward", public=("weight", "bias"))
def layer_norm_backward(call: Call) -> list[RecordType]:
    """The gradient of the input is a record's own; those of weight and bias are sums."""
    value, shape = call["input"], call["normalized_shape"]
    kind = call.same_axis([call["grad_out"], value, *(call[name] for name in ("mean", "rstd") if name in call)])
    kind = call.apart(kind, range(value.dim() - len(shape), value.dim()), _NORMALISES)
    return per_record(call, kind, [True, False, False])


@rule("native_group_norm", public=("weight", "bias"))
def group_norm(call: Call) -> RecordType:
    """Normalises groups of channels of each entry of the batch axis."""
    value = call["input"]
    if call["N"] != value.shape[0]:
        call.refuse("its batch is of another size than its input")
    return on_batch_axis(call, call.records(value))


_NORMALISES = "it normalises over the records"
_OTHER_NORM = "Use GroupNorm or InstanceNorm, or tacit.gradients.fix(model)"


@rule("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "_native_batch_norm_legit_no_training",
      public=())  # fmt: skip
def batch_norm(call: Call) -> RecordType | list[RecordType]:
    """With stored statistics an operation on every entry; with those of the batch, on every channel.

    Instance norm is the batch norm of (1, B C, ...): there the channels carry the records.
    """
    kind = call.records(call["input"])
    training = call["training"] if "training" in call else call["train"]
    if kind is None:
        call.refuse("its statistics or weights follow the records", "Give public ones")
    if kind.axis != 1:
        if training:
            call.refuse(_NORMALISES, _OTHER_NORM)
        call.require_public("weight", "bias", "running_mean", "running_var")
        return [kind, PUBLIC, PUBLIC]
    found = _per_channel(call, ("weight", "bias", "running_mean", "running_var"), kind)
    if training and any(call[name] is not None for name in ("running_mean", "running_var") if name in call):
        call.refuse("it keeps statistics of the records", "Set track_running_stats=False")
    return found


def _per_channel(call: Call, names: Sequence[str], kind: Records) -> list[RecordType]:
    """The types of a normalised value and of two for each channel, beside arguments of which each has one a channel."""
    own = Records(0, kind.inner)
    for value in [call[name] for name in names if name in call]:
        if value is not None and value.numel():
            call.own_or_equal(value, own, "it meets values of different records")
    return [kind, own, own]


@rule("native_batch_norm_backward", "cudnn_batch_norm_backward", public=())
def batch_norm_backward(call: Call) -> list[RecordType]:
    """As the forward pass; with one record a channel, gradients of repeated weights are a record's own."""
    kind = call.same_axis([call["grad_out"] if "grad_out" in call else call["grad_output"], call["input"]])
    names = ("weight", "running_mean", "running_var", "save_mean", "save_invstd")
    call.read(*names)
    if not isinstance(kind, Records):
        return [PUBLIC] * 3
    if kind.axis == 1:
        return _per_channel(call, names, kind)
    if call["train"]:
        call.refuse(_NORMALISES, _OTHER_NORM)
    return per_record(call, kind, [True, False, False])


@rule("embedding", public=("weight",))
def embedding(call: Call) -> RecordType:
    """Rows of a public table at indices of the records."""
    return call.kind(call["indices"])


@rule("embedding_dense_backward", "_embedding_bag_backward", public=())
def embedding_backward(call: Call) -> RecordType:
    """The gradient of the table is a sum over the batch; counts of a word are counts of all records."""
    if call["scale_grad_by_freq"] and "scale_grad_by_freq" in call:
        call.refuse("it divides by how often the batch has a word", "Set scale_grad_by_freq=False")
    call.all_tensors()
    return call.whole()


@rule("_embedding_bag_per_sample_weights_backward", public=("weight",))
def bag_weights_backward(call: Call) -> RecordType:
    """The gradients of the weights of each record's bag."""
    kind = call.records(call["indices"])
    if kind is None or call.records(call["grad"]) != Records(0) or call.records(call["offset2bag"]) not in (kind, None):
        call.refuse("its bags follow positions in the batch", "Give indices of shape (batch, length), padded")
    call.read("offsets", "offset2bag")
    return kind


@rule("_embedding_bag", "_embedding_bag_forward_only", public=("weight",))
def embedding_bag(call: Call) -> list[RecordType]:
    """Bags of one length, as two-dimensional indices give them: bag i holds the indices of record i."""
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


@rule("nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss", "multilabel_margin_loss_forward",
      public=("weight",))  # fmt: skip
def class_loss(call: Call) -> RecordType | list[RecordType]:
    """A loss of each record's scores and classes; with a reduction, a number of the whole batch."""
    kind = on_batch_axis(call, call.same_axis([call["self"], call["target"]]))
    if kind == PUBLIC or call["self"].dim() < (4 if "2d" in call.name else 2):
        call.refuse("its scores have no batch axis", BATCH_AXIS)
    if call["reduction"]:
        counted = "ignore_index" not in call or bool((call["target"] != call["ignore_index"]).all())
        # Whether what the loss is divided by is its number of targets, or nothing.
        is_size = call["reduction"] == _SUM or (call["weight"] is None and counted)
        return [call.whole(), PUBLIC if is_size else call.whole(_WEIGHED)]
    return [kind, kind if call.name.startswith("aten.multilabel") else PUBLIC]


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


@rule("nll_loss_backward", "nll_loss2d_backward", "multi_margin_loss_backward", "multilabel_margin_loss_backward",
      public=("weight", "total_weight"))  # fmt: skip
def class_loss_backward(call: Call) -> RecordType:
    """The gradient of such a loss; with a mean, it divides by a number of the whole batch."""
    if call["reduction"] not in (0, _SUM) and not call.undone:
        call.refuse("it divides by a number of the whole batch", 'Use reduction="none"')
    names = ("grad_output", "self", "target", "is_target")
    return on_batch_axis(call, call.same_axis([call[name] for name in names if name in call]))


@rule("_ctc_loss", public=())
def ctc_loss(call: Call) -> list[RecordType]:
    """Log-probabilities (time, batch, classes), targets (batch, length)."""
    scores, targets = call["log_probs"], call["targets"]
    lengths = [call[name] for name in ("input_lengths", "target_lengths")]
    kind, own = call.records(scores), call.records(targets)
    if kind != Records(1) or own not in (None, Records(0)) or targets.dim() != 2:
        call.refuse("its targets are of all records together", "Give targets of shape (batch, length)")
    if any(len(set(value)) > 1 for value in lengths if not isinstance(value, Tensor)):
        call.refuse("its lengths are numbers read from the batch", "Give them as tensors")
    _own_or_equal(call, [targets, *lengths])
    return [Records(0), Records(0)]


@rule("_ctc_loss_backward", public=())
def ctc_loss_backward(call: Call) -> RecordType:
    """The gradient of the log-probabilities."""
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
