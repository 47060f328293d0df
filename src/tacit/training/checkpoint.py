"""Checkpoints of a private run: everything it needs to go on, in one file that is written whole or not at all.

The file is safetensors, with the plain values as JSON in its header: reading it runs no code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit import atomic, check
from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.training.packing import packed, unpacked

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
