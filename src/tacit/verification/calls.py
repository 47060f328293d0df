"""One call of an operation as a rule sees it, and the table of rules: name of an operation -> what it does to types."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from copy import copy
from typing import Any, NoReturn

from torch import Tensor

from tacit.errors import MixesRecords, NoRecordRule
from tacit.verification.record_types import PUBLIC, Draws, Public, Records, RecordType, WholeBatch, is_constant

# Say where and how a result is stored, and nothing about its values.
_STORED = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "self_is_result"))
POSITIONS = (
    "a value that differs from record to record although it is none of theirs follows their order, which other records "
    "decide. Make it from the record, draw it at random, or make it equal for all records"
)
_DIFFERENT, _ONE_AXIS = "it meets values of different records", "Keep the records on one axis of both"

_NESTED = (list, tuple, dict)


def flat(value: object) -> list[Any]:
    """The leaves of lists, tuples and dicts."""
    if not isinstance(value, _NESTED):
        return [value]
    found = []
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, _NESTED):
            found += flat(item)
        else:
            found.append(item)
    return found


def tensors_in(value: object) -> list[Tensor]:
    """The tensors among the leaves of `value`."""
    return [item for item in flat(value) if isinstance(item, Tensor)]


class Call:
    """A call of the operation `function`.

    Args:
        function: an operator overload.
        args: its arguments.
        kwargs: its named arguments.
        kind_of: gives the record type of a tensor.
        line: the user's line.
        count: number of records.

    Attributes:
        name: of the operation, "aten.add".
        line: the user's line.
        count: number of records.
        given: the arguments that were given, by name.
        undone: whether a mean over the batch is multiplied by its size afterwards.
        drawn: identity of an argument -> how it is drawn, where each record meets a draw of its own.
    """

    undone = False

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        kind_of: Callable[[Tensor], RecordType],
        line: str,
        count: int,
    ):
        self.function, self.line, self.count = function, line, count
        self.name = function._schema.name.replace("::", ".")
        self._arguments = {each.name: each for each in function._schema.arguments}
        self.given: dict[str, Any] = dict(zip(self._arguments, args, strict=False))
        self.given |= {name: kwargs[name] for name in self._arguments if name in kwargs}
        self._kind_of, self._read = kind_of, set[str]()
        self.drawn: dict[int, Draws] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the operation has an argument `name`."""
        return name in self._arguments

    def __getitem__(self, name: str) -> Any:
        """The argument `name`, or its default."""
        self._read.add(name)
        default = self._arguments[name].default_value if name in self._arguments else None
        return self.given.get(name, default)

    def read(self, *names: str) -> None:
        """Arguments that are equal for all records, or whose tensors the rule has looked at otherwise."""
        self._read.update(names)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return tensors_in(list(self.given.values()))

    def written(self) -> list[Tensor]:
        """The tensors that the operation writes into."""
        aliases = {name: self._arguments[name].alias_info for name in self.given}
        return tensors_in([self.given[name] for name, alias in aliases.items() if alias is not None and alias.is_write])

    def all_tensors(self) -> list[Tensor]:
        """All tensors among the arguments, which count as read by the rule."""
        self._read.update(name for name, value in self.given.items() if tensors_in(value))
        return self.tensors

    def unread(self) -> list[str]:
        """Arguments that were given another value than their default and that no rule has looked at."""
        return [
            name
            for name, value in self.given.items()
            if name not in self._read | _STORED
            and (tensors_in(value) or not _equal(value, self._arguments[name].default_value))
        ]

    def kind(self, value: Tensor | None) -> RecordType:
        """The record type of an argument."""
        return PUBLIC if value is None else self._kind_of(value)

    def with_types(self, kinds: Mapping[int, RecordType], count: int) -> Call:
        """The same call where the arguments with these identities have these types, of `count` records."""
        other = copy(self)
        other._kind_of, other._read, other.count = lambda value: kinds.get(id(value), PUBLIC), set(), count
        return other

    def records(self, value: Tensor | None) -> Records | None:
        """The type of an argument where it is one of records; None where it is public."""
        kind = self.kind(value)
        return kind if isinstance(kind, Records) else None

    def whole(self, mend: str = "") -> WholeBatch:
        """The type of a number that this call makes of all records, and what to write instead."""
        return WholeBatch(self.name, self.line, mend)

    def refuse(self, why: str, mend: str = "") -> NoReturn:
        """Raise `MixesRecords` for this call."""
        refuse(self.name, self.line, why, mend)

    def unknown(self, why: str, mend: str) -> NoReturn:
        """Raise `NoRecordRule` for this call."""
        refuse(self.name, self.line, why, mend, NoRecordRule)

    def require_public(self, *names: str) -> None:
        """Require arguments that follow no record, as weights are."""
        for name in names:
            if name in self and self.records(self[name]) is not None:
                self.refuse(f"its {name} follows the records", "Give a public one")

    def own_or_equal(self, value: Tensor, own: Records, why: str, mend: str = "") -> None:
        """Require an argument to be of type `own`, or public and equal for all records.

        Args:
            value: the argument.
            own: its axis is negative where the argument has no such axis.
            why: what another argument means.
            mend: what to write instead.
        """
        found = self.records(value)
        if found is None:
            self.public(value, own.axis, own.inner)
        elif found != own:
            self.refuse(why, mend)

    def apart(self, kind: Records | Public | None, axes: Container[int], why: str, mend: str = "") -> Records | Public:
        """Require a type whose records lie on none of `axes`.

        Args:
            kind: the type; None counts as public.
            axes: those that the operation computes along.
            why: what it does there.
            mend: what to write instead.
        """
        if isinstance(kind, Records) and kind.axis in axes:
            self.refuse(why, mend)
        return kind or PUBLIC

    def public(self, value: Tensor, axis: int, inner: int) -> None:
        """Require a public argument to say nothing about positions where its `axis` meets the records."""
        kind = self.kind(value)
        if axis < 0 or value.shape[axis] <= 1 or value.stride(axis) == 0:
            return
        drawn = kind.drawn if isinstance(kind, Public) else ()
        for each in drawn:
            if each.axis == axis and each.refines(inner, self.count):
                self.drawn[id(value)] = each
                return
        if isinstance(kind, Public) and kind.trained:
            self.refuse("it meets a parameter that has an entry for each position of the batch", "Use one for all")
        if not is_constant(value, axis, inner, self.count):
            self.refuse(POSITIONS)

    def aligned(self, values: Iterable[Tensor | None], ndim: int = 0) -> Records | Public:
        """The type of a result of broadcasting: all typed values have their records on one axis.

        Args:
            values: what is broadcast; None is left out.
            ndim: number of axes of the result, where it is more than that of the values.
        """
        given = [value for value in values if value is not None]
        ndim = max([ndim, *(value.dim() for value in given)])
        typed = [(value, found) for value in given if (found := self.records(value)) is not None]
        if not typed:
            return PUBLIC
        first, kind = typed[0]
        behind = first.dim() - kind.axis
        if len({value.shape[found.axis] for value, found in typed}) > 1:
            self.refuse(_DIFFERENT, _ONE_AXIS)
        for value in given:
            self.own_or_equal(value, Records(value.dim() - behind, kind.inner), _DIFFERENT, _ONE_AXIS)
        return Records(ndim - behind, kind.inner)

    def same_axis(self, values: Iterable[Tensor | None]) -> Records | Public:
        """The type of values that all have their records on the same axis, counted from the left."""
        given = [value for value in values if value is not None]
        typed = [found for value in given if (found := self.records(value)) is not None]
        if not typed:
            return PUBLIC
        for value in given:
            if self.records(value) is not None or value.dim() > typed[0].axis:
                self.own_or_equal(value, typed[0], _DIFFERENT, _ONE_AXIS)
        return typed[0]


