"""The JSON Schemas of statements and cards, and where a value is not as they say; for the keywords that they use.

Source: JSON Schema, draft 2020-12.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from tacit.statement.subject import is_date

_TYPES = {"object": dict, "array": list, "string": str, "number": int | float, "integer": int, "null": type(None)}
_OF_NUMBERS = {"minimum": lambda value, end: value >= end, "maximum": lambda value, end: value <= end}


@cache
def schema_of(package: str, name: str) -> dict[str, Any]:
    """A published schema.

    Args:
        package: that holds its file.
        name: of the file.

    Example:
        >>> schema_of("tacit.statement", "statement.schema.json")["properties"]["schema"]
        {'const': 'tacit-statement/1'}
    """
    return json.loads(files(package).joinpath(name).read_text("utf-8"))


def faults(value: object, schema: dict[str, Any], place: str = "statement") -> Iterator[str]:
    """The places of `value` that are not as `schema` says.

    Args:
        value: of JSON.
        schema: of `schema_of`, or a part of it.
        place: what the value is called.

    Example:
        >>> list(faults({"delta": "x"}, {"type": "object", "properties": {"delta": {"type": "number"}}}))
        ['statement.delta']
    """
    if not _is_whole(value, schema):
        yield place
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), f"{place}[{number}]")
    elif isinstance(value, dict):
        yield from (f"{place}.{name}" for name in schema.get("required", ()) if name not in value)
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in known or others:
                further = others if isinstance(others, dict) else {}
                yield from faults(item, known.get(name, further), f"{place}.{name}")
            else:
                yield f"{place}.{name}"


def _is_whole(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is as the keywords say that do not go into its items."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, _TYPES[kind]) and not isinstance(value, bool) for kind in kinds):
        return False
    if any(name in schema and not holds(value, schema[name]) for name, holds in _OF_NUMBERS.items()):
        return False
    if "oneOf" in schema and sum(not any(faults(value, each)) for each in schema["oneOf"]) != 1:
        return False
    if isinstance(value, list) and len(value) < schema.get("minItems", 0):
        return False
    wanted = [schema["const"]] if "const" in schema else schema.get("enum", [value])
    return value in wanted and (schema.get("format") != "date" or is_date(str(value)))
