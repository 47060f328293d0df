"""The batch as the gradient engines see it: how a model is called, and how many records there are.

Gradient checkpointing is left out: a checkpointed segment runs again during the backward pass, where the capture of its
operations would be missed, and the reentrant form gives a segment whose inputs need no gradient none at all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import checkpoint as torch_checkpoint

from tacit import check
from tacit.errors import InvalidInput, TacitError, TrainingMisuse, told
from tacit.gradients.module_state import Leaf, Path, leaves, named, with_leaves
from tacit.gradients.privacy_units import RECORD_UNITS, PrivacyUnits

_LOCK = threading.Lock()
_depth = 0


class _RunOnce:
    """Stands in for `CheckpointFunction`, the reentrant form: the segment runs once, with its graph."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        return function(*args)


def _run_once(*_: Any, **__: Any) -> Iterator[None]:
    """Stands in for what prepares the other form: it prepares nothing."""
    yield


_ORIGINAL = torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator


@contextmanager
def without_checkpointing() -> Iterator[None]:
    """Inside, `torch.utils.checkpoint.checkpoint` runs its segment once and keeps the activations.

    Example:
        >>> import torch
        >>> runs = []
        >>> def segment(x):
        ...     runs.append(1)
        ...     return x.exp()
        >>> x = torch.zeros(1, requires_grad=True)
        >>> with without_checkpointing():
        ...     torch_checkpoint.checkpoint(segment, x, use_reentrant=False).backward()
        >>> len(runs)
        1
    """
    global _depth
    with _LOCK:
        _depth += 1
        if _depth == 1:
            _replace(_RunOnce, _run_once)
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if not _depth:
                _replace(*_ORIGINAL)


def _replace(reentrant: Any, other: Any) -> None:
    torch_checkpoint.CheckpointFunction = reentrant
    torch_checkpoint._checkpoint_without_reentrant_generator = other


@dataclass(frozen=True)
class _Slot(Leaf):
    """Stands in the arguments of a call where a tensor of the batch was."""

    name: str


