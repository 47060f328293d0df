"""What every storage that a program touches holds: one map from bytes to records, or none."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.verification.calls import refuse
from tacit.verification.record_types import Draws, Layout, OneRecord, Part, Public, Records, RecordType, WholeBatch


@dataclass
class Entry:
    """What one storage holds. An entry lives as long as the program is typed, and so does the storage.

    Attributes:
        storage: kept, so that its address stays its own.
        made: whether an operation of this batch made it.
        stride: bytes of one record in a row; 0 where it holds no records.
        single: the one record that all of it belongs to.
        whole: the operation that made it of all records.
        block: bytes of one independent draw in a row; 0 where it holds no draws.
        draws: how many there are; behind the last the first goes on.
        trained: whether training moves it.
        unwritten: bytes that no operation has written yet; None where there are none.
        parts: layouts of views of some of the records, and which operation made them where.
        version: counts writes.
    """

    storage: torch.UntypedStorage
    made: bool = True
    stride: int = 0
    single: OneRecord | None = None
    whole: WholeBatch | None = None
    block: int = 0
    draws: int = 0
    trained: bool = False
    unwritten: Tensor | None = None
    parts: dict[Layout, tuple[str, str]] = field(default_factory=dict)
    version: int = 0

    @property
    def is_public(self) -> bool:
        """Whether it holds no record's value."""
        return not self.stride and self.single is None and self.whole is None


class Storages:
    """The entries of all storages that a program has touched.

    Args:
        count: records of the batch, >= 2.
    """

    def __init__(self, count: int):
        self.count = count
        self._entries: dict[int, Entry] = {}

    def find(self, value: Tensor) -> Entry | None:
        """The entry of the storage of `value`, if it was met before."""
        return self._entries.get(value.untyped_storage()._cdata)

    def add(self, value: Tensor, made: bool = True, trained: bool = False) -> Entry:
        """A new entry for the storage of `value`."""
        storage = value.untyped_storage()
        entry = self._entries[storage._cdata] = Entry(storage, made, trained=trained)
        return entry

    def overlapping(self, value: Tensor) -> Entry | None:
        """An entry with records whose memory the storage of `value` shares under another name, as NumPy's do."""
        storage = value.untyped_storage()
        start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        for entry in self._entries.values():
            first = entry.storage.data_ptr()
            if not entry.is_public and storage.nbytes() and first < end and start < first + entry.storage.nbytes():
                return entry
        return None

    def kind(self, value: Tensor) -> RecordType:
        """The record type of `value`; its storage was met before."""
        entry = self.find(value)
        if entry is None or (entry.is_public and not entry.block) or not value.numel():
            return Public(trained=entry is not None and entry.trained)
        if entry.whole is not None:
            return entry.whole
        if entry.single is not None:
            return entry.single
        layout = Layout.of(value)
        if entry.block:
            return Public(layout.draws(entry.block, entry.draws, entry.storage.nbytes()))
        found = layout.records(entry.stride, self.count)
        if isinstance(found, int):
            place = (layout.sizes, layout.strides, layout.offset % entry.stride)
            return OneRecord(found, ("row", entry.storage._cdata, entry.version, place))
        return found if found is not None else Part(*entry.parts.get(layout, ("aten.as_strided", "")))

    def assign(self, value: Tensor, kind: RecordType, name: str, line: str) -> None:
        """Set what the storage of a tensor holds by the type of the tensor, which covers it or what matters of it.

        Args:
            value: the tensor.
            kind: its type.
            name: of the operation that made it.
            line: the user's line.

        Raises:
            MixesRecords: its entries lie in memory in another order than by records.
        """
        entry = self.find(value)
        entry = entry if entry is not None else self.add(value)
        entry.version += 1
        entry.block = 0
        if isinstance(kind, WholeBatch):
            entry.whole, entry.stride, entry.single = kind, 0, None
        elif isinstance(kind, OneRecord):
            entry.single = kind
        elif isinstance(kind, Records) and value.numel():
            layout = Layout.of(value)
            entry.stride = layout.stride_of(kind)
            if not entry.stride or layout.records(entry.stride, self.count) != kind:
                refuse(
                    name, line, "its result lies in memory in another order than by records", "Copy it: .contiguous()"
                )
        elif isinstance(kind, Public) and kind.drawn:
            entry.block, entry.draws = self.draws_after(value, kind)

    def draws_after(self, value: Tensor, kind: Public) -> tuple[int, int]:
        """(bytes in a row, number) of the draws of a storage once values of `kind` are written; zeros for none.

        Args:
            value: the tensor that they are written into, before.
            kind: how they are drawn.
        """
        layout, entry, drawn = Layout.of(value), self.find(value), kind.drawn
        size = value.untyped_storage().nbytes()
        covers = size == value.numel() * value.element_size()
        if covers and (block := _block(layout, drawn)):
            return block, size // block
        for each in sorted(drawn, key=lambda each: -each.count):
            stride = each.inner * layout.strides[each.axis]
            if not stride or layout.records(stride, each.count) != Records(each.axis, each.inner):
                continue
            if covers or entry is None:
                return stride, each.count
            alike = Draws(0, entry.block, entry.draws).refines(stride, each.count) if entry.block else None
            if alike or (alike is None and rest_is_constant(entry, stride, each.count)):
                return stride, each.count
        return 0, 0

    def identity(self, value: Tensor) -> Hashable:
        """Names the values of a public tensor: equal for equal values."""
        entry = self.find(value)
        version = -1 if entry is None else entry.version
        return value.untyped_storage()._cdata, version, Layout.of(value)


