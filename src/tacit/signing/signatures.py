"""Signatures: HMAC-SHA256 of a file's content, with its identity and a count that grows with every version.

Sealed files: encrypted and authenticated under this user's key, for what must not be read before a run is over.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.errors import InvalidInput
from tacit.signing.keys import SigningKey, latest_count, signing_key

_NONCE_BYTES = 12  # NIST SP 800-38D: random nonces of 96 bits allow 2^32 files under one key


@dataclass(frozen=True)
class Sealed:
    """An opened file.

    Attributes:
        content: what was sealed.
        id: identity of the file.
        count: of this version.
    """

    content: bytes
    id: str
    count: int


def seal(kind: str, content: bytes, *, id: str, count: int) -> bytes | None:
    """`content` under AES-256-GCM (NIST SP 800-38D), with a key derived from this user's; None where there is no key.

    Args:
        kind: of the file; one of another kind is not opened.
        content: what nobody else may read.
        id: identity of the file, from `new_id`.
        count: that of this version; `raise_count` after it is written makes earlier ones refused.

    Example:
        >>> unseal("search", seal("search", b"best so far", id="", count=0)).content
        b'best so far'
    """
    key = signing_key()
    if key is None:
        return None
    head = json.dumps({"key": key.id, "id": id, "count": count}).encode()
    nonce = os.urandom(_NONCE_BYTES)
    return head + b"\n" + nonce + AESGCM(_secret(key)).encrypt(nonce, content, kind.encode() + b"\0" + head)


def unseal(kind: str, sealed: bytes) -> Sealed:
    """What `seal` was given; nothing of it is executed.

    Raises:
        InvalidInput: it is no such file, was changed, was sealed by another key, or a later version of it was sealed.

    Example:
        >>> unseal("search", b"")
        Traceback (most recent call last):
        tacit.errors.InvalidInput: sealed file must be as this user's key sealed it last; it was changed.
    """
    head, _, rest = sealed.partition(b"\n")
    key = signing_key()
    try:
        named = json.loads(head)
        id, count, owner = str(named["id"]), int(named["count"]), str(named["key"])
    except (ValueError, KeyError, TypeError):
        raise _refused("was changed") from None
    if key is None or owner != key.id:
        raise _refused("was sealed by another key")
    try:
        nonce, hidden = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
        content = AESGCM(_secret(key)).decrypt(nonce, hidden, kind.encode() + b"\0" + head)
    except (InvalidTag, ValueError):
        raise _refused("was changed") from None
    if id and count < latest_count(id):
        raise _refused("is older than what was sealed since")
    return Sealed(content, id, count)


def _secret(key: SigningKey) -> bytes:
    """A key of its own for encryption: HMAC-SHA256 of a constant."""
    return bytes.fromhex(key.mac("key of sealed files", b""))


def _refused(why: str) -> InvalidInput:
    return InvalidInput(f"sealed file must be as this user's key sealed it last; it {why}.")


class Origin(enum.Enum):
    """What a signature says about where a file came from.

    Example:
        >>> Origin.OWN.trusted, Origin.UNSIGNED.trusted
        (True, False)
    """

    OWN = "signed by this user's key"
    UNSIGNED = "not signed"
    FOREIGN = "signed by another key"
    EDITED = "changed after it was signed"
    ROLLED_BACK = "older than what this user's key has signed since"

    @property
    def trusted(self) -> bool:
        """Whether the content is as a run of this user wrote it last."""
        return self is Origin.OWN

    @property
    def refused(self) -> bool:
        """Whether the file was tampered with: its own signature contradicts it."""
        return self in (Origin.EDITED, Origin.ROLLED_BACK)


def new_id() -> str:
    """A random identity of 128 bits for a file whose versions are counted.

    Example:
        >>> len(new_id())
        32
    """
    return secrets.token_hex(16)


def signature_of(kind: str, content: object, *, id: str = "", count: int = 0) -> dict[str, Any] | None:
    """The signature of `content`, a table to keep beside it; None where there is no key.

    Args:
        kind: of the file; a signature of one kind is none of another.
        content: bytes, or plain values that JSON can hold.
        id: identity of a file whose versions are counted, from `new_id`.
        count: that of this version.

    Example:
        >>> content = {"steps": 3}
        >>> signature = signature_of("ledger", content)
        >>> origin_of("ledger", content, signature).name, origin_of("ledger", {"steps": 2}, signature).name
        ('OWN', 'EDITED')
    """
    key = signing_key()
    if key is None:
        return None
    return {"key": key.id, "id": id, "count": count, "mac": key.mac(kind, _message(content, id, count))}


def origin_of(kind: str, content: object, signature: object) -> Origin:
    """Where `content` came from, by the `signature` that was kept with it."""
    if signature is None:
        return Origin.UNSIGNED
    if not isinstance(signature, Mapping):
        return Origin.EDITED
    name, id, count, mac = (signature.get(part) for part in ("key", "id", "count", "mac"))
    if not (isinstance(id, str) and isinstance(count, int) and isinstance(mac, str) and isinstance(name, str)):
        return Origin.EDITED
    key = signing_key()
    if key is None or name != key.id:
        return Origin.FOREIGN
    if not hmac.compare_digest(mac.encode(), key.mac(kind, _message(content, id, count)).encode()):
        return Origin.EDITED
    return Origin.ROLLED_BACK if id and count < latest_count(id) else Origin.OWN


def code_digest(files: list[Path]) -> str:
    """SHA-256 over the content of `files` in their order, for a person to compare and a signature to hold.

    Example:
        >>> code_digest([])[:8]
        'e3b0c442'
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _message(content: object, id: str, count: int) -> bytes:
    head = json.dumps([id, count]).encode() + b"\0"
    if isinstance(content, bytes):
        return head + b"bytes\0" + content
    return head + b"json\0" + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
