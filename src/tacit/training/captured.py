"""What a function of the user's reads besides its arguments: closure cells, defaults, globals and attributes."""

import dis
import functools
import io
import logging
import operator
import random
import sys
from collections import deque, namedtuple
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tacit.verification.records import span

# Depth to which containers, objects and functions are searched; a wrapper of a wrapper is three.
_DEPTH = 4
Wanted = Callable[[str, object], bool]
_ROOTS = ("torch", "numpy", "math", "builtins", "functools", "tacit", "scipy", "sklearn")
_CONSTANTS = 64  # numbers in a tuple or list that is a size or a constant, not a column
_FIELD = type(vars(namedtuple("_Pair", "first"))["first"])  # of a named tuple's class
_ONE = (
    *(str, bytes, int, float, complex, bool, type(None), type, PurePath, torch.dtype, torch.device, torch.Generator),
    _FIELD,
)
_SMALL_BYTES = 512  # of an array whose values are compared too
_CLOCKS = ("time", "datetime", "secrets", "uuid")  # modules whose functions answer otherwise at each call
_MOST_ENTRIES = 4096  # of a container whose entries are compared from record to record; of larger ones the number is
_LABELS = (str, bytes, int, type(None))
# Packages whose objects without attributes hold no records: generators of draws, patterns, times, locks.
KNOWN = frozenset(
    ("numpy", "torch", "random", "_random", "re", "datetime", "decimal", "threading", "_thread", "tokenizers")
)
_LIBRARIES = sys.stdlib_module_names.union(KNOWN, _ROOTS)


def holds_data(name: str, value: object) -> bool:
    """Whether the value called `name` is a tensor, an array, or a module with parameters or buffers."""
    if isinstance(value, nn.Module) and name:
        return any(True for _ in (*value.parameters(), *value.buffers()))
    return isinstance(value, Tensor | np.ndarray)


def captured(function: object, wanted: Wanted = holds_data) -> dict[str, object]:
    """What `function` reads besides its arguments, by name: its tensors, arrays and modules by default.

    Library code is not searched, but the attributes of a library object are: the weight of a `torch.nn` loss is found.

    Args:
        function: a function, method, partial or callable object.
        wanted: `wanted(name, value)` says whether a value is one to name; what it holds is not searched then.

    Returns:
        Name -> value.

    Example:
        >>> list(captured(torch.nn.CrossEntropyLoss(weight=torch.ones(3))))
        ['weight']
    """
    found: dict[str, object] = {}
    _search("", function, wanted, found, set(), _DEPTH)
    return found


class ReachedState:
    """What may keep a value from one call of `functions` to the next: objects, containers, closures, globals, classes.

    Args:
        functions: functions, objects and classes; what they reach is searched as by `captured`.
        ends: types of values that are not searched.

    Example:
        >>> seen = []
        >>> state = ReachedState([seen])
        >>> state.changed(), seen.append(1), state.changed()
        (False, None, True)
    """

    def __init__(self, functions: Iterable[object], ends: tuple[type, ...] = ()):
        self._ends = ends
        self._tables: dict[int, Mapping[str, object]] = {}
        self._containers: dict[int, Collection[object]] = {}
        self._tensors: dict[int, Tensor] = {}
        self._arrays: dict[int, np.ndarray] = {}
        self._closures: dict[int, tuple[tuple[CellType, ...], Mapping[str, object], tuple[str, ...]]] = {}
        for function in functions:
            captured(function, self._keep)
        self._sort()

    def changed(self) -> bool:
        """Whether anything was bound anew, put into a container, written into a tensor, or taken away since."""
        changed = self._counts != self._count() or not all(map(operator.is_, self._values, self._bound()))
        if changed:
            self._sort()
        return changed

    def _sort(self) -> None:
        """Take the present state, without what is empty, and large containers: of these the number of entries alone."""
        self._sized: list[Any] = [*self._tables.values(), *self._containers.values()]
        filled = [each for each in self._tables.values() if each]
        filled += [each for each in self._containers.values() if 0 < len(each) <= _MOST_ENTRIES]
        self._named = [each for each in filled if isinstance(each, dict)]
        self._listed = [each for each in filled if not isinstance(each, Mapping)]
        self._proxies = [each for each in filled if isinstance(each, Mapping) and not isinstance(each, dict)]
        # The values themselves are kept: a new one may have the address of one that is gone.
        self._values, self._counts = list(self._bound()), self._count()

    def _keep(self, _: str, value: Any) -> bool:
        if type(value) in self._ends:
            return True
        if isinstance(value, FunctionType):
            names = tuple(dict.fromkeys(_globals(value.__code__)))
            self._closures[id(value)] = value.__closure__ or (), value.__globals__, names
        library = isinstance(value, ModuleType) and not is_of_user(value)
        if hasattr(value, "__dict__") and not library and not isinstance(value, random.Random):
            self._tables[id(value)] = value.__dict__
        if isinstance(value, logging.Logger):
            # All loggers of the process hang on it, and any import that comes late makes another.
            return True
        if isinstance(value, np.ndarray) and value.nbytes <= _SMALL_BYTES and not value.dtype.hasobject:
            self._arrays[id(value)] = value
        if isinstance(value, list | dict | set | deque):
            self._containers[id(value)] = value
        if isinstance(value, Tensor) and not value.is_inference():
            self._tensors[id(value)] = value
        return False

    def _bound(self) -> Iterator[object]:
        """All that is bound, in order."""
        tables = map(dict.values, self._named), self._listed, (each.values() for each in self._proxies)
        named = (map(table.get, names) for _, table, names in self._closures.values())
        held = (map(_held_by, cells) for cells, *_ in self._closures.values())
        return chain.from_iterable(chain(*tables, named, held))

    def _count(self) -> list[int]:
        """Numbers of entries, and of writes into tensors."""
        counts = list(map(len, self._sized))
        counts += [value._version for value in self._tensors.values()]
        counts += [hash(value.tobytes()) for value in self._arrays.values()]
        return counts


