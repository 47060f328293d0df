"""Modules that no rule covers, run with a copy of their parameters for every example.

The copies are gradient roots, so the backward pass gives the module's per-example gradients whatever it computes, at
the price of its parameters once for every example; the rest of the model keeps the cheap way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from tacit.gradients.capture import Capture, Uncovered
from tacit.gradients.per_sample_gradients import Contribution, Rows


@contextmanager
def per_module_vmap(capture: Capture, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Every call of `modules` inside runs example by example."""
    for module in modules:
        module.forward = _runner(capture, module, module.forward)
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def _runner(capture: Capture, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if capture.paused:
            return forward(*args, **kwargs)
        capture.paused = True
        try:
            return _by_example(capture, module, args, kwargs)
        finally:
            capture.paused = False

    return run


def _by_example(capture: Capture, module: nn.Module, args: Any, kwargs: Any) -> Any:
    copies = {}
    for path, parameter in module.named_parameters():
        if name := capture.name(parameter):
            copies[path] = parameter.detach().expand(capture.batch, *parameter.shape).requires_grad_()
            capture.operations.append((f"apart {path}", name))
            capture.times[name] += 1
            capture.root(copies[path], (), _rows(name))
    leaves, form = tree_flatten((args, kwargs))
    axes = [capture.axis(leaf, 0) if isinstance(leaf, Tensor) else None for leaf in leaves]
    split = [
        leaf if axis is None else leaf.unflatten(axis, (capture.batch, -1))
        for leaf, axis in zip(leaves, axes, strict=True)
    ]
    forms = []

    def one(parameters: dict[str, Tensor], *parts: Any) -> list[Tensor]:
        positional, named = tree_unflatten(list(parts), form)
        outputs, shape = tree_flatten(functional_call(module, parameters, positional, named))
        forms.append((outputs, shape))
        return [output for output in outputs if isinstance(output, Tensor)]

    found = vmap(one, in_dims=(0, *axes), randomness="different")(copies, *split)
    outputs, shape = forms[-1]
    plain: list[Tensor] = []
    if not capture.following:
        with torch.no_grad():
            plain = [value for value in tree_flatten(module(*args, **kwargs))[0] if isinstance(value, Tensor)]
    whole = []
    for index, value in enumerate(found):
        axis = capture.recall(lambda index=index: capture.batch_axis(plain[index].shape))
        if axis is None:
            raise Uncovered("a module has an output without a batch axis")
        whole.append(value.movedim(0, axis).flatten(axis, axis + 1))
    joined = iter(whole)
    return tree_unflatten([next(joined) if isinstance(output, Tensor) else output for output in outputs], shape)


def _rows(name: str) -> Callable[[Tensor], list[Contribution]]:
    return lambda gradient: [Rows(name, gradient)]
