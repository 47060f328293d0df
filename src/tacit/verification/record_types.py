"""Record types: which record of a physical batch the entries of a value belong to.

The entry at index i along `axis` of a value of type (axis, inner) belongs to record (i // inner) mod B, where B is the
number of records of the batch. A storage holds one map in bytes, offset -> (offset // stride) mod B, and the type of a
tensor follows from its sizes and strides. So views need no rule: whatever shape they give, the map stays.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Records:
    """The entry at index i along `axis` belongs to record (i // inner) mod B.

    Example:
        >>> Records(0)  # what a loader yields: the records along the first axis
        Records(axis=0, inner=1)
    """

    axis: int
    inner: int = 1


@dataclass(frozen=True)
class OneRecord:
    """A value of record `index` alone; `history` names the operations that made it, apart from the index."""

    index: int
    history: Hashable = ()


@dataclass(frozen=True)
class WholeBatch:
    """A number of the whole batch, made by `operation` at `line`; it must not meet a record's value, nor leave."""

    operation: str
    line: str
    mend: str = ""


@dataclass(frozen=True)
class Part:
    """A view of some of the records, or of shifted ones, made by `operation` at `line`."""

    operation: str
    line: str


@dataclass(frozen=True)
class Draws:
    """Independent draws of one law: the entry at index i along `axis` follows draw (i // inner) mod `count` alone."""

    axis: int
    inner: int
    count: int

    def refines(self, inner: int, count: int) -> bool:
        """Whether no two of `count` records, each with `inner` entries in a row, share a draw."""
        return inner % self.inner == 0 and self.inner * self.count % (inner * count) == 0


@dataclass(frozen=True)
class Public:
    """No record's value.

    Attributes:
        drawn: axes along which the entries are draws, each by itself.
        trained: a parameter that training moves, so that its values now say nothing about its values later.
    """

    drawn: frozenset[Draws] = frozenset()
    trained: bool = False


PUBLIC = Public()
RecordType = Records | OneRecord | WholeBatch | Part | Public


@dataclass(frozen=True)
class Layout:
    """Where the entries of a tensor lie in its storage: sizes, strides and offset, the last two in bytes.

    Example:
        >>> Layout.of(torch.zeros(4, 3))
        Layout(sizes=(4, 3), strides=(12, 4), offset=0)
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, value: Tensor) -> Layout:
        """The layout of `value`."""
        width = value.element_size()
        strides = tuple(width * step for step in value.stride())
        return cls(tuple(value.shape), strides, int(width * value.storage_offset()))

    def steps(self) -> list[tuple[int, int, int]]:
        """(axis, size, stride) of every axis that moves through memory."""
        found = zip(range(len(self.sizes)), self.sizes, self.strides, strict=True)
        return [(axis, size, stride) for axis, size, stride in found if size > 1 and stride]

    def records(self, stride: int, count: int) -> Records | int | None:
        """The type of a tensor in a storage of `count` records whose map has `stride`.

        Args:
            stride: bytes of one record in a row, >= 1.
            count: records of the batch, >= 2.

        Returns:
            The type; or the number of the one record that all entries belong to; or None where the entries are of some
            of the records, or of all in another order.

        Example:
            >>> x = torch.zeros(4, 5, 3)
            >>> Layout.of(x.view(20, 3)).records(60, 4), Layout.of(x[2]).records(60, 4)
            (Records(axis=0, inner=5), 2)
        """
        within, first = self.offset % stride, self.offset // stride % count
        carriers: list[tuple[int, int, int]] = []
        extent = within
        for axis, size, step in self.steps():
            if step % (stride * count) == 0:
                continue
            if step == stride or (stride % step == 0 and step * size > stride):
                carriers.append((axis, size, step))
            else:
                extent += (size - 1) * step
        if not carriers:
            return first if extent < stride else None
        (axis, size, step), inner = carriers[0], stride // carriers[0][2]
        whole = first == 0 and size % (inner * count) == 0
        return Records(axis, inner) if len(carriers) == 1 and whole and extent < step else None

    def stride_of(self, kind: Records) -> int:
        """Bytes of one record in the storage of a new tensor of type `kind`."""
        return kind.inner * self.strides[kind.axis]

    def draws(self, block: int, count: int, size: int) -> frozenset[Draws]:
        """How the entries of a tensor are drawn where byte i of its storage follows draw (i // block) mod count.

        Args:
            block: bytes of one draw in a row, >= 1.
            count: draws, >= 1.
            size: bytes of the storage.
        """
        steps = self.steps()
        kind = self.records(block, count) if count > 1 else None
        found = frozenset([Draws(kind.axis, kind.inner, count)] if isinstance(kind, Records) else [])
        if block * count < size:
            return found
        outer = [(axis, size, step) for axis, size, step in steps if step % block == 0]
        extent = self.offset % block + sum((size - 1) * step for _, size, step in steps if step % block)
        reach = 0
        for _, size, step in sorted(outer, key=lambda each: each[2]):
            if step < reach + block:
                return found
            reach += (size - 1) * step
        return frozenset(Draws(axis, 1, size) for axis, size, _ in outer) if outer and extent < block else found


def is_constant(value: Tensor, axis: int, inner: int, count: int) -> bool:
    """Whether `value` is the same for all records, were its `axis` to carry them.

    Args:
        value: any tensor.
        axis: >= 0.
        inner: entries of one record in a row, >= 1.
        count: records of the batch, >= 1.
    """
    size = value.shape[axis]
    if size <= 1 or value.stride(axis) == 0:
        return True
    if size % (inner * count):
        return False
    parts = value.detach().unflatten(axis, (size // (inner * count), count, inner))
    return bool(torch.eq(parts.narrow(axis + 1, 0, 1), parts).all())