def reached_by(model: nn.Module, loss: object) -> ReachedState:
    """What `model`, its classes and `loss` read besides parameters; a schedule or a counter changes it.

    Example:
        >>> layer = nn.Dropout(0.1)
        >>> state = reached_by(layer, None)
        >>> layer.p = 0.2
        >>> state.changed()
        True
    """
    modules = list(model.modules())
    classes = {type(each) for each in modules if is_of_user(type(each))}
    return ReachedState((*modules, *classes, loss), (nn.Parameter,))


def undecided(model: nn.Module, loss: object) -> bool:
    """Whether `model` or `loss` reaches what may answer otherwise at its next call, bound to nothing new.

    Such are iterators, generators of draws, open files and clocks.

    Example:
        >>> loss = functools.partial(lambda rates, outputs, targets: next(rates) * outputs, iter([0.9, 0.8]))
        >>> undecided(nn.Linear(1, 1), loss)
        True
    """
    return any(captured(each, _answers_anew) for each in (*model.modules(), loss))


def _answers_anew(_: str, value: object) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__ in _CLOCKS
    drawing = np.random.Generator | np.random.RandomState | random.Random | torch.Generator
    clock = callable(value) and getattr(value, "__module__", None) in _CLOCKS
    return clock or isinstance(value, drawing | Iterator | io.IOBase)


