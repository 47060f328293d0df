"""`GuardedData`: a data set whose items are each made of entries of their own, watched at every item.

An item is made by the data set's own `__getitem__` on a stand-in of it, whose columns answer one entry at a time and
note which. Entries belong to the item that read them first. What is written into the stand-in is dropped. Where an
item is made of a whole column, of an entry of another item, or of data that stand elsewhere, that is found when it
happens, whatever the values are.
"""

import functools
import sys
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import PurePath
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from tacit.errors import InvalidInput
from tacit.training.captured import (
    ReachedState,
    captured,
    columns_of,
    holds_data,
    is_column,
    is_container,
    is_of_torch,
    is_of_user,
    is_opaque,
    is_plain,
    is_table,
    methods_of,
)
from tacit.training.records import Records
from tacit.training.watched_column import Column, Reading, WatchedDataset, WholeColumn

_TRUSTED = (TensorDataset, Subset, ConcatDataset, Records)
_VALUES = (Tensor, np.ndarray, np.generic, bool, int, float, str, bytes, type(None))
MADE_OF_OWN = "each record is made of entries of its own, watched at every record, and collated alone"
"""How it is known that rows are made of their own records."""
MEND = "wrap its columns: tacit.Records({...}, per_record=f), or say why: private.declare('rows', 'why')"


class GuardedData(WatchedDataset):
    """Items of `data`, each made of entries of its own.

    Args:
        data: a data set with a length and `__getitem__`.
        public: identities of objects that were declared public.
        functions: what else makes rows of records, such as a transform or `collate_fn`.

    Attributes:
        size: number of records.
        doubt: why it is not known that items are made of their own entries; "" where they are, so far.

    Example:
        >>> import torch
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
        self._owners: dict[Any, dict[Any, int]] = {}
        self._inner: list[GuardedData] = []
        self._attributes: dict[str, Any] | None = None
        self._square = self._by_columns = False
        self._kind, self._reached, self._made = type(data), list[object](), dict[int, Any]()
        if type(data) in (Subset, ConcatDataset):
            self._inner = [GuardedData(each, public) for each in _parts(data)]
        elif not is_trusted(data):
            self._attributes = self._stand_ins()
            if hasattr(self._kind, "__del__"):
                # A stand-in ends with its item, and the files of the data set are not to be closed then.
                self._kind = type(self._kind.__name__, (self._kind,), {"__del__": lambda _: None})
        if type(data) is Records:
            functions = (*functions, data.per_record)
        elif is_table(data) and data.format["type"] == "custom":
            functions = (*functions, data.format["format_kwargs"]["transform"])
        for function in functions:
            self._note(captured(function, self._is_data), getattr(function, "__name__", type(function).__name__))
        self._state = ReachedState([*self._reached, *functions], ends=(Column,))
        _watch_files()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        index = int(index)
        if self._inner:
            item = self._of_part(index)
            self.doubt = self.doubt or next((each.doubt for each in self._inner if each.doubt), "")
        elif self._attributes is None or self.doubt:
            item = self.data[index]
        else:
            item = self._made_of_its_own(index)
        # What a transform keeps is seen at the next record.
        if not self.doubt and self._state.changed():
            self.doubt = f"what makes records of {type(self.data).__name__} keeps state from record to record; {MEND}"
        return item

    def is_by_columns(self) -> bool:
        """Whether a square is read as columns: it is where the first item could not be read from it as rows."""
        self._square = True
        return self._by_columns

    def _made_of_its_own(self, index: int) -> Any:
        """The item by the code of the data set on watched columns, or as it comes where that leaves a doubt."""
        first = not self._owners
        try:
            item = self._watched(index)
        except InvalidInput:
            if not (first and self._square):
                raise
            item, self.doubt = None, MEND
        if first and self._square and self.doubt:
            self._owners.clear()
            self._by_columns, self._square, self.doubt = True, False, ""
            item = self._watched(index)
        return self.data[index] if self.doubt else item

    def _watched(self, index: int) -> Any:
        """The item, or a doubt."""
        # What stands for objects that an item finds in a container ends with it, and what was written into that.
        item, reached = None, len(self._reached)
        self._made.clear()
        with Reading() as reading:
            try:
                made = object.__new__(self._kind)
                made.__dict__.update(self._attributes or {})
                item = self._kind.__getitem__(made, index)
                if any(isinstance(leaf, Column) for leaf in tree_leaves(item)):
                    raise WholeColumn("a whole column is part of a record")
            except WholeColumn as found:
                self.doubt = f"{type(self.data).__name__}: {found}; {MEND}"
            except InvalidInput:
                raise
            except Exception as error:
                # Its message may quote a value.
                says = f"does not run on watched columns ({type(error).__name__})"
                self.doubt = f"{type(self.data).__name__} {says}; {MEND}"
        del self._reached[reached:]
        if not (self.doubt or reading.entries):
            self.doubt = f"a record of {type(self.data).__name__} is made of no entry of its columns; {MEND}"
        if not self.doubt:
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

    def _stand_ins(self) -> dict[str, Any]:
        """The attributes of the data set, with columns that note what is read of them."""
        attributes = {name: self.stand_in(name, value) for name, value in _attributes(self.data).items()}
        for function in methods_of(type(self.data)):
            self._look_at(function)
        self._reached += [each for each in type(self.data).__mro__[:-1] if not is_of_torch(each)]
        if not hasattr(self.data, "__dict__"):
            self.doubt = f"{type(self.data).__name__} keeps its columns in no attributes; {MEND}"
        return attributes

    def stand_in(self, name: str, value: Any, key: object = None) -> Any:
        """What an item gets for the attribute `name`.

        A container of a library is watched as a whole; of an object of the user's the attributes are, and its own
        code runs on them.

        Args:
            name: for messages.
            value: of the attribute.
            key: names its entries; by default they are those of this very object.
        """
        if id(value) in self._public or is_plain(value, self.size):
            return value
        if isinstance(value, Dataset) and hasattr(value, "__len__"):
            return Column(GuardedData(value, self._public), name, key or id(value), self)
        if is_container(value):
            return Column(value, name, key or id(value), self)
        if is_of_user(type(value)) and not callable(value):
            if (made := self._object(name, value)) is not None:
                return made
            if is_column(value):
                says = f"reads {name}, of which code of {type(value).__name__} gives the entries"
                self.doubt = self.doubt or f"{type(self.data).__name__} {says}; {MEND}"
        self._look_at(value, name)
        return value

    def _object(self, name: str, value: Any) -> Any:
        """The same object on watched columns, itself where it holds none; None where no such object can be made."""
        if id(value) in self._made:
            return self._made[id(value)]
        try:
            made = object.__new__(type(value))
        except TypeError:
            return None
        if not hasattr(value, "__dict__"):
            return None
        self._made[id(value)], parts = made, _attributes(value)
        attributes = {inner: self.stand_in(f"{name}.{inner}", part) for inner, part in parts.items()}
        for function in methods_of(type(value)):
            self._look_at(function)
        if all(attributes[inner] is part for inner, part in parts.items()):
            made = self._made[id(value)] = value
        else:
            made.__dict__.update(attributes)
        self._reached += [type(value), made]
        return made

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
            if is_of_user(kind):
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

    def _own(self, index: int, reading: Reading) -> None:
        """Let the entries that were read belong to the item; raise where one belongs to another."""
        entries = reading.entries
        rows = {entry for _, size, entry in entries if size == self.size and isinstance(entry, int)}
        if len(rows - reading.numbers) > 1:
            says = "reads entries of several numbers in columns of one for each record"
            self.doubt = f"a record of {type(self.data).__name__} {says}; {MEND}"
        # In a column of as many entries as records, who reads the entry of its own number reads no other.
        numbered = {column for column, size, entry in entries if size == self.size and entry == index}
        for column, _, entry in entries:
            owner = self._owners.setdefault(column, {}).setdefault(entry, index)
            if owner == index and (entry == index or column not in numbered):
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


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, and the columns among those of its classes."""
    inherited = (columns_of(each).items() for each in reversed(type(value).__mro__[:-1]))
    return dict(chain(*inherited, getattr(value, "__dict__", {}).items()))


