"""`signed_statement`: the statement of anything that has a ledger, numbered and signed by this user's key.

`budget_statement`: that of the total over all runs on a data set.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tacit import check
from tacit.accounting import Ledger
from tacit.budget import DatasetBudget
from tacit.budget.totals import delta_of
from tacit.errors import InvalidInput
from tacit.statement.document import open_envelope, payload_digest, sealed, statement
from tacit.statement.keys import author_key, fingerprint
from tacit.statement.subject import SeenStatements, Subject, subject_id


def signed_statement(
    kind: str, identity: str, subject: Subject, ledger: Ledger, *, earlier: bytes = b"", **given: Any
) -> bytes:
    """A statement file; a later one about the same subject takes the next number.

    The key of this user signs it, and is made where there is none.

    Args:
        kind: of the subject, as `subject_id` takes it.
        identity: what stays the same of it.
        subject: what is stated of it; its id and number are set here.
        ledger: what ran.
        earlier: the file in whose place it will stand; its number counts where this user signed it.
        **given: of `statement`.

    Raises:
        InvalidInput, Refused: as `statement`.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> ledger = Ledger.of(Gaussian(4.0))
        >>> signed_statement("ledger", "00", Subject("digits"), ledger)  # doctest: +SKIP
    """
    key, seen, id = author_key(make=True), SeenStatements(), subject_id(kind, identity)
    author = fingerprint(key.public)
    newest = seen.newest(author, id)
    number = max(0 if newest is None else newest["sequence"], _number_of(earlier, key.public, id)) + 1
    payload = statement(replace(subject, id=id, sequence=number), ledger, **given)
    content = sealed(payload, key)
    seen.note(author, payload["subject"], payload_digest(open_envelope(content).payload))
    return content


def _number_of(content: bytes, key: bytes, id: str) -> int:
    """The number of a statement that `key` signed about the subject `id`; 0 for any other file."""
    try:
        envelope = open_envelope(content)
    except InvalidInput:
        return 0
    subject = envelope.payload.get("subject")
    if not (envelope.is_signed and envelope.key == key and isinstance(subject, dict) and subject.get("id") == id):
        return 0
    return check.count("sequence", subject.get("sequence"))


def budget_statement(
    dataset: DatasetBudget, subject: Subject, deltas: Sequence[float] = (), *, earlier: bytes = b""
) -> bytes:
    """The statement of all releases on a data set of a registry together.

    Args:
        dataset: of the registry.
        subject: what is stated of it; the registry's public facts come first.
        deltas: at which epsilon is bounded besides the delta of its cap.
        earlier: as for `signed_statement`.

    Raises:
        InvalidInput: nothing was released on it yet.
    """
    ledger, first = dataset.total(), dataset.history()[0]
    check.that(ledger.steps, "data set", "one on which something was released", dataset.name)
    facts = tuple(f"{name}: {value}" for name, value in dataset.known.facts.items())
    stated = sorted({delta_of(dataset.known), *deltas})
    subject = replace(subject, facts=(*facts, *subject.facts))
    return signed_statement("budget", first.link, subject, ledger, earlier=earlier, deltas=stated)
