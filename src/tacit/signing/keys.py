"""The secret key of this user, by which files are recognised that this user's runs wrote.

Monotone counters beside the key: a signed file that was overtaken by a later one is recognised.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import warnings
from pathlib import Path

import platformdirs
from cryptography.hazmat.primitives import hashes, hmac

from tacit import check
from tacit.errors import PrivacyWarning
from tacit.locking import writing
from tacit.serialization import write_text

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
        code = hmac.HMAC(self._secret, hashes.SHA256())
        code.update(b"tacit " + kind.encode() + b"\0" + content)
        return code.finalize().hex()


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
        if len(path.parts) == 1 and not _is_file(path):
            if len(given) < _SHORTEST_TEXT:
                # Not quoted: it may be a key that was cut short.
                got = f"{len(given)} characters"
                raise check.fail(VARIABLE, "a text of at least 32 characters, or the path of a key file", got)
            return SigningKey(hashlib.sha256(given.encode()).digest())
    try:
        return SigningKey(_kept(path))
    except OSError:
        return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a text too long for a name
        return False


def _kept(path: Path) -> bytes:
    """The secret in the file, made there if needed."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        _make(path)
        content = path.read_bytes()
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        warnings.warn(f"others can read the signing key {str(path)!r}: run chmod 600 on it.", PrivacyWarning, 4)
    return content


def _make(path: Path) -> None:
    """Write a new secret; where another process makes one at the same time, one of the two stays."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink(missing_ok=True)


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
        >>> from tacit.signing import new_id
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
