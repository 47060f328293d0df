"""Folders of runs that were changed by somebody who knows their form: what has no key is computed anew."""

import hashlib
import json
import re
from pathlib import Path

from tacit.runs.run_signature import CARD, PAGE, SIGNATURE, digests_of, sign_run


def reissue(folder: Path, *, signed: bool = False) -> Path:
    """Let card and page name the files that are in `folder` now; `signed` by the trusted key, or by nobody."""
    card = json.loads((folder / CARD).read_text())
    card["digests"] = {name: digest for name, digest in digests_of(folder).items() if name not in (CARD, PAGE)}
    (folder / CARD).write_text(json.dumps(card))
    digest = hashlib.sha256((folder / CARD).read_bytes()).hexdigest()
    page = (folder / PAGE).read_text(encoding="utf-8")
    (folder / PAGE).write_text(re.sub(r"sha256-[0-9a-f]{64}", f"sha256-{digest}", page, count=1), encoding="utf-8")
    resign(folder) if signed else (folder / SIGNATURE).unlink(missing_ok=True)
    return folder


def resign(folder: Path) -> None:
    """Sign what is in `folder` with the trusted key, as if a run had written it."""
    (folder / SIGNATURE).unlink(missing_ok=True)
    try:
        sign_run(folder, "mlp")
    except Exception:
        # A ledger that cannot be read: signed all the same, by whoever has the key.
        from tacit.serialization import json_text
        from tacit.signing import signature_of

        content = {"files": digests_of(folder), "code": "", "checkpoint": "", "steps": 0}
        (folder / SIGNATURE).write_text(json_text(content | {"signature": signature_of("run", content, count=1)}))


def edit(path: Path, **values: object) -> None:
    """Replace values of a JSON table."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
