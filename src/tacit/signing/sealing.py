"""Sealed files: encrypted and authenticated under this user's key, for what must not be read before a run is over."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.errors import InvalidInput
from tacit.signing.counters import latest_count
from tacit.signing.keys import SigningKey, signing_key

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