def refuse(name: str, line: str, why: str, mend: str = "", kind: type[MixesRecords] = MixesRecords) -> NoReturn:
    """Raise for an operation that does not treat the records apart.

    Args:
        name: of the operation, "aten.mean".
        line: the user's line; empty where there is none.
        why: what it does.
        mend: what to write instead.
        kind: of error; `NoRecordRule` where nobody knows what the operation does.

    Raises:
        MixesRecords: always.
    """
    hint = f"{mend}." if mend else "Compute each record's value from that record and public values."
    raise kind(
        f"every operation must treat the records of a batch apart; got {name} at {line or 'an unknown line'}: {why}. "
        + hint,
        operation=name,
        line=line,
    )


def depends(kind: RecordType) -> bool:
    """Whether a value of type `kind` follows private records."""
    return not isinstance(kind, Public)


def _equal(first: object, second: object) -> bool:
    try:
        return bool(first == second)
    except Exception:
        return False


Rule = Callable[[Call], RecordType | list[RecordType]]
RULES: dict[str, Rule] = {}
"""Name without overload and without the underscore of the form that writes -> its rule."""


def rule(*names: str, public: Iterable[str] | None = None) -> Callable[[Rule], Rule]:
    """Enter a rule into the table.

    Args:
        names: of the operations.
        public: arguments that must follow no record. Where they are given, even none, all arguments that are no tensors
            are equal for all records, and count as read.
    """

    def enter(function: Rule) -> Rule:
        def checked(call: Call) -> RecordType | list[RecordType]:
            call.read(*(name for name, value in call.given.items() if not isinstance(value, Tensor)))
            call.require_public(*public or ())
            return function(call)

        RULES.update(dict.fromkeys(names, function if public is None else checked))
        return function

    return enter


def axis_of(value: Tensor, dim: int) -> int:
    """`dim` counted from the left."""
    return dim % max(value.dim(), 1)


def axes_of(value: Tensor, dim: Any) -> list[int]:
    """A number, a list of numbers, or nothing for all axes, counted from the left."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(value.dim()))
    return [axis_of(value, each) for each in (dim if isinstance(dim, list | tuple) else [dim])]
