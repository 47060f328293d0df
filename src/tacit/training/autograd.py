"""Autograd tape of the operations from a model's outputs to a loss, to recompute the loss from fewer examples."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from typing import Any

import torch
from torch import Tensor, nn

from tacit.verification.calls import flat


@dataclass(frozen=True)
class TapeIndex:
    """Place of a value on the tape: the result of entry `entry` (0: the outputs), or item `item` of that result."""

    entry: int
    item: int | None = None


@dataclass(frozen=True)
class PerExample:
    """Values from outside the tape with one row for every example of the batch."""

    values: Tensor


class OtherBatch:
    """Stands for a value of another batch: none of its rows belongs to an example of this one."""


@dataclass(frozen=True)
class Entry:
    """One operation, its arguments with `TapeIndex` in place of values on the tape, and the modes it ran under."""

    operation: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    differentiable: bool
    autocast: torch.dtype | None

    def run(self, device: str, now: Callable[[Any], Any]) -> Any:
        """Result of the operation on `now` of every argument."""
        arguments, named = mapped(self.arguments, now), mapped(self.named, now)
        if self.differentiable and self.autocast is None and torch.is_grad_enabled():
            return self.operation(*arguments, **named)
        with torch.set_grad_enabled(self.differentiable), _autocast(device, self.autocast):
            return self.operation(*arguments, **named)

    @property
    def sources(self) -> set[int]:
        """The entries whose results are among its arguments."""
        return {made.entry for made in flat((self.arguments, self.named)) if isinstance(made, TapeIndex)}

    @property
    def sized(self) -> list[Tensor | int]:
        """The integers and the tensors with a length among its arguments."""
        return [value for value in flat((self.arguments, self.named)) if _has_size(value)]  # type: ignore[misc]


@dataclass(frozen=True)
class RowSelection:
    """Restriction of values from outside the tape to the rows of a smaller batch.

    Attributes:
        following: sizes, by entry and order among its sizes, that are multiples of the batch size: numbers scale with
            it, tensors are restricted example by example.
        counting: those of index tensors 0, 1, 2, ..., which start at 0 again.
    """

    following: frozenset[tuple[int, int]]
    counting: frozenset[tuple[int, int]]

    def __call__(self, value: Any, place: tuple[int, int], index: Tensor, batch: int) -> Any:
        """The value restricted to the rows `index` of a batch.

        Args:
            value: of the whole batch.
            place: its entry and its order among the sizes of that entry.
            index: the rows, shape (rows,).
            batch: size of the whole batch.
        """
        if place not in self.following:
            return value
        if not isinstance(value, Tensor):
            return value // batch * len(index)
        if place in self.counting:
            return value[: len(value) // batch * len(index)]
        return value[index] if len(value) == batch else value.unflatten(0, (batch, -1))[index].flatten(0, 1)


class SizeTracker:
    """Which sizes in a loop's losses are multiples of the batch size, learned from batch to batch.

    A size may be a multiple of one batch size by chance; the same multiple of two different sizes is taken as one.
    """

    def __init__(self) -> None:
        self._fixed: set[tuple[object, ...]] = set()
        self._following: set[tuple[object, ...]] = set()
        self._once: dict[tuple[object, ...], tuple[int, int]] = {}
        self._not_counting: set[tuple[object, ...]] = set()

    def selections(self, tape: Tape) -> list[RowSelection]:
        """Every row selection that is still possible, the likeliest first."""
        sure, unsure, counting = set(), [], set()
        for place, entry in enumerate(tape.entries, start=1):
            for order, value in enumerate(entry.sized):
                key = (entry.operation, place, order)
                self._learn(key, value, len(tape.root))
                if key in self._following:
                    sure.add((place, order))
                elif key not in self._fixed:
                    unsure.append((place, order))
                if isinstance(value, Tensor) and key not in self._not_counting:
                    counting.add((place, order))
        ways = [frozenset(sure | set(chosen)) for chosen in _subsets(unsure)]
        kinds = [frozenset(chosen) for chosen in reversed(_subsets(sorted(counting)))]
        return [RowSelection(way, kind) for kind in kinds for way in ways]

    def _learn(self, key: tuple[object, ...], sized: Tensor | int, batch: int) -> None:
        if isinstance(sized, Tensor) and key not in self._not_counting and not _counts(sized):
            self._not_counting.add(key)
        if key in self._fixed or key in self._following:
            return
        value = len(sized) if isinstance(sized, Tensor) else sized
        if value < batch or value % batch:
            self._fixed.add(key)
            return
        before, size = self._once.setdefault(key, (value, batch))
        if size != batch:
            (self._following if before * batch == value * size else self._fixed).add(key)


def _subsets(values: list[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    """All subsets, larger first; of more than `_MANY` values only those that omit none, one, all but one, or all."""
    lengths = range(len(values), -1, -1)
    if len(values) > _MANY:
        lengths = (len(values), len(values) - 1, 1, 0)
    return [chosen for length in lengths for chosen in combinations(values, length)]


# 2**5 = 32 subsets is the most that one check tries.
_MANY = 5


@dataclass(eq=False)
class Tape:
    """Autograd tape: every operation on a model's outputs, in order.

    Attributes:
        root: the outputs: a leaf that requires a gradient, or outputs without one.
        batch: identity of the batch that the outputs belong to.
        entries: the operations.
        loss_scale: what a `GradScaler` has multiplied a loss by.
    """

    root: Tensor
    batch: object
    entries: list[Entry] = field(default_factory=list)
    loss_scale: float = 1.0
    _places: dict[Tape, list[int]] = field(default_factory=dict)

    def append(self, operation: Callable[..., Any], arguments: Any, named: Any) -> int:
        """Record an operation that ran, with `TapeIndex` in place of values on the tape; the number of its entry."""
        device = self.root.device.type
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        return self._add(Entry(operation, arguments, named, torch.is_grad_enabled(), autocast))

    def place_of(self, made: TapeIndex, other: Tape) -> TapeIndex | OtherBatch:
        """Place on this tape of a value from another pass over the same batch, whose entries are appended."""
        if other.batch is not self.batch:
            return OtherBatch()
        places = self._places.setdefault(other, [])
        if not places:
            places.append(self._add(Entry(_itself, (PerExample(other.root.detach()),), {}, False, None)))

        def moved(value: Any) -> Any:
            return replace(value, entry=places[value.entry]) if isinstance(value, TapeIndex) else value

        for entry in other.entries[len(places) - 1 :]:
            moved_entry = replace(entry, arguments=mapped(entry.arguments, moved), named=mapped(entry.named, moved))
            places.append(self._add(moved_entry))
        return moved(made)

    def _add(self, entry: Entry) -> int:
        self.entries.append(entry)
        return len(self.entries)

    def replay(self, wanted: TapeIndex, index: Tensor, selection: RowSelection) -> tuple[Tensor, Tensor]:
        """The value `wanted`, recomputed from the rows `index` of the outputs alone; and those rows, a leaf."""
        batch = len(self.root)
        rows = self.root.detach()[index].requires_grad_()
        values: dict[int, Any] = {0: rows.view_as(rows)}
        needed = self._needed(wanted)
        for place, entry in enumerate(self.entries, start=1):
            if place in needed:
                orders = count()

                def now(value: Any, place: int = place, orders: Iterator[int] = orders) -> Any:
                    if _has_size(value):
                        return selection(value, (place, next(orders)), index, batch)
                    if isinstance(value, PerExample):
                        return value.values[index]
                    if isinstance(value, OtherBatch):
                        raise ValueError("a value of another batch")
                    return _item(values, value) if isinstance(value, TapeIndex) else value

                values[place] = entry.run(rows.device.type, now)
        return _item(values, wanted), rows

    def _needed(self, wanted: TapeIndex) -> set[int]:
        """The entries that `wanted` depends on, with those that wrote into any of them."""
        needed = {wanted.entry}
        for place in range(len(self.entries), 0, -1):
            entry = self.entries[place - 1]
            if place in needed or (writes(entry.operation) and entry.sources & needed):
                needed |= {place, *entry.sources}
        return needed


def writes(operation: Callable[..., Any]) -> bool:
    """Whether an operation writes into one of its arguments."""
    name = getattr(operation, "__name__", "")
    if name in ("__setitem__", "__set__"):
        return True
    in_place = name.startswith("__i") and name not in ("__index__", "__int__", "__invert__")
    return in_place or (name.endswith("_") and not name.endswith("__") and name != "requires_grad_")


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of nested lists, tuples and dicts with `change` applied to every leaf."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [mapped(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return change(value)


def _itself(value: Tensor) -> Tensor:
    return value


def _has_size(value: Any) -> bool:
    return bool(value.dim()) if isinstance(value, Tensor) else isinstance(value, int) and not isinstance(value, bool)


def _counts(value: Tensor) -> bool:
    return value.dim() == 1 and torch.equal(value, torch.arange(len(value), device=value.device))


def _item(values: dict[int, Any], made: TapeIndex) -> Any:
    return values[made.entry] if made.item is None else values[made.entry][made.item]


def _autocast(device: str, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    return torch.autocast(device, dtype) if dtype is not None else nullcontext()


def network_of(leaf: Tensor) -> str:
    """The network of which `leaf` is a parameter, with its shape there, for a message; the shape alone without one."""
    modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    holding = [(module, name) for module in modules for name, value in module.named_parameters() if value is leaf]
    named = f"shape {tuple(leaf.shape)}"
    if not holding:
        return named
    module, name = max(holding, key=lambda found: found[1].count("."))  # The outermost has the longest name.
    return f"the parameter {name!r} of the network {type(module).__name__}, {named}"
