"""The signature of a run's folder: one keyed signature over settings, ledger, card, model and the model's code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting import Ledger
from tacit.models.named import code_of
from tacit.runs.methods.base import CHECKPOINT, MODEL
from tacit.serialization import json_table, json_text, write_text
from tacit.signing import Origin, code_digest, latest_place, new_id, origin_of, raise_count, signature_of
from tacit.training.checkpoint import checkpoint_id

SIGNATURE = "signature.json"
"""The file in a run's folder with the signature of the others."""
PREPROCESSING = "preprocessing.json"
"""The file in a run's folder with what turns rows into features, and outputs into answers."""
SIGNED = ("config.json", "ledger.json", "card.json", "card.html", "execution.json", MODEL, PREPROCESSING)
"""The files of a run that its signature covers, those of them that are there."""
_KIND = "run"


@dataclass(frozen=True)
class RunOrigin:
    """Where the files of a run came from.

    Attributes:
        signature: what the signature of the folder says of itself.
        files: SHA-256 of every signed file by name; empty unless the signature is this user's.
        code: SHA-256 of the source of the model; empty for a model of tacit's own.
        folder: of the run.
        checkpoint: identity of the run's checkpoint when it was signed; empty where it had none.
        steps: of the ledger when it was signed.
    """

    signature: Origin
    files: Mapping[str, str]
    code: str
    folder: Path
    checkpoint: str = ""
    steps: int = 0

    def of(self, name: str) -> Origin:
        """Where the file `name` came from."""
        if self.signature is not Origin.OWN:
            return self.signature
        if name not in self.files:
            return Origin.UNSIGNED
        return Origin.OWN if _digest(self.folder / name) == self.files[name] else Origin.EDITED

    def changed(self) -> list[str]:
        """What was changed, or put back, after this user's key signed it; empty where nothing was."""
        if self.signature.refused:
            return [SIGNATURE]
        return [name for name in self.files if self.of(name) is not Origin.OWN]


def sign_run(folder: Path, model: str) -> None:
    """Write the signature of what is in `folder`; of nothing where there is no key.

    Args:
        folder: of the run.
        model: as in the configuration; the source of a model of the user's own is signed with the rest.
    """
    content, earlier = _parts(folder)
    id, count = new_id(), 1
    # A copy whose run went on elsewhere counts for itself.
    if earlier is not None and origin_of(_KIND, content, earlier) is Origin.OWN:
        id, count = earlier["id"], earlier["count"] + 1
    content = {
        "files": {name: _digest(folder / name) for name in SIGNED if (folder / name).is_file()},
        "code": code_digest(code_of(model)) if ":" in model else "",
        "checkpoint": checkpoint_id(folder / CHECKPOINT),
        "steps": Ledger.load(folder / "ledger.json").steps if (folder / "ledger.json").is_file() else 0,
    }
    signature = signature_of(_KIND, content, id=id, count=count)
    if signature is not None:
        write_text(folder / SIGNATURE, json_text(content | {"signature": signature}))
        raise_count(id, count, folder)


def origin_of_run(folder: Path) -> RunOrigin:
    """Where the run in `folder` came from; raises `InvalidInput` where its signature is no such file."""
    content, signature = _parts(folder)
    found = origin_of(_KIND, content, signature)
    if found is not Origin.OWN:
        return RunOrigin(found, {}, "", folder)
    # Signatures from before those were covered have neither.
    bound = {"checkpoint": content.get("checkpoint", ""), "steps": content.get("steps", 0)}
    return RunOrigin(found, content["files"], content["code"], folder, **bound)


def check_resumable(folder: Path) -> str:
    """Why a run that goes on in `folder` is vouched for by nobody; empty where this user's key signed what is there.

    Raises:
        InvalidInput: its settings or its signature were changed, an older version of it was put back, or its
            checkpoint is that of another run: what ran would be understated.
    """
    origin = origin_of_run(folder)
    if origin.signature is Origin.ROLLED_BACK and _signed_last_at(folder) != str(folder.resolve()):
        return "its run went on elsewhere"
    if origin.signature.refused or (origin.files and origin.of("config.json") is not Origin.OWN):
        raise check.fail("RUN", "as this user's key signed it last", str(folder), "`tacit verify RUN` tells more.")
    kept = folder / CHECKPOINT
    if origin.checkpoint and kept.is_file() and checkpoint_id(kept) != origin.checkpoint:
        hint = "Its checkpoint is that of another run: put its own back."
        raise check.fail("RUN", "a folder with the checkpoint of its run", str(folder), hint)
    begun = kept.is_file() or (folder / "ledger.json").is_file()
    if origin.signature is not Origin.OWN:
        return origin.signature.value if begun else ""
    if (folder / "ledger.json").is_file() and Ledger.load(folder / "ledger.json").steps < origin.steps:
        return "its ledger says less than was signed"
    return ""


def _signed_last_at(folder: Path) -> str:
    signature = _parts(folder)[1] or {}
    return latest_place(signature["id"])


def _parts(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    path = folder / SIGNATURE
    if not path.is_file():
        return {}, None
    table = json_table(SIGNATURE, path)
    signature = table.pop("signature", None)
    if signature is not None:
        check.instance(f"signature of {SIGNATURE}", signature, dict, "a table")
    return table, signature


def _digest(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
