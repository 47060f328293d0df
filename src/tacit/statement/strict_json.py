"""JSON of a statement: that of the gate, smaller, with texts in one Unicode form; and its canonical form (RFC 8785)."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.serialization import json_value

LARGEST = 4_000_000
"""Bytes of a file that is read."""
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Categories of characters that act on a terminal or hide text.


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
    _check_texts(value)
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


def _check_texts(value: object) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_texts(key)
            _check_texts(item)
    elif isinstance(value, list):
        for item in value:
            _check_texts(item)
    elif isinstance(value, str):
        if not unicodedata.is_normalized("NFC", value):
            raise InvalidInput("file must be of texts in Unicode normal form C; got another form.")
        if any(unicodedata.category(character) in _HIDDEN for character in value):
            raise InvalidInput("file must be free of control characters; got one.")
