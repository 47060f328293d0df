"""The table of rules: name of an operation -> what it does to the types of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tacit.verification.calls import Call
from tacit.verification.record_types import RecordType

Rule = Callable[[Call], RecordType | list[RecordType]]
RULES: dict[str, Rule] = {}
"""Name without overload and without the underscore of the form that writes -> its rule."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule into the table under `names`."""

    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
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
