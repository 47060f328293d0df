"""Indexing: public tables at the records' indices, and a record's own entries; joining and repeating tensors."""

from collections.abc import Container

import torch
from torch import Tensor

from tacit.verification.calls import POSITIONS, Call, axis_of, rule
from tacit.verification.record_types import PUBLIC, OneRecord, Records, RecordType

_OWN = "Index the records by torch.arange(len(x)) only"


def positions_axis(index: Tensor, count: int) -> int | None:
    """The axis of `index` along which it counts 0, ..., count - 1, being constant along all others.

    Example:
        >>> positions_axis(torch.arange(3)[:, None], 3)
        0
    """
    for axis in range(index.dim()):
        if index.shape[axis] == count:
            shape = [1] * index.dim()
            shape[axis] = count
            if torch.equal(
                index, torch.arange(count, device=index.device).to(index.dtype).view(shape).expand_as(index)
            ):
                return axis
    return None


def _placed(indices: list[Tensor | None]) -> tuple[dict[int, Tensor], torch.Size, int]:
    """The indices by the axis that each one indexes, their common shape, and the axis of the result at which it begins.

    That is the first of the axes where they are adjacent, else the first of all.
    """
    given = {axis: each for axis, each in enumerate(indices) if each is not None}
    adjacent = max(given) - min(given) == len(given) - 1
    return given, torch.broadcast_shapes(*(each.shape for each in given.values())), min(given) if adjacent else 0


@rule("index", "_unsafe_index")
def index(call: Call) -> RecordType:
    """value[indices]; a boolean mask of the records gives a number of rows that follows them."""
    value, indices = call["self"], call["indices"]
    if any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in indices):
        return _masked_rows(call, value, indices)
    kind, (given, shape, start) = call.records(value), _placed(indices)
    if kind is not None and kind.axis in given:
        # The positions themselves are public and differ: only they may.
        return _by_position(call, value, kind, indices)
    typed = call.aligned(given.values(), len(shape))
    if kind is None:
        return Records(typed.axis + start, typed.inner) if isinstance(typed, Records) else PUBLIC
    if isinstance(typed, Records):
        call.refuse("it takes from every record at the indices of others", _OWN)
    return Records(_axis_beside(kind, given, shape, start), kind.inner)


def _axis_beside(kind: Records, given: Container[int], shape: torch.Size, start: int) -> int:
    """The axis of the result of indexing at which the records lie that no index takes."""
    before = sum(axis not in given for axis in range(kind.axis))
    return before if kind.axis < start else before + len(shape)


def _by_position(call: Call, value: Tensor, kind: Records, indices: list[Tensor | None]) -> RecordType:
    given, shape, start = _placed(indices)
    own = given[kind.axis]
    if call.records(own) is not None or kind.inner != 1:
        call.refuse("it takes records at indices", _OWN)
    place = positions_axis(own.expand(shape), call.count)
    if place is None or value.shape[kind.axis] != call.count:
        call.refuse("it takes records in another order, or some of them", _OWN)
    behind = len(shape) - place
    for axis, each in given.items():
        if axis != kind.axis:
            expected = Records(each.dim() - behind)
            call.own_or_equal(each, expected, "it takes from each record at the index of another", _OWN)
    return Records(place + start)


def _masked_rows(call: Call, value: Tensor, indices: list[Tensor | None]) -> RecordType:
    """Rows of all records at once; a public mask must not tell the records apart."""
    kind = call.records(value)
    masks = [each for each in indices if each is not None]
    if len(masks) == 1 and kind is not None and call.records(masks[0]) is None:
        mask, first = masks[0], next(axis for axis, each in enumerate(indices) if each is not None)
        if not first <= kind.axis < first + mask.dim():
            shift = mask.dim() - 1 if kind.axis >= first + mask.dim() else 0
            return Records(kind.axis - shift, kind.inner)
    call.all_tensors()
    return call.whole()


