"""Per-sample gradients by capture: one forward pass, and one backward pass that makes no parameter gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

import tacit.gradients.rules  # noqa: F401  (registers every rule)
from tacit.gradients.capture import Capture, Uncovered
from tacit.gradients.derived import disjoint
from tacit.gradients.fallback import per_module_vmap
from tacit.gradients.flat_gradient import Buffers, FlatGradient, wide
from tacit.gradients.inputs import Inputs, PhysicalBatch
from tacit.gradients.per_sample_gradients import DenseGradients, PerSampleGradients, sum_of_uses
from tacit.gradients.privacy_units import PrivacyUnits
from tacit.gradients.rounding import Blocks, blocks, precise_products

# Values of one unit that are copied in less time than the operations take which joining spares. It depends on the model
# alone: how a record is clipped must not depend on how many others there are.
_MOST_VALUES = 2**11


def joins(gradients: PerSampleGradients) -> bool:
    """Whether `gradients` stand side by side with others: those of biases, scales and whatever else is small."""
    return isinstance(gradients, DenseGradients) and gradients.gradients.shape[1:].numel() <= _MOST_VALUES


@dataclass(frozen=True)
class JoinedGradients:
    """Per-sample gradients of several parameters as one matrix, a row for each privacy unit.

    Attributes:
        names: of the parameters, in the order of the columns.
        widths: columns of each parameter.
        rows: shape (units, sum of `widths`).

    Example:
        >>> import torch
        >>> parts = [DenseGradients("weight", torch.ones(2, 3)), DenseGradients("bias", torch.ones(2, 1))]
        >>> JoinedGradients.of(parts).squared_norms()
        tensor([4., 4.])
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    rows: DenseGradients

    @classmethod
    def of(cls, gradients: Sequence[PerSampleGradients]) -> JoinedGradients:
        """`gradients` of different parameters, side by side.

        Args:
            gradients: those for which `joins` holds, at least one, of the same units.
        """
        flat = [each.dense().flatten(1) if each.dense().dim() > 1 else each.dense().unsqueeze(1) for each in gradients]
        names, widths = tuple(each.name for each in gradients), tuple(each.shape[1] for each in flat)
        return cls(names, widths, DenseGradients(" ".join(names), flat[0] if len(flat) == 1 else torch.cat(flat, 1)))

    def squared_norms(self) -> Tensor:
        """Sum over the parameters of the squared norm of each unit's gradient, shape (units,)."""
        return self.rows.squared_norms()

    def add_in_blocks(self, parts: Mapping[str, Tensor], factors: Tensor, blocks: Blocks) -> None:
        """The weighted sum of every parameter, as `PerSampleGradients.add_in_blocks` makes it.

        Args:
            parts: parameter name -> zeros of its shape, of the type of `blocks`.
            factors: shape (units,).
            blocks: from `tacit.gradients.rounding.blocks`.
        """
        first = parts[self.names[0]]
        if len(self.names) == 1:
            self.rows.add_in_blocks(first, factors, blocks)
            return
        total = first.new_zeros(sum(self.widths))
        self.rows.add_in_blocks(total, factors, blocks)
        for name, part in zip(self.names, total.split_with_sizes(list(self.widths)), strict=True):
            parts[name].copy_(part.view(parts[name].shape))

    def values(self) -> int:
        """Values that the matrix holds in memory."""
        return self.rows.values()


@dataclass(frozen=True)
class Trace:
    """The path of a model through its operations, which captures follow once `verify_capture` has found it.

    Attributes:
        axes: batch axis of every use; None while the path is to be found.
        operations: every operation on trainable parameters, in order.
        copies: whether activations must be copied because the model writes into them.
        values_per_record: values that the per-sample gradients of one record hold in memory.
        modules_by_vmap: modules that run with a copy of their parameters for every record.
    """

    axes: list[int | None] | None = None
    operations: list[tuple[str, ...]] | None = None
    copies: bool = False
    values_per_record: int = 0
    modules_by_vmap: tuple[nn.Module, ...] = ()


