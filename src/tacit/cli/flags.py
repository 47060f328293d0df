"""Command-line flags made from settings: a field of `Config` or of a section is a flag by being declared."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from tacit.runs.config import SECTIONS, Config

Places = dict[str, tuple[str | None, str]]
"""Parameter name -> (section, field); the section is None for a field of `Config`."""

GROUPS = {
    "clip": "Clipping, [clip]",
    "sampling": "Sampling, [sampling]",
    "noise": "Noise, [noise]",
    "validation": "Private validation, [validation]",
    "input": "Method input, [input]",
    "objective": "Method objective, [objective]",
    "output": "Method output, [output]",
    "ticket": "Method ticket, [ticket]",
    "vi": "Method vi, [vi]",
}
"""The group of a section's flags in the help."""


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """`command(..., overrides=...)` with one flag for each setting in place of the argument `overrides`.

    A field of `Config` is `--field`, a field of a section `--section-field`. `overrides` is what
    `read_config` takes; settings whose flag was not given are None in it.
    """
    parameters, places = _parameters()
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "overrides"]
    every = [*own, *parameters]

    @wraps(command)
    def parsed(**given: Any) -> None:
        overrides = _overrides({name: given.pop(name) for name in places}, places)
        command(**given, overrides=overrides)

    parsed.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    parsed.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return parsed


def _parameters() -> tuple[list[inspect.Parameter], Places]:
    parameters, places = [], {}
    for section, kind in [(None, Config), *SECTIONS.items()]:
        hints = get_type_hints(kind)
        for each in fields(kind):
            if "help" not in each.metadata:
                continue
            name = each.metadata.get("flag", each.name)
            name = name if section is None else f"{section}_{name}"
            flag, repeated = _type(hints[each.name])
            text = each.metadata["help"].rstrip(".") + (" (repeatable)." if repeated else ".") + _default(each.default)
            short = each.metadata.get("short")
            written = (f"--{name.replace('_', '-')}", f"--{short}") if short else ()
            group = each.metadata.get("group") if section is None else GROUPS.get(section, f"[{section}]")
            parameters.append(_parameter(name, flag, typer.Option(*written, help=text, rich_help_panel=group)))
            places[name] = (section, each.name)
    return parameters, places


def _default(value: Any) -> str:
    """The default of a setting in words, which a preset or a TOML file replaces; empty where there is none."""
    if value is None or value == "" or value is MISSING:
        return ""
    if isinstance(value, bool):
        return f" [default: {'yes' if value else 'no'}]"
    shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
    return f" [default: {shown}]"


def _parameter(name: str, flag: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[flag | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _type(hint: Any) -> tuple[Any, bool]:
    """(type of the flag, whether it may be given several times) for the type of a field."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) is tuple:
        return list[get_args(hint)[0]], True
    return hint, False


def _overrides(given: Mapping[str, Any], places: Places) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    for name, (section, field) in places.items():
        value = given[name]
        if isinstance(value, list):
            value = tuple(value) or None
        (overrides if section is None else overrides.setdefault(section, {}))[field] = value
    return overrides
