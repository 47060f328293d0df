"""`write_statement`: the signed privacy statement of a finished run of this user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit import check
from tacit.errors import InvalidInput
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import MODEL, STATEMENT, append
from tacit.serialization import write_bytes
from tacit.statement import Subject, author_key, open_envelope, sealed, statement
from tacit.statement.envelope import read_bounded


def write_statement(
    folder: Path,
    out: Path | None = None,
    *,
    owner: str = "",
    contact: str = "",
    purpose: str = "",
    deltas: Sequence[float] = (),
) -> Path:
    """Write the statement of a run and return its path; a later one about the same run takes the next number.

    Args:
        folder: of a finished run of this user, whole.
        out: file to write; `statement.json` in the folder by default.
        owner: who answers for the data.
        contact: how to reach them.
        purpose: what the model is for.
        deltas: at which epsilon is bounded besides the delta of the card.

    Raises:
        InvalidInput: the run is not finished, or came from somebody else.
        Changed: a file of the run was changed.
    """
    run = open_run(folder)
    if run.word or not run.own_card:
        got = "one that was received" if run.word else "one that is not finished"
        raise check.fail("RUN", "a finished run of this user", got, "Its author writes its statement.")
    card, path = run.own_card, out or folder / STATEMENT
    earlier = _earlier(path)
    place = {"id": earlier.id, "sequence": earlier.sequence + 1} if earlier else {}
    subject = Subject(card["dataset"], owner=owner, contact=contact, purpose=purpose, **place)
    stated = sorted({float(run.best["delta"]), *deltas})
    payload = statement(subject, run.ledger, deltas=stated, audits=card["audits"], model=run.seal.found.get(MODEL, ""))
    content = sealed(payload, author_key(make=True))
    if path.resolve() == (folder / STATEMENT).resolve():
        append(folder, "statement", {STATEMENT: content})
    else:
        write_bytes(path, content)
    return path


def _earlier(path: Path) -> Subject | None:
    """The subject of the statement of this user that stands there already."""
    if not path.exists():
        return None
    try:
        envelope = open_envelope(read_bounded(path))
        if not envelope.is_signed or envelope.key != author_key().public:
            return None
        return Subject(**envelope.payload["subject"])
    except (InvalidInput, KeyError, TypeError):
        return None
