"""Clipped sums in two halves: a forward pass now, and the clipped sum once the gradients of its outputs are known.

`ClippedSum` runs the model and the loss itself. Here the loss belongs to somebody else's loop, so the model's outputs
are handed out in between; one forward pass serves both, and dropout draws only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import TrainingMisuse, UnsupportedModel
from tacit.gradients.capture import Capture, Uncovered
from tacit.gradients.clipped import ClippedSum
from tacit.gradients.engine import Overwritten, Trace, finished, without_gradients
from tacit.gradients.flat_gradient import FlatGradient
from tacit.gradients.inputs import Inputs, call, rows, tensors
from tacit.gradients.per_module_vmap import per_module_vmap
from tacit.gradients.privacy_units import UnitIds
from tacit.gradients.verify_capture import Verdict


@dataclass
class Recording:
    """One forward pass.

    Attributes:
        outputs: what the model returned, detached.
        inputs: what it was given, and how often that had been written into.
        verdict: how the gradients of this model are made.
        parts: examples, captured uses of the parameters, outputs; none for a model that runs again, one by one.
    """

    outputs: Tensor
    inputs: Inputs
    versions: list[int]
    verdict: Verdict
    parts: list[tuple[slice, Capture, Tensor]]


class DeferredSum(ClippedSum):
    """`ClippedSum` in two halves.

    A model whose gradients cannot be captured runs once for its outputs and again, example by example, for the sum.
    """

    def record(self, inputs: Inputs) -> Recording:
        """Run the model and record every use of a trainable parameter.

        Raises `UnsupportedModel` for a model that mixes examples or whose output is not one tensor with a row for each.
        """
        size = len(tensors(inputs)[0])
        versions = [value._version for value in tensors(inputs)]
        verdict = self._examined(inputs, size)
        parts = self._captured(inputs, size, verdict.trace, self._chunk(verdict)) if verdict.trace is not None else []
        if parts:
            outputs = parts[0][2].detach() if len(parts) == 1 else torch.cat([part[2].detach() for part in parts])
        else:
            outputs = self._plain(inputs)
        if len(outputs) != size:
            shape = tuple(outputs.shape)
            raise UnsupportedModel(f"the model must return one row for each of {size} examples; got shape {shape}.")
        return Recording(outputs, inputs, versions, verdict, parts)

    def release(
        self, recording: Recording, cotangents: Tensor, members: UnitIds | None = None
    ) -> tuple[FlatGradient, Tensor]:
        """Sum of the clipped gradients of  <outputs_i, cotangents_i>  over the examples i of the recorded pass; norms.

        With `members`, units of several records, the model runs again.

        Raises `TrainingMisuse` when inputs or activations have been written into since.
        """
        if [value._version for value in tensors(recording.inputs)] != recording.versions:
            raise TrainingMisuse(f"the inputs must {_UNTOUCHED}")
        if members is not None:
            return self(inner_product, recording.inputs, cotangents, members)
        total = FlatGradient.zeros(self.trainable)
        norms = [total.flat.new_zeros(0)]
        verdict = recording.verdict
        if len(cotangents) and not recording.parts:
            norms = [self._add_slowly(inner_product, recording.inputs, cotangents, verdict, total.parts, self.units)]
        for part, capture, outputs in recording.parts:
            inputs = rows(recording.inputs, part)
            norms.append(self._add_part(inputs, capture, outputs, cotangents[part], verdict, total))
        return total, torch.cat([norm.to(total.flat.dtype) for norm in norms])

    def _examined(self, inputs: Inputs, size: int) -> Verdict:
        if not size:
            return Verdict(None, "an empty batch")
        places = tensors(inputs)[0].new_zeros(size, dtype=torch.float32)
        if not torch.is_autocast_enabled(places.device.type):
            return self._verdict(_projection, inputs, places)
        # Under autocast only the rounding differs; the way through the model is compared at full precision.
        with torch.autocast(places.device.type, enabled=False):
            return self._verdict(_projection, inputs, places)

    def _captured(self, inputs: Inputs, size: int, trace: Trace, chunk: int) -> list[tuple[slice, Capture, Tensor]]:
        names = {id(parameter): name for name, parameter in self.trainable.items()}
        parts = []
        with without_gradients(self.trainable), torch.enable_grad():
            for start in range(0, size, chunk):
                part = slice(start, min(start + chunk, size))
                capture = Capture(names, part.stop - start, trace.axes, trace.copies, self._scratch)
                try:
                    with per_module_vmap(capture, trace.per_module_vmap), capture:
                        outputs = _one_tensor(call(self.model, rows(inputs, part)))
                except Uncovered:
                    return []
                if capture.operations != trace.operations:
                    return []
                parts.append((part, capture, outputs))
        return parts

    def _plain(self, inputs: Inputs) -> Tensor:
        with torch.no_grad():
            return _one_tensor(call(self.model, inputs))

    def _add_part(
        self,
        inputs: Inputs,
        capture: Capture,
        outputs: Tensor,
        cotangents: Tensor,
        verdict: Verdict,
        total: FlatGradient,
    ) -> Tensor:
        roots = [use.root for use in capture.uses]
        gradients: Sequence[Tensor | None] = [None] * len(roots)
        if roots and outputs.requires_grad:
            gradients = torch.autograd.grad(outputs, roots, cotangents, allow_unused=True)
        losses = cotangents.new_zeros(len(cotangents))
        try:
            found = finished(capture, gradients, dict(self.trainable), losses, copies=False, units=self.units)
        except Overwritten:
            raise TrainingMisuse(f"the model's activations must {_UNTOUCHED}") from None
        return self._add_found(found, inner_product, inputs, cotangents, verdict, total.parts, self.units)


_UNTOUCHED = "stay as they are until backward; got some that were written into. Work on copies."


def inner_product(outputs: Tensor, cotangents: Tensor) -> Tensor:
    """<outputs_i, cotangents_i>: the loss whose gradient with respect to the outputs is `cotangents`."""
    return (outputs * cotangents).flatten(1).sum(1) if outputs.dim() > 1 else outputs * cotangents


def _projection(outputs: Tensor, places: Tensor) -> Tensor:
    """A loss with an uneven gradient in every output, for examining a model before its loss is known."""
    outputs = _one_tensor(outputs)
    if len(outputs) != len(places):
        shape = tuple(outputs.shape)
        raise UnsupportedModel(f"the model must return one row for each of {len(places)} examples; got shape {shape}.")
    flat = outputs.reshape(len(outputs), -1)
    return flat @ (1.0 + torch.arange(flat.shape[1], dtype=flat.dtype, device=flat.device).sin())


def _one_tensor(outputs: object) -> Tensor:
    if not isinstance(outputs, Tensor) or not outputs.dim():
        raise UnsupportedModel(f"the model must return one tensor; got {type(outputs).__name__}.")
    return outputs
