"""JSON text of results, JSON tables from files, and atomic writes.

Infinities are spelled "inf". A reader of a file that is being written sees the old content or the new one.
"""

import json
import math
import os
import re
import secrets
import sys
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput

_PART = re.compile(r"\.[0-9a-f]{16}\.part$")  # the names that `write_bytes` makes


def json_text(value: object) -> str:
    """JSON of plain values, infinity spelled "inf"."""
    return json.dumps(plain_values(value), indent=1)


def json_table(name: str, path: str | Path) -> dict[str, Any]:
    """The JSON table in the file `path`, or on standard input for "-"; raises `InvalidInput` where there is none."""
    try:
        text = sys.stdin.read() if str(path) == "-" else Path(path).read_text(encoding="utf-8")
        table = json.loads(text, object_pairs_hook=_without_duplicates)
    except FileNotFoundError:
        raise check.fail(name, "a file that exists", str(path)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} must be a JSON file; got {str(path)!r}. {error}") from None
    if not isinstance(table, dict):
        raise check.fail(name, "a JSON table", table)
    return table


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table in which no key stands twice: a reader could take either value for the one that counts."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"Every key must stand once, not so {', '.join(key for key, _ in pairs)}.")
    return table


def plain_values(value: object) -> Any:
    """`value` with every float a Python float and every infinity spelled "inf" or "-inf"."""
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 `text` to `path`, making its folder; an interruption leaves the previous file as it was."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`, making its folder; an interruption leaves the previous file as it was."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_parts(folder: str | Path) -> None:
    """Remove what writers that were killed have left in `folder`; nobody else may write there meanwhile.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     part = Path(folder) / "card.json.0123456789abcdef.part"
        ...     part.touch(); remove_parts(folder)
        ...     part.exists()
        False
    """
    for path in Path(folder).glob("*.part"):
        if _PART.search(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name in `folder` durable against a loss of power, as the content is."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
