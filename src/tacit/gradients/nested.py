"""Values in mappings, sequences and dataclasses: their leaves by path, and copies with other leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass
from typing import Any


class Leaf:
    """Base of dataclasses that are leaves themselves."""


Path = tuple[str | int, ...]
"""Keys, positions and field names from the outermost container to a leaf."""


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of `value` with its path; fields of dataclasses and keys of mappings by name, items by position.

    Example:
        >>> list(leaves({"a": 1, "b": (2, None)}))
        [(('a',), 1), (('b', 0), 2), (('b', 1), None)]
    """
    found = _items(value)
    if found is None:
        yield path, value
        return
    for key, item in found:
        yield from leaves(item, (*path, key))


def with_leaves(value: Any, change: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """A copy of `value`, of the same types, with `change(path, leaf)` in place of every leaf.

    Example:
        >>> with_leaves({"a": 1, "b": (2, 3)}, lambda path, leaf: 10 * leaf)
        {'a': 10, 'b': (20, 30)}
    """
    found = _items(value)
    if found is None:
        return change(path, value)
    return _rebuilt(value, {key: with_leaves(item, change, (*path, key)) for key, item in found})


def leaf_at(value: Any, path: Path) -> Any:
    """The leaf of `value` at `path`.

    Raises:
        LookupError: there is none.
        AttributeError: a dataclass has no such field.
    """
    for key in path:
        value = value[key] if isinstance(value, Mapping | list | tuple) else getattr(value, str(key))  # type: ignore[index, call-overload]
    return value


def named(path: Path) -> str:
    """A path as it is written in code, from the name of the outermost container on.

    Example:
        >>> "outputs" + named(("hidden_states", 0))
        'outputs.hidden_states[0]'
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and items of a container; None for a leaf."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type | Leaf):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    return None


def _rebuilt(value: Any, items: dict[Any, Any]) -> Any:
    if isinstance(value, Mapping):
        if type(value) is dict:
            return items
        if not isinstance(value, MutableMapping):
            return type(value)(items)  # type: ignore[call-arg]
        # A copy keeps what a mapping of a class of its own holds besides its items.
        made = copy.copy(value)
        for key, item in items.items():
            made[key] = item
        return made
    if isinstance(value, list | tuple):
        if hasattr(value, "_fields"):
            return type(value)(*items.values())
        return type(value)(items.values())
    made = copy.copy(value)
    for name, item in items.items():
        object.__setattr__(made, name, item)
    return made
