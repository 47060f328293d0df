"""A setting: one dataclass field that is a TOML key, an argument of `--set` and a documented attribute at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any

from tacit import check


def setting(default: Any, help: str) -> Any:
    """A field with its `default` and its one line of `help`."""
    return field(default=default, metadata={"help": help})


def known(kind: type, given: Mapping[str, Any], *, where: str, required: Iterable[str] = ()) -> dict[str, Any]:
    """The values `given` for fields of `kind`, lists as tuples; raises `InvalidInput` with the nearest known name.

    Args:
        kind: a frozen dataclass of settings.
        given: values by name.
        where: the place that messages name.
        required: names that must be given.

    Raises:
        InvalidInput: a name is unknown (the message has the nearest known one) or a required one is missing.
    """
    check.keys(where, given, [each.name for each in fields(kind)])
    for name in sorted(set(required) - given.keys()):
        raise check.fail(name, f"given in {where}", None)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
