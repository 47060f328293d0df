"""`GuardedData`: a data set whose items are each made of entries of their own, watched at every item.

An item is made by the data set's own `__getitem__` on a stand-in of it, whose columns answer one entry at a time and
note which. Entries belong to the item that read them first. What is written into the stand-in is dropped. Where an
item is made of a whole column, of an entry of another item, or of data that stand elsewhere, that is found when it
happens, whatever the values are.
"""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from tacit.errors import InvalidInput
from tacit.training.captured import (
    KNOWN,
    ReachedState,
    captured,
    columns_of,
    holds_data,
    is_column,
    is_installed,
    is_of_torch,
    is_opaque,
    is_plain,
    methods_of,
)

_TRUSTED = (TensorDataset, Subset, ConcatDataset)
# Say nothing about values, or give the rows under another name.
_PUBLIC = frozenset(("shape", "dtype", "ndim", "size", "column_names", "num_rows", "num_columns", "device"))
_ROWS = frozenset(("values", "iloc", "iat"))
MADE_OF_OWN = "each record is made of entries of its own, watched at every record, and collated alone"
"""How it is known that rows are made of their own records."""
MEND = "wrap its columns: make_private(..., transform=f) on a TensorDataset, or private.declare('rows', 'why')"


class GuardedData(Dataset[Any]):
    """Items of `data`, each made of entries of its own.

    Args:
        data: a data set with a length and `__getitem__`.
        public: identities of objects that were declared public.
        functions: what else makes rows of records, such as a transform or `collate_fn`.

    Attributes:
        size: number of records.
        doubt: why it is not known that items are made of their own entries; "" where they are, so far.

    Example:
        >>> class Pairs(Dataset):
        ...     def __init__(self, x):
        ...         self.x = x
        ...     def __len__(self):
        ...         return len(self.x)
        ...     def __getitem__(self, i):
        ...         return self.x[i], self.x[0]
        >>> GuardedData(Pairs(torch.arange(3.0)))[1]
        Traceback (most recent call last):
            ...
        tacit.errors.InvalidInput: records of Pairs must each be made of their own entry; got one that reads ...
    """

    def __init__(self, data: Any, public: Iterable[int] = (), *functions: Callable[..., Any] | None):
        self.data, self.doubt = data, ""
        self._public, self.size = frozenset(public), len(data)
        self._owners: dict[Any, _Owners] = {}
        self._inner: list[GuardedData] = []
        self._attributes: dict[str, Any] | None = None
        self._kind, self._reached = type(data), list[object]()
        if type(data) in (Subset, ConcatDataset):
            self._inner = [GuardedData(each, public) for each in _parts(data)]
        elif not is_trusted(data):
            self._attributes = self._stand_ins()
            if hasattr(self._kind, "__del__"):
                # A stand-in ends with its item, and the files of the data set are not to be closed then.
                self._kind = type(self._kind.__name__, (self._kind,), {"__del__": lambda _: None})
        for function in functions:
            self._note(captured(function, self._is_data), getattr(function, "__name__", type(function).__name__))
        self._state = ReachedState([*self._reached, *functions])
        _watch_files()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        index = int(index)
        if self._inner:
            item = self._of_part(index)
            self.doubt = next((each.doubt for each in self._inner if each.doubt), "")
            return item
        if self._attributes is None or self.doubt:
            return self.data[index]
        item = None
        with _Reading() as reading:
            try:
                item = self._kind.__getitem__(self._stand_in(), index)
                if any(isinstance(leaf, _Column) for leaf in tree_leaves(item)):
                    raise _Whole("a whole column is part of a record")
            except _Whole as found:
                self.doubt = f"{type(self.data).__name__}: {found}; {MEND}"
            except InvalidInput:
                raise
            except Exception as error:
                # Its message may quote a value.
                says = f"does not run on watched columns ({type(error).__name__})"
                self.doubt = f"{type(self.data).__name__} {says}; {MEND}"
        if not (self.doubt or reading.entries):
            self.doubt = f"a record of {type(self.data).__name__} is made of no entry of its columns; {MEND}"
        if not self.doubt and self._state.changed():
            self.doubt = f"what {type(self.data).__name__} reaches keeps state from record to record; {MEND}"
        if self.doubt:
            return self.data[index]
        self._own(index, reading)
        return item

    def _of_part(self, index: int) -> Any:
        if isinstance(self.data, Subset):
            return self._inner[0][int(self.data.indices[index])]
        for part in self._inner:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError("index out of range")

    def _stand_in(self) -> Any:
        made = object.__new__(self._kind)
        made.__dict__.update(self._attributes or {})
        return made

    def _stand_ins(self) -> dict[str, Any]:
        """The attributes of the data set, with columns that note what is read of them."""
        attributes: dict[str, Any] = {}
        inherited = {name: value for each in reversed(type(self.data).__mro__[:-1]) for name, value in columns_of(each)}
        for name, value in (inherited | dict(getattr(self.data, "__dict__", {}))).items():
            attributes[name] = self.stand_in(name, value)
        for function in methods_of(type(self.data)):
            self._look_at(function)
        self._reached += [each for each in type(self.data).__mro__[:-1] if not is_of_torch(each)]
        if not hasattr(self.data, "__dict__"):
            self.doubt = f"{type(self.data).__name__} keeps its columns in no attributes; {MEND}"
        return attributes

    def stand_in(self, name: str, value: Any) -> Any:
        """What an item gets for the attribute `name`."""
        if id(value) in self._public or is_plain(value, self.size):
            return value
        if isinstance(value, Dataset) and hasattr(value, "__len__"):
            return _Column(GuardedData(value, self._public), name, id(value), self)
        if is_column(value):
            return _Column(value, name, id(value), self)
        self._look_at(value, name)
        return value

    def _look_at(self, value: object, name: str = "") -> None:
        """Search a function or object, and the methods of objects that it reaches, for data and state."""
        found: dict[str, object] = {}
        if self._is_data(name, value):
            found[name] = value
        kinds: set[type] = set()

        def wanted(inner: str, part: object) -> bool:
            kinds.add(type(part))
            return self._is_data(inner, part)

        found |= captured(value, wanted)
        for kind in kinds:
            if kind.__module__.split(".")[0] not in sys.stdlib_module_names | KNOWN and not is_installed(kind):
                for function in methods_of(kind):
                    found |= captured(function, self._is_data)
                    self._reached.append(function)
        self._reached.append(value)
        self._note(found)

    def _is_data(self, name: str, value: object) -> bool:
        if id(value) in self._public or value is self.data:
            return False
        if holds_data(name, value) or hasattr(value, "cache_info") or is_opaque(value):
            return True
        if isinstance(value, list | tuple | dict | set | frozenset):
            numbers = any(
                isinstance(one, int | float) for one in (value.values() if isinstance(value, dict) else value)
            )
            return numbers and not is_plain(value, self.size)
        return is_column(value) and not isinstance(value, nn.Module)

    def _note(self, found: dict[str, object], what: str = "") -> None:
        for name in (each.partition("[")[0] for each in found):
            says = f'reads {name}, of unknown origin: declare it by public={{"{name}": {name}}}'
            self.doubt = self.doubt or f"{what or type(self.data).__name__} {says}"

    def _own(self, index: int, reading: _Reading) -> None:
        """Let the entries that were read belong to the item; raise where one belongs to another."""
        entries = reading.entries
        rows = {entry for _, size, entry in entries if size == self.size and isinstance(entry, int)}
        if len(rows - reading.numbers) > 1:
            says = "reads entries of several numbers in columns of one for each record"
            self.doubt = f"a record of {type(self.data).__name__} {says}; {MEND}"
        # In a column of as many entries as records, who reads the entry of its own number reads no other.
        numbered = {column for column, size, entry in entries if size == self.size and entry == index}
        for column, _, entry in entries:
            owners = self._owners.setdefault(column, _Owners())
            if owners.take(entry, index) and (entry == index or column not in numbered):
                continue
            if column == _FILES:
                self.doubt = f"{type(self.data).__name__} opens one file for several records; {MEND}"
                return
            raise InvalidInput(
                f"records of {type(self.data).__name__} must each be made of their own entry; got one that reads an "
                "entry of another (windows that overlap, a record mixed in, one reference record). Mix nothing before "
                "clipping; for windows of one series make the series the privacy unit, or declare what all records "
                "read by public=."
            )


