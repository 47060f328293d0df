"""Per-example gradients by capture: one forward pass, and one backward pass that makes no parameter gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import tacit.gradients.rules  # noqa: F401  (registers every rule)
from tacit.gradients.buffers import Buffers
from tacit.gradients.capture import HALF, Capture, Uncovered
from tacit.gradients.derived import Disjoint, Moved, disjoint
from tacit.gradients.inputs import Inputs, Loss, per_example
from tacit.gradients.per_module_vmap import per_module_vmap
from tacit.gradients.per_sample_gradients import Contribution, Masked, Single, merged
from tacit.gradients.privacy_units import ALONE, PrivacyUnits


@dataclass
class Trace:
    """What an examination of the model found, so that later captures follow the same path.

    Attributes:
        axes: batch axis of every use.
        operations: every operation on trainable parameters, in order.
        copies: whether activations must be copied because the model writes into them.
        held: values that one example's contributions hold in memory.
        apart: modules that run with a copy of their parameters for every example.
    """

    axes: list[int | None]
    operations: list[tuple[str, ...]]
    copies: bool
    held: int
    per_module_vmap: tuple[nn.Module, ...] = ()


@dataclass
class Captured:
    """Contributions of one batch by parameter name, squared gradient norms, losses, and the trace that was followed.

    `squared` has shape (groups, units): one unit is a record, or several records together.
    """

    contributions: dict[str, Contribution]
    squared: Tensor
    losses: Tensor
    trace: Trace
    units: PrivacyUnits

    def add_weighted(self, sums: dict[str, Tensor], factors: Tensor) -> None:
        """Add sum_i factors_i gradient_i to `sums`; `factors` has the shape of `squared`, or (units,) for one group."""
        each = factors.view(self.squared.shape).unbind()
        for name, contribution in self.contributions.items():
            contribution.add_weighted(sums[name], each[self.units.groups.get(name, 0)].to(sums[name].dtype))


class Overwritten(Exception):
    """The model wrote into an activation that was recorded; capture again with copies."""


def captured(
    model: Callable[[Inputs], Tensor],
    trainable: dict[str, Tensor],
    loss: Loss,
    inputs: Inputs,
    targets: Tensor,
    trace: Trace | None,
    copies: bool = False,
    scratch: Buffers | None = None,
    modules: Sequence[nn.Module] = (),
    units: PrivacyUnits = ALONE,
) -> Captured:
    """Contributions of every parameter to the per-example gradients of one batch, or to those of its units.

    Args:
        model: inputs -> outputs, by the tensors in `trainable`, none of which may require a gradient.
        trace: the path to follow; None to find it.
        copies, modules: when there is no trace, whether activations are copied, and which modules run apart.
        units: what is clipped as one.

    Raises `Uncovered` when the model leaves the path of `trace`, or uses a parameter in a way that no rule covers, and
    `Overwritten` when it writes into an activation that was recorded.
    """
    names = {id(parameter): name for name, parameter in trainable.items()}
    copies = copies if trace is None else trace.copies
    modules = tuple(modules) if trace is None else trace.per_module_vmap
    capture = Capture(names, len(targets), None if trace is None else trace.axes, copies, scratch)
    with torch.enable_grad():
        with per_module_vmap(capture, modules), capture:
            losses = per_example(loss(model(inputs), targets), len(targets))
        if trace is not None and capture.operations != trace.operations:
            raise Uncovered("the model takes another path than when it was examined")
        roots = [use.root for use in capture.uses]
        reached = bool(roots) and losses.requires_grad
        weights = torch.ones_like(losses) if units.weights is None else units.weights.to(losses.dtype)
        gradients = torch.autograd.grad(losses, roots, weights, allow_unused=True) if reached else [None] * len(roots)
    return finished(capture, gradients, trainable, losses.detach(), copies, units, modules)


def finished(
    capture: Capture,
    gradients: Sequence[Tensor | None],
    trainable: dict[str, Tensor],
    losses: Tensor,
    copies: bool,
    units: PrivacyUnits,
    modules: Sequence[nn.Module] = (),
) -> Captured:
    """What `capture` recorded, given the gradient of every root; raises `Overwritten` as `captured` does."""
    if capture.overwritten():
        raise Overwritten
    together, squared = _norms(capture, gradients, trainable, losses, units)
    held = sum(_held(contribution) for contribution in together.values()) // capture.batch
    trace = Trace(capture.axes, capture.operations, copies, held, tuple(modules))
    return Captured(together, squared, losses, trace, units)


@contextmanager
def without_gradients(trainable: dict[str, nn.Parameter]) -> Iterator[None]:
    """The parameters do not require gradients inside."""
    for parameter in trainable.values():
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable.values():
            parameter.requires_grad_(True)


def _norms(
    capture: Capture,
    gradients: Sequence[Tensor | None],
    trainable: dict[str, Tensor],
    losses: Tensor,
    units: PrivacyUnits,
) -> tuple[dict[str, Contribution], Tensor]:
    """Contributions by name and the sums of their squared norms, shape (groups, units).

    A parameter that is used once is finished before the next.
    """
    dtype = torch.float32 if losses.dtype in HALF else losses.dtype
    sums: list[Tensor | None] = [None] * units.count
    done: dict[str, Contribution] = {}
    waiting: dict[str, list[Contribution]] = {}

    def finish(contribution: Contribution) -> None:
        done[contribution.name] = contribution
        group, found = units.groups.get(contribution.name, 0), contribution.squared_norms().to(dtype)
        before = sums[group]
        sums[group] = found if before is None else before + found

    def take(contribution: Contribution) -> None:
        if capture.times[contribution.name] != 1:
            use = contribution.outer() if isinstance(contribution, Single) else contribution
            waiting.setdefault(use.name, []).append(use)
        elif contribution.name in capture.derived:
            for pulled in capture.derived[contribution.name].pull(contribution):
                take(pulled)
        else:
            finish(contribution)

    for use, gradient in zip(capture.uses, gradients, strict=True):
        if gradient is not None:
            for contribution in use.contribute(gradient.float() if gradient.dtype in HALF else gradient):
                take(contribution if units.size == 1 else contribution.joined(units.size))
    for name in [name for name in capture.derived if name in waiting]:
        for pulled in capture.derived[name].pull(merged(waiting.pop(name), capture.derived[name].value.shape)):
            waiting.setdefault(pulled.name, []).append(pulled)
    for name, uses in waiting.items():
        finish(disjoint(uses) or merged(uses, trainable[name].shape))
    nothing = torch.zeros(len(losses) // units.size, dtype=dtype, device=losses.device) if None in sums else None
    return done, torch.stack([nothing if found is None else found for found in sums])  # type: ignore[misc]


def _held(contribution: Contribution) -> int:
    parts = [contribution.inner] if isinstance(contribution, Masked | Moved) else []
    parts += contribution.parts if isinstance(contribution, Disjoint) else []
    own = sum(value.numel() for value in vars(contribution).values() if isinstance(value, Tensor))
    return own + sum(_held(part) for part in parts)
