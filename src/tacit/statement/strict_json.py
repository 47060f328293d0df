"""JSON of bounded size, depth and digits, every key once, every number finite, every text normalised; and RFC 8785."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from pathlib import Path
from typing import Any, NoReturn

from tacit import check
from tacit.errors import InvalidInput

LARGEST = 4_000_000
"""Bytes of a file that is read."""
DEEPEST = 32
"""Depth of nested lists and tables."""
_DIGITS = 40
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def parsed(content: bytes) -> Any:
    """The JSON value in `content`.

    Raises:
        InvalidInput: it is no JSON in UTF-8, or larger, deeper or longer in digits than any statement is; a key stands
            twice; a number is not finite; a text holds control characters or is not in Unicode normal form C.

    Example:
        >>> parsed(b'{"steps": 3}')
        {'steps': 3}
    """
    if len(content) > LARGEST:
        raise _refused(f"at most {LARGEST} bytes long", f"{len(content)} bytes")
    try:
        text = content.decode("utf-8")
        _check_depth(text)
        value = json.loads(
            text,
            object_pairs_hook=_table,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"file must be one JSON value in UTF-8; {error}.") from None
    _check_texts(value)
    return value


def read_bounded(path: Path) -> bytes:
    """The content of a file; raises `InvalidInput` where it can't be read or is larger than any statement.

    Example:
        >>> read_bounded(Path("no-such-file"))
        Traceback (most recent call last):
        tacit.errors.InvalidInput: file must be a file that can be read; got 'no-such-file'. No such file or directory.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise check.fail("file", "a file that can be read", str(path), f"{error.strerror}.") from None
    if len(content) > LARGEST:
        raise _refused(f"at most {LARGEST} bytes long", "more")
    return content


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


def _check_depth(text: str) -> None:
    depth = 0
    for match in _BRACKETS.finditer(text):
        mark = match.group()
        if mark[0] != '"':
            depth += 1 if mark in "[{" else -1
        if depth > DEEPEST:
            raise _refused(f"at most {DEEPEST} levels deep", "more")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise _refused("a table in which every key stands once", "a key twice")
    return table


def _constant(name: str) -> NoReturn:
    raise _refused("of finite numbers", name)


def _float(digits: str) -> float:
    number = float(digits) if len(digits) <= _DIGITS else math.nan
    if not math.isfinite(number):
        raise _refused("of finite numbers with few digits", digits[:_DIGITS])
    return number


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS or abs(int(digits)) > 2**53:
        raise _refused("of whole numbers up to 2^53", digits[:_DIGITS])
    return int(digits)


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
            raise _refused("of texts in Unicode normal form C", "another form")
        if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in value):
            raise _refused("free of control characters", "one")


def _refused(rule: str, got: str) -> InvalidInput:
    return InvalidInput(f"file must be {rule}; got {got}. Ask its author for the original.")
