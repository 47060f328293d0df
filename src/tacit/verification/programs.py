"""Programs of passes over other numbers of records: whether they are one program, in which that number is a size alone.

How many records a batch has is private. In a program it may be the length of one axis of a value, and nothing else: no
other number, no operation more, and no result of public values of which an axis was that long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tacit.verification.calls import Call, flat, tensors_in

_SMALL = 64  # numbers of a public result that are compared
# Arguments that say how large a result is, or how many records an operation is given.
_SIZES = frozenset((
    "N", "size", "sizes", "split_size", "split_sizes", "input_size", "input_sizes", "self_size", "start", "end",
    "length", "repeats", "stride", "num_samples",
))  # fmt: skip
_MEANS = ("aten.mul.", "aten.mul_.", "aten.div.", "aten.div_.")


@dataclass
class Step:
    """One operation of a program.

    Attributes:
        name: of the operation.
        given: argument -> what it holds; tensors by their shape.
        line: the user's line.
        public: whether it runs on public values alone.
        of_one: the record that it follows alone; None for other operations.
        left_out: whether it tells nothing: a library runs it to choose between two equal computations, autograd adds
            gradients, or public values are only transposed.
        shapes: of its results.
        values: of its results, where they are public, few and not drawn.
    """

    name: str
    given: dict[str, list[Any]]
    line: str = field(compare=False)
    public: bool = field(default=True, compare=False)
    of_one: int | None = field(default=None, compare=False)
    left_out: bool = field(default=False, compare=False)
    shapes: tuple[torch.Size, ...] = field(default=(), compare=False)
    values: list[Any] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, call: Call, by_value: bool, left_out: bool) -> Step:
        """The step of a call; tensors count by value, where they are small, if the source holds their numbers."""
        form = _literal if by_value else _form
        given = {name: [form(each) for each in flat(value)] for name, value in call.given.items()}
        return cls(str(call.function), given, call.line, left_out=left_out)

    def ended(self, result: Any, public: bool, random: bool, of_one: int | None) -> None:
        """Note what came of it.

        Args:
            result: of the call.
            public: whether it ran on public values alone.
            random: whether one of them was drawn.
            of_one: the record that it follows alone.
        """
        found = tensors_in(result)
        self.public, self.of_one = public, of_one
        self.shapes = tuple(_form(value) for value in found[: 1 if of_one is not None else None])
        self.left_out = self.left_out or (public and self.name.startswith("aten.t."))
        few = public and not random and sum(value.numel() for value in found) <= _SMALL
        self.values = [value.tolist() for value in found] if few else None


def difference(
    one: Sequence[Step], other: Sequence[Step], sizes: tuple[int, int], *, numbers: bool = True, mean: bool = False
) -> str | None:
    """The line at which two programs differ by more than the length of an axis; None where they do not.

    Args:
        one: of a pass.
        other: of a pass over another number of records.
        sizes: both numbers of records, >= 2.
        numbers: whether numbers, sizes apart, are compared too.
        mean: whether a loss may be multiplied or divided by the number of records or of entries, which is undone.

    Example:
        >>> difference([], [], (4, 5)) is None
        True
    """
    first, second = ([step for step in each if not (step.of_one or step.left_out)] for each in (one, other))
    for before, after in zip(first, second, strict=False):
        means = mean and before.name.startswith(_MEANS)
        if not _is_same(before, after, sizes, numbers, means):
            return after.line
    longer = max(first, second, key=len)[min(len(first), len(second)) :]
    return longer[0].line if longer else None


def numbers_in(program: Sequence[Step]) -> tuple[tuple[tuple[str, int, str], float], ...]:
    """((number in words, place in the program, argument), number) of all numbers of a program that are no sizes."""
    return tuple(
        ((f"a number at {step.line}", place, name), float(value))
        for place, step in enumerate(program)
        for name, given in step.given.items()
        if name not in _SIZES
        for each in given
        for value in (each if type(each) is tuple else (each,))
        if type(value) in (int, float)
    )


def _is_same(one: Step, other: Step, sizes: tuple[int, int], numbers: bool, means: bool) -> bool:
    if one.name != other.name or one.given.keys() != other.given.keys() or len(one.shapes) != len(other.shapes):
        return False
    longer = False
    for name, given in one.given.items():
        later = other.given[name]
        if one.of_one is None and len(given) != len(later) and not _is_each(given, later, sizes):
            return False
        for left, right in zip(given, later, strict=False):
            if type(left) is not type(right):
                return False
            if isinstance(left, torch.Size):
                longer = longer or left != right
                if not _is_shape(left, right, sizes):
                    return False
            elif name in _SIZES and type(left) is int:
                longer = longer or left != right
            elif numbers and not _is_equal(left, right) and not (means and _is_in_proportion(left, right, sizes)):
                return False
    if not all(_is_shape(*shapes, sizes) for shapes in zip(one.shapes, other.shapes, strict=True)):
        return False
    folded = longer and one.public and one.shapes == other.shapes
    return not folded or (one.values is not None and one.values == other.values)


def _is_each(one: list[Any], other: list[Any], sizes: tuple[int, int]) -> bool:
    """Whether both list one public number for each record."""
    return (len(one), len(other)) == sizes and all(type(each) is int and each == one[0] for each in (*one, *other))


def _is_shape(left: Sequence[int], right: Sequence[int], sizes: tuple[int, int]) -> bool:
    """Whether at most one axis differs, and that in proportion to the number of records."""
    if len(left) != len(right):
        return False
    others = [(a, b) for a, b in zip(left, right, strict=True) if a != b]
    return not others or (len(others) == 1 and others[0][0] * sizes[1] == others[0][1] * sizes[0])


def _is_in_proportion(left: object, right: object, sizes: tuple[int, int]) -> bool:
    """Whether two numbers are those of records, or of entries of as many records."""
    return isinstance(left, int | float) and isinstance(right, int | float) and left * sizes[1] == right * sizes[0]


def _is_equal(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)


def _form(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    # Bytes in a row are the memory in which a recurrent kernel works.
    return torch.Size() if value.dtype == torch.uint8 and value.dim() == 1 else value.shape


def _literal(value: Any) -> Any:
    return tuple(value.flatten().tolist()) if isinstance(value, Tensor) and value.numel() <= _SMALL else _form(value)
