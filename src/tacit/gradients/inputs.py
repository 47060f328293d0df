"""The batch as the gradient engines see it: how a model is called, and how many examples there are."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from tacit import check
from tacit.errors import InvalidInput, TacitError, told

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]

_FORM = 'Return one loss per example, e.g. cross_entropy(outputs, targets, reduction="none").'


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
    """One loss per example, shape (batch,); raises `InvalidInput` where `loss` fails on these targets."""
    try:
        losses = loss(outputs, targets)
    except TacitError:
        raise
    except Exception as error:
        kind = f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise check.fail("targets", "what the loss takes with the model's outputs", kind, told(error)) from error
    return per_example(losses, len(targets))


def tensors(inputs: Inputs) -> list[Tensor]:
    """Every tensor of the inputs."""
    if isinstance(inputs, dict):
        return list(inputs.values())
    return list(inputs) if isinstance(inputs, tuple | list) else [inputs]


def rows(inputs: Inputs, index: slice | Tensor) -> Inputs:
    """The inputs of the examples in `index`."""
    if isinstance(inputs, Tensor):
        return inputs[index]
    if isinstance(inputs, dict):
        return {name: value[index] for name, value in inputs.items()}
    return tuple(value[index] for value in inputs)


def batch_size(inputs: Inputs, targets: Tensor) -> int:
    """How many examples there are; every tensor must have them along its first axis."""
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


def per_example(losses: object, batch: int) -> Tensor:
    """`losses` if it has shape (batch,); otherwise the error that shows the right form."""
    if not isinstance(losses, Tensor):
        raise check.fail("loss", f"a tensor of shape ({batch},)", type(losses).__name__, _FORM)
    if losses.shape != (batch,):
        raise check.fail("loss", f"one value per example, shape ({batch},)", tuple(losses.shape), _FORM)
    return losses