def _held_by(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # A name that is not bound yet.


def _search(name: str, value: object, wanted: Wanted, found: dict[str, object], seen: set[int], depth: int) -> None:
    if id(value) in seen or depth < 0:
        return
    seen.add(id(value))
    if wanted(name, value):
        found[name or "self"] = value
        return
    for inner, part in _parts(name, value):
        _search(inner, part, wanted, found, seen, depth - 1)


def _parts(name: str, value: object) -> Iterator[tuple[str, object]]:
    """What `value` reads or holds, by name."""
    if isinstance(value, MethodType):
        yield name, value.__self__
        yield name, value.__func__
    elif isinstance(value, FunctionType):
        if (value.__module__ or "").split(".")[0] not in _ROOTS:
            yield from _read_by(value)
    elif isinstance(value, functools.partial):
        yield name, value.func
        yield from ((f"{name or 'partial'}[{place}]", each) for place, each in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{name}[{place}]", each) for place, each in enumerate(value))
    elif isinstance(value, type):
        if is_of_user(value):
            yield from ((f"{name}.{key}", each) for key, each in vars(value).items() if not key.startswith("__"))
    elif not isinstance(value, str | bytes | int | float | complex | None) and hasattr(value, "__dict__"):
        if isinstance(value, torch.Generator) or type(value).__name__ == "module":
            return
        dot = f"{name}." if name else ""
        if isinstance(value, nn.Module):
            yield from ((f"{dot}{key}", each) for key, each in (*value.named_parameters(), *value.named_buffers()))
        yield from ((f"{dot}{key}", each) for key, each in vars(value).items() if not key.startswith("__"))
        methods = vars(type(value))
        call = methods.get("forward", methods.get("__call__"))
        if call is not None:
            yield name, call


def _read_by(function: FunctionType) -> Iterator[tuple[str, object]]:
    code, defaults = function.__code__, function.__defaults__ or ()
    yield from zip(code.co_freevars, map(_held_by, function.__closure__ or ()), strict=False)
    yield from zip(code.co_varnames[code.co_argcount - len(defaults) :], defaults, strict=False)
    yield from (function.__kwdefaults__ or {}).items()
    named = function.__globals__
    yield from ((name, named[name]) for name in dict.fromkeys(_globals(code)) if name in named)


def _globals(code: CodeType) -> Iterator[str]:
    """Global names that the code and the functions written inside it load."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def is_of_user(code: type | ModuleType) -> bool:
    """Whether a class or module is neither of Python's library nor of an installed package."""
    name = code.__name__ if isinstance(code, ModuleType) else code.__module__
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return name.split(".")[0] not in _LIBRARIES and "site-packages" not in file


def is_of_torch(kind: type) -> bool:
    """Whether a class is one of torch's data sets, or of torch itself."""
    return kind is Dataset or kind.__module__.startswith(("torch.", "typing"))


def is_opaque(value: object) -> bool:
    """Whether nobody sees what a value reads: iterators, open files, connections."""
    if isinstance(value, _ONE) or callable(value) or hasattr(value, "__dict__") or is_column(value):
        return isinstance(value, Iterator | io.IOBase)
    return type(value).__module__.split(".")[0] not in KNOWN | {"builtins"} or isinstance(value, Iterator)


def is_column(value: object) -> bool:
    """Whether a value has entries by number or key."""
    return not isinstance(value, _ONE) and hasattr(value, "__getitem__") and hasattr(value, "__len__")


def is_table(value: object) -> bool:
    """Whether a value is a table of Hugging Face's `datasets`."""
    return type(value).__module__ == "datasets.arrow_dataset" and type(value).__name__ == "Dataset"


def is_container(value: object) -> bool:
    """Whether a value is a column whose entries stand in it: no code of the user's gives them."""
    kind = type(value)
    if is_table(value):
        return getattr(value, "format")["type"] != "custom"  # noqa: B009 (a type that is not imported here)
    if not is_of_user(kind):
        return is_column(value)
    base = next((base for base in (list, tuple, dict) if isinstance(value, base)), None)
    names = ("__getitem__", "__missing__", "__iter__", "__len__", "__getattribute__")
    return base is not None and all(getattr(kind, name, None) is getattr(base, name, None) for name in names)


def is_plain(value: Any, size: int) -> bool:
    """Whether a value is one number or name, a size or constant, or a table of labels, which is prepared publicly."""
    if isinstance(value, _ONE) or not hasattr(value, "__len__"):
        return isinstance(value, _ONE)
    if not isinstance(value, list | tuple | dict | set | frozenset) or len(value) == size or not len(value):
        return False
    each = list(value.values()) if isinstance(value, dict) else list(value)
    short = len(each) <= _CONSTANTS and all(isinstance(one, int | float | str) for one in each)
    return short or all(isinstance(one, _LABELS) for one in each)


def columns_of(kind: type) -> dict[str, Any]:
    """Attributes of a class of the user's that are columns."""
    own = {} if is_of_torch(kind) else vars(kind)
    return {name: value for name, value in own.items() if not name.startswith("__") and is_column(value)}


def methods_of(kind: type) -> Iterator[FunctionType]:
    """What may run when an item is made: all methods of the user's classes, besides the making of the data set."""
    for each in kind.__mro__[:-1]:
        if is_of_torch(each):
            continue
        for name, value in vars(each).items():
            function = getattr(value, "fget", getattr(value, "__func__", getattr(value, "func", value)))
            if isinstance(function, FunctionType) and name not in ("__init__", "__len__"):
                yield function


class Memory:
    """The memory of a tensor or array, or the identity of another object."""

    def __init__(self, value: object):
        self._value = value
        self._array = _as_array(value)
        held = self._array is not None and self._array.size > 0
        self._span = span(self._array) if held else (0, 0)

    def holds(self, value: Tensor) -> bool:
        """Whether `value` begins between the ends of this memory; quick, and asked before `overlaps`."""
        return value.layout is torch.strided and self._span[0] <= value.data_ptr() < self._span[1]

    def is_all_of(self, other: object) -> bool:
        """Whether `other` is the same data: the object itself, or the same memory from end to end."""
        if other is self._value:
            return True
        array = _as_array(other)
        if self._array is None or array is None:
            return False
        mine, theirs = self._array.__array_interface__, array.__array_interface__
        return self._array.nbytes == array.nbytes > 0 and mine["data"][0] == theirs["data"][0]

    def overlaps(self, other: object) -> bool:
        """Whether `other` shares a value with it."""
        array = _as_array(other)
        if self._array is None or array is None or not np.may_share_memory(self._array, array):
            return False
        try:
            return np.shares_memory(self._array, array, max_work=10_000)  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return True  # Too hard to decide: their memory is interleaved.


def _as_array(value: object) -> np.ndarray | None:
    """The bytes of a tensor of any type, or an array as it is; None of what has no memory here."""
    if not isinstance(value, Tensor):
        return value if isinstance(value, np.ndarray) else None
    if value.device.type != "cpu" or value.layout is not torch.strided:
        return None
    size = value.element_size()
    held = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage()).numpy()
    strides = (*(size * step for step in value.stride()), 1)
    return np.lib.stride_tricks.as_strided(held[size * value.storage_offset() :], (*value.shape, size), strides)


def data_leaves(value: object, depth: int = 3) -> Iterator[object]:
    """Tensors, arrays and data sets within `value`, and it itself."""
    if value is None or depth < 0:
        return
    yield value
    if isinstance(value, dict):
        inner: Sequence[object] = list(value.values())
    elif isinstance(value, list | tuple):
        inner = list(value) if len(value) < 100 else []
    elif isinstance(value, Dataset | DataLoader):
        inner = list(vars(value).values())
    else:
        inner = []
    for each in inner:
        if isinstance(each, Tensor | np.ndarray | Dataset | dict | list | tuple):
            yield from data_leaves(each, depth - 1)
