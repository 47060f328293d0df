"""JSON text of results, JSON tables from files, and atomic writes.

Infinities are spelled "inf". A reader of a file that is being written sees the old content or the new one.
"""

import hashlib
import json
import math
import os
import platform
import re
import secrets
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput

_PART = re.compile(r"\.[0-9a-f]{16}\.part$")  # the names that `write_bytes` makes
LARGEST = 64 * 2**20
"""Bytes of the largest JSON file that is read."""
_DEEPEST = 100  # tables and lists in each other; a SPEC of nested mechanisms has about ten
_DIGITS = 40  # of an integer: more than any count has
_FLOAT = 1100  # characters of a number with a point: the exact decimal form of any double is shorter


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of Python and of those `packages` that are installed, by name."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def json_text(value: object) -> str:
    """JSON of plain values, infinity spelled "inf"."""
    return json.dumps(plain_values(value), indent=1)


def json_table(name: str, path: str | Path) -> dict[str, Any]:
    """The JSON table in the file `path`, or on standard input for "-"; raises `InvalidInput` where there is none."""
    try:
        if str(path) == "-":
            content = sys.stdin.read(LARGEST + 1).encode()
        else:
            with Path(path).open("rb") as file:
                content = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise check.fail(name, "a file that exists", str(path)) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{name} must be a JSON file; got {str(path)!r}. {error}") from None
    return table_of(name, content, str(path))


def table_of(name: str, content: bytes, where: str) -> dict[str, Any]:
    """The JSON table in `content`, which may come from anybody: its size, depth and numbers are bounded.

    Args:
        name: of the file, for messages.
        content: of the file.
        where: it was read from, for messages.

    Raises:
        InvalidInput: it is none, or larger or deeper than any that tacit writes, or holds a number that is not finite.

    Example:
        >>> table_of("card.json", b'{"epsilon": 1e400}', "card.json")
        Traceback (most recent call last):
        tacit.errors.InvalidInput: card.json must be a JSON file; got 'card.json'. A number is not finite: 1e400.
    """
    try:
        if len(content) > LARGEST:
            raise ValueError(f"It has more than {LARGEST} bytes.")
        table = json_value(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} must be a JSON file; got {where!r}. {error}") from None
    check.that(isinstance(table, dict), name, "a JSON table", type(table).__name__)
    return table


def toml_table(name: str, path: str | Path) -> dict[str, Any]:
    """The TOML table in a file.

    Raises:
        InvalidInput: the file does not exist, or is no TOML file; the message calls it `name`.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise check.fail(name, "a file that exists", str(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{name} must be a TOML file; got {str(path)!r}. {error}") from None


def json_value(text: str) -> Any:
    """The JSON value in `text`; raises `ValueError` or `RecursionError` for numbers and depths that tacit never writes.

    Example:
        >>> json_value('{"epsilon": 1.5}')
        {'epsilon': 1.5}
    """
    hooks = {"parse_int": _integer, "parse_float": _finite, "parse_constant": _finite}
    value = json.loads(text, object_pairs_hook=_without_duplicates, **hooks)
    _check_depth(value)
    return value


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"A number has {len(text)} digits; at most {_DIGITS} are read.")
    return int(text)


def _finite(text: str) -> float:
    if len(text) > _FLOAT or not math.isfinite(value := float(text)):
        raise ValueError(f"A number is not finite: {text[:_DIGITS]}.")
    return value


def _check_depth(value: object) -> None:
    """Refuse what is nested so deep that a later walk through it would end in a `RecursionError`."""
    level, depth = [value], 0
    while level:
        if depth > _DEEPEST:
            raise ValueError(f"It is nested more than {_DEEPEST} deep.")
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level, depth = [item for items in inner for item in items], depth + 1


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table in which no key stands twice: a reader could take either value for the one that counts."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"Every key must stand once, not so {', '.join(key for key, _ in pairs)}.")
    return table


def tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    """`table` with a tuple in place of every list of its values, as frozen settings have them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


def texts_in(value: object) -> Iterator[str]:
    """Every text in plain values, the keys of tables among them."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            left += item


def plain_values(value: object) -> Any:
    """`value` with every float a Python float and every infinity spelled "inf" or "-inf"."""
    if isinstance(value, Mapping):
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
        _write_new(temporary, content, mode=0o666)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_secret(path: Path, content: bytes) -> bool:
    """Write `content` to a new file that its owner alone can read; False where there is a file already, which stays.

    Of two processes that write at the same time one wins, whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        _write_new(part, content, mode=0o600)
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def _write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that is not there yet, down to the disk, with a mode that the umask of the process narrows."""
    with open(path, "xb", opener=partial(os.open, mode=mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def file_digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits, whatever its size.

    Args:
        path: of a file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
