"""Keyed signatures and seals of the files that tacit writes, and the counters that notice when an older one is back.

The secret key of this user, by which files are recognised that this user's runs wrote.

Monotone counters beside the key: a signed file that was overtaken by a later one is recognised.

Signatures: HMAC-SHA256 of a file's content, with its identity and a count that grows with every version.

Sealed files: encrypted and authenticated under this user's key, for what must not be read before a run is over.
"""

import enum
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit import check
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.locking import writing
from tacit.serialization import write_secret, write_text

VARIABLE = "TACIT_KEY"
"""Environment variable with the key itself, a text of at least 32 characters, or the path of a key file."""
_SECRET_BYTES = 32  # as long as the output of SHA-256: a longer key adds nothing (RFC 2104, section 3)
_SHORTEST_TEXT = 32  # characters: 128 bits when they are hexadecimal digits
_NAME = "signing.key"


class SigningKey:
    """A secret key of HMAC-SHA256 (RFC 2104).

    Args:
        secret: at least 16 bytes.

    Raises:
        InvalidInput: the secret is shorter.

    Example:
        >>> key, other = SigningKey(bytes(32)), SigningKey(bytes(range(32)))
        >>> key.mac("ledger", b"content") == other.mac("ledger", b"content")
        False
    """

    def __init__(self, secret: bytes):
        if len(secret) < _SECRET_BYTES // 2:
            raise check.fail("key", "at least 16 bytes", f"{len(secret)} bytes", "Remove the file to have one made.")
        self._secret = secret

    def __repr__(self) -> str:
        return f"SigningKey(id={self.id!r})"

    @property
    def id(self) -> str:
        """Public name of the key, which tells nothing about the secret."""
        return self.mac("id", b"")[:16]

    def mac(self, kind: str, content: bytes) -> str:
        """HMAC-SHA256 of `content` as a file of this `kind`, in hexadecimal digits."""
        return hmac.new(self._secret, b"tacit " + kind.encode() + b"\0" + content, "sha256").hexdigest()


def configuration_folder() -> Path:
    """The folder of this user's key and counters; it need not exist.

    Example:
        >>> configuration_folder().name
        'tacit'
    """
    return Path(platformdirs.user_config_path("tacit", appauthor=False))


def signing_key() -> SigningKey | None:
    """The key of this user, made on first use with mode 600; None where it can be neither read nor made.

    TACIT_KEY gives another one: a text of at least 32 characters, or the path of a key file, made if needed.

    Raises:
        InvalidInput: TACIT_KEY is neither.

    Example:
        >>> import os
        >>> before = os.environ.get("TACIT_KEY")
        >>> os.environ["TACIT_KEY"] = "0123456789abcdef" * 4
        >>> signing_key()
        SigningKey(id='...')
        >>> _ = os.environ.pop("TACIT_KEY") if before is None else os.environ.update(TACIT_KEY=before)
    """
    given = os.environ.get(VARIABLE, "")
    path = configuration_folder() / _NAME
    if given:
        path = Path(given).expanduser()
        if len(path.parts) == 1 and not os.path.isfile(path):  # Which takes a text too long for a name, too.
            if len(given) < _SHORTEST_TEXT:
                # Not quoted: it may be a key that was cut short.
                got = f"{len(given)} characters"
                raise check.fail(VARIABLE, "a text of at least 32 characters, or the path of a key file", got)
            return SigningKey(hashlib.sha256(given.encode()).digest())
    try:
        return SigningKey(_kept(path))
    except OSError:
        return None


def _kept(path: Path) -> bytes:
    """The secret in the file, made there if needed."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        write_secret(path, secrets.token_bytes(_SECRET_BYTES))
        content = path.read_bytes()
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        warnings.warn(f"others can read the signing key {str(path)!r}: run chmod 600 on it.", PrivacyWarning, 4)
    return content


_ID = re.compile(r"[0-9a-f]{32}")


def latest_count(id: str) -> int:
    """The highest count that `raise_count` was told for the file `id`; 0 where none is known.

    Example:
        >>> latest_count("0" * 32)
        0
    """
    return _known(id)[0]


def latest_place(id: str) -> str:
    """The path of the file `id` when its count was raised last; empty where none is known.

    Example:
        >>> latest_place("0" * 32)
        ''
    """
    return _known(id)[1]


def raise_count(id: str, count: int, path: str | Path) -> None:
    """Remember that the file `id` was written with `count`; a lower count than the known one changes nothing.

    It is told after the file is written, so that a kill in between leaves a file that is ahead of its counter and never
    one behind it. Where the folder cannot be written to, rollbacks of the file go unnoticed.

    Args:
        id: of the file, from `new_id`.
        count: that was signed with it, >= 1.
        path: where it was written.

    Example:
        >>> file = new_id()
        >>> raise_count(file, 2, "run"); raise_count(file, 1, "run")
        >>> latest_count(file)
        2
    """
    place = _place(id)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        # Two processes that write one store must not both find the lower count and end with it.
        with writing("counter", place):
            if count > latest_count(id):
                write_text(place, f"{count}\n{Path(path).resolve()}")
    except OSError:
        return


def _known(id: str) -> tuple[int, str]:
    try:
        count, _, path = _place(id).read_text(encoding="utf-8").partition("\n")
        return int(count), path
    except (OSError, ValueError):
        return 0, ""


def _place(id: str) -> Path:
    """The file of a counter; an id that came from elsewhere must not lead out of the folder."""
    if not _ID.fullmatch(id):
        raise ValueError("no id")
    return configuration_folder() / "counters" / id


_NONCE_BYTES = 12  # NIST SP 800-38D: random nonces of 96 bits allow 2^32 files under one key


def seal(kind: str, content: bytes, *, id: str, count: int) -> bytes | None:
    """`content` under AES-256-GCM (NIST SP 800-38D), with a key derived from this user's; None where there is no key.

    Args:
        kind: of the file; one of another kind is not opened.
        content: what nobody else may read.
        id: identity of the file, from `new_id`.
        count: that of this version; `raise_count` after it is written makes earlier ones refused.

    Example:
        >>> unseal("search", seal("search", b"best so far", id="", count=0))
        b'best so far'
    """
    key = signing_key()
    if key is None:
        return None
    head = json.dumps({"key": key.id, "id": id, "count": count}).encode()
    nonce = os.urandom(_NONCE_BYTES)
    return head + b"\n" + nonce + AESGCM(_secret(key)).encrypt(nonce, content, kind.encode() + b"\0" + head)


def unseal(kind: str, sealed: bytes) -> bytes:
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
    return content


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
