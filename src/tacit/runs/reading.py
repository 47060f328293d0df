"""Configurations from presets, TOML files and overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
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
    """The settings of a preset or TOML file, each replaced where `overrides` has a value that is not None.

    A section's settings are overridden by a table under its name. Overriding `epsilon` drops a preset's noise
    multiplier and the other way round.

    Raises `InvalidInput` for unknown presets and keys (with the nearest name), and for values that break a rule.
    """
    base = _from_toml(Path(source)) if source.endswith(".toml") else _preset(source)
    given = {key: value for key, value in overrides.items() if value is not None}
    if "epsilon" in given and "noise_multiplier" not in given:
        given["noise_multiplier"] = None
    elif "noise_multiplier" in given and "epsilon" not in given:
        given["epsilon"] = None
    kinds, given_sections = sections(), dict(base.sections)
    for name in given.keys() & kinds.keys():
        values = {key: value for key, value in _section(name, given[name]).items() if value is not None}
        if values:
            given_sections[name] = replace(base.section(name), **known(kinds[name], values, where=f"[{name}]"))
    return replace(base, sections=given_sections, **_flat(given, where="the overrides"))


def _preset(name: str) -> Config:
    every = preset_names()
    if name not in every:
        hint = "A configuration file must end in .toml." if Path(name).exists() else ""
        check.choice("preset", name, every) if not hint else None
        raise check.fail("preset", "one of " + ", ".join(every), name, hint)
    return _from_toml(PRESETS / f"{name}.toml")


def _from_toml(path: Path) -> Config:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise check.fail("configuration", "a file that exists", str(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"configuration must be a TOML file; got {str(path)!r}. {error}") from None
    return config_from_table({"name": path.stem} | table)


def config_from_table(table: Mapping[str, Any]) -> Config:
    """The settings in a table of plain values, with a table inside for each section."""
    values, kinds = _flat(table, where="the configuration"), sections()
    values["sections"] = {
        name: kind(**known(kind, _section(name, table[name]), where=f"[{name}]"))
        for name, kind in kinds.items()
        if name in table
    }
    return Config(**values)


def _flat(table: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """The values for fields of `Config` in a table; its keys may also be sections, which are left out."""
    kinds = sections()
    check.keys(where, table, [*(each.name for each in fields(Config) if each.name != "sections"), *kinds])
    values = known(Config, {key: value for key, value in table.items() if key not in kinds}, where=where)
    if not isinstance(values.get("table"), TableConfig | None):
        section = _section("table", values["table"])
        values["table"] = TableConfig(**known(TableConfig, section, where="[table]", required=("path", "target")))
    return values


def _section(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise check.fail(name, f"a [{name}] section", value)
    return value