@rule("index_put", "_index_put_impl", "_unsafe_index_put")
def index_put(call: Call) -> RecordType:
    """value[indices] = values, or += with `accumulate`."""
    value, indices, values = call["self"], call["indices"], call["values"]
    call.read("unsafe", "accumulate")
    kind = call.records(value)
    masks = [each for each in indices if each is not None and each.dtype in (torch.bool, torch.uint8)]
    if masks:
        return _put_at_mask(call, value, indices, values)
    (given, shape, start), behind_record = _placed(indices), call.records(values)
    typed = any(call.records(each) is not None for each in given.values())
    rank = len(shape) + value.dim() - len(given)
    for axis, counts in given.items():
        place = None if call.records(counts) is not None else positions_axis(counts.expand(shape), call.count)
        # Record i writes at position i of `axis`; indices and values follow it along axis `place` of the indices.
        full = value.shape[axis] == call.count and kind in (None, Records(axis))
        if full and place is not None and (kind is not None or typed or behind_record is not None):
            for other, each in given.items():
                if other != axis:
                    _aligned_at(call, each, len(shape) - place, 1)
            _aligned_at(call, values, rank - (start + place), 1)
            if kind is None:
                call.public(value, axis, 1)
            return Records(axis)
    if kind is None and typed and call["accumulate"]:
        # The gradient of a public table: a sum over all that looked it up.
        return call.whole()
    if (kind is not None and kind.axis in given) or typed:
        call.refuse("it writes at indices of other records", _OWN)
    if kind is None:
        if behind_record is None:
            return PUBLIC
        place = behind_record.axis + rank - values.dim()
        rest = [axis for axis in range(value.dim()) if axis not in given]
        outside = [place for place in range(rank) if not start <= place < start + len(shape)]
        if place not in outside:
            if call["accumulate"]:
                return call.whole()
            call.refuse("it writes records to public places", _OWN)
        axis = rest[outside.index(place)]
        call.public(value, axis, behind_record.inner)
        return Records(axis, behind_record.inner)
    _aligned_at(call, values, rank - _axis_beside(kind, given, shape, start), kind.inner)
    return kind


def _aligned_at(call: Call, value: Tensor, behind: int, inner: int) -> None:
    """Require the records of `value` on the axis with `behind` axes from it to the end, or equal public values."""
    call.own_or_equal(value, Records(value.dim() - behind, inner), "it writes values of other records", _OWN)


def _put_at_mask(call: Call, value: Tensor, indices: list[Tensor | None], values: Tensor) -> RecordType:
    kind = call.records(value)
    mask = indices[0]
    if len(indices) != 1 or mask is None or call["accumulate"] or call.records(values) is not None:
        call.refuse("it writes rows of all records together", "Use torch.where")
    own = call.records(mask)
    kind = kind or own
    if kind is None or kind.axis >= mask.dim() or values.dim() > value.dim() - mask.dim():
        call.refuse("it writes rows of all records together", "Use torch.where")
    for each in (value, mask):
        call.own_or_equal(each, kind, "its mask is of other records")
    return kind


@rule("gather")
def gather(call: Call) -> RecordType:
    """value[..., index, ...] along `dim`, entry by entry along all other axes."""
    value, place, call_index = call["self"], call["dim"], call["index"]
    call.read("sparse_grad")
    dim = axis_of(value, place)
    kind, own = call.records(value), call.records(call_index)
    if kind is None and own is not None and own.axis == dim:
        return own
    return _beside(call, [value, call_index], dim)


def _beside(call: Call, values: list[Tensor], dim: int) -> RecordType:
    """All values have their records on one axis other than `dim`, in full."""
    kind = call.apart(call.same_axis(values), (dim,), "it indexes the records", _OWN)
    if isinstance(kind, Records) and len({value.shape[kind.axis] for value in values if value.dim()}) > 1:
        call.refuse("it takes some of the records", _OWN)
    return kind


@rule("scatter", "scatter_add", "scatter_reduce")
def scatter(call: Call) -> RecordType:
    """Writes along `dim`, entry by entry along all other axes; along the records, sums by groups of all of them."""
    value, where = call["self"], call["index"]
    source = call["src"]
    call.read("value", "reduce", "include_self")
    dim = axis_of(value, call["dim"])
    own = call.records(where) or call.records(source)
    if own is not None and own.axis == dim and call.records(value) is None:
        if not call.name.startswith("aten.scatter_add"):
            call.refuse("it writes records to places that they share", _OWN)
        return call.whole()
    return _beside(call, [value, where, *([source] if source is not None else [])], dim)


