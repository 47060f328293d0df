"""Ed25519 keys of authors: one's own, and those that one trusts under a name.

A signature says who said something, never that the code ran.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit import check
from tacit.errors import InvalidInput
from tacit.locking import writing
from tacit.serialization import json_table, json_text, write_secret, write_text
from tacit.signing import configuration_folder

AUTHOR, _TRUSTED = "author.pem", "trusted_keys.json"
"""Name of the file of this user's key in the configuration folder."""


def fingerprint(public: bytes) -> str:
    """SHA-256 of a public key, in hexadecimal digits.

    Example:
        >>> fingerprint(bytes(32))[:8]
        '66687aad'
    """
    return hashlib.sha256(public).hexdigest()


class AuthorKey:
    """A private key, never printed.

    Example:
        >>> len(AuthorKey.new().public)
        32
    """

    def __init__(self, private: Ed25519PrivateKey):
        self._private = private

    def __repr__(self) -> str:
        return f"AuthorKey(fingerprint={fingerprint(self.public)!r})"

    @classmethod
    def new(cls) -> AuthorKey:
        """A key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._private.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The signature of `message`, 64 bytes."""
        return self._private.sign(message)

    def save(self, path: Path) -> None:
        """Write the key with mode 600; raises `InvalidInput` where there is a file already."""
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        if not write_secret(path, self._private.private_bytes(*form)):
            raise InvalidInput(f"author's key must be made once; {str(path)!r} is there. Keep it, or move it.")

    @classmethod
    def load(cls, path: Path) -> AuthorKey:
        """The key in a file; raises `InvalidInput` for any other file."""
        try:
            private = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except FileNotFoundError:
            raise check.fail("author's key", "a file that exists", str(path), "Run tacit key new.") from None
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
            raise check.fail("author's key", "an Ed25519 key in PEM without a password", str(path)) from None
        if not isinstance(private, Ed25519PrivateKey):
            raise check.fail("author's key", "an Ed25519 key", type(private).__name__)
        return cls(private)


def author_key(*, make: bool = False) -> AuthorKey:
    """The key of this user; with `make` it is made where there is none.

    Raises:
        InvalidInput: there is none, or its file holds something else.
    """
    path = configuration_folder() / AUTHOR
    if make and not path.exists():
        with suppress(InvalidInput):  # Another process made it meanwhile.
            AuthorKey.new().save(path)
    return AuthorKey.load(path)


def public_pem(public: bytes) -> str:
    """A public key as a file of text."""
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return Ed25519PublicKey.from_public_bytes(public).public_bytes(*form).decode()


def read_public(path: Path) -> bytes:
    """The public key in a PEM file; raises `InvalidInput` for any other file."""
    try:
        found = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        raise check.fail("key", "a file with a public key, as tacit key show --out writes it", str(path)) from None
    if not isinstance(found, Ed25519PublicKey):
        raise check.fail("key", "an Ed25519 key", type(found).__name__)
    return found.public_bytes_raw()


@dataclass(frozen=True)
class TrustedKey:
    """A key that this user trusts.

    Attributes:
        name: that this user gave its owner.
        fingerprint: of the key.
        revoked: the time that its owner's revocation states, the signer's word; empty without one.
    """

    name: str
    fingerprint: str
    revoked: str = ""


class TrustStore:
    """The keys that this user trusts, in one file of the configuration folder."""

    def __init__(self) -> None:
        self._path = configuration_folder() / _TRUSTED

    @property
    def keys(self) -> tuple[TrustedKey, ...]:
        """All of them, in the order in which they were trusted."""
        if not self._path.exists():
            return ()
        rows = json_table("trusted keys", self._path).get("keys", [])
        return tuple(TrustedKey(*(str(row[name]) for name in ("name", "fingerprint", "revoked"))) for row in rows)

    def find(self, wanted: str) -> TrustedKey | None:
        """The key with this fingerprint, or the beginning of it of at least 16 digits, or this name."""
        long = len(wanted) >= 16
        found = (key for key in self.keys if wanted == key.name or (long and key.fingerprint.startswith(wanted)))
        return next(found, None)

    def fingerprint_of(self, wanted: str) -> str:
        """The fingerprint that is meant by a file with a public key, the name of a trusted key, or its beginning.

        Raises:
            InvalidInput: it is none of them.
        """
        known = None if Path(wanted).is_file() else self.find(wanted)
        if known is not None:
            return known.fingerprint
        if re.fullmatch(r"[0-9a-fA-F]{16,64}", wanted):
            return wanted.lower()
        if Path(wanted).is_file():
            return fingerprint(read_public(Path(wanted)))
        rule = "a file with a public key, the name of a trusted key, or at least 16 digits of a fingerprint"
        raise check.fail("key", rule, wanted, "Run tacit key list.")

    def trust(self, name: str, public: bytes) -> TrustedKey:
        """Trust a public key under a name.

        Raises:
            InvalidInput: the name is empty, taken or like a fingerprint, or the key was trusted before.
        """
        if re.fullmatch("[0-9a-fA-F]{16,}", check.text("name", name)):
            raise check.fail("name", "other than a fingerprint, which another key may have", name)
        key = TrustedKey(name, fingerprint(public))
        with self._alone():
            if self.find(name) is not None or self.find(key.fingerprint) is not None:
                raise check.fail("key", "trusted once, under a name of its own", name, "Run tacit key list.")
            self._write((*self.keys, key))
        return key

    def revoke(self, public: bytes, time: str) -> TrustedKey:
        """Mark a key as revoked at the time that its owner states; raises `InvalidInput` for an unknown key."""
        with self._alone():
            known = self.find(fingerprint(public))
            if known is None:
                raise check.fail("key", "one that is trusted", fingerprint(public)[:16], "Run tacit key list.")
            revoked = TrustedKey(known.name, known.fingerprint, time)
            self._write(tuple(revoked if key == known else key for key in self.keys))
        return revoked

    def _alone(self) -> AbstractContextManager[object]:
        """While no other process changes the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return writing("trusted keys", self._path)

    def _write(self, keys: tuple[TrustedKey, ...]) -> None:
        write_text(self._path, json_text({"keys": [vars(key) for key in keys]}))
