"""Saving and loading models: safetensors only, so that a model file can run no code."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from tacit import atomic, check
from tacit.errors import InvalidInput


def save_model(model: nn.Module, path: str | Path) -> None:
    """Write the model's parameters and buffers; an interruption leaves the previous file as it was."""
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in model.state_dict().items()}
    atomic.write_bytes(path, save(tensors))


def load_model(model: nn.Module, path: str | Path) -> None:
    """Read what `save_model` wrote into `model`; raises `InvalidInput` when the file is not of this model."""
    try:
        tensors = load(Path(path).read_bytes())
    except FileNotFoundError:
        raise check.fail("path", "a model file that exists", str(path)) from None
    except (OSError, SafetensorError) as error:
        raise InvalidInput(f"path must be a complete safetensors file; got {str(path)!r}. {error}") from None
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InvalidInput(f"path must hold the parameters of this model; got {str(path)!r}. {error}") from None
