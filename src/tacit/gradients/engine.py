"""Per-example gradients by capture: one forward pass, and one backward pass that makes no parameter gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

import tacit.gradients.rules  # noqa: F401  (registers every rule)
from tacit.gradients.batch import Inputs, Loss, call, per_example
from tacit.gradients.capture import HALF, Capture, Uncovered
from tacit.gradients.contributions import Contribution, merged


@dataclass
class Trace:
    """What an examination of the model found, so that later captures follow the same path.

    Attributes:
        axes: batch axis of every use.
        operations: every operation on trainable parameters, in order.
        copies: whether activations must be copied because the model writes into them.
        held: values that one example's contributions hold in memory.
    """

    axes: list[int | None]
    operations: list[tuple[str, ...]]
    copies: bool
    held: int


@dataclass
class Captured:
    """Contributions of one batch, by parameter name, and what the examination needs to know about them."""

    contributions: dict[str, Contribution]
    losses: Tensor
    trace: Trace
    squared: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.squared = torch.zeros_like(self.losses, dtype=torch.float32)
        for contribution in self.contributions.values():
            self.squared = self.squared + contribution.squared_norms()

    def add_weighted(self, sums: dict[str, Tensor], factors: Tensor) -> None:
        """Add sum_i factors_i gradient_i to `sums`."""
        for name, contribution in self.contributions.items():
            contribution.add_weighted(sums[name], factors.to(sums[name].dtype))


class Overwritten(Exception):
    """The model wrote into an activation that was recorded; capture again with copies."""


def captured(
    model: nn.Module,
    trainable: dict[str, nn.Parameter],
    loss: Loss,
    inputs: Inputs,
    targets: Tensor,
    trace: Trace | None,
    copies: bool = False,
) -> Captured:
    """Contributions of every parameter to the per-example gradients of one batch.

    Raises `Uncovered` when the model leaves the path of `trace`, or uses a parameter in a way that no rule covers.
    """
    batch = len(targets)
    names = {id(parameter): name for name, parameter in trainable.items()}
    copies = copies if trace is None else trace.copies
    capture = Capture(names, batch, None if trace is None else trace.axes, copies)
    with _no_parameter_gradients(trainable), torch.enable_grad():
        with capture:
            losses = per_example(loss(call(model, inputs), targets), batch)
        if trace is not None and capture.operations != trace.operations:
            raise Uncovered("the model takes another path than when it was examined")
        roots = [use.root for use in capture.uses]
        gradients = torch.autograd.grad(losses.sum(), roots, allow_unused=True) if _reached(losses, roots) else []
    if capture.overwritten():
        raise Overwritten
    uses: dict[str, list[Contribution]] = {}
    for use, gradient in zip(capture.uses, gradients, strict=False):
        if gradient is not None:
            for contribution in use.contribute(gradient.float() if gradient.dtype in HALF else gradient):
                uses.setdefault(contribution.name, []).append(contribution)
    together = {name: merged(found, trainable[name].shape) for name, found in uses.items()}
    held = sum(_held(contribution) for contribution in together.values()) // max(1, batch)
    return Captured(together, losses.detach(), Trace(capture.axes, capture.operations, copies, held))


@contextmanager
def _no_parameter_gradients(trainable: dict[str, nn.Parameter]) -> Iterator[None]:
    for parameter in trainable.values():
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable.values():
            parameter.requires_grad_(True)


def _reached(losses: Tensor, roots: list[Tensor]) -> bool:
    return bool(roots) and losses.requires_grad


def _held(contribution: Contribution) -> int:
    return sum(value.numel() for value in vars(contribution).values() if isinstance(value, Tensor))
