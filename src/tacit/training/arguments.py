"""Arguments of a private model: rows of the batch, and public options that stay the same."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch
from torch import Tensor

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.gradients.inputs import Arguments, Inputs
from tacit.gradients.module_state import leaves, named

_OPTIONS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, Enum)


def model_inputs(positional: tuple[Any, ...], named_arguments: dict[str, Any]) -> Inputs:
    """Arguments of one call as the engine takes them: tensors alone, or tensors beside public options.

    Raises:
        InvalidInput: an argument is neither a tensor with rows nor a plain value, or there is no tensor.
    """
    given = {name: value for name, value in named_arguments.items() if value is not None}
    rows = 0
    for path, leaf in leaves((positional, given)):
        if isinstance(leaf, Tensor) and leaf.dim():
            rows += 1
        elif isinstance(leaf, Tensor) or not isinstance(leaf, _OPTIONS):
            raise _no_rows(path, leaf)
    if not rows:
        raise _no_rows((0, 0), positional[0] if positional else None)
    if not given and all(isinstance(value, Tensor) for value in positional):
        return positional
    if not positional and all(isinstance(value, Tensor) for value in given.values()):
        return given
    return Arguments.of(positional, given)


def _no_rows(path: tuple[str | int, ...], leaf: Any) -> Exception:
    name = path[1] if len(path) == 2 else named(path[1:]).lstrip(".")
    rule = "a tensor whose first axis is the batch, or a plain value"
    return check.fail(f"argument {name!r} of the model", rule, type(leaf).__name__, "Set options on the module.")


class PublicOptions:
    """Options of the model's calls: whatever follows a batch, such as its length, would differ between two.

    Example:
        >>> options = PublicOptions()
        >>> options.check(Arguments.of((torch.ones(2, 1),), {"training": True}))
    """

    def __init__(self) -> None:
        self._first: dict[str, object] = {}

    def check(self, given: Inputs) -> None:
        """Raise `TrainingMisuse` if an option has another value than in an earlier call."""
        for name, value in given.options if isinstance(given, Arguments) else ():
            first = self._first.setdefault(name, value)
            if type(first) is not type(value) or first != value:
                raise TrainingMisuse(
                    f"argument {name!r} of the model must stay the same in every call; got another value. A number "
                    "that follows the batch would be private: pass a tensor with one row for each record."
                )
