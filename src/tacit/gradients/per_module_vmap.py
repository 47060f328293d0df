"""Per-module vmap: modules that no rule covers run with a copy of their parameters for every record.

The copies are gradient roots, so the backward pass gives the module's per-sample gradients whatever it computes, at
the price of its parameters once for every record; the rest of the model keeps the cheap rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacit.gradients.capture import Capture, Uncovered
from tacit.gradients.module_state import call_with
from tacit.gradients.per_sample_gradients import DenseGradients, PerSampleGradients


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
            capture.root(copies[path], (), _dense(name))
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


def _dense(name: str) -> Callable[[Tensor], list[PerSampleGradients]]:
    return lambda gradient: [DenseGradients(name, gradient)]
