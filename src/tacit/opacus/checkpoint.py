"""Checkpoints of `PrivacyEngine` in safetensors: reading the file runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor
from torch.optim import Optimizer

from tacit import check, serialization
from tacit.opacus.schedulers import Scheduler
from tacit.training.checkpoint import packed, read_safetensors, unpacked

# Header entry that tells these files from model files and from the checkpoints of `fit`.
_KIND = "tacit.opacus checkpoint"


def write(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write `state`, plain values and tensors by name; an interruption leaves the previous file as it was."""
    tensors: dict[str, Tensor] = {}
    form = packed(dict(state), tensors, "state")
    serialization.write_bytes(path, save(tensors, {"kind": _KIND, "state": json.dumps(form)}))


def read(path: str | Path) -> dict[str, Any]:
    """The state that `write` wrote; raises `InvalidInput` for a file that is missing, truncated or of another kind."""
    header, tensors = read_safetensors("path", path, "checkpoint")
    if header.get("kind") != _KIND:
        hint = "Checkpoints of Opacus hold pickled code and are not read; save with this engine."
        raise check.fail("path", "a checkpoint that save_checkpoint wrote", str(path), hint)
    return unpacked(json.loads(header["state"]), tensors)


def named_parts(
    optimizer: Optimizer | None, noise_scheduler: Scheduler | None, grad_clip_scheduler: Scheduler | None
) -> dict[str, Any]:
    """The parts that are given, under the names that they have in a checkpoint."""
    parts = {
        "optimizer_state_dict": optimizer,
        "noise_scheduler_state_dict": noise_scheduler,
        "grad_clip_scheduler_state_dict": grad_clip_scheduler,
    }
    return {name: part for name, part in parts.items() if part is not None}
