"""A numeric test that no example sees another: change one, and look at all the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from tacit import check
from tacit.gradients.inputs import Inputs, outputs_of, rows, tensors
from tacit.gradients.verify_capture import few

_TOLERANCE = 1e-4
_SEED = 0  # dropout draws the same masks in both runs


@dataclass(frozen=True)
class Leak:
    """One way in which examples see each other.

    Attributes:
        path, layer: the first layer where it shows; empty path for the model itself.
        what: "outputs", "gradients" or "state" (buffers and weights that the forward pass writes).
        change: largest change relative to the largest value.
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
    """Ways in which the examples of a batch see each other in train mode; empty when none was found.

    A few examples run through a copy of the model, and again with one of them changed. Outputs of the others, the
    gradients of their outputs, buffers and weights must not change. This finds batch statistics of one's own, attention
    across examples, and time-first tensors where the model expects the batch in front. It is a test, no proof: mixing
    that these inputs do not show stays unseen.

    Args:
        inputs: at least two examples, as for the model.

    Raises:
        InvalidInput: the model does not take the inputs, or its outputs or gradients on them are not finite.
    """
    given = tensors(inputs)
    if not given or any(not isinstance(value, Tensor) or len(value) < 2 for value in given):
        raise check.fail("inputs", "tensors with at least two examples", type(inputs).__name__)
    count = len(given[0])
    x, _ = few([*model.parameters(), *model.buffers()], inputs, torch.zeros(count, device=given[0].device))
    others = [torch.arange(len(tensors(x)[0])) != at for at in (0, len(tensors(x)[0]) - 1)]
    found: dict[tuple[str, str], Leak] = {}
    before = _run(model, x)
    for keep in others:
        after = _run(model, _changed(x, ~keep))
        for leak in (
            _in_outputs(model, before, after, keep),
            _in_gradients(model, before, after),
            _in_state(before, after, model),
        ):
            if leak is not None:
                found.setdefault((leak.path, leak.what), leak)
    return list(found.values())


@dataclass
class _Seen:
    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]
    state: dict[str, Tensor]


def _run(model: nn.Module, inputs: Inputs) -> _Seen:
    """Outputs of every layer, gradients of the middle example's output, and the state after the run, of a copy."""
    twin = copy.deepcopy(model).train()
    outputs: dict[str, Tensor] = {}
    hooks = []
    for path, module in twin.named_modules():
        hooks.append(module.register_forward_hook(_noting(outputs, path)))
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(_SEED)
        whole = main_output(outputs_of(twin, inputs))
        values = whole[len(whole) // 2].flatten()
        weights = torch.linspace(-1.0, 1.5, len(values), dtype=values.dtype, device=values.device)
        readout = (values * weights + 0.1 * values.square()).sum()
        named = {name: p for name, p in twin.named_parameters() if p.requires_grad}
        reached = readout.requires_grad and named
        gradients = torch.autograd.grad(readout, list(named.values()), allow_unused=True) if reached else ()
    for hook in hooks:
        hook.remove()
    kept = {name: g for name, g in zip(named, gradients, strict=bool(reached)) if g is not None}
    _check_finite([whole, *kept.values()])
    state = {name: value.detach() for name, value in twin.state_dict().items()}
    return _Seen(outputs, kept, state)


def _noting(outputs: dict[str, Tensor], path: str) -> Callable[[nn.Module, object, object], None]:
    def note(_: nn.Module, __: object, output: object) -> None:
        found = [value for value in tree_flatten(output)[0] if isinstance(value, Tensor) and value.is_floating_point()]
        if found:
            outputs.setdefault(path, found[0].detach().clone())

    return note


def main_output(output: object) -> Tensor:
    """The first real-valued tensor of what a model returns."""
    found = [value for value in tree_flatten(output)[0] if isinstance(value, Tensor) and value.is_floating_point()]
    if not found or not found[0].dim():
        got = "a single number" if found else type(output).__name__
        raise check.fail("model", "a module that returns a real-valued tensor for a batch", got)
    return found[0]


def _check_finite(values: Iterable[Tensor]) -> None:
    """NaN equals nothing, itself least of all, and hides every change."""
    if not all(torch.isfinite(value).all() for value in values):
        hint = "It could not be tested: try inputs of another size, or another start."
        raise check.fail("outputs and gradients", "finite on random inputs", "NaN or infinity", hint)


def _changed(inputs: Inputs, which: Tensor) -> Inputs:
    """The inputs with one example replaced: real values are negated and shifted, integers taken from the next row."""
    index = torch.arange(len(which))
    copies = rows(inputs, torch.where(which, (index + 1) % len(which), index))
    for value in tensors(copies):
        if value.is_floating_point():
            value[which.to(value.device)] = 1.0 - 1.5 * value[which.to(value.device)]
    return copies


def _in_outputs(model: nn.Module, before: _Seen, after: _Seen, keep: Tensor) -> Leak | None:
    for path, output in before.outputs.items():
        other = after.outputs.get(path)
        axis = next((i for i, size in enumerate(output.shape) if size == len(keep)), None)
        axis = 0 if path == "" and output.dim() and len(output) == len(keep) else axis
        if other is None or axis is None or other.shape != output.shape:
            continue
        index = keep.nonzero().flatten().to(output.device)
        change = _change(output.index_select(axis, index), other.index_select(axis, index))
        if change > _TOLERANCE:
            return Leak(path, type(model.get_submodule(path)).__name__, "outputs", change)
    return None


def _in_gradients(model: nn.Module, before: _Seen, after: _Seen) -> Leak | None:
    for name, gradient in before.gradients.items():
        change = _change(gradient, after.gradients[name])
        if change > _TOLERANCE:
            path = name.rpartition(".")[0]
            return Leak(path, type(model.get_submodule(path)).__name__, "gradients", change)
    return None


def _in_state(before: _Seen, after: _Seen, model: nn.Module) -> Leak | None:
    for name, value in before.state.items():
        if not torch.equal(value, after.state[name]):
            path = name.rpartition(".")[0]
            change = _change(value.double(), after.state[name].double())
            return Leak(path, type(model.get_submodule(path)).__name__, "state", change)
    return None


def _change(before: Tensor, after: Tensor) -> float:
    scale = float(before.abs().max()) if before.numel() else 0.0
    return float((before - after).abs().max()) / max(scale, 1e-12) if before.numel() else 0.0
