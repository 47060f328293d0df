"""`check_statement`: every field of a statement recomputed or compared, and one verdict for the whole.

`statement_page`: a statement and the verdicts on it as one page that loads nothing and runs nothing.
"""

import base64
import enum
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from tacit import __version__, check
from tacit.accounting import Ledger
from tacit.errors import InvalidInput, Refused, TacitError
from tacit.relation import unit_in_words
from tacit.serialization import file_digest
from tacit.standing import downward, leakage, upward
from tacit.statement import document
from tacit.statement.keys import TrustStore, author_key, fingerprint
from tacit.statement.schema import faults, schema_of
from tacit.statement.subject import SeenStatements, filed

_SECONDS = 5.0  # of a processor, that numbers take without `slow`: whoever wrote the file must not decide how long
_SLOW = ("random_allocation", "balls_and_bins", "balanced_iteration", "tree", "toeplitz", "selection", "menu")


class Verdict(enum.IntEnum):
    """Verdict on a field or on a statement; the worst of the fields is that of the whole.

    Example:
        >>> max(Verdict.VALID, Verdict.CONTRADICTED).exit_code
        3
    """

    VALID = 0
    NOT_TIGHT = 1
    NOT_CHECKABLE = 2
    CONTRADICTED = 3

    @property
    def words(self) -> str:
        """As it is printed."""
        return ("valid", "valid, not tight", "not checkable", "contradicted")[self]

    @property
    def exit_code(self) -> int:
        """Of `tacit check`: 0, 3 where contradicted, 4 where not checkable."""
        return (0, 0, 4, 3)[self]


@dataclass(frozen=True)
class Finding:
    """Verdict on one field.

    Attributes:
        field: path of the field, as "guarantee.at[0].epsilon".
        verdict: on it.
        says: one sentence.
    """

    field: str
    verdict: Verdict
    says: str

    def row(self) -> dict[str, str]:
        """JSON form."""
        return {"field": self.field, "verdict": self.verdict.words, "says": self.says}


def check_statement(
    content: bytes, *, key: str = "", model: Path | None = None, slow: bool = False
) -> tuple[dict[str, Any], list[Finding]]:
    """The payload of a statement and the verdict on each of its fields; it needs no network and no run folder.

    Args:
        content: of the file.
        key: fingerprint of the key that must have signed it; by default any that this user trusts, and this user's.
        model: the file of the model, to compare with the digest.
        slow: whether to recompute numbers that take more than seconds.

    Raises:
        InvalidInput: the file is no statement.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> from tacit.statement import AuthorKey, Subject, sealed, statement
        >>> content = sealed(statement(Subject("digits"), Ledger.of(Gaussian(4.0))), AuthorKey.new())
        >>> max(finding.verdict for finding in check_statement(content)[1]).words
        'not checkable'
    """
    envelope = document.open_envelope(content)
    payload = envelope.payload
    findings = [_signature(envelope), _author(envelope, key)]
    if payload.get("schema") != document.SCHEMA:
        says = f"This version reads {document.SCHEMA!r}; the statement is of another schema."
        return payload, [*findings, Finding("schema", Verdict.NOT_CHECKABLE, says)]
    for place in faults(payload, schema_of("tacit.statement", "statement.schema.json")):
        rule = f"as its schema says; {place[:80]} is not. Ask its author for the original."
        raise InvalidInput(f"statement must be {rule}")
    findings += [*_contents(payload, slow), *_evidence(payload), *_digests(payload, model), _sequence(envelope)]
    return payload, findings


class _TooLong(BaseException):
    """Numbers took longer than `_SECONDS`; no handler of an accountant's errors may take it for one."""


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise `_TooLong` where the block takes more seconds of the processor, on a main thread that has such timers.

    Zero seconds are no limit.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _signature(envelope: document.Envelope) -> Finding:
    says = f"Signed by key {envelope.fingerprint[:16]}. A signature says who said this, not that the code ran."
    wrong = "" if envelope.is_canonical else "The payload is not in canonical JSON."
    wrong = wrong if envelope.is_signed else "The signature is not that of the key that the statement names."
    return _judged("signature", not wrong, says, wrong)


