"""Checkpoints of `PrivacyEngine` in safetensors: reading the file runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor
from torch.optim import Optimizer

from tacit import check, serialization
from tacit.errors import InvalidInput
from tacit.opacus.schedulers import Scheduler
from tacit.training.checkpoint import packed, read_safetensors, unpacked

# Header entry that tells these files from model files and from the checkpoints of `fit`.
_KIND = "tacit.opacus checkpoint"

Target = str | Path | IO[bytes]
"""A path, or a binary file that is open, such as `io.BytesIO`."""


def write(path: Target, state: Mapping[str, Any]) -> None:
    """Write `state`, plain values and tensors by name; an interruption leaves the previous file at a path as it was."""
    tensors: dict[str, Tensor] = {}
    form = packed(dict(state), tensors, "state")
    content = save(tensors, {"kind": _KIND, "state": json.dumps(form)})
    if isinstance(path, str | Path):
        serialization.write_bytes(path, content)
    else:
        path.write(content)


def read(path: Target) -> dict[str, Any]:
    """The state that `write` wrote; raises `InvalidInput` for a file that is missing, truncated or of another kind."""
    if isinstance(path, str | Path):
        header, tensors = read_safetensors("path", path, "checkpoint")
    else:
        header, tensors = _parsed(path.read())
    if header.get("kind") != _KIND:
        hint = "Checkpoints of Opacus hold pickled code and are not read; save with this engine."
        raise check.fail("path", "a checkpoint that save_checkpoint wrote", str(path), hint)
    return unpacked(json.loads(header["state"]), tensors)


def _parsed(content: bytes) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Header and tensors of the bytes of a safetensors file: the length of the header, the header, the tensors."""
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise InvalidInput(f"path must be a complete safetensors file; got {len(content)} bytes. {error}") from None
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {}), tensors


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
