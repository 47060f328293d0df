"""The signature of a run's folder: one keyed signature over settings, ledger, card, model and the model's code.

The files in a run's folder: their names, and SHA-256 over each; nothing is imported that base installs lack.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting import Ledger
from tacit.errors import Changed, InvalidInput
from tacit.serialization import file_digest, json_table, json_text, texts_in, write_bytes, write_text
from tacit.signing import Origin, code_digest, latest_place, new_id, origin_of, raise_count, signature_of

CONFIG, LEDGER, CARD, PAGE = "config.json", "ledger.json", "card.json", "card.html"
EXECUTION = "execution.json"
"""The execution records of a run, one for each way in which its steps were computed."""
PREPROCESSING = "preprocessing.json"
"""What turns rows into features, and outputs into answers."""
MODEL = "model.safetensors"
"""The private model."""
BUDGET = "budget.json"
"""The reservation of the run in a registry."""
VALIDATION = "validation.json"
"""By what this user's key finds the private validation records again."""
CHECKPOINT = "checkpoint.safetensors"
"""From which a run can go on; gone once the run is finished."""
SEARCH = "search.sealed"
"""From which a search can go on, sealed; gone once the search is finished."""
SIGNATURE = "signature.json"
"""The signature of the others."""
TRAINED = "trained.json"
"""What the card of a run will say of its trained model; gone once the run is finished."""
VERIFIED = "verified.json"
"""What `tacit verify` found in a received run, with a signature of its own."""
FEATURES = "features.safetensors"
"""What the features of a run were computed with, such as a whitening matrix."""
TICKET = "ticket.safetensors"
"""The lottery ticket of a run that found one."""
SIGNED = (CONFIG, LEDGER, CARD, PAGE, EXECUTION, MODEL, PREPROCESSING, BUDGET, VALIDATION, TICKET, FEATURES)
"""The files of a run that its signature covers, those of them that are there."""
STATEMENT = "statement.json"
"""The privacy statement of a run, which anybody can check by itself."""
TABLES = (CONFIG, LEDGER, CARD, EXECUTION, PREPROCESSING, BUDGET, VALIDATION, TRAINED)
"""The JSON files of a run."""
LATER = {"audit": ("audit.json", "audit.html"), "statement": (STATEMENT,)}
"""What later commands add to a finished run, each with a seal of its own beside it."""
OWN_KEY = "as this user's key signed it last"


def in_run(path: Path) -> bool:
    """Whether the file `path` is one of a run's folder."""
    inside = path.name in TABLES and path.is_file()
    return inside and any((path.parent / name).is_file() for name in (CONFIG, SIGNATURE, PAGE))


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits; empty where there is no regular file."""
    return file_digest(path) if path.is_file() else ""


def digests_of(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in `SIGNED` that is in the folder, by name."""
    return {name: digest_of(folder / name) for name in SIGNED if (folder / name).is_file()}


_KIND, _LATER = "run", "later files of a run"


@dataclass(frozen=True)
class RunOrigin:
    """Where the files of a run came from.

    Attributes:
        signature: what the signature of the folder says of itself.
        files: SHA-256 of every signed file by name; empty without a signature.
        found: SHA-256 of every file that is there.
        code: SHA-256 of the source of the model; empty for a model of tacit's own, or one that this user did not sign.
        checkpoint: identity of the run's checkpoint when it was signed; empty where it had none.
        steps: of the ledger when it was signed.
        place: where this user's key signed a later version; empty where it did not.
    """

    signature: Origin
    files: Mapping[str, str]
    found: Mapping[str, str]
    code: str = ""
    checkpoint: str = ""
    steps: int = 0
    place: str = ""

    def of(self, name: str) -> Origin:
        """Where the file `name` came from; one that its signature contradicts is edited, whoever signed."""
        if name in self.files and self.found.get(name, "") != self.files[name]:
            return Origin.EDITED
        if self.signature is Origin.OWN and name not in self.files:
            return Origin.UNSIGNED
        return self.signature


def sign_run(folder: Path, model: str) -> None:
    """Write the signature of what is in `folder`; of nothing where there is no key.

    Args:
        folder: of the run.
        model: as in the configuration; the source of a model of the user's own is signed with the rest.
    """
    from tacit.models import code_of
    from tacit.training.checkpoint import checkpoint_id

    content, earlier = _parts(folder)
    id, count = new_id(), 1
    # A copy whose run went on elsewhere counts for itself.
    if earlier is not None and origin_of(_KIND, content, earlier) is Origin.OWN:
        id, count = earlier["id"], earlier["count"] + 1
    content = {
        "files": digests_of(folder),
        "code": code_digest(code_of(model)) if ":" in model else "",
        "checkpoint": checkpoint_id(folder / CHECKPOINT),
        "steps": Ledger.load(folder / LEDGER).steps if (folder / LEDGER).is_file() else 0,
    }
    signature = signature_of(_KIND, content, id=id, count=count)
    if signature is not None:
        write_text(folder / SIGNATURE, json_text(content | {"signature": signature}))
        raise_count(id, count, folder)


