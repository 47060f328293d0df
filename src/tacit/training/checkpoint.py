"""Checkpoints of a private run: everything it needs to go on, in one file that is written whole or not at all.

The file is safetensors, with the plain values as JSON in its header: reading it runs no code.

Nested plain values and tensors as JSON plus named tensors, so that state can be saved without pickle.

Saving and loading models: safetensors only, so that a model file can run no code.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from tacit import check
from tacit import serialization as atomic
from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.standing import Standing
from tacit.tradeoff import Answer

_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` of its planned `steps`.

    Attributes:
        setting: what must be the same for the run to go on: plan, model and optimizer in words.
        before: what the ledger held when the run began.
        ledger: what ran up to `step`.
        spent: what may have run by the time the file is read: `ledger` and every step until the next checkpoint is
            due. A process that was killed may have taken them, and its logs may have shown what they gave.
        stopped: why the run ended before its last planned step; empty while it has not.
        state: what the parts of the run keep, by part.
    """

    step: int
    steps: int
    setting: Mapping[str, str]
    before: Ledger
    ledger: Ledger
    spent: Ledger
    stopped: str
    state: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether no step is left to take."""
        return bool(self.stopped) or self.step >= self.steps

    def write(self, path: str | Path) -> None:
        """Write the file; an interruption or a full disk leaves the previous one as it was."""
        tensors: dict[str, Tensor] = {}
        form = {
            "format": _FORMAT,
            "step": self.step,
            "steps": self.steps,
            "setting": dict(self.setting),
            "before": self.before.spec(),
            "ledger": self.ledger.spec(),
            "spent": self.spent.spec(),
            "stopped": self.stopped,
            "state": packed(dict(self.state), tensors, "state"),
        }
        text = json.dumps(form)
        atomic.write_bytes(path, save(tensors, {"tacit": text, "sha256": _digest(text)}))


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint in the file `path`, which `fit(..., checkpoint=path)` wrote.

    Raises `InvalidInput` for a file that is missing, truncated, edited or of another kind.
    """
    form, tensors = _content(Path(path))
    if form.get("format") != _FORMAT:
        raise check.fail("checkpoint", f"of format {_FORMAT}", form.get("format"), "Another version of tacit wrote it.")
    return Checkpoint(
        step=form["step"],
        steps=form["steps"],
        setting=form["setting"],
        before=Ledger.from_spec(form["before"]),
        ledger=Ledger.from_spec(form["ledger"]),
        spent=Ledger.from_spec(form["spent"]),
        stopped=form["stopped"],
        state=unpacked(form["state"], tensors),
    )


def _content(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise check.fail("checkpoint", "a file that exists", str(path))
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise InvalidInput(f"checkpoint must be a complete safetensors file; got {str(path)!r}. {error}") from None
    text = header.get("tacit")
    if text is None:
        raise check.fail("checkpoint", "one that fit(..., checkpoint=...) wrote", str(path), "It may be a model file.")
    if _digest(text) != header.get("sha256"):
        raise InvalidInput(f"checkpoint must be as it was written; got {str(path)!r}, whose header was edited.")
    return json.loads(text), tensors


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def packed(value: object, tensors: dict[str, Tensor], path: str) -> Any:
    """JSON form of `value`; its tensors and arrays go to `tensors` under names that begin with `path`.

    Plain values stand for themselves, every other for a table of one key, its kind. Raises `InvalidInput` for values
    that have no such form, functions and objects of other classes among them, naming where they are.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Answer):
        return {"answer": [float(value), value.standing.value, *value.interval]}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.generic):
        return packed(value.item(), tensors, path)
    if isinstance(value, Tensor):
        return {"tensor": _kept(value.detach().cpu().contiguous().clone(), tensors, path)}
    if isinstance(value, np.ndarray):
        return {"array": _kept(torch.from_numpy(value.copy()), tensors, path)}
    if isinstance(value, list | tuple):
        items = [packed(item, tensors, f"{path}/{i}") for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        items = [[packed(key, tensors, path), packed(item, tensors, f"{path}/{key}")] for key, item in value.items()]
        # torch.optim.lr_scheduler.MultiStepLR counts its milestones.
        return {"counter" if isinstance(value, Counter) else "dict": items}
    raise check.fail(f"state at {path}", "made of plain values and tensors", type(value).__name__)


def unpacked(form: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value whose JSON form and tensors `packed` made."""
    if isinstance(form, list):
        return [unpacked(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    ((kind, content),) = form.items()
    if kind == "answer":
        number, standing, lower, upper = content
        return Answer(number, Standing(standing), lower, upper)
    if kind == "tuple":
        return tuple(unpacked(item, tensors) for item in content)
    if kind in ("dict", "counter"):
        items = {unpacked(key, tensors): unpacked(item, tensors) for key, item in content}
        return Counter(items) if kind == "counter" else items
    if kind in ("tensor", "array"):
        return tensors[content].clone() if kind == "tensor" else tensors[content].numpy().copy()
    raise InvalidInput(f"checkpoint must hold values of known kinds; got {kind!r}. It is of another version.")


def _kept(tensor: Tensor, tensors: dict[str, Tensor], path: str) -> str:
    name = path if path not in tensors else f"{path}#{len(tensors)}"
    tensors[name] = tensor
    return name


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