@dataclass(frozen=True, repr=False)
class SharedTensor(Leaf):
    """A tensor among the arguments of a call that has no row for each record, such as a causal mask.

    Example:
        >>> SharedTensor(torch.ones(2)) == SharedTensor(torch.ones(2)), SharedTensor(torch.ones(2))
        (True, SharedTensor((2,), torch.float32))
    """

    value: Tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SharedTensor) or self.value.dtype != other.value.dtype:
            return False
        return torch.equal(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SharedTensor({tuple(self.value.shape)}, {self.value.dtype})"


class Arguments(dict[str, Tensor]):
    """Tensors of one call of a model that also takes public options, or tensors inside of containers.

    Args:
        tensors: the tensors by path, rows along the first axis.
        call: positional and named arguments of the call, with slots in place of the tensors.

    Example:
        >>> import torch
        >>> given = Arguments.of((), {"x": torch.ones(2, 1), "scale": 3})
        >>> given.options
        (('scale', 3),)
        >>> given.positional_and_named()
        ((), {'x': tensor([[1.],
                [1.]]), 'scale': 3})
    """

    def __init__(self, tensors: dict[str, Tensor], call: tuple[tuple[Any, ...], dict[str, Any]]):
        super().__init__(tensors)
        self._call = call

    @classmethod
    def of(cls, positional: tuple[Any, ...], named_arguments: dict[str, Any]) -> Arguments:
        """The arguments of `model(*positional, **named_arguments)`."""
        tensors: dict[str, Tensor] = {}

        def slot(path: Path, leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            name = named(path[1:]).lstrip(".")
            tensors[name] = leaf
            return _Slot(name)

        return cls(tensors, with_leaves((positional, named_arguments), slot))

    @property
    def options(self) -> tuple[tuple[str, object], ...]:
        """Path and value of everything that is no tensor."""
        return tuple(
            (named(path[1:]).lstrip("."), leaf) for path, leaf in leaves(self._call) if not isinstance(leaf, _Slot)
        )

    def positional_and_named(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call with the tensors in their places."""

        def filled(_: Path, leaf: Any) -> Any:
            if isinstance(leaf, _Slot):
                return self[leaf.name]
            return leaf.value if isinstance(leaf, SharedTensor) else leaf

        return with_leaves(self._call, filled)

    def with_tensors(self, tensors: dict[str, Tensor]) -> Arguments:
        """The same call of other tensors."""
        return Arguments(tensors, self._call)


Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]

_FORM = 'Return one loss per example, e.g. cross_entropy(outputs, targets, reduction="none").'


@dataclass(frozen=True)
class PhysicalBatch:
    """Records that go through the model together, and the loss whose per-sample gradients are asked for.

    Attributes:
        loss: `loss(outputs, targets)` gives one value per record, shape (batch,).
        inputs: of the model.
        targets: tensor (batch, ...).
        privacy_units: which records are clipped together.
    """

    loss: Loss
    inputs: Inputs
    targets: Tensor
    privacy_units: PrivacyUnits = RECORD_UNITS

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, index: slice | Tensor) -> PhysicalBatch:
        """The records in `index`, which splits no privacy unit."""
        units = self.privacy_units.select(index)
        return PhysicalBatch(self.loss, rows(self.inputs, index), self.targets[index], units)

    def losses(self, model: Callable[[Inputs], Tensor]) -> Tensor:
        """The checked losses under `model`, shape (batch,)."""
        return check_losses(self.loss(model(self.inputs), self.targets), len(self))

    def checked_losses(self, model: nn.Module) -> Tensor:
        """The losses under `model`; raises `InvalidInput` that names inputs or targets where these do not fit."""
        return losses_of(self.loss, outputs_of(model, self.inputs), self.targets)


def call(model: Callable[..., Any], inputs: Inputs) -> Any:
    """`model` on a tensor, on a tuple of positional arguments, or on a dict of named ones."""
    positional, named_arguments = arguments_of(inputs)
    with without_checkpointing():
        return model(*positional, **named_arguments)


def arguments_of(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of the call that `inputs` stand for."""
    if isinstance(inputs, Arguments):
        return inputs.positional_and_named()
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def form_of(inputs: Inputs) -> tuple[object, ...]:
    """Key of the size of one record, the types and the options of `inputs`; equal for batches of the same form."""
    options = inputs.options if isinstance(inputs, Arguments) else ()
    return (repr(options), *((value.shape[1:], value.dtype) for value in tensors(inputs)))


def outputs_of(model: nn.Module, inputs: Inputs) -> Tensor:
    """What `model` returns; raises `InvalidInput` that tells the shapes where it fails on these inputs."""
    try:
        return call(model, inputs)
    except TacitError:
        raise
    except Exception as error:
        check_weights_kept(error)
        shapes = [tuple(value.shape[1:]) for value in tensors(inputs)]
        raise check.fail("inputs", "examples of the shape that the model takes", shapes, told(error)) from error


_BETWEEN = (
    "Change weights without private data, as by clamping, between steps: with torch.no_grad(), "
    "private.postprocessing(name)."
)


def check_weights_kept(error: Exception) -> None:
    """Raise `TrainingMisuse` in place of torch's error about a parameter that a hook or a layer writes to."""
    if "leaf Variable that requires grad" in str(error):
        raise TrainingMisuse(
            "weights must change by private steps alone; got a hook or a layer that writes to a parameter in the midst "
            f"of a step. {_BETWEEN}"
        ) from error


@contextmanager
def weights_written(model: nn.Module) -> Iterator[None]:
    """Context of code of the user's own: torch's error about a parameter that it writes to names that parameter."""
    try:
        yield
    except RuntimeError as error:
        if "leaf Variable that requires grad" not in str(error):
            raise
        raise TrainingMisuse(
            f"weights must be written to under torch.no_grad(); got {_written(model, error)}. {_BETWEEN}"
        ) from error


def _written(model: nn.Module, error: Exception) -> str:
    """The parameter that the last line of the user's own was about, as far as a variable holds it, and that line."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    *_, (frame, line) = walk_tb(error.__traceback__)
    held = [names[id(value)] for value in frame.f_locals.values() if id(value) in names]
    which = f"parameter {held[-1]!r}" if held else "a parameter"
    return f"a write to {which} in line {line} of {os.path.basename(frame.f_code.co_filename)}"


def losses_of(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per record, shape (batch,); raises `InvalidInput` where `loss` fails on these targets."""
    try:
        losses = loss(outputs, targets)
    except TacitError:
        raise
    except Exception as error:
        kind = f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise check.fail("targets", "what the loss takes with the model's outputs", kind, told(error)) from error
    return check_losses(losses, len(targets))


def tensors(inputs: Inputs) -> list[Tensor]:
    """Every tensor of the inputs."""
    if isinstance(inputs, dict):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, tuple | list) else [inputs]


def map_tensors(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """The inputs with `function` of every tensor instead of it."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, dict):
        changed = {name: function(value) for name, value in inputs.items()}
        return inputs.with_tensors(changed) if isinstance(inputs, Arguments) else changed
    return tuple(function(value) for value in inputs)


def rows(inputs: Inputs, index: slice | Tensor) -> Inputs:
    """The inputs of the records in `index`."""
    if isinstance(index, Tensor) and index.dtype == torch.int64:
        return map_tensors(lambda value: value.index_select(0, index.to(value.device)), inputs)
    return map_tensors(lambda value: value[index], inputs)


def both_rows(inputs: Inputs, targets: Tensor | None, index: Tensor) -> tuple[Inputs, Tensor | None]:
    """The inputs and the targets, if there are any, of the records at the places `index`."""
    return rows(inputs, index), None if targets is None else targets[index.to(targets.device)]


def batch_size(inputs: Inputs, targets: Tensor) -> int:
    """Number of records; every tensor must have them along its first axis."""
    given = tensors(inputs)
    if not given or not all(isinstance(value, Tensor) and value.dim() for value in (*given, targets)):
        raise InvalidInput(
            "inputs and targets must be tensors whose first axis is the batch; got "
            f"{type(inputs).__name__} and {type(targets).__name__}. Convert them with torch.as_tensor."
        )
    sizes = {len(value) for value in (*given, targets)}
    if len(sizes) > 1:
        raise check.fail("inputs and targets", "of equal length", [len(value) for value in (*given, targets)])
    return len(targets)


def check_losses(losses: object, batch: int) -> Tensor:
    """`losses` if it has shape (batch,); otherwise the error that shows the right form, without the drawn size."""
    if not isinstance(losses, Tensor):
        raise check.fail("loss", "a tensor of shape (batch,)", type(losses).__name__, _FORM)
    if losses.shape != (batch,):
        raise check.fail("loss", "one value per example, shape (batch,)", _public_shape(losses, batch), _FORM)
    return losses


def _public_shape(value: Tensor, batch: int) -> str:
    """Its shape with a word for the first axis, whose size a sampler may have drawn."""
    first = [] if not value.dim() else ["batch" if len(value) == batch else "other"]
    return f"shape ({', '.join(map(str, [*first, *value.shape[1:]]))})"


def doubled(batch: PhysicalBatch) -> PhysicalBatch:
    """`batch` in double precision."""
    return replace(batch, inputs=map_tensors(_double, batch.inputs), targets=_double(batch.targets))


def _double(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value
