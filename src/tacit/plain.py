"""JSON of results: plain numbers, infinities spelled "inf"; and JSON tables read from files."""

import json
import math
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput


def json_text(value: object) -> str:
    """JSON of plain values, infinity spelled "inf"."""
    return json.dumps(plain(value), indent=1)


def json_table(name: str, path: str | Path) -> dict[str, Any]:
    """The JSON table in the file `path`; raises `InvalidInput` about `name` where there is none."""
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_once)
    except FileNotFoundError:
        raise check.fail(name, "a file that exists", str(path)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} must be a JSON file; got {str(path)!r}. {error}") from None
    if not isinstance(table, dict):
        raise check.fail(name, "a JSON table", table)
    return table


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table in which no key stands twice: a reader could take either value for the one that counts."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"Every key must stand once, not so {', '.join(key for key, _ in pairs)}.")
    return table


def plain(value: object) -> Any:
    """`value` with every float made plain and every infinity spelled "inf" or "-inf"."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value
