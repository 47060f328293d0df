"""Per-sample gradients without capture, of a whole model or of modules that no rule covers.

The fallback is slow and right for every use of every parameter. A single module runs with a copy of its parameters for
every record; the copies are gradient roots, and the rest of the model keeps the cheap rules.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacit.clipping import Clip
from tacit.gradients.capture import Capture, Uncovered
from tacit.gradients.flat_gradient import wide
from tacit.gradients.inputs import Arguments, Inputs, PhysicalBatch, call, check_losses, map_tensors
from tacit.gradients.module_state import call_with
from tacit.gradients.per_sample_gradients import DenseGradients
from tacit.gradients.privacy_units import RECORD_UNITS, PrivacyUnits
from tacit.gradients.rounding import square_sums


@contextmanager
def per_module_vmap(capture: Capture, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Every call of `modules` inside runs record by record."""
    for module in modules:
        module.forward = _record_by_record(capture, module, module.forward)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _record_by_record(capture: Capture, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if capture.paused:
            return forward(*args, **kwargs)
        capture.paused = True
        try:
            return _run(capture, module, args, kwargs)
        finally:
            capture.paused = False

    return run


def _run(capture: Capture, module: nn.Module, args: Any, kwargs: Any) -> Any:
    copies = _parameter_copies(capture, module)
    leaves, form = tree_flatten((args, kwargs))
    axes = [capture.axis(leaf, 0) if isinstance(leaf, Tensor) else None for leaf in leaves]
    split = [
        leaf if axis is None else leaf.unflatten(axis, (capture.batch, -1))
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    forms = []

    def one(parameters: dict[str, Tensor], *parts: Any) -> list[Tensor]:
        positional, named = tree_unflatten(list(parts), form)
        outputs, shape = tree_flatten(call_with(module, parameters, positional, named))
        forms.append((outputs, shape))
        return [output for output in outputs if isinstance(output, Tensor)]

    found = vmap(one, in_dims=(0, *axes), randomness="different")(copies, *split)
    outputs, shape = forms[-1]
    whole = iter(_with_batch_axis(capture, found, lambda: module(*args, **kwargs)))
    return tree_unflatten([next(whole) if isinstance(output, Tensor) else output for output in outputs], shape)


def _parameter_copies(capture: Capture, module: nn.Module) -> dict[str, Tensor]:
    """Every trainable parameter of `module`, shape (B, *shape), as a gradient root."""
    copies = {}
    for path, parameter in module.named_parameters():
        if name := capture.name(parameter):
            copies[path] = parameter.detach().expand(capture.batch, *parameter.shape).requires_grad_()
            capture.operations.append((f"vmap {path}", name))
            capture.use_count[name] += 1
            capture.root(copies[path], (), lambda gradient, name=name: [DenseGradients(name, gradient)])
    return copies


def _with_batch_axis(capture: Capture, found: list[Tensor], run: Callable[[], Any]) -> list[Tensor]:
    """Outputs of single records put together along the axis where the outputs of `run` have the batch."""
    whole_batch: list[Tensor] = []
    if not capture.following:
        with torch.no_grad():
            whole_batch = [value for value in tree_flatten(run())[0] if isinstance(value, Tensor)]
    outputs = []
    for index, value in enumerate(found):
        axis = capture.recall(lambda index=index: capture.batch_axis(whole_batch[index].shape))
        if axis is None:
            raise Uncovered("a module has an output without a batch axis")
        outputs.append(value.movedim(0, axis).flatten(axis, axis + 1))
    return outputs


# Per-sample gradient values held at a time: 16 MB in float32.
_HELD_VALUES = 2**22
# Squares of values beyond this overflow in float32 once some are added up.
_LARGE = 1e15


def add_clipped_rows(
    model: nn.Module, batch: PhysicalBatch, clip: Clip, gradient_sum: dict[str, Tensor], *, vectorised: bool
) -> Tensor:
    """Add every privacy unit's clipped gradient to `gradient_sum`, a few per-sample gradients at a time.

    Every record runs through the model as a batch of one, so no layer can mix records.

    Args:
        model: any module.
        batch: records, loss and privacy units.
        clip: gives the clipping factors.
        gradient_sum: parameter name -> tensor of its shape, in double precision.
        vectorised: whether `torch.func` runs the records together, which not every model allows.

    Returns:
        Unclipped norms, shape (units,).
    """
    units = batch.privacy_units
    norms = [next(iter(gradient_sum.values())).new_zeros(0)]
    values = sum(part.numel() for part in gradient_sum.values())
    size = max(1, _HELD_VALUES // (values * units.size)) * units.size
    for start in range(0, len(batch), size):
        part = batch.select(slice(start, start + size))
        found = by_vmap(model, part) if vectorised else one_at_a_time(model, part)[0]
        norm, gradients = clipped_rows(_unit_sums(found, part.privacy_units), clip, units)
        norms.append(norm)
        for name, gradient in gradients.items():
            gradient_sum[name] += gradient.sum(0, dtype=gradient_sum[name].dtype)
    return torch.cat(norms)


def one_at_a_time(model: nn.Module, batch: PhysicalBatch) -> tuple[dict[str, Tensor], Tensor]:
    """Per-sample gradients, name -> (batch, *shape), and losses, by ordinary backward passes over batches of one."""
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found: dict[str, list[Tensor]] = {name: [] for name in trainable}
    losses = []
    with torch.enable_grad():
        for i in range(len(batch)):
            value = batch.select(slice(i, i + 1)).checked_losses(model)
            losses.append(value.detach())
            given = [None] * len(trainable)
            if value.requires_grad:
                given = torch.autograd.grad(value.sum(), list(trainable.values()), allow_unused=True)
            for (name, parameter), gradient in zip(trainable.items(), given, strict=True):
                found[name].append(parameter.new_zeros(parameter.shape) if gradient is None else gradient)
    stacked = {name: torch.stack(found.pop(name)) for name in trainable}
    return {name: rows.to(wide(rows.dtype)) for name, rows in stacked.items()}, torch.cat(losses)


def by_vmap(model: nn.Module, batch: PhysicalBatch) -> dict[str, Tensor]:
    """Per-sample gradients, name -> (batch, *shape), by `torch.func`, which not every model runs under."""
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    frozen |= dict(model.named_buffers())

    given = batch.inputs
    # `vmap` walks through dictionaries of Python's own class only.
    plain = dict(given) if isinstance(given, Arguments) else given

    def with_rows(record: Inputs) -> Inputs:
        return given.with_tensors(record) if isinstance(given, Arguments) and isinstance(record, dict) else record

    def one_loss(parameters: dict[str, Tensor], record: Inputs, target: Tensor) -> Tensor:
        arguments, values = map_tensors(lambda value: value.unsqueeze(0), with_rows(record)), parameters | frozen
        outputs = call(lambda *positional, **named: call_with(model, values, positional, named), arguments)
        return check_losses(batch.loss(outputs, target.unsqueeze(0)), 1)[0]

    per_sample = vmap(grad(one_loss), in_dims=(None, 0, 0), randomness="different")
    gradients = per_sample(trainable, plain, batch.targets)
    return {name: gradient.to(wide(gradient.dtype)) for name, gradient in gradients.items()}


def _unit_sums(gradients: dict[str, Tensor], units: PrivacyUnits) -> dict[str, Tensor]:
    """Sums of the weighted gradients of the records of each unit."""
    if units.weights is not None:
        gradients = {name: gradient * _along(units.weights, gradient) for name, gradient in gradients.items()}
    if units.size == 1:
        return gradients
    return {name: gradient.unflatten(0, (-1, units.size)).sum(1) for name, gradient in gradients.items()}


def clipped_rows(
    gradients: dict[str, Tensor], clip: Clip, units: PrivacyUnits = RECORD_UNITS
) -> tuple[Tensor, dict[str, Tensor]]:
    """Unclipped norms, shape (units,), and the clipped gradients, name -> (units, *shape).

    Gradients that are not finite become 0. Gradients whose squares overflow are first divided by their largest value,
    and their factor is that of the divided gradient. Squares that underflow hide less than 1e-15 of norm, far below
    any clipping norm.
    """
    # A sparse layer may be left without a weight.
    filled = [gradient for gradient in gradients.values() if gradient.numel()]
    largest = torch.stack([gradient.reshape(len(gradient), -1).abs().amax(1) for gradient in filled]).amax(0)
    bad = ~torch.isfinite(largest)
    scale = torch.where(~bad & (largest > _LARGE), largest, torch.ones_like(largest))
    # Out of place throughout: two parameters may have been given one and the same gradient tensor.
    safe = {
        name: (gradient / _along(scale, gradient)).masked_fill(_along(bad, gradient), 0.0)
        for name, gradient in gradients.items()
    }
    squared = scale.new_zeros(units.group_count, len(scale))
    for name, gradient in safe.items():
        squared[units.group(name)] += square_sums(gradient.reshape(len(gradient), -1))
    norms = squared.double().sqrt() * scale.double()
    factors = clip.factors(norms.masked_fill(bad, torch.inf), rounding=torch.finfo(squared.dtype).eps) * scale.double()
    clipped = {
        name: gradient * _along(factors[units.group(name)].to(gradient.dtype), gradient)
        for name, gradient in safe.items()
    }
    return norms.square().sum(0).sqrt().masked_fill(bad, torch.inf).to(squared.dtype), clipped


def _along(values: Tensor, gradient: Tensor) -> Tensor:
    """`values`, shape (B,), to multiply the first axis of `gradient`."""
    return values.view(-1, *[1] * (gradient.dim() - 1))
