"""What must be the same for a run to go on from a checkpoint, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit.errors import InvalidInput
from tacit.training.callbacks import Callback
from tacit.training.checkpoint import Checkpoint
from tacit.training.plan import Plan


def run_fingerprint(
    plan: Plan, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler | None, callbacks: Sequence[Callback]
) -> dict[str, str]:
    """In words, what must be the same for a run to go on."""
    words = {each.name: _word(getattr(plan, each.name)) for each in fields(plan)}
    words |= {f"model {name}": f"{value.dtype} {tuple(value.shape)}" for name, value in model.state_dict().items()}
    words["optimizer"] = type(optimizer).__name__
    words["scheduler"] = type(scheduler).__name__ if scheduler is not None else "none"
    words["callbacks"] = ", ".join(type(callback).__name__ for callback in keeping(callbacks)) or "none"
    return words


def check_same(saved: Checkpoint, setting: dict[str, str]) -> None:
    """Raise `InvalidInput` that names what differs between the run that was saved and this one."""
    for name in [*setting, *saved.setting]:
        theirs, ours = saved.setting.get(name, "nothing"), setting.get(name, "nothing")
        if theirs != ours:
            raise InvalidInput(
                f"{name} must be {theirs}, with which the run of the checkpoint began; got {ours}. "
                "Give another run a checkpoint of its own."
            )


def keeping(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks that have a state."""
    return [callback for callback in callbacks if type(callback).state is not Callback.state]


def _word(value: object) -> str:
    spec = getattr(value, "spec", None)
    return str(spec()) if callable(spec) else repr(value)