@dataclass(frozen=True)
class CapturedGradients:
    """Per-sample gradients of one batch.

    Attributes:
        gradients: by parameter name, one for each privacy unit.
        joined: those of all other parameters, by parameter group.
        squared_norms: shape (groups, units).
        losses: shape (records,).
        trace: the path that was followed.
        privacy_units: what `units` and `groups` are.
    """

    gradients: dict[str, PerSampleGradients]
    joined: dict[int, JoinedGradients]
    squared_norms: Tensor
    losses: Tensor
    trace: Trace
    privacy_units: PrivacyUnits

    @property
    def blocks(self) -> Blocks:
        """How the weighted sum is made, for the logical batch that these units are of."""
        units = self.squared_norms.shape[1]
        drawn, single = self.privacy_units.drawn, self.privacy_units.single_slack
        additions = self.privacy_units.additions
        return blocks(units, units if drawn is None else drawn, self.squared_norms.dtype, single, additions)

    def weighted_sum(self, trainable: Mapping[str, Tensor], factors: Tensor) -> FlatGradient:
        """sum_i factors_i gradient_i, within the bounds of `tacit.gradients.rounding`.

        Args:
            trainable: parameter name -> tensor.
            factors: shape (groups, units), or (units,) for one group.
        """
        total = FlatGradient.zeros(trainable, self.blocks.dtype)
        for names, write in self._sums(factors):
            write({name: total.parts[name] for name in names})
        return total

    def add_weighted_sum(self, total: FlatGradient, factors: Tensor) -> None:
        """Add the weighted sum to `total`, a few parameters at a time, which takes no memory of the model's size.

        Args:
            total: of all parts so far.
            factors: shape (groups, units), or (units,) for one group.
        """
        for names, write in self._sums(factors):
            parts = {name: torch.zeros_like(total.parts[name], dtype=self.blocks.dtype) for name in names}
            write(parts)
            for name, part in parts.items():
                total.parts[name].add_(part)

    def _sums(self, factors: Tensor) -> Iterator[tuple[Sequence[str], Callable[[Mapping[str, Tensor]], None]]]:
        """Names of parameters, and what writes their weighted sums over zeros."""
        chosen, by_group = self.blocks, factors.view(self.squared_norms.shape).unbind()
        with precise_products():
            for name, gradients in self.gradients.items():
                yield (name,), partial(_write, gradients, by_group[self.privacy_units.group(name)], chosen)
            for group, joined in self.joined.items():
                yield joined.names, partial(joined.add_in_blocks, factors=by_group[group], blocks=chosen)


def _write(gradients: PerSampleGradients, factors: Tensor, blocks: Blocks, parts: Mapping[str, Tensor]) -> None:
    gradients.add_in_blocks(parts[gradients.name], factors, blocks)


class Overwritten(Exception):
    """The model wrote into an activation that was recorded; capture again with copies."""


def capture_gradients(
    model: Callable[[Inputs], Tensor],
    trainable: Mapping[str, Tensor],
    batch: PhysicalBatch,
    trace: Trace,
    buffers: Buffers | None = None,
) -> CapturedGradients:
    """Per-sample gradients of every parameter on one batch, or those of its privacy units.

    Args:
        model: inputs -> outputs, by the tensors in `trainable`, none of which may require a gradient.
        trainable: parameter name -> tensor.
        batch: records, loss and privacy units.
        trace: the path to follow; one without `axes` is completed.
        buffers: memory of earlier batches to use again.

    Raises:
        Uncovered: the model leaves the path of `trace`, or uses a parameter in a way that no rule covers.
        Overwritten: the model writes into an activation that was recorded.
        InvalidInput: the loss does not give one value per record.
    """
    names = {id(parameter): name for name, parameter in trainable.items()}
    capture = Capture(names, len(batch), trace.axes, trace.copies, buffers)
    weights = batch.privacy_units.weights
    with torch.enable_grad():
        with per_module_vmap(capture, trace.modules_by_vmap), capture:
            losses = batch.losses(model)
        check_path(capture, trace)
        roots = [use.root for use in capture.uses]
        reached = bool(roots) and losses.requires_grad
        weights = torch.ones_like(losses) if weights is None else weights.to(losses.dtype)
        gradients = torch.autograd.grad(losses, roots, weights, allow_unused=True) if reached else [None] * len(roots)
    return gradients_of_uses(capture, gradients, trainable, losses.detach(), trace, batch.privacy_units)


def check_path(capture: Capture, trace: Trace) -> None:
    """Raise `Uncovered` where `capture` recorded other operations than those of `trace`."""
    if trace.operations is not None and capture.operations != trace.operations:
        raise Uncovered("the model takes another path than when it was examined")