def origin_of_run(folder: Path, found: Mapping[str, str] | None = None) -> RunOrigin:
    """Where the run in `folder` came from; raises `InvalidInput` where its signature is no such file.

    Args:
        folder: of the run.
        found: SHA-256 of every file that is there; computed where it is not given.
    """
    content, signature = _parts(folder)
    origin, found = origin_of(_KIND, content, signature), digests_of(folder) if found is None else found
    files = content.get("files")
    if not isinstance(files, dict) or not all(isinstance(each, str) for each in files.values()):
        return RunOrigin(Origin.EDITED if signature is not None else origin, {}, found)
    if origin is not Origin.OWN:
        place = latest_place(signature["id"]) if origin is Origin.ROLLED_BACK and signature is not None else ""
        return RunOrigin(origin, files if signature is not None else {}, found, place=place)
    return RunOrigin(origin, files, found, content["code"], content["checkpoint"], content["steps"])


def append(folder: Path, command: str, contents: Mapping[str, bytes]) -> None:
    """Write the files of a later command into `folder`, and their seal; a folder of no run gets the files alone.

    While they are written, their seal accepts each as it was and as it will be, so that a command that is killed leaves
    a run that can be read.

    Args:
        folder: of the run.
        command: one of `LATER`.
        contents: by the name of the file.
    """
    after = {name: [hashlib.sha256(content).hexdigest()] for name, content in contents.items()}
    _seal_later(folder, command, {name: [digest_of(folder / name), *digest] for name, digest in after.items()})
    for name, content in contents.items():
        write_bytes(folder / name, content)
    _seal_later(folder, command, after)


def _seal_later(folder: Path, command: str, files: Mapping[str, list[str]]) -> None:
    content = {"files": dict(files), "card": digest_of(folder / CARD)}
    signature = signature_of(_LATER, content) if content["card"] else None
    if signature is not None:
        write_text(folder / f"{command}.{SIGNATURE}", json_text(content | {"signature": signature}))


def check_later(folder: Path, *, own: bool) -> dict[str, Origin]:
    """Where what later commands added to a run came from, by name.

    Args:
        folder: of the run.
        own: whether this user's key signed the run, and hence what was added to it.

    Raises:
        Changed: a file is not the one that its seal names, or was made of another run.
    """
    found: dict[str, Origin] = {}
    for command, names in LATER.items():
        place = f"{command}.{SIGNATURE}"
        content, signature = _parts(folder, place)
        there = [name for name in names if (folder / name).is_file()]
        if not content and signature is None:
            if own and there:
                raise Changed(there[0], f"was added without the seal of `tacit {command}`")
            continue
        origin, files = origin_of(_LATER, content, signature), content.get("files")
        if not isinstance(files, dict) or origin.refused or (own and origin is not Origin.OWN):
            raise Changed(place, f"is {origin.value}")
        for name in names:
            if digest_of(folder / name) not in files.get(name, [""]):
                raise Changed(name, f"was changed or taken away after `tacit {command}` wrote it")
        if there and content.get("card") != digest_of(folder / CARD):
            raise Changed(there[0], "was made of another run")
        found |= dict.fromkeys(there, origin)
    return found


def check_seal(seal: RunOrigin, folder: Path, finished: bool) -> None:
    """Every file is the one that was signed; of a run that goes on, those that do not change while it does."""
    elsewhere = not finished and seal.place != str(folder.resolve())
    if seal.signature is Origin.EDITED or (seal.signature is Origin.ROLLED_BACK and not elsewhere):
        raise Changed(SIGNATURE, f"is {seal.signature.value}", OWN_KEY)
    for name in SIGNED if finished else (CONFIG, VALIDATION):
        if seal.of(name) is Origin.EDITED:
            raise Changed(name, "was changed or taken away after it was signed", OWN_KEY)


def check_resumable(folder: Path) -> str:
    """Why a run that goes on in `folder` is vouched for by nobody; empty where this user's key signed what is there.

    Raises:
        InvalidInput: its settings or its signature were changed, an older version of it was put back, or its
            checkpoint is that of another run: what ran would be understated.
    """
    from tacit.training.checkpoint import checkpoint_id

    origin = origin_of_run(folder)
    if origin.signature is Origin.ROLLED_BACK and origin.place != str(folder.resolve()):
        return "its run went on elsewhere"
    if origin.signature.refused or (origin.signature is Origin.OWN and origin.of(CONFIG) is not Origin.OWN):
        raise check.fail("RUN", OWN_KEY, str(folder), "`tacit verify RUN` tells more.")
    kept = folder / CHECKPOINT
    if origin.checkpoint and kept.is_file() and checkpoint_id(kept) != origin.checkpoint:
        hint = "Its checkpoint is that of another run: put its own back."
        raise check.fail("RUN", "a folder with the checkpoint of its run", str(folder), hint)
    begun = kept.is_file() or (folder / LEDGER).is_file()
    if origin.signature is not Origin.OWN:
        return origin.signature.value if begun else ""
    if (folder / LEDGER).is_file() and Ledger.load(folder / LEDGER).steps < origin.steps:
        return "its ledger says less than was signed"
    return ""


def _parts(folder: Path, name: str = SIGNATURE) -> tuple[dict[str, Any], dict[str, Any] | None]:
    path = folder / name
    if not path.is_file():
        return {}, None
    try:
        table = json_table(name, path)
    except InvalidInput:
        return {}, {}  # an edited one
    signature = table.pop("signature", None)
    return table, signature if isinstance(signature, dict | None) else {}


_LONGEST = 20_000  # characters of a text; the longest that a run writes is a sentence


def check_texts(name: str, table: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` where a text in `table` would act on a terminal or fill it."""
    for text in texts_in(table):
        check.that(len(text) <= _LONGEST, f"each text of {name}", f"at most {_LONGEST} characters long", len(text))
        check.printable(f"each text of {name}", text)
