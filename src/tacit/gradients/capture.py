"""Capture at operation level: every operation that touches a trainable parameter, with what its gradient needs.

Hooks on modules miss tied weights, functional calls and raw parameters; operations do not. A forward pass under
`Capture` makes the output of every covered operation a gradient root. One backward pass to these roots, without any
parameter gradient, then gives all that per-sample gradients are made of.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tacit.gradients.derived import DETACHING, Derived, derive
from tacit.gradients.flat_gradient import Buffers, wide
from tacit.gradients.per_sample_gradients import PerSampleGradients
from tacit.verification.calls import tensors_in

Rule = Callable[..., Any]
RULES: dict[Callable[..., Any], Rule] = {}
FLEXIBLE: set[Callable[..., Any]] = set()
COMPOSITES: set[Callable[..., Any]] = set()


class Uncovered(Exception):
    """An operation uses a trainable parameter in a way that no rule covers; the message names both.

    Attributes:
        names: the parameters, where they are known.
    """

    def __init__(self, message: str, names: Sequence[str] = ()):
        super().__init__(message)
        self.names = tuple(names)


def captures(
    *operations: Callable[..., Any], flexible: bool = False, composite: bool = False
) -> Callable[[Rule], Rule]:
    """Register a rule for `operations`: called as rule(capture, *arguments), it returns the operation's output.

    A `flexible` rule is asked only where another operand has a batch axis; without one the operation makes a new
    tensor from parameters alone, which is then followed like a parameter. A `composite` rule does its operations by
    smaller ones, each passed to `capture.apply`.
    """

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, rule))
        if flexible:
            FLEXIBLE.update(operations)
        if composite:
            COMPOSITES.update(operations)
        return rule

    return register


@dataclass
class Use:
    """One covered use of parameters.

    Attributes:
        root: output of the operation.
        gradients: gradient of the root -> per-sample gradients of the parameters.
        saved: tensors that `gradients` reads.
        versions: how often root and saved tensors had been written into.
    """

    root: Tensor
    gradients: Callable[[Tensor], Iterable[PerSampleGradients]]
    saved: Sequence[Tensor]
    versions: tuple[int, ...]


class Capture(TorchFunctionMode):
    """Forward pass under which every use of the parameters in `names` is recorded.

    Args:
        names: id of every trainable parameter -> its name.
        batch: number of records.
        axes: where each use has its batch axis, as an earlier capture of the same model found it; None to find it,
            for which `batch` must be a prime that divides no other size.
        copies: hand out and keep copies, for models that write into activations in place.
        buffers: memory of earlier batches to use again.
    """

    def __init__(
        self,
        names: dict[int, str],
        batch: int,
        axes: list[int | None] | None = None,
        copies: bool = False,
        buffers: Buffers | None = None,
    ):
        super().__init__()
        self.buffers = buffers if buffers is not None else Buffers()
        self._names = dict(names)
        self._leaves: dict[str, Tensor] = {}
        self.batch = batch
        self._known = axes
        self._copies = copies
        self.axes: list[int | None] = []
        self.uses: list[Use] = []
        self.operations: list[tuple[str, ...]] = []
        self.derived: dict[str, Derived] = {}
        self.use_count: Counter[str] = Counter()
        self.paused = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        touched = self._touched(args) or (kwargs and self._touched(kwargs.values()))
        if kwargs.get("inplace") is True:
            kwargs = kwargs | {"inplace": False}
        if not touched or self.paused or func in DETACHING or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        if func in COMPOSITES:
            return RULES[func](self, *args, **kwargs)
        rule = RULES.get(func)
        if rule is None:
            return self._without_rule(func, args, kwargs, touched)
        if func in FLEXIBLE and self._constant(args, kwargs):
            return self._derived(func, args, kwargs, touched)
        self.operations.append((func.__name__, *touched))
        self.use_count.update(touched)
        try:
            return rule(self, *args, **kwargs)
        except Uncovered as error:
            error.names = error.names or tuple(source for name in touched for source in self.sources(name))
            raise

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`func` as if the model had called it."""
        return self.__torch_function__(func, (), args, kwargs)

    def _without_rule(self, func: Any, args: Any, kwargs: Any, touched: list[str]) -> Any:
        result = func(*args, **kwargs)
        if all(id(value) in self._names for value in tensors_in(result) if value.is_floating_point()):
            return result
        if not self._constant(args, kwargs):
            raise self.uncovered(f"{getattr(func, '__name__', func)} uses {{}}", touched)
        return self._derived(func, args, kwargs, touched)

    def _derived(self, func: Any, args: Any, kwargs: Any, touched: list[str]) -> Any:
        """The result of `func` on parameters alone, followed from now on like a parameter."""
        self.operations.append((func.__name__, *touched))
        known = {key: name for key, name in self._names.items() if name in touched}
        result, found = derive(func, args, kwargs, known, self._leaf, self.derived)
        if not self.following and self._any_batch_axis([one.detached for one in found]):
            raise self.uncovered(f"{func.__name__} repeats {{}} along the batch", touched)
        for one in found:
            name = f"@{len(self.derived)}"
            self.derived[name] = one
            self._names[id(one.detached)] = name
            self.use_count.update(list(one.sources))
        return result

    def _leaf(self, name: str, parameter: Tensor) -> Tensor:
        """The parameter as a root of what is derived from it."""
        if name not in self._leaves:
            self._leaves[name] = parameter.detach().requires_grad_()
        return self._leaves[name]

    def _constant(self, args: Any, kwargs: Any) -> bool:
        """Whether none of the operands has a batch axis."""
        return self.recall(lambda: 0 if self._any_batch_axis((*args, *kwargs.values())) else None) is None

    def _any_batch_axis(self, values: Any) -> bool:
        others = (value for value in tensors_in(values) if id(value) not in self._names)
        return any(self.batch_axis(value.shape) is not None for value in others)

    def uncovered(self, message: str, names: Sequence[str]) -> Uncovered:
        """The error that `message`, which has a {} for the names, describes."""
        real = list(dict.fromkeys(source for name in names for source in self.sources(name)))
        return Uncovered(message.format(", ".join(real)), real)

    def sources(self, name: str) -> list[str]:
        """The parameters that `name` is, or is made from."""
        return list(self.derived[name].sources) if name in self.derived else [name]

    def _touched(self, values: Any) -> list[str]:
        found: list[str] = []
        for value in values:
            # Most arguments are tensors and constants; a call of `_tensors` for each would show in a step.
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

        The axis may also hold batch x positions, record by record.
        """
        axis = self.recall(lambda: self.batch_axis(tensor.shape[: tensor.dim() - trailing]))
        if axis is not None and (axis >= tensor.dim() or tensor.shape[axis] % self.batch):
            raise Uncovered("an operation has another batch axis than when the model was examined")
        return axis

    def batch_axis(self, sizes: Sequence[int]) -> int | None:
        """The first of `sizes` that holds the batch, for the batch of a verification."""
        return next((axis for axis, size in enumerate(sizes) if size and size % self.batch == 0), None)

    @property
    def following(self) -> bool:
        """Whether an earlier capture is followed; otherwise this one finds the path."""
        return self._known is not None

    def recall(self, find: Callable[[], int | None]) -> int | None:
        """What `find` gave when the model was examined, in the same place of its path."""
        if self._known is None:
            self.axes.append(find())
        elif len(self.axes) < len(self._known):
            self.axes.append(self._known[len(self.axes)])
        else:
            raise Uncovered("the model takes another path than when it was examined")
        return self.axes[-1]

    def batched(self, tensor: Tensor, trailing: int) -> tuple[Tensor, int]:
        """`tensor` with its batch axis; one that has none is repeated for every record along a new first axis."""
        axis = self.axis(tensor, trailing)
        if axis is not None:
            return tensor, axis
        if tensor.dim() > trailing and tensor.shape[0] == 1:
            return tensor.expand(self.batch, *tensor.shape[1:]), 0
        return tensor.unsqueeze(0).expand(self.batch, *tensor.shape), 0

    def by_record(self, tensor: Tensor, axis: int, trailing: int) -> Tensor:
        """`tensor` as (B, T, *trailing axes), T counting every other leading position."""
        moved = tensor if axis == 0 else tensor.movedim(axis, 0)
        kept = moved.shape[moved.dim() - trailing :] if trailing else ()
        return moved.reshape(self.batch, moved.numel() // max(1, self.batch * math.prod(kept)), *kept)

    def root(
        self, output: Tensor, saved: Sequence[Tensor], gradients: Callable[[Tensor], Iterable[PerSampleGradients]]
    ) -> Tensor:
        """Make `output` a gradient root and record the use; returns what the model goes on with."""
        root = output if output.requires_grad else output.requires_grad_()
        self.uses.append(Use(root, gradients, saved, tuple(tensor._version for tensor in (root, *saved))))
        return root.clone() if self._copies else root

    def keep(self, tensor: Tensor) -> Tensor:
        """`tensor` as it is now, for a rule that needs its value after the backward pass."""
        kept = tensor.detach()
        if kept.dtype != wide(kept.dtype):
            return kept.float()
        return kept.clone() if self._copies else kept

    def overwritten(self) -> bool:
        """Whether anything that was recorded has been written into since."""
        return any(
            tensor._version != version
            for use in self.uses
            for tensor, version in zip((use.root, *use.saved), use.versions, strict=True)
        )