def _judged(field: str, holds: bool, says: str, otherwise: str = "") -> Finding:
    """`says`, or `otherwise` where the field does not hold."""
    return Finding(field, Verdict.VALID if holds else Verdict.CONTRADICTED, says if holds else otherwise or says)


def _author(envelope: document.Envelope, wanted: str) -> Finding:
    trusted = TrustStore().find(envelope.fingerprint)
    if trusted is not None and trusted.revoked:
        says = f"{trusted.name} revoked this key; the revocation states {trusted.revoked}, which is its signer's word."
        return Finding("author", Verdict.NOT_CHECKABLE, says)
    if wanted:
        same = len(wanted) >= 16 and envelope.fingerprint.startswith(wanted)
        says = "The author's key is the one that was asked for."
        return _judged("author", same, says, "The author's key is another than asked for.")
    if trusted is not None:
        return Finding("author", Verdict.VALID, f"The key is trusted as that of {trusted.name}.")
    with suppress(InvalidInput):  # This user has no key.
        if author_key().public == envelope.key:
            return Finding("author", Verdict.VALID, "The key is this user's own.")
    return Finding("author", Verdict.NOT_CHECKABLE, "Nobody whom this user trusts has this key: the author is unknown.")


def _contents(payload: dict[str, Any], slow: bool) -> Iterator[Finding]:
    """The ledger, what repeats it, and the numbers that follow from it."""
    try:
        ledger = Ledger.from_spec(payload["mechanism"])
    except TacitError as error:
        unknown = "type must be" in str(error)
        yield Finding("mechanism", Verdict.NOT_CHECKABLE if unknown else Verdict.CONTRADICTED, str(error))
        return
    yield Finding("mechanism", Verdict.VALID, "The chain of its entries and facts is whole.")
    if document.mechanism_table(ledger) != payload["mechanism"]:
        yield Finding("mechanism", Verdict.CONTRADICTED, "The ledger states more, or other, than it says of itself.")
    facts = [{name: fact.spec()[name] for name in ("id", "how", "says")} for fact in ledger.facts]
    same = facts == payload["facts"]
    yield _judged("facts", same, "They are those of the ledger.", "They are not those of the ledger.")
    yield from _numbers(payload["guarantee"], ledger, slow)


def _numbers(stated: dict[str, Any], ledger: Ledger, slow: bool) -> Iterator[Finding]:
    kinds = {str(row.get(name)) for row in ledger.spec()["mechanisms"] for name in ("type", "sampling", "strategy")}
    if not slow and (late := sorted(kinds & set(_SLOW))):
        yield Finding("guarantee", Verdict.NOT_CHECKABLE, f"Numbers of {', '.join(late)} take long: check with --slow.")
        return
    try:
        places = [row["epsilon"] for row in stated["tradeoff"]]
        if len(places) != len(document.SHARES):
            raise check.fail("guarantee.tradeoff", f"a list of {len(document.SHARES)} rows", len(places))
        with _within(0.0 if slow else _SECONDS):
            own = document.guarantee(ledger, [row["delta"] for row in stated["at"]], places)
    except _TooLong:
        says = f"The numbers take more than {_SECONDS:g} seconds of a processor: check with --slow."
        yield Finding("guarantee", Verdict.NOT_CHECKABLE, says)
        return
    except (Refused, InvalidInput) as error:
        yield Finding("guarantee", Verdict.CONTRADICTED, str(error))
        return
    for name in ("relation", "unit", "scope", "standing", "accountant"):
        yield _judged(f"guarantee.{name}", own[name] == stated[name], f"Recomputed: {own[name]}.")
    for number, (row, mine) in enumerate(zip(stated["at"], own["at"], strict=True)):
        for name in ("epsilon", "epsilon_lower"):
            yield _bound(f"guarantee.at[{number}].{name}", row[name], mine[name], upper=name == "epsilon")
    for number, (row, mine) in enumerate(zip(stated["tradeoff"], own["tradeoff"], strict=True)):
        if row["epsilon"] != mine["epsilon"]:
            place, says = f"guarantee.tradeoff[{number}].epsilon", f"Stated: {row['epsilon']:.9g}; "
            yield Finding(place, Verdict.CONTRADICTED, f"{says}recomputed: {mine['epsilon']:.9g}.")
        yield _bound(f"guarantee.tradeoff[{number}].delta", row["delta"], mine["delta"], upper=True)


