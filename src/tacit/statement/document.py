"""`statement`: the table of a privacy statement, from a ledger and what is known of its subject.

DSSE envelopes: a payload, its type, and one Ed25519 signature over both.

Source: Dead Simple Signing Envelope 1.0; RFC 8032 for Ed25519.

JSON of a statement: that of the gate, smaller, with texts in one Unicode form; and its canonical form (RFC 8785).
"""

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import tacit
from tacit import check
from tacit.accounting import Ledger, account
from tacit.errors import InvalidInput
from tacit.serialization import json_value, plain_values, versions_of
from tacit.signing import code_digest
from tacit.statement.keys import AuthorKey, fingerprint
from tacit.statement.subject import Subject, check_texts

SCHEMA = "tacit-statement/1"
"""The schema that this version writes; `statement.schema.json` beside this file."""
SHARES = (0.0, 0.0625, 0.125, 0.1875, 0.25, 0.375, 0.5, 0.75)
"""Shares of the first epsilon at which a statement bounds delta too: lines that support the trade-off curve."""
TOLERANCE = 1e-6
"""Relative difference of two numbers that are taken as equal, since processors and versions round apart."""
_LARGEST = 100.0  # epsilon of which shares still say something
_AUDIT = ("attack", "confidence", "delta", "epsilon_lower", "detectable_epsilon")
_FACT = ("id", "how", "says")


def statement(
    subject: Subject,
    ledger: Ledger,
    *,
    deltas: Sequence[float] = (1e-5,),
    audits: Sequence[Mapping[str, Any]] = (),
    checked: Mapping[str, Any] | None = None,
    model: str = "",
) -> dict[str, Any]:
    """The payload of a statement: every number follows from the ledger in it, so that anybody can compute it again.

    Args:
        subject: what it is about.
        ledger: what ran.
        deltas: each in (0, 1): epsilon is bounded there.
        audits: rows of attacks on the model, as a card has them.
        checked: what ball arithmetic says of a bracket, as `check_bracket` gives it; None where it was not asked.
        model: SHA-256 of the model's file; empty where there is none.

    Raises:
        Refused: no accountant answers for this ledger.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> table = statement(Subject("digits"), Ledger.of(Gaussian(4.0)))
        >>> round(table["guarantee"]["at"][0]["epsilon"], 3)
        0.926
    """
    spec = mechanism_table(ledger)
    ledger = Ledger.from_spec(spec)
    rows = [{name: row.get(name) for name in _AUDIT} for row in audits]
    table = {
        "schema": SCHEMA,
        "subject": asdict(subject),
        "mechanism": spec,
        "guarantee": guarantee(ledger, deltas),
        "facts": [{name: fact[name] for name in _FACT} for fact in spec["facts"]],
        "evidence": {"audits": rows, "checked": None if checked is None else dict(checked)},
        "software": {"tacit": tacit.__version__, "package": package_digest()} | versions_of("numpy", "scipy", "torch"),
        "digests": {"ledger": spec.get("hash"), "model": model or None},
    }
    return plain_values(table)


def mechanism_table(ledger: Ledger) -> dict[str, Any]:
    """The SPEC of a ledger; hashes are those of a run, whose facts and entries they chain."""
    spec = plain_values({name: value for name, value in ledger.spec().items() if name != "signature"})
    if ledger.is_run:
        return spec
    rows = [{name: value for name, value in row.items() if name != "hash"} for row in spec["mechanisms"]]
    return {name: value for name, value in spec.items() if name != "hash"} | {"mechanisms": rows}


def guarantee(ledger: Ledger, deltas: Sequence[float], stated: Sequence[float] = ()) -> dict[str, Any]:
    """The numbers of a ledger: epsilon with its proven lower end at each delta, and delta at further epsilons.

    Args:
        ledger: what ran.
        deltas: each in (0, 1).
        stated: further epsilons of the statement that is checked, which may round apart from `SHARES` of the first.
    """
    rows, curve = [], None
    for delta in deltas:
        check.probability("delta", delta)
        # The exact accountant where it gives a number; the best of all elsewhere.
        exact = account(ledger, delta=delta, accountants=["pld"]).results
        best = exact if exact and math.isfinite(exact[0].epsilon) else account(ledger, delta=delta).results
        check.that(best, "ledger", "one that an accountant answers for", str(ledger.mechanism))
        found = min(best, key=lambda result: result.epsilon)
        curve = curve or found.tradeoff
        rows.append({"delta": delta, "epsilon": found.epsilon, "epsilon_lower": found.epsilon_lower})
    assert curve is not None
    first = rows[0]["epsilon"] if rows[0]["epsilon"] < _LARGEST else 1.0
    places = [share * first for share in SHARES]
    places = [near if close(near, own) else own for near, own in zip(stated or places, places, strict=True)]
    return {
        "relation": ledger.relation.value,
        "unit": ledger.unit,
        "scope": ledger.scope,
        "standing": curve.standing.value,
        "accountant": curve.source,
        "at": rows,
        "tradeoff": [{"epsilon": place, "delta": float(curve.delta(place))} for place in places],
    }


def close(first: float, second: float) -> bool:
    """Whether two numbers are taken as equal; infinity equals itself alone."""
    return math.isclose(first, second, rel_tol=TOLERANCE)


