"""The recorded lanes: clip, noise and mean as one graph for each size of padded batch, compiled or replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.fx import GraphModule
from torch.utils._pytree import TreeSpec, tree_structure, tree_unflatten

from tacit.errors import InvalidInput, UnsupportedModel
from tacit.gradients import ClippedSum, GradientSum
from tacit.gradients.batch import Inputs, Loss, rows, tensors
from tacit.gradients.engine import Trace, captured
from tacit.gradients.scratch import fused
from tacit.training.replay import replay

Graph = Callable[..., tuple[Tensor, Tensor]]
_CONSTANTS = 64


class CompiledMean:
    """Noisy clipped mean of a batch by a recorded graph.

    Poisson batches differ in size, and every size would need a graph of its own. A batch is filled up with copies of
    its first record to a multiple of an eighth of the expected size; copies have weight 0, so they contribute exactly
    nothing and the divisor stays the expected size.

    Raises `UnsupportedModel` when the model's gradients cannot be captured or its graph cannot be compiled.
    """

    def __init__(
        self,
        clipped: ClippedSum,
        loss: Loss,
        expected_batch_size: float,
        max_physical_batch: int | None = None,
        *,
        compiler: bool = True,
    ):
        if clipped.clip.of_mean or clipped.clip.statistics:
            raise InvalidInput(f'engine must be "eager" for {clipped.clip.type} clipping; got "compiled".')
        self._clipped, self._loss, self._compiler = clipped, loss, compiler
        self._expected, self._most = expected_batch_size, max_physical_batch
        self._multiple = max_physical_batch or max(1, round(expected_batch_size / 8))
        self._fixed = {name: p for name, p in clipped.model.named_parameters() if name not in clipped.trainable}
        self._fixed |= dict(clipped.model.named_buffers())
        self._parameters = [*clipped.trainable.values(), *self._fixed.values()]
        self._graphs: dict[tuple[object, ...], Graph] = {}
        self._constants: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, inputs: Inputs, targets: Tensor, noise: Tensor, noise_std: float) -> GradientSum | None:
        """(clipped sum + noise_std * noise) / expected; None for a batch with an example out of range, or an empty one.

        Args:
            noise: independent N(0, 1) values, one for every trainable parameter value.
        """
        count = len(targets)
        if not count:
            return None
        size, flat, scale = self._most or count, noise, noise_std
        for start in range(0, count, size):
            part = slice(start, start + size)
            divisor = self._expected if start + size >= count else 1.0
            flat = self._piece(rows(inputs, part), targets[part], flat, scale, divisor)
            if flat is None:
                return None
            scale = 1.0
        return GradientSum.of(flat, self._clipped.trainable)

    def _piece(self, inputs: Inputs, targets: Tensor, flat: Tensor, scale: float, divisor: float) -> Tensor | None:
        """(clipped sum + scale * flat) / divisor of one physical batch."""
        count = len(targets)
        size = -(-count // self._multiple) * self._multiple
        if size > count:
            index = torch.arange(size, device=targets.device)
            index[count:] = 0
            inputs, targets = rows(inputs, index), targets[index]
        weights = self._constant(("weights", size, count), lambda: (torch.arange(size) < count).to(flat))
        scales = self._constant(("scales", scale, divisor), lambda: flat.new_tensor([scale, divisor]))
        arguments = [*self._parameters, *tensors(inputs), targets, weights, flat, scales]
        with torch.no_grad():
            total, near = self._graph(inputs, targets, arguments)(*arguments)
        return total if near else None

    def _constant(self, key: tuple[object, ...], make: Callable[[], Tensor]) -> Tensor:
        """A small tensor that most steps use again."""
        if key not in self._constants:
            if len(self._constants) > _CONSTANTS:
                self._constants.clear()
            self._constants[key] = make()
        return self._constants[key]

    def _graph(self, inputs: Inputs, targets: Tensor, arguments: list[Tensor]) -> Graph:
        key = (self._clipped.model.training, *((x.shape, x.dtype) for x in (*tensors(inputs), targets)))
        if key not in self._graphs:
            self._graphs[key] = self._compiled(inputs, targets, arguments)
        return self._graphs[key]

    def _compiled(self, inputs: Inputs, targets: Tensor, arguments: list[Tensor]) -> Graph:
        # The decompositions of pooling use `lowering` without importing it.
        import torch._inductor.lowering  # noqa: F401
        from torch._inductor import compile as compile_graph
        from torch._inductor.decomposition import select_decomp_table

        # Autograd runs while the graph is recorded, never when it runs: the inputs of the graph are plain tensors.
        plain = [value.detach() for value in arguments]
        trace = self._clipped.trace(self._loss, inputs, targets)
        form = tree_structure(inputs)
        try:
            if not self._compiler:
                return replay(self._record(trace, form, plain, {}))
            with fused():
                recorded = self._record(trace, form, plain, select_decomp_table())
            return compile_graph(recorded, plain)  # type: ignore[return-value]
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            raise UnsupportedModel(f'the model cannot be compiled ({reason}). Use engine="eager".') from error

    def _record(self, trace: Trace, form: TreeSpec, arguments: list[Tensor], decompositions: Any) -> GraphModule:
        from torch.fx.experimental.proxy_tensor import make_fx

        run = make_fx(
            lambda *given: self._step(trace, form, list(given)),
            tracing_mode="fake",
            decomposition_table=decompositions,
        )
        return run(*arguments)

    def _step(self, trace: Trace, form: TreeSpec, given: list[Tensor]) -> tuple[Tensor, Tensor]:
        """What is recorded, on the tensors that `_piece` lists."""
        *batch, targets, weights, start, scales = given[len(self._parameters) :]
        inputs = tree_unflatten(batch, form)
        trainable = dict(zip(self._clipped.trainable, given, strict=False))
        constants = dict(zip(self._fixed, given[len(trainable) :], strict=False))

        def model(given: Inputs) -> Tensor:
            positional, named = ((), given) if isinstance(given, dict) else (given, {})
            positional = positional if isinstance(positional, tuple) else (positional,)
            return functional_call(self._clipped.model, trainable | constants, positional, named)

        found = captured(model, trainable, self._loss, inputs, targets, trace, units=self._clipped.units)
        factors = self._clipped.factors(found.squared) * weights
        flat = start * scales[0]
        found.add_weighted(GradientSum.of(flat, trainable).parts, factors)
        return flat / scales[1], self._clipped.within_range(found.squared).all()