class _Owners:
    """Which item each entry of a column belongs to; most entries have the number of their item."""

    def __init__(self) -> None:
        self._own, self._others = set[int](), dict[Any, int]()

    def take(self, entry: Any, item: int) -> bool:
        """Let `entry` belong to `item`; False where it belongs to another."""
        owner = entry if entry in self._own else self._others.get(entry)
        if owner is not None:
            return owner == item
        if entry == item:
            self._own.add(item)
        else:
            self._others[entry] = item
        return True


class _Whole(Exception):
    """A column is used as a whole."""


class _Reading:
    """Notes what is read while one item is made."""

    now = threading.local()

    def __init__(self) -> None:
        self.entries: list[tuple[Any, int, Any]] = []
        self.numbers = set[int]()  # Whole numbers that columns gave, which may number entries of others.

    def __enter__(self) -> _Reading:
        self._outer = getattr(self.now, "reading", None)
        _Reading.now.reading = self
        return self

    def __exit__(self, *_: object) -> None:
        _Reading.now.reading = self._outer


class _Column:
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
        own = self._value.data if isinstance(self._value, GuardedData) else self._value
        # torch believes this name, and would read a tensor's memory in an object that has none.
        return _Column if isinstance(own, Tensor) else type(own)

    def __len__(self) -> int:
        return len(self._value)

    def __bool__(self) -> bool:
        return len(self._value) > 0

    def __getitem__(self, entry: Any) -> Any:
        if isinstance(entry, str) and is_column(column := self._value[entry]):
            records = isinstance(self._value, dict)
            if not (records and len(self._value) == self._guard.size):
                key = (self._key, len(column)) if records else self._key
                return _Column(column, f"{self._name}[...]", key, self._guard)
        index = getattr(self._value, "index", None)
        if index is not None and type(self._value).__module__.startswith("pandas") and not _counts(index):
            self._refuse("labels that are no positions")
        reading = self._note(entry)
        value = self._value[entry]
        if isinstance(self._value, GuardedData) and self._value.doubt:
            raise _Whole(self._value.doubt)
        if reading is not None and np.ndim(value) == 0 and not isinstance(value, float | str) and _is_whole(value):
            reading.numbers.add(int(value))
        return value

    def get(self, entry: Any, default: Any = None) -> Any:
        """An entry of a table, as of a dict."""
        self._note(entry)
        return self._value.get(entry, default)

    def __contains__(self, entry: Any) -> bool:
        if not isinstance(self._value, dict):
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
        if name in _ROWS and hasattr(self._value, name):
            return _Column(_Sized(getattr(self._value, name), len(self._value)), self._name, self._key, self._guard)
        own = self._value.data if isinstance(self._value, GuardedData) else self._value
        if isinstance(own, Dataset) and name in vars(own):
            return self._guard.stand_in(f"{self._name}.{name}", vars(own)[name])
        columns = getattr(self._value, "columns", ())
        if not (type(self._value).__module__.startswith("pandas") and name in columns):
            self._refuse(name)
        return self[name]

    def _note(self, entry: Any) -> _Reading | None:
        reading = getattr(_Reading.now, "reading", None)
        if reading is None:
            return None
        axis = 0
        if isinstance(entry, tuple) and not isinstance(self._value, dict):
            while axis < len(entry) - 1 and entry[axis] == slice(None):
                axis += 1
            entry = entry[axis]
        key = (self._key, axis) if axis else self._key
        size = getattr(self._value, "shape")[axis] if axis else len(self)  # noqa: B009 (of tensors and arrays alone)
        reading.entries.extend((key, size, each) for each in self._numbers(entry, max(size, 1)))
        return reading

    def _numbers(self, entry: Any, size: int) -> Iterator[Any]:
        if isinstance(self._value, dict):
            yield entry
        elif isinstance(entry, slice):
            yield from range(*entry.indices(size))
        elif isinstance(entry, list | tuple | Tensor | np.ndarray) and (many := np.asarray(entry)).ndim == 1:
            if many.dtype == bool:
                self._refuse("a mask over all entries")
            yield from (int(number) % size for number in many)
        elif isinstance(entry, str):
            yield entry
        elif isinstance(entry, bool) or getattr(entry, "dtype", None) in (bool, torch.bool) or not _is_whole(entry):
            self._refuse("an index that is no number, slice or list")
        else:
            yield int(entry) % size  # type: ignore[arg-type]  (it is a whole number)

    def _refuse(self, what: str) -> NoReturn:
        raise _Whole(f"self.{self._name} is used as a whole ({what})")


