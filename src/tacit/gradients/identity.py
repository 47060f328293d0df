"""Identity of a loss: its code and everything that the code uses besides its arguments."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def identity_of(function: object) -> tuple[object, ...]:
    """A key that equals another only if both functions run the same code on the same captured objects.

    Captured are the values of closure cells and defaults, the object of a method, and what the code names among its
    globals. A loop that writes its loss as a lambda makes a new function each time, and the key stays the same; any
    other callable is its own key. What happens inside a captured object does not show.
    """
    if isinstance(function, MethodType):
        return (_key(function.__self__), *identity_of(function.__func__))
    if not isinstance(function, FunctionType):
        return (_key(function),)
    return (function.__code__, *map(_key, _captured(function)))


def _captured(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # A name that is not bound yet.
            yield cell
    yield from function.__defaults__ or ()
    for name, value in sorted((function.__kwdefaults__ or {}).items()):
        yield from (name, value)
    for name in _names(function.__code__):
        yield function.__globals__.get(name)


def _names(code: CodeType) -> Iterator[str]:
    """Names that the code and the functions written inside it may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _key(value: object) -> object:
    return (type(value), value) if isinstance(value, _PLAIN) else IdentityKey(value)


class IdentityKey:
    """A key that compares an object by identity; an object that is gone equals no other.

    The key holds a weak reference where it can, so that verifications of a model do not keep it alive.
    """

    def __init__(self, value: object):
        self._hash = id(value)
        try:
            self._refer = weakref.ref(value)
        except TypeError:
            self._refer = lambda: value

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, IdentityKey) and self._same(other))

    def _same(self, other: IdentityKey) -> bool:
        mine = self._refer()
        return mine is not None and mine is other._refer()