def _bound(place: str, stated: Any, own: float | None, *, upper: bool) -> Finding:
    """A looser bound, or no lower one, is not tight; a tighter one contradicts."""
    if stated is None or own is None:
        verdict = Verdict.CONTRADICTED if own is None else Verdict.NOT_TIGHT
        return Finding(place, Verdict.VALID if stated is own else verdict, f"Recomputed: {own}.")
    number = float(stated)
    if document.close(number, own):
        return Finding(place, Verdict.VALID, f"Recomputed: {own:.9g}.")
    verdict = Verdict.NOT_TIGHT if (number > own) is upper else Verdict.CONTRADICTED
    return Finding(place, verdict, f"Stated: {number:.9g}; recomputed: {own:.9g}.")


def _evidence(payload: dict[str, Any]) -> Iterator[Finding]:
    """No measured lower bound may lie above a claim, and ball arithmetic may not have refuted it."""
    rows, claims = payload["evidence"]["audits"], payload["guarantee"]["at"]
    for number, row in enumerate(rows):
        found, delta = row["epsilon_lower"], row["delta"]
        above = [claim for claim in claims if None not in (found, delta) and claim["delta"] <= delta]
        less = all(float(found) <= float(claim["epsilon"]) for claim in above)
        says = f"The attack {row['attack']!r} is compatible with the claim."
        more = f"The attack {row['attack']!r} found more than is claimed."
        yield _judged(f"evidence.audits[{number}]", less, says, more)
    checked = payload["evidence"]["checked"]
    if checked is not None:
        refuted = checked["verdict"] == "refuted"
        yield _judged("evidence.checked", not refuted, f"Ball arithmetic: {checked['verdict']}.")


def _digests(payload: dict[str, Any], model: Path | None) -> Iterator[Finding]:
    stated = payload["digests"]
    same = stated["ledger"] == payload["mechanism"].get("hash")
    yield _judged("digests.ledger", same, "It is that of the chain.", "It is not that of the chain.")
    if model is not None:
        same = _digest_of(model) == stated["model"]
        yield _judged("digests.model", same, "The file is the model of the statement.", "The file is another model.")
    software = payload["software"]
    says = f"It was written by version {software['tacit']}; this is {__version__}."
    if software["tacit"] == __version__:
        says = "It is that of the package here."
        if software["package"] != document.package_digest():
            says = "The package that wrote it has other code than the one here."
    yield Finding("software", Verdict.VALID, says)


def _sequence(envelope: document.Envelope) -> Finding:
    """Whether its author made a newer statement about its subject, of those that were seen here."""
    subject = envelope.payload["subject"]
    number, newest = subject["sequence"], SeenStatements().newest(envelope.fingerprint, str(subject["id"]))
    if newest is None or newest["digest"] == document.payload_digest(envelope.payload):
        says = f"Number {number} about this subject; no newer one was seen here."
    elif newest["sequence"] == number:
        says = f"Its author signed another statement with the number {number} too, of {newest['date']}."
    elif newest["sequence"] > number:
        later = f"number {newest['sequence']} about this subject, of {newest['date']}"
        says = f"Superseded: its author's {later}, was seen here."
    else:
        says = f"Number {number} about this subject; the newest one seen here had number {newest['sequence']}."
    return Finding("subject.sequence", Verdict.VALID, says)