def _refusing(name: str) -> Callable[..., Any]:
    def used(self: _Column, *_: Any) -> Any:
        self._refuse(name)

    return used


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    for _side in ("", "r"):
        setattr(_Column, f"__{_side}{_name}__", _refusing(_name))
for _name in ("iter", "reversed", "neg", "abs", "invert", "lt", "le", "gt", "ge", "eq", "ne", "array", "float", "int"):
    setattr(_Column, f"__{_name}__", _refusing(_name))


class _Sized:
    """Rows of a column by another way, such as `iloc`, with its length."""

    def __init__(self, rows: Any, size: int):
        self._rows, self._size = rows, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, entry: Any) -> Any:
        return self._rows[entry]


def is_trusted(data: Any) -> bool:
    """Whether an item of a data set is made of its own entry by the code of a library.

    Those of torch are, over trusted ones, and tables of Hugging Face without a transform.

    Example:
        >>> is_trusted(Subset(TensorDataset(torch.zeros(8, 2)), [1, 2]))
        True
    """
    if type(data).__module__ == "datasets.arrow_dataset":
        return data.format["type"] != "custom"
    return type(data) in _TRUSTED and all(map(is_trusted, _parts(data)))


def _parts(data: Any) -> list[Any]:
    return [data.dataset] if type(data) is Subset else data.datasets if type(data) is ConcatDataset else []


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def _counts(index: Any) -> bool:
    """Whether the labels of a frame are positions."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)


_FILES = "files"
_OPENS = frozenset(("open", "sqlite3.connect", "socket.connect", "subprocess.Popen"))


@functools.cache
def _watch_files() -> None:
    """Note each file that Python opens while an item is made; libraries open theirs at other places."""
    libraries = tuple({sys.prefix, sys.base_prefix})

    def note(event: str, given: tuple[Any, ...]) -> None:
        reading = getattr(_Reading.now, "reading", None) if event in _OPENS else None
        if reading is None or not (event != "open" or isinstance(given[0], str | bytes | PurePath)):
            return
        path = str(given[0]) if event == "open" else event
        if not path.startswith(libraries) and not path.endswith((".py", ".pyc")):
            reading.entries.append((_FILES, 0, path))

    sys.addaudithook(note)
