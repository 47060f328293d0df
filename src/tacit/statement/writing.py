"""`signed_statement`: the statement of anything that has a ledger, numbered and signed by this user's key.

`budget_statement`: that of the total over all runs on a data set.

`public_form`: any statement in the words of NIST SP 800-226, or as fields of the deployments registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tacit import check
from tacit.accounting import Ledger
from tacit.budget import DatasetBudget
from tacit.budget.export import delta_of
from tacit.budget.forms import TIMING, TRUST, Stated, nist_claims, registry_fields
from tacit.errors import InvalidInput
from tacit.statement.document import open_envelope, payload_digest, sealed, statement
from tacit.statement.keys import author_key, fingerprint
from tacit.statement.subject import SeenStatements, Subject, subject_id

FORMS = ("nist", "registry")
"""Public forms of a statement."""
_UNCHECKED = ("declared", "assumed")


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
    number = max(0 if newest is None else newest.sequence, _number_of(earlier, key.public, id)) + 1
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
    if not ledger.steps:
        raise check.fail("data set", "one on which something was released", dataset.name)
    facts = tuple(f"{name}: {value}" for name, value in dataset.known.facts.items())
    stated = sorted({delta_of(dataset), *deltas})
    subject = replace(subject, facts=(*facts, *subject.facts))
    return signed_statement("budget", first.link, subject, ledger, earlier=earlier, deltas=stated)


def public_form(payload: Mapping[str, Any], form: str) -> dict[str, Any]:
    """A statement as claims of NIST SP 800-226 ("nist"), or as fields of the deployments registry ("registry").

    Args:
        payload: of the statement, which `check_statement` read.
        form: one of `FORMS`.

    Raises:
        InvalidInput: the form is another.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> table = statement(Subject("digits"), Ledger.of(Gaussian(4.0)))
        >>> public_form(table, "registry")["deployment"]["privacy_loss"]["privacy_unit"]
        'record'
    """
    check.choice("format", form, FORMS)
    guarantee, mechanisms = payload["guarantee"], payload["mechanism"]["mechanisms"]
    stated, first = _stated(payload), guarantee["at"][0]
    if form == "nist":
        return nist_claims(stated, standing=guarantee["standing"])
    numbers = {"epsilon": first["epsilon"], "delta": first["delta"]}
    return registry_fields(stated, unit=guarantee["unit"], many=len(mechanisms) > 1, **numbers)


def _stated(payload: Mapping[str, Any]) -> dict[str, Stated]:
    """The facts of a statement by the names of `tacit.budget.forms.FORMS`."""
    subject, guarantee, mechanism = payload["subject"], payload["guarantee"], payload["mechanism"]
    digest = payload["digests"]["ledger"]
    evidence = f"ledger {digest}" if digest else "mechanisms of the statement"
    weak = guarantee["standing"] != "proven"
    bounds = [f"epsilon at most {row['epsilon']} at delta {row['delta']}" for row in guarantee["at"]]
    taken = [f"{fact['how']}: {fact['says'] or fact['id']}" for fact in payload["facts"] if fact["how"] in _UNCHECKED]
    taken += [*mechanism.get("assumptions", ()), *mechanism.get("unsafe", ())]
    found = [f"{row['attack']}: epsilon at least {row['epsilon_lower']}" for row in payload["evidence"]["audits"]]
    ran = sorted({str(row.get("type")) for row in mechanism["mechanisms"]})
    unit = f"{subject.get('unit') or guarantee['unit']}, {guarantee['relation']}"
    said = f"{'; '.join(bounds)}; {guarantee['standing']}, by {guarantee['accountant']}"
    return {
        "parameters": Stated(said, evidence, weak),
        "composition": Stated(f"this ledger alone; scope {guarantee['scope']}", evidence, True),
        "unit": Stated(unit, "facts of the statement"),
        "mechanisms": Stated(", ".join(ran), evidence),
        "implementation": Stated("; ".join(taken) or "nothing is declared or assumed", "facts", bool(taken)),
        "tests": Stated("; ".join(found), "audits of the statement"),
        "trust": TRUST,
        "timing": TIMING,
        "name": Stated(subject["dataset"]),
        "owner": Stated(subject["owner"]),
        "purpose": Stated(subject["purpose"]),
        "date": Stated(subject["date"]),
        "facts": Stated("; ".join(subject.get("facts", ()))),
        "contact": Stated(f"Contact: {subject['contact']}" if subject["contact"] else ""),
    }
