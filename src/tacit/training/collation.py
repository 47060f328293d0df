"""Collation of records into a batch, every row of which is made by collating its own record alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate, default_convert

from tacit.errors import InvalidInput
from tacit.gradients.module_state import generators_now, restored_generators

Collate = Callable[[list[Any]], Any]
Array = Tensor | np.ndarray

MIXED = "collate_fn mixes records"
"""Entry in `ledger.unsafe` of a run that went on with such batches."""


class MixedRecords(InvalidInput):
    """Raised when a row of a batch depends on other records than its own."""


def collated(collate: Collate, records: list[Any]) -> Any:
    """`collate(records)`, in which the row of every record is that of a batch of two copies of the record.

    Every record must have the same shapes in the batch as among copies of itself, so a batch padded to its longest
    record is refused. So are the first records of a batch where they have other values among others, with the draws of
    `torch`, `numpy` and `random` repeated: rows that would mix are not what their author meant.

    Raises:
        MixedRecords: a row depends on other records.
    """
    if collate is default_collate or len(records) < 2:
        return collate(records)
    trial = _Trial(collate, generators_now())
    batch = copy.deepcopy(collate([_fresh(record) for record in records]))
    trial.fill(_Collation.of(batch, len(records)), records)
    return batch


def collation_of(data: object) -> Collate:
    """The `collate_fn` of a loader; the default one for other data, and for a loader that makes no batches."""
    own = data.collate_fn if isinstance(data, DataLoader) else None
    return own if own is not None and own is not default_convert else default_collate


# Records per batch whose values are compared: two catch statistics and mixup, and more would slow every batch.
_PAIRS = 2
# Size of the trial batches: large enough that the statistics of the others differ visibly from those of copies.
_TRIAL_SIZE = 8
# Repetitions before a difference in values counts: a random draw would have to differ by chance in all of them.
_REPETITIONS = 16


@dataclass(frozen=True)
class _Collation:
    """Collation of `size` records: arrays with the records along one axis, in lists, tuples and mappings."""

    parts: Any
    size: int

    @classmethod
    def of(cls, batch: Any, size: int) -> _Collation:
        """Collation of a batch; one of a user-defined class is represented by its attributes."""
        plain = isinstance(batch, Array | Mapping | list | tuple) or not hasattr(batch, "__dict__")
        return cls(batch if plain else vars(batch), size)

    def row(self, place: int, other: _Collation, there: int) -> list[tuple[Array, bool]]:
        """The arrays of the record at `place`; their axis is the one that differs in `other`, a batch of another size.

        With each stands whether it is shared by all records.

        Raises `MixedRecords` if anything but the number of records differs. The record is at `there` in `other`.
        """
        return list(_row(self.parts, other.parts, (place, there), (self.size, other.size)))


@dataclass(frozen=True)
class _Trial:
    """Collations of a few records, all drawing what is random from the generators as `start` puts them."""

    collate: Collate
    start: Callable[[], None]

    def fill(self, whole: _Collation, records: list[Any]) -> None:
        """Make every row of `whole`, the collation of `records`, from its own record; raise where values would mix."""
        made = [list(self._rows(record, whole, place)) for place, record in enumerate(records)]
        with restored_generators():
            for place, (record, other) in enumerate(pairwise(records[: _PAIRS + 1])):
                self._check_values(record, other, whole, place)
        for place, record in enumerate(records):
            for (row, shared), (own, _) in made[place]:
                if not shared:
                    row[...] = own  # type: ignore[assignment]  (both are tensors, or both arrays)
                elif not _equal(row, own) and not self._repeats(row, record, whole, place):
                    raise _mixed("values shared by all records", "that follow the records", "others")

    def _repeats(self, shared: Array, record: Any, whole: _Collation, place: int) -> bool:
        """Whether a value shared by all records is a draw, made again from the same generator states."""
        alone = self._made_again([record] * _another_size(whole, 2))
        return any(_equal(shared, other) for other, is_shared in alone.row(0, whole, place) if is_shared)

    def _rows(self, record: Any, whole: _Collation, place: int) -> Iterator[tuple[tuple[Array, bool], ...]]:
        """The arrays of the record in `whole`, each with that among copies of the record."""
        copies = [record] * _another_size(whole, 2)
        try:
            alone = self._made(copies)
            return zip(whole.row(place, alone, 0), alone.row(0, whole, place), strict=True)
        except MixedRecords:
            # A size that is drawn at random for every batch is drawn again from the same generator states.
            alone = self._made_again(copies)
            return zip(whole.row(place, alone, 0), alone.row(0, whole, place), strict=True)

    def _check_values(self, record: Any, other: Any, whole: _Collation, place: int) -> None:
        """Raise if the record, first or last, has other values among copies of `other` than among copies of itself.

        Draws from a user's own generator differ by chance; such a difference does not repeat.
        """
        copies = _another_size(whole, _TRIAL_SIZE) - 1

        for at in (0, copies):

            def rows(at: int = at) -> list[list[tuple[Array, bool]]]:
                around = ([neighbour] * copies for neighbour in (record, other))
                batches = [[*others[:at], record, *others[at:]] for others in around]
                return [self._made_again(batch).row(at, whole, place) for batch in batches]

            first = rows()
            if not _same(*first) and all(
                map(_same, first * _REPETITIONS, chain.from_iterable(rows() for _ in range(_REPETITIONS)))
            ):
                raise _mixed("values", "that follow the other records", "others")

    def _made_again(self, records: list[Any]) -> _Collation:
        self.start()
        return self._made(records)

    def _made(self, records: list[Any]) -> _Collation:
        return _Collation.of(self.collate([_fresh(record) for record in records]), len(records))


def _row(mine: Any, other: Any, places: tuple[int, int], sizes: tuple[int, int]) -> Iterator[tuple[Array, bool]]:
    if isinstance(mine, Array) or isinstance(other, Array):
        axis = _axis(_shape(mine), _shape(other), sizes)
        if mine.ndim or sizes == _ALIKE:
            yield (mine, sizes != _ALIKE) if axis is None else (mine[(slice(None),) * axis + (places[0], ...)], False)
    elif isinstance(mine, Mapping) and isinstance(other, Mapping):
        if mine.keys() != other.keys():
            raise _mixed("entries", sorted(map(str, mine)), sorted(map(str, other)))
        for key in mine:
            yield from _row(mine[key], other[key], places, sizes)
    elif isinstance(mine, list | tuple) and isinstance(other, list | tuple):
        if (len(mine), len(other)) == sizes:
            yield from _row(mine[places[0]], other[places[1]], places, _ALIKE)
        elif len(mine) != len(other):
            raise _mixed("length", len(mine), len(other))
        else:
            for one, another in zip(mine, other, strict=True):
                yield from _row(one, another, places, sizes)


def _axis(mine: tuple[int, ...] | None, other: tuple[int, ...] | None, sizes: tuple[int, int]) -> int | None:
    """The axis along which the records lie; None for an array that they share."""
    if mine is None or other is None or len(mine) != len(other):
        raise _mixed("shape", mine, other)
    changed = [axis for axis, lengths in enumerate(zip(mine, other, strict=True)) if lengths[0] != lengths[1]]
    if changed and [(mine[axis], other[axis]) for axis in changed] != [sizes]:
        raise _mixed("shape", mine, other)
    return changed[0] if changed else None


# Sizes that no batch has: inside a list of records, no axis holds the records.
_ALIKE = (-1, -1)


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, Array) else None


def _another_size(whole: _Collation, size: int) -> int:
    return size if size != whole.size else size + 1


def _same(left: list[tuple[Array, bool]], right: list[tuple[Array, bool]]) -> bool:
    return len(left) == len(right) and all(_equal(one, other) for (one, _), (other, _) in zip(left, right, strict=True))


def _equal(left: Array, right: Array) -> bool:
    if left.shape != right.shape:
        return False
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return torch.allclose(left, right, equal_nan=True) if left.is_floating_point() else torch.equal(left, right)
    return np.array_equal(np.asarray(left), np.asarray(right))


def _fresh(record: Any) -> Any:
    """A record that a collation may take entries out of and that can be collated again."""
    return copy.copy(record) if isinstance(record, dict | list) else record


def _mixed(what: str, one: object, another: object) -> MixedRecords:
    return MixedRecords(
        f"collate_fn must make every record's row of a batch from that record alone; got {what} {one} in the batch and "
        f"{another} among copies of one record. Pad every record to a fixed, public length, use no statistics of the "
        "batch, and augment records one by one, best in the data set."
    )