def is_trusted(data: Any) -> bool:
    """Whether an item of a data set is made of its own entry by the code of a library.

    Those of torch are, over trusted ones, lists of plain values, and tables of Hugging Face.

    Example:
        >>> import torch
        >>> is_trusted(Subset(TensorDataset(torch.zeros(8, 2)), [1, 2]))
        True
    """
    if is_table(data):
        return True
    if type(data) in (list, tuple):
        return all(isinstance(leaf, _VALUES) for item in data for leaf in tree_leaves(item))
    return type(data) in _TRUSTED and all(map(is_trusted, _parts(data)))


def _parts(data: Any) -> list[Any]:
    return [data.dataset] if type(data) is Subset else data.datasets if type(data) is ConcatDataset else []


_FILES = "files"
_OPENS = frozenset(("open", "sqlite3.connect", "socket.connect", "subprocess.Popen"))


@functools.cache
def _watch_files() -> None:
    """Note each file that Python opens while an item is made; libraries open theirs at other places."""
    libraries = tuple({sys.prefix, sys.base_prefix})

    def note(event: str, given: tuple[Any, ...]) -> None:
        reading = getattr(Reading.now, "reading", None) if event in _OPENS else None
        if reading is None or not (event != "open" or isinstance(given[0], str | bytes | PurePath)):
            return
        path = str(given[0]) if event == "open" else event
        if not path.startswith(libraries) and not path.endswith((".py", ".pyc")):
            reading.entries.append((_FILES, 0, path))

    sys.addaudithook(note)
