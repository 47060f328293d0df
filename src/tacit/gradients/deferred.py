"""Clipped sums in two halves: a forward pass now, and the clipped sum once the gradients of its outputs are known.

`ClippedSum` runs the model and the loss itself. Here the loss belongs to another training loop, so the model's outputs
are handed out in between; one forward pass serves both, and dropout draws only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import TrainingMisuse, UnsupportedModel
from tacit.gradients.capture import Capture, Uncovered
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.engine import Overwritten, Trace, check_path, gradients_of_uses, without_gradients
from tacit.gradients.flat_gradient import FlatGradient, Total
from tacit.gradients.inputs import Inputs, PhysicalBatch, call, rows, tensors
from tacit.gradients.per_module_vmap import per_module_vmap
from tacit.gradients.privacy_units import UnitIds
from tacit.gradients.verify_capture import Verification


@dataclass(frozen=True)
class RecordedChunk:
    """A part of the batch that went through the model together.

    Attributes:
        index: its records.
        capture: every use of a parameter.
        outputs: what the model returned, with the graph behind it.
    """

    index: slice
    capture: Capture
    outputs: Tensor


@dataclass(frozen=True)
class Recording:
    """One forward pass.

    Attributes:
        outputs: what the model returned, detached.
        inputs: what it was given.
        versions: how often each of the inputs had been written into.
        verification: how the gradients of this model are made.
        chunks: parts of the batch; none for a model that runs again, record by record.
    """

    outputs: Tensor
    inputs: Inputs
    versions: list[int]
    verification: Verification
    chunks: list[RecordedChunk]


class DeferredSum(ClippedSum):
    """`ClippedSum` in two halves.

    A model whose gradients cannot be captured runs once for its outputs and again, record by record, for the sum.
    """

    def record(self, inputs: Inputs) -> Recording:
        """Run the model and record every use of a trainable parameter.

        Raises:
            UnsupportedModel: the model mixes records, or its output is not one tensor with a row for each.
        """
        size = len(tensors(inputs)[0])
        versions = [value._version for value in tensors(inputs)]
        verified = self._verified_by_projection(inputs, size)
        trace = verified.trace
        chunks = [] if trace is None else self._captured(inputs, size, trace, self._chunk(verified))
        if chunks:
            parts = [chunk.outputs.detach() for chunk in chunks]
            outputs = parts[0] if len(parts) == 1 else torch.cat(parts)
        else:
            with torch.no_grad():
                outputs = _one_tensor(call(self.model, inputs))
        _check_rows(outputs, size)
        return Recording(outputs, inputs, versions, verified, chunks)

    def release(
        self, recording: Recording, cotangents: Tensor, unit_ids: UnitIds | None = None, *, drawn: int | None = None
    ) -> tuple[FlatGradient, Tensor]:
        """Clipped sum and norms of the gradients of  <outputs_i, cotangents_i>  over the records i of the pass.

        With `unit_ids`, privacy units of several records, the model runs again.

        Args:
            recording: of the pass.
            cotangents: gradients of the outputs.
            unit_ids: privacy unit of every record; None where every record is its own.
            drawn: units of the logical batch; those of the pass by default.

        Raises:
            TrainingMisuse: inputs or activations have been written into since.
        """
        if [value._version for value in tensors(recording.inputs)] != recording.versions:
            raise TrainingMisuse(f"the inputs must {_UNTOUCHED}")
        if unit_ids is not None:
            return self(inner_product, recording.inputs, cotangents, unit_ids)
        total, norms = Total(self.trainable), []
        units = replace(self.privacy_units, drawn=len(cotangents) if drawn is None else drawn)
        batch = PhysicalBatch(inner_product, recording.inputs, cotangents, units)
        if len(cotangents) and not recording.chunks:
            norms = [self._add_by_fallback(batch, recording.verification, total)]
        for chunk in recording.chunks:
            norms.append(self._add_recorded(chunk, batch.select(chunk.index), recording.verification, total))
        return self._result(total, norms)

    def _verified_by_projection(self, inputs: Inputs, size: int) -> Verification:
        if not size:
            return Verification(None, "an empty batch")
        places = tensors(inputs)[0].new_zeros(size, dtype=torch.float32)
        if not torch.is_autocast_enabled(places.device.type):
            return self._verification(_projection, inputs, places)
        # Under autocast only the rounding differs; the path through the model is compared at full precision.
        with torch.autocast(places.device.type, enabled=False):
            return self._verification(_projection, inputs, places)

    def _captured(self, inputs: Inputs, size: int, trace: Trace, length: int) -> list[RecordedChunk]:
        names = {id(parameter): name for name, parameter in self.trainable.items()}
        chunks = []
        with without_gradients(self.trainable), torch.enable_grad():
            for start in range(0, size, length):
                index = slice(start, min(start + length, size))
                capture = Capture(names, index.stop - start, trace.axes, trace.copies, self._buffers)
                try:
                    with per_module_vmap(capture, trace.modules_by_vmap), capture:
                        outputs = _one_tensor(call(self.model, rows(inputs, index)))
                    check_path(capture, trace)
                except Uncovered:
                    return []
                chunks.append(RecordedChunk(index, capture, outputs))
        return chunks

    def _add_recorded(self, chunk: RecordedChunk, batch: PhysicalBatch, verified: Verification, total: Total) -> Tensor:
        roots = [use.root for use in chunk.capture.uses]
        gradients: Sequence[Tensor | None] = [None] * len(roots)
        cotangents = batch.targets
        if roots and chunk.outputs.requires_grad:
            gradients = torch.autograd.grad(chunk.outputs, roots, cotangents, allow_unused=True)
        losses = cotangents.new_zeros(len(cotangents))
        try:
            found = gradients_of_uses(chunk.capture, gradients, self.trainable, losses, Trace(), batch.privacy_units)
        except Overwritten:
            raise TrainingMisuse(f"the model's activations must {_UNTOUCHED}") from None
        return self._add_captured(found, batch, verified, total)


_UNTOUCHED = "stay as they are until backward; got some that were written into. Work on copies."


def inner_product(outputs: Tensor, cotangents: Tensor) -> Tensor:
    """<outputs_i, cotangents_i>: the loss whose gradient with respect to the outputs is `cotangents`."""
    return (outputs * cotangents).flatten(1).sum(1) if outputs.dim() > 1 else outputs * cotangents


def _projection(outputs: Tensor, places: Tensor) -> Tensor:
    """A loss with an uneven gradient in every output, for examining a model before its loss is known."""
    outputs = _one_tensor(outputs)
    _check_rows(outputs, len(places))
    flat = outputs.reshape(len(outputs), -1)
    return flat @ (1.0 + torch.arange(flat.shape[1], dtype=flat.dtype, device=flat.device).sin())


def _check_rows(outputs: Tensor, size: int) -> None:
    if len(outputs) != size:
        shape = tuple(outputs.shape)
        raise UnsupportedModel(f"the model must return one row for each of {size} examples; got shape {shape}.")


def _one_tensor(outputs: object) -> Tensor:
    if not isinstance(outputs, Tensor) or not outputs.dim():
        raise UnsupportedModel(f"the model must return one tensor; got {type(outputs).__name__}.")
    return outputs
