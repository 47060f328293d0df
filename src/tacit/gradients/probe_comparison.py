"""Two runs of a model probe, compared: rows that were kept must agree, and so must state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import UnsupportedModel
from tacit.gradients.module_state import State, changed_names

_OUTPUTS = 1e-5  # rounding of one row between two runs of equal shape, relative to the largest value
_GRADIENTS = 1e-4  # that of a sum over rows
_HALF = 5e-2  # both, in models that compute in half precision


@dataclass
class ProbeRun:
    """One run of a copy.

    Attributes:
        outputs: of the model.
        layers: path -> first input and first output of every layer.
        gradients: of the kept rows' outputs, by parameter.
        state: what the copy holds afterwards.
    """

    outputs: list[Tensor]
    layers: dict[str, tuple[Tensor | None, Tensor]]
    gradients: dict[str, Tensor]
    state: State


def check_repeats(model: nn.Module, first: ProbeRun, second: ProbeRun) -> None:
    """Two runs on one batch with the same draws must agree in outputs and state.

    Raises:
        UnsupportedModel: they differ.
    """
    everywhere = torch.ones(len(first.outputs[0]) if first.outputs else 0, dtype=torch.bool)
    alike = _rows_alike(first.outputs, second.outputs, everywhere, _tolerance(first, _OUTPUTS))
    if not alike or changed_names(first.state, second.state):
        name = type(model).__name__
        raise UnsupportedModel(
            f"the model ({name}) gives another result when the same batch runs again with the same draws: it keeps "
            "state outside of its modules, or draws from a generator of its own. Keep no statistics of batches; draw "
            "noise from torch's generator."
        )


def check_state(first: State, second: State) -> None:
    """What two runs on batches with other rows leave in a module must be the same.

    Raises:
        UnsupportedModel: some of it differs; its name is told.
    """
    written = changed_names(first, second)
    if written:
        name = _readable(written[0], first)
        raise UnsupportedModel(
            f"{name} follows the records that pass through the model, which would carry private data from one step "
            "into the next. Remove the statistic, or compute it on public data."
        )


def _readable(name: str, state: State) -> str:
    kind = "state" if name.endswith("__len__") or not isinstance(state.get(name), Tensor) else "tensor"
    return f"{kind} {name.removesuffix('.__len__')!r} of the model"


def check_rows(model: nn.Module, first: ProbeRun, second: ProbeRun, keep: Tensor, of_loss: bool) -> None:
    """Outputs and gradients of the rows in `keep` must be the same in two runs.

    Args:
        model: what ran.
        first: its run on a batch.
        second: its run on that batch with other rows outside of `keep`.
        keep: shape (rows,), boolean.
        of_loss: whether the outputs are losses.

    Raises:
        UnsupportedModel: they differ; the first layer where it shows is told.
    """
    if not _rows_alike(first.outputs, second.outputs, keep, _tolerance(first, _OUTPUTS)):
        raise UnsupportedModel(_mixing(model, first, second, keep, "losses" if of_loss else "outputs"))
    allowed = _tolerance(first, _GRADIENTS) * _largest(first.gradients.values())
    for name, gradient in first.gradients.items():
        difference = (gradient - second.gradients[name]).abs()
        # Rows that overflow leave NaN in a sum over all of them, whatever their weight: such a draw decides nothing.
        if bool((difference > allowed).any()) and bool(difference.isfinite().all()):
            raise UnsupportedModel(_mixing(model, first, second, keep, f"the gradient of {name!r}"))


def _rows_alike(first: list[Tensor], second: list[Tensor], keep: Tensor, tolerance: float) -> bool:
    if [value.shape for value in first] != [value.shape for value in second]:
        return False
    return all(is_near(one, other, keep, tolerance) for one, other in zip(first, second, strict=True))


def _alike(one: Tensor | None, other: Tensor | None, keep: Tensor, tolerance: float) -> bool:
    if one is None or other is None or not _comparable(one, other, keep):
        return False
    return is_near(one, other, keep, tolerance)


def _comparable(one: Tensor, other: Tensor, keep: Tensor) -> bool:
    return one.shape == other.shape and bool(one.dim()) and len(one) == len(keep)


def is_near(one: Tensor, other: Tensor, keep: Tensor, tolerance: float) -> bool:
    """Whether rows of two tensors of equal shape agree.

    Args:
        one: shape (rows, ...).
        other: the same shape.
        keep: which rows count, shape (rows,).
        tolerance: largest difference, in units of the largest value of `one`, >= 0.
    """
    where = keep.to(one.device)
    one, other = one[where].float(), other[where].float()
    allowed = tolerance * _largest([one])
    close = ((one - other).abs() <= allowed) | (one == other) | (one.isnan() & other.isnan())
    return bool(close.all())


def _largest(values: Any) -> float:
    found = [float(value.abs().nan_to_num(0.0, 0.0, 0.0).max()) for value in values if value.numel()]
    return max(found, default=0.0)


def _tolerance(run: ProbeRun, usual: float) -> float:
    """`usual` in single precision; half precision rounds otherwise where other rows are scaled along."""
    values = [*run.outputs, *(output for _, output in run.layers.values())]
    narrow = any(value.dtype in (torch.float16, torch.bfloat16) for value in values)
    return _HALF if narrow else usual


def _mixing(model: nn.Module, first: ProbeRun, second: ProbeRun, keep: Tensor, what: str) -> str:
    """The sentence for rows that follow others, with the first layer where it shows."""
    for path, (given, output) in first.layers.items():
        later = second.layers.get(path)
        if later is None or not _comparable(output, later[1], keep):
            continue
        if not is_near(output, later[1], keep, _tolerance(first, _OUTPUTS)):
            layer = f"layer {path!r} ({type(model.get_submodule(path)).__name__})"
            where = (
                layer
                if _alike(given, later[0], keep, _tolerance(first, _OUTPUTS))
                else f"what the model does before {layer}"
            )
            return f"{where} mixes the examples of a batch. Normalise within one example, e.g. by nn.GroupNorm."
    if what == "losses":
        return "the loss of an example depends on the other examples of its batch. Compute each from its own outputs."
    return (
        f"the model mixes the examples of a batch: {what} of an example change when others are exchanged. "
        "Compute each row from its own record and public values alone."
    )
