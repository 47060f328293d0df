"""Operations that compute every entry of their result from the entries at the same place."""

from __future__ import annotations

import torch

from tacit.verification.calls import Call
from tacit.verification.record_types import RecordType
from tacit.verification.rules.registry import RULES, rule

_TAGGED = sorted(
    name
    for name in dir(torch.ops.aten)
    if any(
        torch.Tag.pointwise in getattr(getattr(torch.ops.aten, name), overload).tags
        for overload in getattr(getattr(torch.ops.aten, name), "overloads", list)()
    )
)
# Without the tag of torch, or only with it in some of their overloads.
_OTHERS = (
    *("_to_copy", "clone", "copy", "where", "masked_fill", "fill", "zero", "lerp", "contiguous", "_copy_from"),
    *("softplus_backward", "hardtanh_backward", "gelu_backward", "elu_backward", "threshold_backward", "silu_backward"),
    *("tanh_backward", "sigmoid_backward", "hardswish_backward", "hardsigmoid_backward", "leaky_relu_backward"),
    *("mish_backward", "logit_backward", "log_sigmoid_forward", "log_sigmoid_backward", "softshrink_backward"),
    *("hardshrink_backward", "nan_to_num", "native_dropout", "native_dropout_backward", "bernoulli", "uniform"),
    *("normal", "exponential", "log_normal", "cauchy", "geometric", "random", "poisson", "_standard_gamma"),
    *("_standard_gamma_grad", "binomial", "rrelu_with_noise_backward", "_prelu_kernel", "_prelu_kernel_backward"),
    *("bucketize", "isin", "view_as_complex_copy", "complex", "polar", "frexp"),
    *("_masked_scale", "heaviside", "floor_divide", "true_divide", "glu_jvp", "zeros_like", "lift", "lift_fresh_copy"),
    *("_conj_physical", "celu", "special_zeta", "ldexp", "dropout", "fake_quantize_per_tensor_affine"),
)


# Take values of the whole tensor besides their tag.
_NOT = frozenset(
    ("sum", "mean", "max", "min", "any", "all", "prod", "norm", "renorm", "index_put", "scatter", "cumsum")
)


def pointwise(call: Call) -> RecordType:
    """All arguments are broadcast; typed ones have their records on one axis."""
    call.read(*call.given)
    if call.name in ("aten.copy_", "aten.copy"):
        return _copied(call)
    return call.aligned(call.all_tensors())


def _copied(call: Call) -> RecordType:
    """The value that is written into counts by its shape alone."""
    target, source = call["self"], call["src"]
    kind = call.aligned([source], target.dim())
    own = call.records(target)
    if own is not None and call.records(source) is None:
        call.public(source, source.dim() - (target.dim() - own.axis), own.inner)
        return own
    return kind


for _name in {name.rstrip("_") for name in (*_TAGGED, *_OTHERS)} - _NOT:
    RULES.setdefault(_name, pointwise)


@rule("rrelu_with_noise", "rrelu_with_noise_functional")
def rrelu(call: Call) -> RecordType:
    """Draws a slope for each entry, and writes it into `noise`."""
    call.read(*call.given)
    return call.aligned([call["self"]])


@rule("searchsorted")
def searchsorted(call: Call) -> RecordType:
    """Values among sorted ones: one public list for all, or a list of the record's own in the last axis."""
    values, given = call["sorted_sequence"], call["self"]
    call.read("out_int32", "right", "side")
    found = call.records(given) if isinstance(given, torch.Tensor) else None
    if values.dim() == 1 and call.records(values) is None and found is not None:
        return found
    kind = call.same_axis([values, given, call["sorter"]])
    last = values.dim() - 1
    if getattr(kind, "axis", 0) == last:
        call.refuse("it searches along the records", "Search along another axis")
    return kind


@rule("bucketize")
def bucketize(call: Call) -> RecordType:
    """Values among public boundaries."""
    call.read("out_int32", "right")
    if call.records(call["boundaries"]) is not None:
        call.refuse("its boundaries follow the records", "Give public ones")
    return call.aligned([call["self"]])


@rule("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
      "soft_margin_loss", "l1_loss", "kl_div", "poisson_nll_loss")  # fmt: skip
def loss(call: Call) -> RecordType:
    """A loss of every entry; with a reduction, a number of the whole batch."""
    call.read("delta", "beta", "log_target")
    kind = call.aligned(call.all_tensors())
    return kind if call["reduction"] == 0 else call.whole()


@rule("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward",
      "soft_margin_loss_backward")  # fmt: skip
def loss_backward(call: Call) -> RecordType:
    """The gradient of such a loss; with a mean, it divides by the size of the batch."""
    call.read("delta", "beta")
    if call["reduction"] == 1 and not call.undone:
        call.refuse("it divides by the size of the batch", 'Use reduction="none"')
    return call.aligned(call.all_tensors())