@rule("index_select")
def index_select(call: Call) -> RecordType:
    """Rows of a public table, or along an axis that is not the records'."""
    value, where = call["self"], call["index"]
    dim = axis_of(value, call["dim"])
    kind, own = call.records(value), call.records(where)
    if kind is None:
        return Records(dim, own.inner) if own is not None else PUBLIC
    if own is not None:
        call.refuse("it takes from every record at the indices of others", _OWN)
    if kind.axis == dim and not (kind.inner == 1 and positions_axis(where, value.shape[dim]) == 0):
        call.refuse("it takes records in another order, or some of them", _OWN)
    return kind


@rule("index_add", "index_copy", "index_fill", "index_reduce")
def index_add(call: Call) -> RecordType:
    """Writes along an axis that is not the records'; along theirs, sums by groups of all of them."""
    value, where = call["self"], call["index"]
    source = call["source"] if "source" in call else call["value"]
    call.read("alpha", "reduce", "include_self")
    dim = axis_of(value, call["dim"])
    kind = call.records(value)
    given = call.records(source) if isinstance(source, Tensor) else None
    public = kind is None and call.records(where) is None
    if public and given is not None and given.axis == dim and positions_axis(where, value.shape[dim]) == 0:
        # Every record at its own place, as in the gradient of `index_select` at all of them.
        call.public(value, dim, given.inner)
        return given
    if call.records(where) is not None or (given is not None and given.axis == dim):
        if kind is None and call.name.startswith("aten.index_add"):
            return call.whole()
        call.refuse("it writes records to places that they share", _OWN)
    if kind is not None and kind.axis == dim:
        call.refuse(POSITIONS)
    tensors = [value, source] if isinstance(source, Tensor) and source.dim() == value.dim() else [value]
    if len(tensors) == 1 and given is not None:
        call.refuse("it writes values of other records")
    return call.same_axis(tensors)


@rule("cat")
def cat(call: Call) -> RecordType:
    """Along another axis the type stays; along the records only whole batches are joined."""
    values = [value for value in call["tensors"] if value.dim() > 1 or value.numel()]
    dim = axis_of(values[0], call["dim"])
    if any(isinstance(call.kind(value), OneRecord) for value in values):
        return _all_of_them(call, values, dim, values[0].shape[dim])
    typed = [found for value in values if (found := call.records(value)) is not None]
    if typed and all(found == typed[0] for found in typed) and typed[0].axis == dim:
        if len(typed) < len(values):
            call.refuse("it joins records with other rows", "Join along another axis")
        return typed[0]
    return call.same_axis(values)


@rule("stack")
def stack(call: Call) -> RecordType:
    """A new axis before the records moves them; the values of all records one by one make a batch again."""
    values = call["tensors"]
    dim = call["dim"] % (values[0].dim() + 1)
    if any(isinstance(call.kind(value), OneRecord) for value in values):
        return _all_of_them(call, values, dim, 1)
    kind = call.same_axis(values)
    return Records(kind.axis + (dim <= kind.axis), kind.inner) if isinstance(kind, Records) else kind


def _all_of_them(call: Call, values: list[Tensor], dim: int, inner: int) -> RecordType:
    kinds = [call.kind(value) for value in values]
    ones = [kind for kind in kinds if isinstance(kind, OneRecord)]
    if len(ones) < len(kinds) or [one.index for one in ones] != list(range(call.count)):
        call.refuse("it joins some of the records, or in another order", "Join all of them, in order")
    if any(one.history != ones[0].history for one in ones):
        call.refuse("records that are joined were not computed alike", "Compute each record by the same operations")
    return Records(dim, inner)


@rule("repeat")
def repeat(call: Call) -> RecordType:
    """Whole batches one after the other; new axes stand in front."""
    value, times = call["self"], call["repeats"]
    kind = call.records(value)
    return PUBLIC if kind is None else Records(kind.axis + len(times) - value.dim(), kind.inner)