def package_digest() -> str:
    """SHA-256 over the source files and tables of this package in order of their names."""
    root = Path(tacit.__file__).parent
    return code_digest(sorted([*root.rglob("*.py"), *root.rglob("*.toml")]))


STATEMENT = "application/vnd.tacit.statement.v1+json"
REVOCATION = "application/vnd.tacit.revocation.v1+json"


@dataclass(frozen=True)
class Envelope:
    """An opened envelope.

    Attributes:
        payload: its table.
        key: public key of whoever signed it, 32 bytes.
        is_signed: whether the signature is that of the key over this payload.
        is_canonical: whether the payload is in its canonical form.
    """

    payload: dict[str, Any]
    key: bytes
    is_signed: bool
    is_canonical: bool

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the key."""
        return fingerprint(self.key)


def sealed(payload: dict[str, Any], key: AuthorKey, kind: str = STATEMENT) -> bytes:
    """The envelope of `payload`, which names the public key of its author, signed by `key`.

    Example:
        >>> open_envelope(sealed({"schema": "x"}, AuthorKey.new())).is_signed
        True
    """
    body = canonical(payload | {"author": {"key": _text(key.public)}})
    signature = {"keyid": fingerprint(key.public), "sig": _text(key.sign(_to_sign(kind, body)))}
    table = {"payloadType": kind, "payload": _text(body), "signatures": [signature]}
    return json.dumps(table, indent=1).encode() + b"\n"


def open_envelope(content: bytes, kind: str = STATEMENT) -> Envelope:
    """What an envelope holds, its signature checked against the key that its payload names.

    Args:
        content: of the file.
        kind: the type that the payload must have.

    Raises:
        InvalidInput: it is no envelope of this kind with one signature and one table as payload.
    """
    outer = parsed(content)
    if not (isinstance(outer, dict) and set(outer) == {"payloadType", "payload", "signatures"}):
        raise InvalidInput("file must be an envelope with payloadType, payload and signatures, and nothing else.")
    if outer["payloadType"] != kind:
        raise InvalidInput(f"payloadType must be {kind!r}; got {str(outer['payloadType'])[:80]!r}.")
    signatures = outer["signatures"]
    if not (isinstance(signatures, list) and len(signatures) == 1 and isinstance(signatures[0], dict)):
        raise InvalidInput("signatures must be a list of one; got another.")
    body = _bytes("payload", outer["payload"])
    payload = parsed(body)
    author = payload.get("author") if isinstance(payload, dict) else None
    if not isinstance(author, dict):
        raise InvalidInput("payload must be a table that names its author's key; it does not.")
    key = _bytes("author.key", author.get("key"))
    if len(key) != 32:
        raise InvalidInput(f"author.key must have 32 bytes; got {len(key)}.")
    named = signatures[0].get("keyid") == fingerprint(key) and set(signatures[0]) == {"keyid", "sig"}
    signed = named and _verifies(key, _bytes("sig", signatures[0].get("sig")), _to_sign(kind, body))
    return Envelope(payload, key, signed, canonical(payload) == body)


def _to_sign(kind: str, body: bytes) -> bytes:
    """The pre-authentication encoding of DSSE."""
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind.encode(), str(len(body)).encode(), body])


def _verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(name: str, text: object) -> bytes:
    try:
        found = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{name} must be base64; got another text.") from None
    if _text(found) != text:
        raise InvalidInput(f"{name} must be base64 in its one standard form; got another.")
    return found


LARGEST = 4_000_000
"""Bytes of a file that is read."""


def parsed(content: bytes) -> Any:
    """The JSON value in `content`.

    Raises:
        InvalidInput: it is no JSON in UTF-8, or larger, deeper or longer in digits than any statement is; a key stands
            twice; a number is not finite; a text holds control characters or is not in Unicode normal form C.

    Example:
        >>> parsed(b'{"steps": 3}')
        {'steps': 3}
    """
    try:
        if len(content) > LARGEST:
            raise ValueError(f"It has more than {LARGEST} bytes.")
        value = json_value(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"file must be one JSON value in UTF-8; {error} Ask its author for the original.") from None
    check_texts("file", value)
    return value


def read_bounded(path: Path) -> bytes:
    """The content of a file; raises `InvalidInput` where it can't be read.

    Of a file larger than any statement it reads one byte too much, which `parsed` refuses.

    Example:
        >>> read_bounded(Path("no-such-file"))
        Traceback (most recent call last):
        tacit.errors.InvalidInput: file must be a file that can be read; got 'no-such-file'. No such file or directory.
    """
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise check.fail("file", "a file that can be read", str(path), f"{error.strerror}.") from None


def canonical(value: object) -> bytes:
    """Canonical JSON of plain values (RFC 8785).

    Example:
        >>> canonical({"b": 1.0, "a": "x"})
        b'{"a":"x","b":1}'
    """
    import rfc8785  # Here, since only statements need it.

    try:
        return rfc8785.dumps(value)  # type: ignore[arg-type]
    except rfc8785.CanonicalizationError as error:
        raise InvalidInput(f"values must have a canonical JSON form; {error}.") from None


def payload_digest(payload: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical form of a payload, in hexadecimal digits.

    Example:
        >>> payload_digest({})[:8]
        '44136fa3'
    """
    return hashlib.sha256(canonical(dict(payload))).hexdigest()
