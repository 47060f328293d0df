"""The optimizer's step, by a shorter way where the optimizer is plain SGD."""

from __future__ import annotations

import torch
from torch import (
    Tensor,
    _foreach_add_,  # pyright: ignore[reportPrivateImportUsage]
    nn,
)
from torch.optim import SGD, Optimizer

_PLAIN = {"momentum": 0, "weight_decay": 0, "dampening": 0, "nesterov": False, "maximize": False}


def descend(optimizer: Optimizer, trainable: dict[str, nn.Parameter], gradients: dict[str, Tensor]) -> None:
    """Let `optimizer` step along `gradients`, by parameter name, and leave none behind."""
    if _is_plain(optimizer):
        _plain_step(optimizer, trainable, gradients)
        return
    for name, parameter in trainable.items():
        gradient = gradients[name]
        parameter.grad = gradient if gradient.dtype == parameter.dtype else gradient.to(parameter.dtype)
    optimizer.step()
    for parameter in trainable.values():
        parameter.grad = None


def _is_plain(optimizer: Optimizer) -> bool:
    """Whether a step is p -= lr g and nothing else: no momentum, hooks, schedulers that count steps or subclasses."""
    if type(optimizer) is not SGD or "step" in vars(optimizer) or len(optimizer.param_groups) != 1:
        return False
    group = optimizer.param_groups[0]
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return not hooks and isinstance(group["lr"], float) and all(group[key] == value for key, value in _PLAIN.items())


@torch.no_grad()
def _plain_step(optimizer: Optimizer, trainable: dict[str, nn.Parameter], gradients: dict[str, Tensor]) -> None:
    parameters: list[Tensor] = list(trainable.values())
    steps = [gradients[name] for name in trainable]
    if any(step.dtype != parameter.dtype for step, parameter in zip(steps, parameters, strict=True)):
        steps = [step.to(parameter.dtype) for step, parameter in zip(steps, parameters, strict=True)]
    _foreach_add_(parameters, steps, alpha=-optimizer.param_groups[0]["lr"])
