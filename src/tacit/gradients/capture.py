"""Capture at operation level: every operation that touches a trainable parameter, with what its gradient needs.

Hooks on modules miss tied weights, functional calls and raw parameters; operations do not. A forward pass under
`Capture` makes the output of every covered operation a gradient root, so that one backward pass to these roots, without
any parameter gradient, gives all that per-example gradients are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tacit.gradients.contributions import Contribution
from tacit.gradients.scratch import Scratch

Rule = Callable[..., Tensor]
RULES: dict[Callable[..., Any], Rule] = {}


class Uncovered(Exception):
    """An operation uses a trainable parameter in a way that no rule covers; the message names both."""


def captures(*operations: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Register a rule for `operations`: called as rule(capture, *arguments), it returns the operation's output."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, rule))
        return rule

    return register


@dataclass
class Use:
    """One covered use: its gradient root, and how the root's gradient becomes contributions."""

    root: Tensor
    contribute: Callable[[Tensor], list[Contribution]]
    saved: Sequence[Tensor]
    versions: tuple[int, ...]


class Capture(TorchFunctionMode):
    """Forward pass under which every use of the parameters in `names` is recorded.

    Args:
        names: id of every trainable parameter -> its name.
        batch: number of examples.
        axes: where each use has its batch axis, as an earlier capture of the same model found it; None to find it,
            for which `batch` must be a prime that divides no other size.
        copies: hand out and keep copies, for models that write into activations in place.
        scratch: buffers of earlier batches to use again.
    """

    def __init__(
        self,
        names: dict[int, str],
        batch: int,
        axes: list[int | None] | None = None,
        copies: bool = False,
        scratch: Scratch | None = None,
    ):
        super().__init__()
        self.scratch = scratch if scratch is not None else Scratch()
        self._names = names
        self.batch = batch
        self._known = axes
        self._copies = copies
        self.axes: list[int | None] = []
        self.uses: list[Use] = []
        self.operations: list[tuple[str, ...]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        touched = self._touched(args) or (kwargs and self._touched(kwargs.values()))
        if kwargs.get("inplace") is True:
            kwargs = kwargs | {"inplace": False}
        if not touched:
            return func(*args, **kwargs)
        rule = RULES.get(func)
        if rule is not None and torch.is_grad_enabled():
            self.operations.append((func.__name__, *touched))
            return rule(self, *args, **kwargs)
        return self._unruled(func, args, kwargs, touched)

    def _unruled(self, func: Any, args: Any, kwargs: Any, touched: list[str]) -> Any:
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        through = func in _DETACHING or not torch.is_grad_enabled()
        if through or not any(isinstance(value, Tensor) and value.is_floating_point() for value in _items(result)):
            return result
        raise Uncovered(f"{name} uses {', '.join(touched)}")

    def _touched(self, values: Any) -> list[str]:
        found = []
        for value in values:
            if isinstance(value, Tensor):
                name = self._names.get(id(value))
                if name is not None:
                    found.append(name)
            elif isinstance(value, list | tuple):
                found += self._touched(value)
        return found

    def name(self, value: Tensor | None) -> str | None:
        """Name of a trainable parameter; None for anything else."""
        return self._names.get(id(value)) if value is not None else None

    def axis(self, tensor: Tensor, trailing: int) -> int | None:
        """Batch axis of `tensor` among all but its `trailing` last axes; None when it has none.

        The axis may also hold batch x positions, example by example.
        """
        if self._known is not None:
            if len(self.axes) >= len(self._known):
                raise Uncovered("the model takes another path than when it was examined")
            axis = self._known[len(self.axes)]
            if axis is not None and (axis >= tensor.dim() or tensor.shape[axis] % self.batch):
                raise Uncovered("an operation has another batch axis than when the model was examined")
        else:
            sizes = tensor.shape[: tensor.dim() - trailing]
            axis = next((i for i, size in enumerate(sizes) if size and size % self.batch == 0), None)
        self.axes.append(axis)
        return axis

    def batched(self, tensor: Tensor, trailing: int) -> tuple[Tensor, int]:
        """`tensor` with its batch axis; one that has none is repeated for every example along a new first axis."""
        axis = self.axis(tensor, trailing)
        if axis is not None:
            return tensor, axis
        if tensor.dim() > trailing and tensor.shape[0] == 1:
            return tensor.expand(self.batch, *tensor.shape[1:]), 0
        return tensor.unsqueeze(0).expand(self.batch, *tensor.shape), 0

    def by_example(self, tensor: Tensor, axis: int, trailing: int) -> Tensor:
        """`tensor` as (B, T, *trailing axes), T counting every other leading position."""
        moved = tensor if axis == 0 else tensor.movedim(axis, 0)
        kept = moved.shape[moved.dim() - trailing :] if trailing else ()
        return moved.reshape(self.batch, moved.numel() // max(1, self.batch * _size(kept)), *kept)

    def root(
        self, output: Tensor, saved: Sequence[Tensor], contribute: Callable[[Tensor], list[Contribution]]
    ) -> Tensor:
        """Make `output` a gradient root and record the use; returns what the model goes on with."""
        root = output if output.requires_grad else output.requires_grad_()
        self.uses.append(Use(root, contribute, saved, tuple(tensor._version for tensor in (root, *saved))))
        return root.clone() if self._copies else root

    def keep(self, tensor: Tensor) -> Tensor:
        """`tensor` as it is now, for a rule that needs its value after the backward pass."""
        kept = tensor.detach()
        if kept.dtype in HALF:
            return kept.float()
        return kept.clone() if self._copies else kept

    def overwritten(self) -> bool:
        """Whether anything that was recorded has been written into since."""
        return any(
            tensor._version != version
            for use in self.uses
            for tensor, version in zip((use.root, *use.saved), use.versions, strict=True)
        )


HALF = (torch.float16, torch.bfloat16)
_DETACHING = {Tensor.detach, Tensor.data.__get__}  # type: ignore[attr-defined]


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _size(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
