"""Operations that join, repeat and split tensors along axes."""

from __future__ import annotations

from torch import Tensor

from tacit.verification.calls import Call
from tacit.verification.record_types import OneRecord, Public, Records, RecordType
from tacit.verification.rules.registry import axis_of, rule


@rule("cat", "concat")
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


@rule("repeat", "tile")
def repeat(call: Call) -> RecordType:
    """Whole batches one after the other; new axes stand in front."""
    value, times = call["self"], call["repeats"] if "repeats" in call else call["dims"]
    kind = call.records(value)
    return Public() if kind is None else Records(kind.axis + len(times) - value.dim(), kind.inner)
