"""The signature of a run's folder: one keyed signature over settings, ledger, card, model and the model's code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.models.named import code_of
from tacit.runs.methods.base import MODEL
from tacit.serialization import json_table, json_text, write_text
from tacit.signing import Origin, code_digest, new_id, origin_of, raise_count, signature_of

SIGNATURE = "signature.json"
"""The file in a run's folder with the signature of the others."""
SIGNED = ("config.json", "ledger.json", "card.json", "card.html", "execution.json", MODEL)
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
    """

    signature: Origin
    files: Mapping[str, str]
    code: str
    folder: Path

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
    earlier = _parts(folder)[1] or {}
    id = earlier.get("id") or new_id()
    count = int(earlier.get("count", 0)) + 1
    files = {name: _digest(folder / name) for name in SIGNED if (folder / name).is_file()}
    content = {"files": files, "code": code_digest(code_of(model)) if ":" in model else ""}
    signature = signature_of(_KIND, content, id=id, count=count)
    if signature is not None:
        write_text(folder / SIGNATURE, json_text(content | {"signature": signature}))
        raise_count(id, count, folder)


def origin_of_run(folder: Path) -> RunOrigin:
    """Where the run in `folder` came from; raises `InvalidInput` where its signature is no such file."""
    content, signature = _parts(folder)
    found = origin_of(_KIND, content, signature)
    own = found is Origin.OWN
    return RunOrigin(found, content["files"] if own else {}, content["code"] if own else "", folder)


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
