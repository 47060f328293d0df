"""The commands and their help: commands by what they are for, options by what they set; without markup.

A command's module is imported when the command is called, so that `tacit --help` imports no other.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from tacit import check

GENERAL = "Options"
COMMANDS: dict[str, dict[str, str]] = {
    "Train": {
        "train": "Train privately, account, attack, and write the card.",
        "tune": "Choose settings privately, the search included in the bill.",
        "sweep": "Train every combination of a grid; resumable.",
        "tickets": "List saved lottery tickets, or compare them.",
        "doctor": "Find layers of a model that private training refuses.",
    },
    "Account": {
        "account": "Compute the privacy cost of mechanisms by every accountant.",
        "calibrate": "Find the noise multiplier that meets a privacy target.",
        "verify": "Check where a run came from, a claim, or a trainer.",
        "audit": "Attack the model of a run, or judge an attack's scores.",
        "statement": "Write the signed privacy statement of a run.",
        "check": "Recompute a privacy statement: valid, or contradicted.",
        "key": "The keys that sign statements, and whom one trusts.",
        "budget": "Show what all runs spent on each data set, and its caps.",
    },
    "Use a run": {
        "predict": "Predict the rows of a file with the model of a run.",
        "card": "Print or export the privacy card of a run.",
        "serve": "Serve runs, a calculator, jobs and budgets on 127.0.0.1.",
        "results": "Show the stored results of sweeps.",
        "runs": "List, compare, export and clean runs.",
    },
    "Data and papers": {
        "data": "List the data sets, or show the files and licence of one.",
        "reproduce": "Recompute tables and figures of the papers.",
        "table": "Draft a configuration for a table of your own.",
    },
}
"""Group -> command -> its line in the help. The command NAME is `command` or `app` of `tacit.cli.NAME`."""


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


class LazyGroup(TyperGroup):
    """All commands of `COMMANDS`, listed by group, each imported at its first use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: None for lines in COMMANDS.values() for name in lines}  # the names, for suggestions

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; None where there is none."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _command(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one list of commands for each group, in the order of declaration."""
        _write(formatter, {group: list(lines.items()) for group, lines in COMMANDS.items()})


def _command(name: str) -> Any:
    module = importlib.import_module(f"tacit.cli.{name}")
    if hasattr(module, "app"):
        group = typer.main.get_group(module.app)
        for each in group.commands.values():
            _read_strictly(each)
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, cls=GroupedCommand)(module.command)
    return _read_strictly(typer.main.get_command(single))


def _read_strictly(command: Any) -> Any:
    """`command`, whose numbers are read as those of cells and forms are: `1_0` is none."""
    for parameter in command.params:
        if parameter.type_descriptor.annotation in (int, float):
            parameter.process_value = partial(_number, parameter, parameter.process_value)
    return command


def _number(parameter: Any, read: Any, ctx: Any, value: Any) -> Any:
    for text in value if isinstance(value, list | tuple) else [value]:
        if isinstance(text, str):
            check.read_real(parameter.opts[0].lstrip("-").replace("-", "_"), text)
    return read(ctx, value)


def _write(formatter: Any, groups: dict[str, list[tuple[str, str]]]) -> None:
    for name, records in groups.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)
