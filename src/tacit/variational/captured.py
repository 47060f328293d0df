"""What the functions of a model read besides their arguments: values that may come from private data."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass

import numpy as np
import torch
from torch import Tensor

# Packages whose functions read no data of the user.
_KNOWN = ("torch", "pyro", "numpy", "scipy", "math", "builtins", "functools", "operator", "typing", "tacit")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType, torch.dtype, torch.device)
# Depth of containers and functions that are searched; deeper ones count as data.
_DEPTH = 8


def captured_data(*functions: object) -> dict[str, list[object]]:
    """Names of the values that `functions` read besides their arguments and that could hold records, and the values.

    Searched are closure cells, defaults, bound objects, and what the code names among its globals, also in functions
    that these call. Numbers and words count as settings, which are declared to be public; arrays, tensors, tables and
    all objects that cannot be searched count as data. It is a list for a declaration, not a proof: a value that is
    read from a file or through a module attribute does not show.

    Example:
        >>> mean = torch.zeros(2)
        >>> sorted(captured_data(lambda w: -(w - mean).square().sum()))
        ['mean']
    """
    found: dict[str, list[object]] = {}
    seen: set[int] = set()
    for function in functions:
        for name, value in _read_by(function):
            _search(name, value, found, seen, _DEPTH)
    return found


def shares_memory(values: list[object], records: tuple[Tensor, ...]) -> bool:
    """Whether one of `values` lies in the memory of `records`."""
    storages = {record.untyped_storage().data_ptr() for record in records if record.numel()}
    return any(_address(value) in storages for value in values)


def _address(value: object) -> int | None:
    if isinstance(value, Tensor):
        return value.untyped_storage().data_ptr()
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return value.__array_interface__["data"][0]
    return None


def _search(name: str, value: object, found: dict[str, list[object]], seen: set[int], depth: int) -> None:
    if isinstance(value, _PLAIN) or id(value) in seen or _is_known(value):
        return
    seen.add(id(value))
    inner = _parts(name, value) if depth else None
    if inner is None:
        found.setdefault(name, []).append(value)
        return
    for part, each in inner:
        _search(part, each, found, seen, depth - 1)


def _parts(name: str, value: object) -> list[tuple[str, object]] | None:
    """What there is to search in `value`; None where it counts as data itself."""
    if isinstance(value, Tensor | np.ndarray):
        return None
    if isinstance(value, types.FunctionType | types.MethodType):
        return list(_read_by(value))
    if isinstance(value, Mapping):
        return [(name, each) for each in value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(name, each) for each in value]
    if is_dataclass(value) or hasattr(value, "__dict__"):
        return [(f"{name}.{key}", each) for key, each in vars(value).items()]
    return None


def _read_by(function: object) -> Iterator[tuple[str, object]]:
    if isinstance(function, types.MethodType):
        yield "self", function.__self__
        yield from _read_by(function.__func__)
    elif isinstance(function, types.FunctionType):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from ((name, cell.cell_contents) for name, cell in cells if _is_bound(cell))
        yield from (("default", each) for each in function.__defaults__ or ())
        yield from (function.__kwdefaults__ or {}).items()
        names = dict.fromkeys(_names(function.__code__))
        yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)
    else:
        yield type(function).__name__, function


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_bound(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_known(value: object) -> bool:
    """Whether `value` is a function of a package that reads no data of the user."""
    if isinstance(value, types.BuiltinFunctionType | np.ufunc):
        return True
    module = getattr(value, "__module__", None) if callable(value) and not hasattr(value, "__dict__") else None
    if isinstance(value, types.FunctionType):
        module = value.__module__
    return isinstance(module, str) and module.split(".")[0] in _KNOWN
