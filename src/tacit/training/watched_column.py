"""`Column`: stands for a column of a data set while an item is made, and notes which entries are read."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tacit.training.captured import is_column, is_plain

if TYPE_CHECKING:
    from tacit.training.guarded_data import GuardedData

# Say nothing about values, or give the rows under another name.
_PUBLIC = frozenset(("shape", "dtype", "ndim", "size", "column_names", "num_rows", "num_columns", "device"))
_ROWS = frozenset(("values", "iloc", "iat", "loc", "at"))
_LABELS = frozenset(("loc", "at"))


class WatchedDataset(Dataset[Any]):
    """A data set whose items are watched.

    Attributes:
        data: the data set itself.
        doubt: why it is not known that items are made of their own entries; "" where they are, so far.
    """

    data: Any
    doubt: str


class WholeColumn(Exception):
    """A column is used as a whole."""


class Reading:
    """Notes what is read while one item is made."""

    now = threading.local()

    def __init__(self) -> None:
        self.entries: list[tuple[Any, int, Any]] = []
        self.numbers = set[int]()  # Whole numbers that columns gave, which may number entries of others.

    def __enter__(self) -> Reading:
        self._outer = getattr(self.now, "reading", None)
        Reading.now.reading = self
        return self

    def __exit__(self, *_: object) -> None:
        Reading.now.reading = self._outer


class Column:
    """Stands for a column: gives entries by number or key, notes them, and refuses everything else.

    Args:
        value: the column.
        name: of the attribute, for messages.
        key: names the entries of the column, whatever view of it is read.
        guard: that reads it.
    """

    def __init__(self, value: Any, name: str, key: Any, guard: GuardedData):
        self.__dict__.update(_value=value, _name=name, _key=key, _guard=guard)

    @property
    def __class__(self) -> Any:  # type: ignore[override]  (code asks `isinstance(self.x, Tensor)`)
        own = self._value.data if isinstance(self._value, WatchedDataset) else self._value
        # torch believes this name, and would read a tensor's memory in an object that has none.
        return Column if isinstance(own, Tensor) else type(own)

    def __len__(self) -> int:
        return length_of(self._value)

    def __iter__(self) -> Iterator[Any]:
        if not self._holds_columns():
            self._refuse("iter")
        names = self._value if isinstance(self._value, Mapping) else map(self.__getitem__, range(len(self)))
        return iter(names)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Names and columns, of a dict of columns."""
        return ((name, self[name]) for name in self)

    def __getitem__(self, entry: Any) -> Any:
        value = self._value
        if hasattr(value, "__missing__") and entry not in value:
            self._refuse("an entry that is made when it is read")
        if isinstance(entry, str) and is_column(column := value[entry]):
            records = isinstance(value, Mapping)
            if not (records and len(self) == self._guard.size):
                key = (self._key, length_of(column)) if records else self._key
                return self._guard.stand_in(f"{self._name}[...]", column, key)
        elif type(entry) is int and not isinstance(value, Mapping) and self._holds_columns():
            return self._guard.stand_in(f"{self._name}[...]", value[entry], (self._key, self._guard.size))
        index = getattr(value, "index", None)
        if index is not None and type(value).__module__.startswith("pandas") and not _counts(index):
            self._refuse("labels that are no positions")
        reading = self._note(entry)
        found = value[entry]
        if isinstance(value, WatchedDataset) and value.doubt:
            raise WholeColumn(value.doubt)
        if reading is not None:
            reading.numbers.update(map(int, filter(is_whole, found if type(found) is tuple else (found,))))
        return found

    def _holds_columns(self) -> bool:
        """Whether the entries of a dict, list or tuple are columns of one entry for each record."""
        value, size = self._value, self._guard.size
        if not isinstance(value, Mapping | list | tuple) or not len(value):
            return False
        columns = value.values() if isinstance(value, Mapping) else value
        held = all(is_column(each) and length_of(each) == size for each in columns)
        return held and (len(value) != size or self._guard.is_by_columns())

    def get(self, entry: Any, default: Any = None) -> Any:
        """An entry of a table, as of a dict."""
        if entry in self._value:
            return self[entry]
        self._note(entry)
        return default

    def __contains__(self, entry: Any) -> bool:
        if not isinstance(self._value, Mapping):
            self._refuse("in")
        self._note(entry)
        return entry in self._value

    def __setitem__(self, entry: Any, value: Any) -> None:
        """Dropped: no item reads what another one wrote."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            self._refuse(name)
        if name in _PUBLIC:
            public = getattr(self._value, name)
            return public if not is_column(public) or is_plain(public, -1) else self._refuse(name)
        if isinstance(self._value, Mapping) and name in ("keys", "values"):
            return lambda: iter(self) if name == "keys" else (self[each] for each in self)
        if name in _ROWS and hasattr(self._value, name):
            rows = _Sized(getattr(self._value, name), len(self), inclusive=name in _LABELS)
            if rows.inclusive and not _counts(getattr(self._value, "index", None)):
                self._refuse("labels that are no positions")
            return Column(rows, self._name, self._key, self._guard)
        own = self._value.data if isinstance(self._value, WatchedDataset) else self._value
        if isinstance(own, Dataset) and name in vars(own):
            return self._guard.stand_in(f"{self._name}.{name}", vars(own)[name])
        columns = getattr(self._value, "columns", ())
        if not (type(self._value).__module__.startswith("pandas") and name in columns):
            self._refuse(name)
        return self[name]

    def _note(self, entry: Any) -> Reading | None:
        reading = getattr(Reading.now, "reading", None)
        if reading is None:
            return None
        axis = 0
        if isinstance(entry, tuple) and not isinstance(self._value, Mapping):
            while axis < len(entry) - 1 and entry[axis] == slice(None):
                axis += 1
            entry = entry[axis]
        key = (self._key, axis) if axis else self._key
        size = getattr(self._value, "shape")[axis] if axis else len(self)  # noqa: B009 (of tensors and arrays alone)
        reading.entries.extend((key, size, each) for each in self._numbers(entry, max(size, 1)))
        return reading

    def _numbers(self, entry: Any, size: int) -> Iterator[Any]:
        if isinstance(self._value, Mapping):
            yield entry
        elif isinstance(entry, slice):
            if isinstance(self._value, _Sized) and self._value.inclusive:
                self._refuse("a range of labels, which includes its end; use iloc")
            yield from range(*entry.indices(size))
        elif isinstance(entry, list | tuple | Tensor | np.ndarray) and (many := np.asarray(entry)).ndim == 1:
            if many.dtype == bool:
                self._refuse("a mask over all entries")
            yield from (int(number) % size for number in many)
        elif isinstance(entry, str):
            yield entry
        elif isinstance(entry, bool) or getattr(entry, "dtype", None) in (bool, torch.bool) or not is_whole(entry):
            self._refuse("an index that is no number, slice or list")
        else:
            yield int(entry) % size  # type: ignore[arg-type]  (it is a whole number)

    def _refuse(self, what: str) -> NoReturn:
        raise WholeColumn(f"self.{self._name} is used as a whole ({what})")


def _refusing(name: str) -> Callable[..., Any]:
    def used(self: Column, *_: Any) -> Any:
        self._refuse(name)

    return used


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    for _side in ("", "r"):
        setattr(Column, f"__{_side}{_name}__", _refusing(_name))
for _name in ("reversed", "neg", "abs", "invert", "lt", "le", "gt", "ge", "eq", "ne", "array", "float", "int"):
    setattr(Column, f"__{_name}__", _refusing(_name))


class _Sized:
    """Rows of a column by another way, such as `iloc`, with its length.

    Args:
        rows: gives them by number or label.
        size: how many there are.
        inclusive: whether a range of them includes its end.
    """

    def __init__(self, rows: Any, size: int, *, inclusive: bool):
        self._rows, self._size, self.inclusive = rows, size, inclusive

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, entry: Any) -> Any:
        return self._rows[entry]


def length_of(value: Any) -> int:
    """Number of entries; that of rows for a sparse matrix, which has no length."""
    return value.shape[0] if hasattr(value, "tocsr") else len(value)


def is_whole(value: Any) -> bool:
    """Whether a value is one whole number."""
    if getattr(value, "ndim", 0):
        return False
    try:
        operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _counts(index: Any) -> bool:
    """Whether the labels of a frame are positions."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