def note_seen(payload: dict[str, Any], findings: Sequence[Finding]) -> None:
    """Remember a statement that was checked, so that an older one is told from it.

    One that is contradicted, or whose author nobody here knows, is not remembered.

    Args:
        payload: of the statement.
        findings: of its check.
    """
    known = any(finding.field == "author" and finding.verdict is Verdict.VALID for finding in findings)
    if known and max(finding.verdict for finding in findings) is not Verdict.CONTRADICTED:
        author = fingerprint(base64.b64decode(payload["author"]["key"]))
        with suppress(OSError):  # A folder that can't be written changes no verdict.
            SeenStatements().note(author, payload["subject"], document.payload_digest(payload))


def _digest_of(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise InvalidInput(f"model must be a file that can be read; got {str(path)!r}. {error.strerror}.") from None


def statement_page(payload: dict[str, Any], findings: Sequence[Finding]) -> str:
    """The page: what is promised to whom, on what it rests, and the verdict on every field.

    Args:
        payload: of the statement, which `check_statement` read.
        findings: of that check.
    """
    worst = max((finding.verdict for finding in findings), default=Verdict.VALID)
    subject, stated = payload["subject"], payload["guarantee"]
    color = {Verdict.VALID: "valid", Verdict.CONTRADICTED: "contradicted"}.get(worst, "not")
    parts = [
        f"<h1>Privacy statement: {escape(str(subject['dataset']))}</h1>",
        f'<p class="{color}">Checked here: {worst.words}.</p>',
        *(f"<p>{escape(_promise(row, payload))}</p>" for row in stated["at"]),
        _table("What it is about", [*filed(subject), ("Statement", f"number {subject['sequence']}")]),
        _table("What is declared or assumed", _declared(payload["facts"])),
        _table("Attacks on the model", (_attack(row) for row in payload["evidence"]["audits"])),
        _table("Verdict on every field", ((f.field, f"{f.verdict.words}: {f.says}") for f in findings)),
    ]
    style = files("tacit.statement").joinpath("page.css").read_text("utf-8")
    title = f"<title>Privacy statement: {escape(str(subject['dataset']))}</title>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{title}<style>\n{style}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _promise(row: dict[str, Any], payload: dict[str, Any]) -> str:
    stated = payload["guarantee"]
    unit = unit_in_words(stated["unit"], str(payload["subject"].get("unit") or ""))
    epsilon = leakage(float(row["epsilon"]), stated["standing"])
    return (
        f"Whoever sees what was released learns about {unit} at most what epsilon {epsilon} with delta "
        f"{row['delta']:g} allows ({stated['standing']}); it was released once, and a further release costs more."
    )


def _declared(facts: Iterable[dict[str, Any]]) -> Iterable[tuple[str, str]]:
    rows = [(fact["how"], fact["says"] or fact["id"]) for fact in facts if fact["how"] in ("declared", "assumed")]
    return rows or [("nothing", "Every fact that the numbers rest on is enforced by the code.")]


def _attack(row: dict[str, Any]) -> tuple[str, str]:
    lower, power = row["epsilon_lower"], row["detectable_epsilon"]
    found = "found no bound" if lower is None else f"found epsilon of at least {downward(float(lower), 3)}"
    could = "its power was not measured" if power is None else f"could have found {upward(float(power), 3)} or more"
    return row["attack"], f"{found} at confidence {row['confidence']}; {could}."


def _table(heading: str, rows: Iterable[tuple[object, object]]) -> str:
    cells = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(text))}</td></tr>" for name, text in rows)
    return f"<h2>{heading}</h2><table>{cells}</table>" if cells else ""
