"""Clipped sums in two halves: a forward pass now, and the clipped sum once the gradients of its outputs are known.

`ClippedSum` runs the model and the loss itself. Here the loss belongs to another training loop, so the model's outputs
are handed out in between; one forward pass serves both, and dropout draws only once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.clipping import Clip
from tacit.errors import TacitError, TrainingMisuse
from tacit.gradients.capture import Capture, Uncovered
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.engine import Overwritten, Trace, check_path, gradients_of_uses, without_gradients
from tacit.gradients.fallback import per_module_vmap
from tacit.gradients.flat_gradient import FlatGradient, Total, wide
from tacit.gradients.inputs import Inputs, PhysicalBatch, call, form_of, map_tensors, outputs_of, rows, tensors
from tacit.gradients.module_state import copy_to_run, with_leaves
from tacit.gradients.outputs import SINGLE, OutputForm, SeveralOutputs, check_rows
from tacit.gradients.privacy_units import UnitIds
from tacit.gradients.verify_capture import NoDropout, Verification, marking_size, probe_records


@dataclass(frozen=True)
class RecordedChunk:
    """A part of the batch that went through the model together.

    Attributes:
        index: its records.
        capture: every use of a parameter.
        outputs: the private outputs, packed, with the graph behind them.
        returned: what the model returned.
    """

    index: slice
    capture: Capture
    outputs: Tensor
    returned: Any


@dataclass(frozen=True)
class Recording:
    """One forward pass.

    Attributes:
        outputs: the private outputs, packed and detached.
        form: which parts of what the model returned are private outputs.
        structure: what the model returned, with the form's `RowShape` in place of private outputs.
        inputs: what it was given.
        versions: how often each of the inputs had been written into.
        verification: how the gradients of this model are made.
        chunks: parts of the batch; none for a model that runs again, record by record.
        replayed: of a replayed pass, cotangents -> clipped sum; None for a record out of range.
    """

    outputs: Tensor
    form: OutputForm
    structure: Any
    inputs: Inputs
    versions: list[int]
    verification: Verification
    chunks: list[RecordedChunk]
    replayed: Callable[[Tensor], FlatGradient | None] | None = None


class DeferredSum(ClippedSum):
    """`ClippedSum` in two halves.

    A model whose gradients cannot be captured runs once for its outputs and again, record by record, for the sum.
    """

    def __init__(self, model: torch.nn.Module, clip: Clip, *, expected_batch_size: float | None = None):
        super().__init__(model, clip, expected_batch_size=expected_batch_size)
        self._forms: dict[tuple[object, ...], OutputForm] = {}

    def record(self, inputs: Inputs) -> Recording:
        """Run the model and record every use of a trainable parameter.

        An empty batch does not enter the model: constant records give the shapes of its outputs.

        Raises:
            UnsupportedModel: the model mixes records, or none of its outputs has a row for each.
        """
        size = len(tensors(inputs)[0])
        versions = [value._version for value in tensors(inputs)]
        if not size:
            verified = Verification(None, "an empty batch")
            form, returned = self.form_of_empty(inputs)
            return Recording(form.pack(returned), form, form.structure([returned]), inputs, versions, verified, [])
        form, verified = self.verified_by_projection(inputs, size)
        trace = verified.trace
        chunks = [] if trace is None else self._captured(inputs, size, trace, form, self._chunk(verified))
        if chunks:
            parts = [chunk.outputs.detach() for chunk in chunks]
            outputs = parts[0] if len(parts) == 1 else torch.cat(parts)
            returned = [chunk.returned for chunk in chunks]
        else:
            with torch.no_grad():
                returned = [call(self.model, inputs)]
            outputs = form.pack(returned[0])
        check_rows(outputs, size)
        return Recording(outputs, form, form.structure(returned), inputs, versions, verified, chunks)

    def form(self, inputs: Inputs) -> OutputForm:
        """The form of what the model returns for batches like `inputs`, found on a copy of the model where unknown."""
        key = form_of(inputs)
        if key not in self._forms:
            size = len(tensors(inputs)[0])
            with copy_to_run(self.model) as module, NoDropout(), torch.random.fork_rng(_devices(inputs)):
                if size:
                    probe, _ = probe_records(self._sizes(), inputs, tensors(inputs)[0].new_zeros(size))
                    returned = outputs_of(module, probe)
                else:
                    probe, returned = self._on_constants(module, inputs)
                self._forms[key] = OutputForm.of(returned, len(tensors(probe)[0]))
        return self._forms[key]

    def form_of_empty(self, inputs: Inputs) -> tuple[OutputForm, Any]:
        """Form and empty outputs, by constant records in place of the empty `inputs`.

        The model itself runs, so that state which changes at every batch changes at an empty one too.
        """
        form = self.form(inputs)
        with torch.random.fork_rng(_devices(inputs)), torch.no_grad():
            returned = self._on_constants(self.model, inputs)[1]
        return form, with_leaves(
            returned, lambda _, leaf: leaf[:0] if isinstance(leaf, Tensor) and leaf.dim() else leaf
        )

    def _on_constants(self, module: torch.nn.Module, inputs: Inputs) -> tuple[Inputs, Any]:
        """Records of zeros, or of ones where the model takes no zeros, and what `module` returns for them."""
        size = marking_size(self._sizes(), inputs)
        zeros = map_tensors(lambda value: value.new_zeros(size, *value.shape[1:]), inputs)
        try:
            return zeros, outputs_of(module, zeros)
        except TacitError:
            ones = map_tensors(torch.ones_like, zeros)
            return ones, outputs_of(module, ones)

    def _sizes(self) -> list[Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]

    def release(
        self,
        recording: Recording,
        cotangents: Tensor,
        unit_ids: UnitIds | None = None,
        *,
        drawn: int | None = None,
        loss_scale: float = 1.0,
    ) -> tuple[FlatGradient, Tensor]:
        """Clipped sum and norms of the gradients of  <outputs_i, cotangents_i>  over the records i of the pass.

        With `unit_ids`, privacy units of several records, the model runs again.

        Args:
            recording: of the pass.
            cotangents: gradients of the outputs.
            unit_ids: privacy unit of every record; None where every record is its own.
            drawn: units of the logical batch; those of the pass by default.
            loss_scale: gradients pass back through the model so many times as large, which small ones of half precision
                need, and are divided by it before they are clipped.

        Raises:
            TrainingMisuse: inputs or activations have been written into since.
        """
        if [value._version for value in tensors(recording.inputs)] != recording.versions:
            raise TrainingMisuse(f"the inputs must {UNTOUCHED}")
        if recording.replayed is not None and (found := recording.replayed(cotangents)) is not None:
            return found, cotangents.new_zeros(0, dtype=self.dtype)
        if unit_ids is not None or recording.replayed is not None:
            return self(recording.form.inner_product, recording.inputs, cotangents, unit_ids, drawn=drawn)
        total, norms = Total(self.trainable), []
        units = replace(self.privacy_units, drawn=len(cotangents) if drawn is None else drawn)
        batch = PhysicalBatch(recording.form.inner_product, recording.inputs, cotangents, units)
        if len(cotangents) and not recording.chunks:
            norms = [self._add_by_fallback(batch, recording.verification, total)]
        for chunk in recording.chunks:
            part = batch.select(chunk.index)
            norms.append(self._add_recorded(chunk, part, recording.verification, total, loss_scale))
        return self._result(total, norms)

    def verified_by_projection(self, inputs: Inputs, size: int) -> tuple[OutputForm, Verification]:
        """The form of the outputs for `inputs` of `size` records, and how the gradients of such a batch are made."""
        places = tensors(inputs)[0].new_zeros(size, dtype=torch.float32)
        # Under autocast only the rounding differs; the path through the model is compared at full precision.
        with torch.autocast(places.device.type, enabled=False):
            form = self._forms.get(form_of(inputs), SINGLE)
            try:
                return form, self._verification(form.projection, inputs, places)
            except SeveralOutputs:
                form = self.form(inputs)
                return form, self._verification(form.projection, inputs, places)

    def _captured(self, inputs: Inputs, size: int, trace: Trace, form: OutputForm, length: int) -> list[RecordedChunk]:
        names = {id(parameter): name for name, parameter in self.trainable.items()}
        chunks = []
        with without_gradients(self.trainable), torch.enable_grad():
            for start in range(0, size, length):
                index = slice(start, min(start + length, size))
                capture = Capture(names, index.stop - start, trace.axes, trace.copies, self._buffers)
                try:
                    with per_module_vmap(capture, trace.modules_by_vmap), capture:
                        returned = call(self.model, rows(inputs, index))
                        outputs = form.pack(returned)
                    check_path(capture, trace)
                except Uncovered:
                    return []
                chunks.append(RecordedChunk(index, capture, outputs, returned))
        return chunks

    def _add_recorded(
        self, chunk: RecordedChunk, batch: PhysicalBatch, verified: Verification, total: Total, loss_scale: float
    ) -> Tensor:
        roots = [use.root for use in chunk.capture.uses]
        gradients: Sequence[Tensor | None] = [None] * len(roots)
        cotangents = batch.targets
        if roots and chunk.outputs.requires_grad:
            scaled = (cotangents * loss_scale).to(chunk.outputs.dtype) if loss_scale != 1 else cotangents
            gradients = torch.autograd.grad(chunk.outputs, roots, scaled, allow_unused=True)
            if loss_scale != 1:
                gradients = [each if each is None else each.to(wide(each.dtype)) / loss_scale for each in gradients]
        losses = cotangents.new_zeros(len(cotangents))
        try:
            found = gradients_of_uses(chunk.capture, gradients, self.trainable, losses, Trace(), batch.privacy_units)
        except Overwritten:
            raise TrainingMisuse(f"the model's activations must {UNTOUCHED}") from None
        return self._add_captured(found, batch, verified, total)


UNTOUCHED = "stay as they are until backward; got some that were written into. Work on copies."
"""What inputs and activations must do."""


def _devices(inputs: Inputs) -> list[torch.device]:
    """Devices besides the CPU whose generators a run of the model may move."""
    return list({value.device for value in tensors(inputs) if value.is_cuda})
