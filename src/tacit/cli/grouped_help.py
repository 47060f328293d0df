"""Help in groups: commands by what they are for, options by what they set; without markup, as all output is."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

GENERAL = "Options"


class GroupedCommand(TyperCommand):
    """A command whose options are listed under the `rich_help_panel` that they name, in the order of declaration."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, options without a group, then each group."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], GENERAL: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            named = getattr(parameter, "rich_help_panel", None) or GENERAL
            group = "Arguments" if parameter.param_type_name == "argument" else named
            groups.setdefault(group, []).append(record)
        _write(formatter, groups)


class GroupedCommands(TyperGroup):
    """A group whose commands are listed under the `rich_help_panel` that they name."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one list of commands for each group, in the order of declaration."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        width = formatter.width - 6 - max(len(name) for name, _ in commands)
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in commands:
            group = getattr(command, "rich_help_panel", None) or "Commands"
            groups.setdefault(group, []).append((name, command.get_short_help_str(width)))
        _write(formatter, groups)


def _write(formatter: Any, groups: dict[str, list[tuple[str, str]]]) -> None:
    for name, records in groups.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)