def gradients_of_uses(
    capture: Capture,
    root_gradients: Sequence[Tensor | None],
    trainable: Mapping[str, Tensor],
    losses: Tensor,
    trace: Trace,
    privacy_units: PrivacyUnits,
) -> CapturedGradients:
    """Per-sample gradients and their norms from what `capture` recorded.

    Args:
        capture: after the forward pass.
        root_gradients: gradient of every root of `capture.uses`; None for a root that the loss does not reach.
        trainable: parameter name -> tensor.
        losses: shape (records,), detached.
        trace: the path that the capture followed or completed.
        privacy_units: which records are clipped together.

    Raises:
        Overwritten: something that was recorded has been written into.
    """
    if capture.overwritten():
        raise Overwritten
    norms = _Norms(capture, wide(losses.dtype), privacy_units)
    with precise_products():
        for use, gradient in zip(capture.uses, root_gradients, strict=True):
            if gradient is not None:
                for gradients in use.gradients(gradient.to(wide(gradient.dtype))):
                    norms.add_use(gradients if privacy_units.size == 1 else gradients.per_unit(privacy_units.size))
        # Uses refer to the capture: that circle would keep all activations until a collection.
        capture.uses.clear()
        norms.add_waiting(trainable)
        joined = norms.joined()
    values = sum(gradients.values() for gradients in (*norms.finished.values(), *joined.values())) // capture.batch
    found = replace(trace, axes=capture.axes, operations=capture.operations, values_per_record=values)
    squared_norms = norms.squared(len(losses) // privacy_units.size, losses.device)
    return CapturedGradients(norms.finished, joined, squared_norms, losses, found, privacy_units)


class _Norms:
    """Sums of squared norms by group. A parameter that is used once is finished before the next."""

    def __init__(self, capture: Capture, dtype: torch.dtype, privacy_units: PrivacyUnits):
        self.finished: dict[str, PerSampleGradients] = {}
        self._capture, self._dtype, self._privacy_units = capture, dtype, privacy_units
        self._sums: list[Tensor | None] = [None] * privacy_units.group_count
        self._waiting: dict[str, list[PerSampleGradients]] = {}
        self._small: dict[int, list[PerSampleGradients]] = {}

    def add_use(self, gradients: PerSampleGradients) -> None:
        """Per-sample gradients that come from one use of a parameter or of a derived tensor."""
        name = gradients.name
        if self._capture.use_count[name] != 1:
            self._waiting.setdefault(name, []).append(gradients.over_positions())
        elif name in self._capture.derived:
            for source in self._capture.derived[name].pullback(gradients):
                self.add_use(source)
        else:
            self._finish(gradients)

    def add_waiting(self, trainable: Mapping[str, Tensor]) -> None:
        """Finish what is used several times."""
        waiting, derived = self._waiting, self._capture.derived
        for name in [name for name in derived if name in waiting]:
            for source in derived[name].pullback(sum_of_uses(waiting.pop(name), derived[name].value.shape)):
                waiting.setdefault(source.name, []).append(source)
        for name, uses in waiting.items():
            self._finish(disjoint(uses) or sum_of_uses(uses, trainable[name].shape))

    def joined(self) -> dict[int, JoinedGradients]:
        """Finish what is small, after everything else: parameter group -> gradients side by side."""
        found = {group: JoinedGradients.of(small) for group, small in self._small.items()}
        for group, joined in found.items():
            self._add(group, joined.squared_norms())
        return found

    def squared(self, units: int, device: torch.device) -> Tensor:
        """The sums, shape (groups, units)."""
        zeros = torch.zeros(units, dtype=self._dtype, device=device) if None in self._sums else None
        return torch.stack([zeros if found is None else found for found in self._sums])  # type: ignore[misc]

    def _finish(self, gradients: PerSampleGradients) -> None:
        group = self._privacy_units.group(gradients.name)
        if joins(gradients):
            self._small.setdefault(group, []).append(gradients)
            return
        self.finished[gradients.name] = gradients
        self._add(group, gradients.squared_norms())

    def _add(self, group: int, squares: Tensor) -> None:
        squares, before = squares.to(self._dtype), self._sums[group]
        self._sums[group] = squares if before is None else before + squares


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
