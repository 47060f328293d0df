"""One operation on the trace of a batch: what ran, on what, in which modes, so that it can run again."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from tacit.verification.calls import flat

_DRAWS = (
    *("rand", "normal", "bernoulli", "multinomial", "poisson", "uniform", "exponential", "dropout", "geometric"),
    *("cauchy", "standard_gamma", "dirichlet", "binomial", "gumbel", "rrelu", "fractional_max_pool"),
)
_ARITHMETIC = frozenset(("mul", "div", "pow", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__pow__"))

EARLIER = object()
"""Stands on a trace for a value of an earlier batch, which belongs to no record of this one."""


@dataclass(frozen=True)
class Ref:
    """The value of node `node` of a trace; item `item` where the operation returned several."""

    node: int
    item: int | None = None


@dataclass
class Node:
    """One operation: what ran, on what, in which modes.

    Attributes:
        line: the user's line.
        leaves: what is in `args` and `kwargs`.
        others: what says which the tensors from outside of the trace are; None for one that nobody knows.
        generators: puts the generators where they were before an operation that draws.
        ignores: whether it is a loss of classes that leaves out a target, so that a mean divides by another number.
    """

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    grad: bool
    line: str
    leaves: list[Any]
    others: tuple[Hashable | None, ...]
    autocast: tuple[str, torch.dtype] | None = None
    generators: Callable[[], None] | None = None
    ignores: bool = False

    @cached_property
    def sources(self) -> frozenset[int]:
        """The nodes that it was given values of."""
        return frozenset(value.node for value in self.leaves if isinstance(value, Ref))

    @cached_property
    def factors(self) -> list[int]:
        """Places among its leaves of whole numbers that multiply, divide or raise values."""
        if getattr(self.function, "__name__", "") not in _ARITHMETIC:
            return []
        return [order for order, value in enumerate(self.leaves) if type(value) is int]

    def again(self, now: Callable[[Any], Any]) -> Any:
        """The result for `now(value)` in place of every argument; `EARLIER` where one of them is."""
        args, kwargs = mapped((self.args, self.kwargs), now)
        if any(value is EARLIER for value in flat((args, kwargs))):
            return EARLIER
        if self.generators is not None:
            self.generators()
        autocast = torch.autocast(*self.autocast) if self.autocast is not None else nullcontext()
        with torch.set_grad_enabled(self.grad and torch.is_grad_enabled()), autocast:
            return self.function(*args, **kwargs)


def draws(function: Callable[..., Any], kwargs: Any) -> bool:
    """Whether an operation draws from a generator."""
    name = getattr(function, "__name__", "")
    drawn = any(part in name for part in _DRAWS) and not name.endswith("_loss")
    return drawn or "dropout_p" in kwargs or "attention" in name or "lstm" in name


def item_of(values: Mapping[int, Any], ref: Ref) -> Any:
    """The value of `ref` among those of whole nodes."""
    value = values[ref.node]
    return value if ref.item is None or value is EARLIER else value[ref.item]


def writes(operation: Callable[..., Any]) -> bool:
    """Whether an operation writes into one of its arguments."""
    name = getattr(operation, "__name__", "")
    if name in ("__setitem__", "__set__"):
        return True
    in_place = name.startswith("__i") and name not in ("__index__", "__int__", "__invert__")
    return in_place or (name.endswith("_") and not name.endswith("__") and name != "requires_grad_")


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of nested lists, tuples and dicts with `change` applied to every leaf."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = [mapped(item, change) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return change(value)
