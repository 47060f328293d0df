"""Products of matrices: records on the rows, on the columns, or on the batch axis."""

from __future__ import annotations

from torch import Tensor

from tacit.verification.calls import Call
from tacit.verification.record_types import Public, Records, RecordType
from tacit.verification.rules.registry import rule

_MEND = "Multiply records' values by public ones, or keep the records on the batch axis of both"


def product(call: Call, left: Tensor, right: Tensor) -> RecordType:
    """The type of left @ right, both of at least one axis, as `torch.matmul` counts them without broadcasting."""
    rows = left.dim() - 2
    inner_left, inner_right = left.dim() - 1, max(right.dim() - 2, 0)
    columns = right.dim() - 1 if right.dim() > 1 else -1
    one, two = call.records(left), call.records(right)
    if one is None and two is None:
        return Public()
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


@rule("mm", "bmm", "mv", "dot", "vdot", "inner")
def multiplied(call: Call) -> RecordType:
    """Left @ right."""
    names = [name for name in ("self", "mat2", "vec", "tensor", "other") if name in call]
    return product(call, call[names[0]], call[names[1]])


@rule("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation")
def added(call: Call) -> RecordType:
    """Beta * self + alpha * left @ right."""
    call.read("beta", "alpha", "use_gelu")
    left = call["mat1"] if "mat1" in call else call["batch1"] if "batch1" in call else call["mat"]
    right = call["mat2"] if "mat2" in call else call["batch2"] if "batch2" in call else call["vec"]
    kind, added_to = product(call, left, right), call["self"]
    if call.name == "aten.addbmm" and call.records(left) != call.records(right):
        call.refuse("it sums over a batch axis", _MEND)
    own = call.records(added_to)
    if not isinstance(kind, Records):
        if own is not None:
            call.refuse("it adds values of the whole batch to a record's", _MEND)
        return kind
    dims = 1 if call.name == "aten.addmv" else left.dim()
    behind = dims - kind.axis
    if own is not None and (added_to.dim() - own.axis != behind or own.inner != kind.inner):
        call.refuse("it adds values of different records", _MEND)
    if own is None:
        call.public(added_to, added_to.dim() - behind, kind.inner)
    return kind


@rule("linear", "mkldnn_linear", "_mkldnn_linear")
def linear(call: Call) -> RecordType:
    """X W^T + b with public W and b."""
    value, weight, bias = call["input"] if "input" in call else call["self"], call["weight"], call["bias"]
    if call.records(weight) is not None or call.records(bias) is not None:
        call.refuse("its weight follows the records", _MEND)
    kind = call.records(value)
    if kind is None:
        return Public()
    return call.whole() if kind.axis == value.dim() - 1 else kind


@rule("_trilinear")
def trilinear(call: Call) -> RecordType:
    """The products of a bilinear layer: the records lead both inputs, and the weight is public."""
    first, second, weight = call["i1"], call["i2"], call["i3"]
    expand = [call["expand1"], call["expand2"], call["expand3"]]
    summed, _ = call["sumdim"], call["unroll_dim"]
    kinds = []
    for value, added_axes in zip((first, second, weight), expand, strict=True):
        kind = call.records(value)
        axes = [axis for axis in range(value.dim() + len(added_axes)) if axis not in added_axes]
        kinds.append(None if kind is None else Records(axes[kind.axis], kind.inner))
    typed = [kind for kind in kinds if kind is not None]
    if any(kind != typed[0] for kind in typed):
        call.refuse("it multiplies values of different records", _MEND)
    axis = typed[0].axis
    for value, added_axes, kind in zip((first, second, weight), expand, kinds, strict=True):
        axes = [each for each in range(value.dim() + len(added_axes)) if each not in added_axes]
        if kind is None and axis in axes:
            call.public(value, axes.index(axis), typed[0].inner)
    if axis in summed:
        return call.whole()
    return Records(axis - sum(each < axis for each in summed), typed[0].inner)
