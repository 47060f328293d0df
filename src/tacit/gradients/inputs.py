"""The batch as the gradient engines see it: how a model is called, and how many records there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from tacit import check
from tacit.errors import InvalidInput, TacitError, told
from tacit.gradients.privacy_units import RECORD_UNITS, PrivacyUnits

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


def call(model: nn.Module, inputs: Inputs) -> Tensor:
    """`model` on a tensor, on a tuple of positional arguments, or on a dict of named ones."""
    if isinstance(inputs, tuple):
        return model(*inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def outputs_of(model: nn.Module, inputs: Inputs) -> Tensor:
    """What `model` returns; raises `InvalidInput` that tells the shapes where it fails on these inputs."""
    try:
        return call(model, inputs)
    except TacitError:
        raise
    except Exception as error:
        shapes = [tuple(value.shape[1:]) for value in tensors(inputs)]
        raise check.fail("inputs", "examples of the shape that the model takes", shapes, told(error)) from error


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
        return {name: function(value) for name, value in inputs.items()}
    return tuple(function(value) for value in inputs)


def rows(inputs: Inputs, index: slice | Tensor) -> Inputs:
    """The inputs of the records in `index`."""
    return map_tensors(lambda value: value[index], inputs)


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
    """`losses` if it has shape (batch,); otherwise the error that shows the right form."""
    if not isinstance(losses, Tensor):
        raise check.fail("loss", f"a tensor of shape ({batch},)", type(losses).__name__, _FORM)
    if losses.shape != (batch,):
        raise check.fail("loss", f"one value per example, shape ({batch},)", tuple(losses.shape), _FORM)
    return losses
