"""Operations that compute every entry of their result from the entries at the same place, and products of matrices."""

import torch
from torch import Tensor

from tacit.verification.calls import RULES, Call, rule, tensors_in
from tacit.verification.record_types import PUBLIC, Records, RecordType

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
    *("_to_copy", "clone", "copy", "where", "masked_fill", "fill", "zero", "lerp"),
    *("softplus_backward", "hardtanh_backward", "gelu_backward", "elu_backward", "threshold_backward", "silu_backward"),
    *("tanh_backward", "sigmoid_backward", "hardswish_backward", "hardsigmoid_backward", "leaky_relu_backward"),
    *("mish_backward", "logit_backward", "log_sigmoid_forward", "log_sigmoid_backward", "softshrink_backward"),
    *("hardshrink_backward", "nan_to_num", "native_dropout", "native_dropout_backward", "bernoulli", "uniform"),
    *("normal", "exponential", "log_normal", "cauchy", "geometric", "random", "poisson", "_standard_gamma"),
    *("_standard_gamma_grad", "binomial", "rrelu_with_noise_backward", "_prelu_kernel", "_prelu_kernel_backward"),
    *("view_as_complex_copy", "complex", "polar", "frexp", "heaviside", "floor_divide", "lift", "lift_fresh_copy"),
    *("_conj_physical", "celu", "hardswish", "special_zeta", "ldexp"),
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


for _name in {name.rstrip("_") for name in (*_TAGGED, *_OTHERS) if not name.startswith("__")} - _NOT:
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
    return call.apart(kind, (values.dim() - 1,), "it searches along the records", "Search along another axis")


@rule("bucketize", "isin")
def among(call: Call) -> RecordType:
    """Values among public boundaries or elements, of which every entry of the result follows all."""
    call.read("out_int32", "right", "assume_unique", "invert", "element", "test_element")
    if any(call.records(call[name]) is not None for name in ("boundaries", "test_elements")):
        call.refuse("what it looks among follows the records", "Give public values")
    return call.aligned(tensors_in(call["elements"] if "elements" in call else call["self"]))


@rule("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
      "soft_margin_loss")  # fmt: skip
def loss(call: Call) -> RecordType:
    """A loss of every entry; with a reduction, a number of the whole batch."""
    call.read("delta", "beta")
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


_MEND = "Multiply records' values by public ones, or keep the records on the batch axis of both"


def product(call: Call, left: Tensor, right: Tensor) -> RecordType:
    """The type of left @ right, both of at least one axis, as `torch.matmul` counts them without broadcasting."""
    rows = left.dim() - 2
    inner_left, inner_right = left.dim() - 1, max(right.dim() - 2, 0)
    columns = right.dim() - 1 if right.dim() > 1 else -1
    one, two = call.records(left), call.records(right)
    if one is None and two is None:
        return PUBLIC
    summed = [one is not None and one.axis == inner_left, two is not None and two.axis == inner_right]
    if any(summed):
        if one is not None and two is not None and (not all(summed) or one.inner != two.inner):
            call.refuse("it multiplies values of different records", _MEND)
        return call.whole()
    if one is not None and two is not None:
        batch = one.axis < rows and two.axis < right.dim() - 2
        if not batch or one != two:
            call.refuse("it multiplies values of different records", _MEND)
        return one
    typed, value, other, side = (one, left, right, rows) if one is not None else (two, right, left, columns)
    assert typed is not None
    if typed.axis < value.dim() - 2:
        call.public(other, typed.axis if other.dim() == value.dim() else -1, typed.inner)
        return typed
    if typed.axis == side:
        return typed
    return call.whole()


@rule("mm", "bmm", "mv", "dot", "vdot")
def multiplied(call: Call) -> RecordType:
    """Left @ right."""
    return product(call, *call.all_tensors())


@rule("addmm", "baddbmm", "addmv", "_addmm_activation")
def added(call: Call) -> RecordType:
    """Beta * self + alpha * left @ right."""
    call.read("beta", "alpha", "use_gelu")
    left = call["mat1"] if "mat1" in call else call["batch1"] if "batch1" in call else call["mat"]
    right = call["mat2"] if "mat2" in call else call["batch2"] if "batch2" in call else call["vec"]
    kind, added_to = product(call, left, right), call["self"]
    own = call.records(added_to)
    if not isinstance(kind, Records):
        if own is not None:
            call.refuse("it adds values of the whole batch to a record's", _MEND)
        return kind
    dims = 1 if call.name == "aten.addmv" else left.dim()
    expected = Records(added_to.dim() - dims + kind.axis, kind.inner)
    call.own_or_equal(added_to, expected, "it adds values of different records", _MEND)
    return kind


@rule("linear", "mkldnn_linear")
def linear(call: Call) -> RecordType:
    """X W^T + b with public W and b."""
    value, weight, bias = call["input"] if "input" in call else call["self"], call["weight"], call["bias"]
    if call.records(weight) is not None or call.records(bias) is not None:
        call.refuse("its weight follows the records", _MEND)
    kind = call.records(value)
    if kind is None:
        return PUBLIC
    return call.whole() if kind.axis == value.dim() - 1 else kind


@rule("_trilinear")
def trilinear(call: Call) -> RecordType:
    """The products of a bilinear layer: the records lead both inputs, and the weight is public."""
    summed, _ = call["sumdim"], call["unroll_dim"]
    placed = []
    for value, expanded in ((call[f"i{place}"], call[f"expand{place}"]) for place in (1, 2, 3)):
        kind = call.records(value)
        axes = [axis for axis in range(value.dim() + len(expanded)) if axis not in expanded]
        placed.append((value, axes, None if kind is None else Records(axes[kind.axis], kind.inner)))
    typed = [kind for _, _, kind in placed if kind is not None]
    if any(kind != typed[0] for kind in typed):
        call.refuse("it multiplies values of different records", _MEND)
    axis = typed[0].axis
    for value, axes, kind in placed:
        if kind is None and axis in axes:
            call.public(value, axes.index(axis), typed[0].inner)
    if axis in summed:
        return call.whole()
    return Records(axis - sum(each < axis for each in summed), typed[0].inner)
