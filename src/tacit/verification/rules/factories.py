"""Operations that make tensors of sizes alone, and random draws."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.verification.calls import Call, axes_of
from tacit.verification.record_types import Public, RecordType

UNWRITTEN = frozenset(("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"))
"""Give memory as it is."""
DRAWS = frozenset(("rand", "randn", "randint", "rand_like", "randn_like", "randint_like"))
"""Give independent draws of one law."""
_IN_PLACE = frozenset(
    ("bernoulli_", "uniform_", "normal_", "exponential_", "random_", "log_normal_", "cauchy_", "geometric_")
)
DRAWN = DRAWS | _IN_PLACE | frozenset(("randperm", "bernoulli", "normal", "multinomial", "poisson"))
"""Draw from a generator."""
FACTORIES = (
    UNWRITTEN
    | DRAWS
    | frozenset(
        (
            *(
                "zeros",
                "ones",
                "full",
                "arange",
                "linspace",
                "logspace",
                "eye",
                "scalar_tensor",
                "zeros_like",
                "ones_like",
            ),
            *("full_like", "new_zeros", "new_ones", "new_full", "randperm", "tril_indices", "triu_indices", "range"),
            *("hann_window", "hamming_window", "_efficientzerotensor", "complex32"),
        )
    )
)
"""Read no value of their arguments."""
FILLS = frozenset(("copy_", "fill_", "zero_", "rrelu_with_noise", *_IN_PLACE))
"""Write all of what they are given, and do not read it."""
_KEEPING = ("_softmax", "_log_softmax", "sort", "argsort", "cumsum", "topk", "sum", "mean", "amax", "amin", "argmax",
            "argmin", "flip")  # fmt: skip


def drawn(call: Call, kind_of: Callable[[Tensor], RecordType]) -> frozenset[int]:
    """Axes along which the result of an operation on public values is drawn independently, of one law."""
    name = call.name.removeprefix("aten.")
    if name in _IN_PLACE or name in ("bernoulli", "normal"):
        if call.given.get("generator") is not None:
            return frozenset()
        others = [value for value in call.tensors if value is not call.tensors[0] or name in ("bernoulli", "normal")]
        return _constant_axes(call, others)
    kinds = [kind_of(value) for value in call.tensors]
    if not any(isinstance(kind, Public) and kind.drawn for kind in kinds):
        return frozenset()
    if torch.Tag.pointwise in call.function.tags or name in ("_to_copy", "clone", "where", "masked_fill", "copy_"):
        return _constant_axes(call, call.tensors)
    if name in ("index", "embedding", "index_select"):
        return _looked_up(call, kinds)
    if name in _KEEPING and len(kinds) == 1 and isinstance(kinds[0], Public):
        dims = call.given.get("dim", call.given.get("dims"))
        value = call.tensors[0]
        keeps = call.given.get("keepdim", name in _KEEPING[:6])
        lost = axes_of(value, dims if dims is not None else -1)
        kept = [axis for axis in range(value.dim()) if axis not in lost or keeps or name in ("topk", "flip")]
        return frozenset(place for place, axis in enumerate(kept) if axis in kinds[0].drawn and axis not in lost)
    return frozenset()


def _looked_up(call: Call, kinds: list[RecordType]) -> frozenset[int]:
    """Rows of a public table at drawn indices: drawn along the axes of the indices, which stand first."""
    first, places = kinds[0], kinds[1:]
    indices = call.given.get("indices", call.given.get("index"))
    leads = not isinstance(indices, list) or len(indices) == 1
    if not leads or len(places) != 1 or (isinstance(first, Public) and first.drawn):
        return frozenset()
    return places[0].drawn if isinstance(places[0], Public) else frozenset()


def _constant_axes(call: Call, values: list[Tensor]) -> frozenset[int]:
    """Axes of the broadcast result along which every value is drawn, or constant."""
    ndim = max((value.dim() for value in call.tensors), default=0)
    found = set(range(ndim))
    for value in values:
        kind = call.kind(value)
        for axis in range(value.dim()):
            own = isinstance(kind, Public) and axis in kind.drawn
            if not own and value.shape[axis] > 1 and not _equal_along(value, axis):
                found.discard(axis + ndim - value.dim())
    random = [value for value in values if isinstance(kind := call.kind(value), Public) and kind.drawn]
    for axis in list(found):
        # A draw that is broadcast along an axis is equal along it, and no draw.
        for value in random:
            place = axis - (ndim - value.dim())
            if place < 0 or (value.shape[place] == 1 and max(_size(each, axis, ndim) for each in call.tensors) > 1):
                found.discard(axis)
    return frozenset(found)


def _size(value: Tensor, axis: int, ndim: int) -> int:
    place = axis - (ndim - value.dim())
    return value.shape[place] if place >= 0 else 1


def _equal_along(value: Tensor, axis: int) -> bool:
    return value.stride(axis) == 0 or bool(torch.eq(value.narrow(axis, 0, 1), value).all())
