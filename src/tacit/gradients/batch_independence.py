"""Batch independence: a numeric test that changing one record changes nothing for all the others."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from tacit import check
from tacit.gradients.inputs import Inputs, outputs_of, rows, tensors
from tacit.gradients.verify_capture import probe_records, recorded_outputs

# Relative change that rounding explains where kernels sum in another order.
_TOLERANCE = 1e-4
# Dropout draws the same masks in both runs.
_SEED = 0


@dataclass(frozen=True)
class Leak:
    """One way in which a record affects what the model does with others of its batch.

    Attributes:
        path: of the first layer where it shows; empty for the model itself.
        layer: its type.
        what: "outputs", "gradients" or "state" (buffers and weights that the forward pass writes).
        change: largest change relative to the largest value.

    Example:
        >>> print(Leak("1", "Centred", "outputs", 0.25))
        layer '1' (Centred): outputs of an example change by 25.0% when another example changes.
    """

    path: str
    layer: str
    what: str
    change: float

    def __str__(self) -> str:
        name = f"layer {self.path!r} ({self.layer})" if self.path else f"the model ({self.layer})"
        if self.what == "state":
            return f"{name} stores something that depends on the examples it has seen."
        return f"{name}: {self.what} of an example change by {self.change:.1%} when another example changes."


def leakage(model: nn.Module, inputs: Inputs) -> list[Leak]:
    """Ways in which the records of a batch affect each other in train mode; empty when none was found.

    A few records run through a copy of the model, and again with one of them changed. Outputs of the others, the
    gradients of their outputs, buffers and weights must not change. This finds batch statistics in custom layers,
    attention across records, and time-first tensors where the model expects the batch first. It is a test, not a proof:
    mixing that these inputs do not show stays undetected.

    Args:
        model: any module; it is left as it is.
        inputs: at least two records, as for the model.

    Raises:
        InvalidInput: the model does not take the inputs, or its outputs or gradients on them are not finite.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        >>> leakage(model, torch.eye(3))[0].path
        '1'
    """
    given = tensors(inputs)
    if not given or any(not isinstance(value, Tensor) or len(value) < 2 for value in given):
        raise check.fail("inputs", "tensors with at least two examples", type(inputs).__name__)
    count = len(given[0])
    x, _ = probe_records([*model.parameters(), *model.buffers()], inputs, torch.zeros(count, device=given[0].device))
    others = [torch.arange(len(tensors(x)[0])) != at for at in (0, len(tensors(x)[0]) - 1)]
    found: dict[tuple[str, str], Leak] = {}
    before = _run(model, x)
    for keep in others:
        after = _run(model, _changed(x, ~keep))
        for leak in (
            _in_outputs(model, before, after, keep),
            _in_gradients(model, before, after),
            _in_state(model, before, after),
        ):
            if leak is not None:
                found.setdefault((leak.path, leak.what), leak)
    return list(found.values())


@dataclass
class _Run:
    """Outputs of every layer, gradients of the middle record's output, and the state after the run."""

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Tensor]


def _run(model: nn.Module, inputs: Inputs) -> _Run:
    """One forward and backward pass of a copy of the model."""
    model = copy.deepcopy(model).train()
    outputs: dict[str, Tensor] = {}
    with torch.random.fork_rng(), torch.enable_grad(), recorded_outputs(model, outputs, _first_real):
        torch.manual_seed(_SEED)
        whole = main_output(outputs_of(model, inputs))
        values = whole[len(whole) // 2].flatten()
        weights = torch.linspace(-1.0, 1.5, len(values), dtype=values.dtype, device=values.device)
        readout = (values * weights + 0.1 * values.square()).sum()
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        reached = readout.requires_grad and named
        gradients = torch.autograd.grad(readout, list(named.values()), allow_unused=True) if reached else ()
    kept = {name: g for name, g in zip(named, gradients, strict=bool(reached)) if g is not None}
    _check_finite([whole, *kept.values()])
    state = {name: value.detach() for name, value in model.state_dict().items()}
    return _Run(outputs, kept, state)


def main_output(output: object) -> Tensor:
    """The first real-valued tensor of what a model returns."""
    found = _first_real(output)
    if found is None or not found.dim():
        got = type(output).__name__ if found is None else "a single number"
        raise check.fail("model", "a module that returns a real-valued tensor for a batch", got)
    return found


def _first_real(output: object) -> Tensor | None:
    real = (value for value in tree_flatten(output)[0] if isinstance(value, Tensor) and value.is_floating_point())
    return next(real, None)


def _check_finite(values: Iterable[Tensor]) -> None:
    """NaN differs from everything, itself included, and would hide every change."""
    if not all(torch.isfinite(value).all() for value in values):
        hint = "It could not be tested: try inputs of another size, or another start."
        raise check.fail("outputs and gradients", "finite on random inputs", "NaN or infinity", hint)


def _changed(inputs: Inputs, which: Tensor) -> Inputs:
    """The inputs with one record replaced: real values are negated and shifted, integers taken from the next row."""
    index = torch.arange(len(which))
    copies = rows(inputs, torch.where(which, (index + 1) % len(which), index))
    for value in tensors(copies):
        if value.is_floating_point():
            value[which.to(value.device)] = 1.0 - 1.5 * value[which.to(value.device)]
    return copies


def _in_outputs(model: nn.Module, before: _Run, after: _Run, keep: Tensor) -> Leak | None:
    for path, output in before.outputs.items():
        other = after.outputs.get(path)
        axis = next((i for i, size in enumerate(output.shape) if size == len(keep)), None)
        axis = 0 if path == "" and output.dim() and len(output) == len(keep) else axis
        if other is None or axis is None or other.shape != output.shape:
            continue
        index = keep.nonzero().flatten().to(output.device)
        change = _change(output.index_select(axis, index), other.index_select(axis, index))
        if change > _TOLERANCE:
            return _leak(model, path, "outputs", change)
    return None


def _in_gradients(model: nn.Module, before: _Run, after: _Run) -> Leak | None:
    for name, gradient in before.gradients.items():
        change = _change(gradient, after.gradients[name])
        if change > _TOLERANCE:
            return _leak(model, name.rpartition(".")[0], "gradients", change)
    return None


def _in_state(model: nn.Module, before: _Run, after: _Run) -> Leak | None:
    for name, value in before.state.items():
        if not torch.equal(value, after.state[name]):
            return _leak(model, name.rpartition(".")[0], "state", _change(value.double(), after.state[name].double()))
    return None


def _leak(model: nn.Module, path: str, what: str, change: float) -> Leak:
    return Leak(path, type(model.get_submodule(path)).__name__, what, change)


def _change(before: Tensor, after: Tensor) -> float:
    """Largest change relative to the largest value before."""
    scale = float(before.abs().max()) if before.numel() else 0.0
    return float((before - after).abs().max()) / max(scale, 1e-12) if before.numel() else 0.0
