"""The update: released gradients and the optimizer's own state make the next weights, and nothing else."""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from tacit.training.optimizers import refusing_hooks

MEND = "train by a class of torch.optim without hooks, or declare it: facts.declare('weights', 'why')"


def update_doubt(optimizer: Optimizer) -> str:
    """Why more than released gradients may move the weights; empty for optimizers of torch and tacit as they are.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
        >>> update_doubt(optimizer)
        ''
        >>> _ = optimizer.register_step_pre_hook(lambda *given: None)
        >>> update_doubt(optimizer).partition(":")[0]
        'a hook on the optimizer runs at every step'
    """
    kind = type(optimizer)
    if kind.__module__.partition(".")[0] not in ("torch", "tacit"):
        return f"the optimizer {kind.__name__} is a class of its own: {MEND}"
    step = vars(optimizer).get("step")
    if step is not None and not getattr(step, "_wrapped_by_lr_sched", False):
        return f"the optimizer's step was replaced: {MEND}"
    hooks = [*optimizer._optimizer_step_post_hooks.values(), *optimizer._optimizer_step_pre_hooks.values()]
    others = [hook for hook in hooks if hook not in refusing_hooks()]
    if others or _global_optimizer_pre_hooks or _global_optimizer_post_hooks:
        return f"a hook on the optimizer runs at every step: {MEND}"
    return ""
