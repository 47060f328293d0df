"""Run fingerprint: what must be equal for a run to continue from a checkpoint, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from tacit import check
from tacit.errors import InvalidInput
from tacit.training.callbacks import Callback, stateful
from tacit.training.checkpoint import Checkpoint
from tacit.training.plan import Plan

# Name of the grouping in the words; its value is a keyed hash, for the file alone and never for a message.
_GROUPS, _KEY_BYTES = "groups", 16


def run_fingerprint(
    plan: Plan, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler | None, callbacks: Sequence[Callback]
) -> dict[str, str]:
    """Fields of the plan, shapes of the model, and classes of optimizer, schedule and stateful callbacks, in words.

    Args:
        plan: the resolved plan.
        model: the model to train.
        optimizer: the optimizer.
        scheduler: the learning-rate schedule, if there is one.
        callbacks: all callbacks of the run.
    """
    words = plan_in_words(plan)
    words |= {f"model {name}": f"{value.dtype} {tuple(value.shape)}" for name, value in model.state_dict().items()}
    words["optimizer"] = type(optimizer).__name__
    words["scheduler"] = type(scheduler).__name__ if scheduler is not None else "none"
    words[_GROUPS] = _grouping(plan, os.urandom(_KEY_BYTES))
    words["callbacks"] = ", ".join(type(callback).__name__ for callback in stateful(callbacks)) or "none"
    return words


def plan_in_words(plan: Plan) -> dict[str, str]:
    """Every field of the plan, in words."""
    return {field.name: _word(getattr(plan, field.name)) for field in fields(plan)}


def check_same_run(saved: Checkpoint, plan: Plan, fingerprint: dict[str, str]) -> None:
    """Raise `InvalidInput` that names the first difference between the saved run and this one, of `plan`.

    `fingerprint` takes over the key under which the grouping of the saved run was hashed.
    """
    theirs = saved.fingerprint.get(_GROUPS, "")
    ours = _grouping(plan, bytes.fromhex(theirs.partition(":")[0])) if theirs else ""
    if theirs != ours or bool(theirs) != bool(fingerprint.get(_GROUPS)):
        hint = "Give another run a checkpoint of its own."
        raise check.fail("groups", "those with which the run of the checkpoint began", "others", hint)
    fingerprint[_GROUPS] = ours
    for name in [*fingerprint, *saved.fingerprint]:
        if name == _GROUPS:
            continue
        theirs, ours = saved.fingerprint.get(name, "nothing"), fingerprint.get(name, "nothing")
        if theirs != ours:
            raise InvalidInput(
                f"{name} must be {theirs}, with which the run of the checkpoint began; got {ours}. "
                "Give another run a checkpoint of its own."
            )


def _grouping(plan: Plan, key: bytes) -> str:
    """The key and the keyed hash of which records form a unit; empty where every record is its own."""
    found = plan.sampling.grouping(key)
    return f"{key.hex()}:{found}" if found else ""


def _word(value: object) -> str:
    spec = getattr(value, "spec", None)
    return str(spec()) if callable(spec) else repr(value)
