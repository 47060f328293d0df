"""The training data as tensors, checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.errors import InvalidInput
from tacit.gradients.batch import Inputs, Loss, batch_size, call, per_example, rows, tensors


def as_inputs(inputs: Any) -> Inputs:
    """Arrays or tensors (one, or a tuple or dict of them) as tensors; raises where a value is NaN or infinite."""
    if isinstance(inputs, dict):
        return {name: _tensor(name, value) for name, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(_tensor(f"inputs[{i}]", value) for i, value in enumerate(inputs))
    return _tensor("inputs", inputs)


def as_targets(targets: Any) -> Tensor:
    """Targets as a tensor."""
    return _tensor("targets", targets)


def check_data(model: nn.Module, loss: Loss, inputs: Inputs, targets: Tensor) -> int:
    """Number of records, after the model and the loss have run on the first two of them.

    Raises `InvalidInput` for empty data, lengths or widths that do not fit, labels outside the classes that the model
    puts out, and a loss that does not give one value per example.
    """
    records = batch_size(inputs, targets)
    if not records:
        raise check.fail("inputs", "at least one record", 0)
    few = slice(0, 2)
    shapes = [tuple(value.shape) for value in tensors(inputs)]
    try:
        with torch.no_grad():
            outputs = call(model, rows(inputs, few))
    except RuntimeError as error:
        raise InvalidInput(f"inputs must be of the shape that the model takes; got {shapes}. {error}") from None
    if isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1:
        _check_labels(targets, outputs.shape[1])
    with torch.no_grad():
        per_example(loss(outputs, targets[few]), len(targets[few]))
    return records


def _check_labels(targets: Tensor, classes: int) -> None:
    if targets.dim() != 1 or targets.is_floating_point():
        return
    outside = torch.nonzero((targets < 0) | (targets >= classes)).flatten()
    if len(outside):
        raise InvalidInput(
            f"targets must be labels in 0..{classes - 1}, the classes that the model puts out; got "
            f"{int(targets[outside[0]])} at row {int(outside[0])}. Encode them with the declared classes."
        )


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be an array of numbers; got {type(value).__name__}. {error}") from None
    if tensor.dtype == torch.float64 and not isinstance(value, Tensor):
        tensor = tensor.float()
    if tensor.is_floating_point():
        bad = torch.nonzero(~torch.isfinite(tensor))
        if len(bad):
            raise InvalidInput(f"{name} must be finite; got NaN or infinity at {_where(bad)}. Impute or drop them.")
    return tensor


def _where(bad: Tensor) -> str:
    found = f"rows {_some(bad[:, 0].unique().tolist())}"
    return found + (f", columns {_some(bad[:, 1].unique().tolist())}" if bad.shape[1] > 1 else "")


def _some(values: Sequence[int]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")