def _block(layout: Layout, drawn: frozenset[Draws]) -> int:
    """Bytes of one draw where the outer axes of a storage are drawn, every entry of theirs by itself; 0 for none."""
    steps = sorted(layout.steps(), key=lambda each: -each[2])
    block = 0
    for axis, size, step in steps:
        if Draws(axis, 1, size) not in drawn:
            break
        block = step
    return block


def mark_unwritten(entry: Entry, value: Tensor) -> None:
    """Note that nothing has been written into the new storage of `value`."""
    entry.unwritten = torch.ones(entry.storage.nbytes(), dtype=torch.uint8, device=value.device)


def mark_written(entry: Entry, value: Tensor, source: Tensor | None = None, origin: Entry | None = None) -> None:
    """Note that all of a tensor is written, or what of it is a copy of what is written of another.

    Args:
        entry: of the storage of `value`.
        value: the tensor that was written into.
        source: what was copied into it; None where all was written.
        origin: the entry of the storage of `source`.
    """
    missing = None
    if source is not None and origin is not None and not is_written(origin, source):
        missing = _bytes_of(origin.unwritten, source).any(-1).expand(value.shape).clone()  # type: ignore[arg-type]
        if entry.unwritten is None:
            entry.unwritten = torch.zeros(entry.storage.nbytes(), dtype=torch.uint8, device=value.device)
    if entry.unwritten is None:
        return
    _bytes_of(entry.unwritten, value).copy_(torch.zeros(()) if missing is None else missing[..., None])
    if not bool(entry.unwritten.any()):
        entry.unwritten = None


def is_written(entry: Entry, value: Tensor) -> bool:
    """Whether all of `value` was written."""
    return entry.unwritten is None or not bool(_bytes_of(entry.unwritten, value).any())


def _bytes_of(mask: Tensor, value: Tensor) -> Tensor:
    width = value.element_size()
    sizes = (*value.shape, width)
    return mask.as_strided(sizes, (*(width * step for step in value.stride()), 1), width * value.storage_offset())


def rest_is_constant(entry: Entry, stride: int, count: int) -> bool:
    """Whether the storage, read as a map of `stride` bytes a record, is equal for all records."""
    if entry.unwritten is not None:
        return True
    size = entry.storage.nbytes()
    if size % (stride * count):
        return False
    whole = torch.empty(0, dtype=torch.uint8, device=entry.storage.device).set_(entry.storage)  # type: ignore[call-overload]
    values = whole.view(-1, count, stride)
    return bool(torch.eq(values[:, :1], values).all())
