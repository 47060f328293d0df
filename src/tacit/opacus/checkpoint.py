"""Saving and restoring a private training run the way Opacus does, in safetensors: reading the file runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit import check
from tacit import serialization as atomic
from tacit.errors import InvalidInput
from tacit.training.checkpoint import packed, unpacked

_KIND = "tacit.opacus checkpoint"


def write(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write `state`, plain values and tensors by name; an interruption leaves the previous file as it was."""
    tensors: dict[str, Tensor] = {}
    form = packed(dict(state), tensors, "state")
    atomic.write_bytes(path, save(tensors, {"kind": _KIND, "state": json.dumps(form)}))


def read(path: str | Path) -> dict[str, Any]:
    """What `write` wrote; raises `InvalidInput` for a file that is missing, truncated or of another kind."""
    if not Path(path).is_file():
        raise check.fail("path", "a checkpoint that exists", str(path))
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise InvalidInput(f"path must be a complete checkpoint; got {str(path)!r}. {error}") from None
    if header.get("kind") != _KIND:
        hint = "Checkpoints of Opacus hold pickled code and are not read; save with this engine."
        raise check.fail("path", "a checkpoint that save_checkpoint wrote", str(path), hint)
    return unpacked(json.loads(header["state"]), tensors)
