"""Configurations from presets, TOML files and overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.runs.config import Config, TableConfig, sections
from tacit.runs.settings import known

PRESETS = Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """The presets that `tacit train` knows."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_config(source: str, overrides: Mapping[str, Any]) -> Config:
    """The settings of a preset or TOML file, each replaced or added where `overrides` has a value that is not None.

    A section's settings are overridden by a table under its name. Overriding `epsilon` drops a preset's noise
    multiplier and the other way round.

    Raises `InvalidInput` for unknown presets and keys (with the nearest name), and for values that break a rule.
    """
    table = _from_toml(Path(source)) if source.endswith(".toml") else _preset(source)
    given = {key: value for key, value in overrides.items() if value is not None}
    check.keys("the overrides", given, _keys())
    for name, other in (("epsilon", "noise_multiplier"), ("noise_multiplier", "epsilon")):
        if name in given and other not in given:
            table.pop(other, None)
    for name in given.keys() & sections().keys():
        values = {key: value for key, value in _section(name, given.pop(name)).items() if value is not None}
        if values:
            given[name] = {**_section(name, table.get(name, {})), **values}
    return config_from_table(table | given)


def _preset(name: str) -> dict[str, Any]:
    every = preset_names()
    if name not in every:
        hint = "A configuration file must end in .toml." if Path(name).exists() else ""
        check.choice("preset", name, every) if not hint else None
        raise check.fail("preset", "one of " + ", ".join(every), name, hint)
    return _from_toml(PRESETS / f"{name}.toml")


def _from_toml(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise check.fail("configuration", "a file that exists", str(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"configuration must be a TOML file; got {str(path)!r}. {error}") from None
    return {"name": path.stem} | table


def config_from_table(table: Mapping[str, Any]) -> Config:
    """The settings in a table of plain values, with a table inside for each section."""
    kinds = sections()
    check.keys("the configuration", table, _keys())
    flat = {key: value for key, value in table.items() if key not in kinds}
    values = known(Config, flat, where="the configuration")
    if not isinstance(values.get("table"), TableConfig | None):
        section = _section("table", values["table"])
        values["table"] = TableConfig(**known(TableConfig, section, where="[table]", required=("path", "target")))
    values["sections"] = {
        name: kind(**known(kind, _section(name, table[name]), where=f"[{name}]"))
        for name, kind in kinds.items()
        if name in table
    }
    return Config(**values)


def _keys() -> list[str]:
    return [*(each.name for each in fields(Config) if each.name != "sections"), *sections()]


def _section(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise check.fail(name, f"a [{name}] section", value)
    return value
