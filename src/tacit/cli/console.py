"""Output of commands: the terminal, without markup, and progress bars on stderr.

Names and paths are the user's, so brackets in them are printed as they are. Bars are drawn on a terminal only.

Values that the shell completes; `tacit --install-completion` sets it up.

The commands and their help: commands by what they are for, options by what they set; without markup.

A command's module is imported when the command is called, so that `tacit --help` imports no other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from typer.core import TyperCommand, TyperGroup

from tacit import check
from tacit.errors import MissingExtra


class Interrupted(Exception):
    """Ctrl-C in a command that says how to go on: its message; typer would drop that of a `KeyboardInterrupt`."""


ShowValues = Annotated[bool, typer.Option("--show-values", help="Error messages may quote values of the data.")]
"""The flag of commands that read data; `tacit.cli.main` acts on it for the whole command."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data files.")]
NoBudget = Annotated[
    bool, typer.Option("--no-budget", help="Charge no registry: across runs the number is only claimed.")
]
TrustResumed = Annotated[
    bool, typer.Option("--trust-code", help="With --resume: run the model's own code that RUN names.")
]
REFUTED = 3
"""Exit code of a refuted claim, and of files that were changed."""
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Run the model's own code that RUN names; shows its file and hash.")
]


class _Screen(Console):
    """A terminal on which no text acts: control characters in it are printed as their escape sequences."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(check.visible(segment.text), segment.style)


def screen(*, stderr: bool = False) -> Console:
    """The terminal, without markup: brackets and colons are printed as they are, control characters escaped."""
    return _Screen(stderr=stderr, markup=False, emoji=False, highlight=False)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ends in `Interrupted` where a `KeyboardInterrupt` says how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if stop.args:
            raise Interrupted(str(stop)) from None
        raise


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A callback (stage, done, total) that draws one bar for each stage on stderr.

    None where stderr is no terminal, so that a log holds sentences only.
    """
    columns = (
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = screen(stderr=True)
    with Progress(*columns, console=console, refresh_per_second=4, disable=not console.is_terminal) as progress:
        bars: dict[str, int] = {}

        def on_progress(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(progress.task_ids[bars[stage]], completed=done, total=total)

        yield on_progress


@contextmanager
def sweep_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A callback (done, total) that draws one bar called `name`."""
    with progress_bars() as on_progress:
        yield partial(on_progress, name)


def presets(incomplete: str) -> list[str]:
    """Presets and TOML files of the working directory that begin with `incomplete`.

    Example:
        >>> presets("dig")
        ['digits']
    """
    from tacit.runs.config import preset_names

    return _fitting([*preset_names(), *(path.name for path in sorted(Path().glob("*.toml")))], incomplete)


def accountants(incomplete: str) -> list[str]:
    """Accountants whose name begins with `incomplete`.

    Example:
        >>> accountants("pl")
        ['pld']
    """
    from tacit.accounting.registry import ACCOUNTANTS

    return _fitting(ACCOUNTANTS, incomplete)


def _fitting(known: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in known if name.startswith(incomplete)]


GENERAL = "Options"
COMMANDS: dict[str, dict[str, str]] = {
    "Train": {
        "train": "Train privately, account, attack, and write the card.",
        "plan": "Recommend batch size, steps, rate and clip, by rule.",
        "tune": "Choose settings privately, the search included in the bill.",
        "sweep": "Train every combination of a grid; resumable.",
        "tickets": "List saved lottery tickets.",
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
"""Group -> command -> its line in the help. NAME is `NAME_command` or `NAME_app` of `tacit.cli.NAME` or `MODULES`."""
MODULES = {
    **dict.fromkeys(("card", "predict", "serve", "tickets"), "runs"),
    **dict.fromkeys(("check", "key"), "statement"),
    "calibrate": "account",
    "doctor": "verify",
    "plan": "train",
    "results": "sweep",
    "table": "data",
}
"""Command -> the module that it shares with others."""
PAPERS = "tacit.papers"
"""The entry point through which the package tacit_papers brings `tacit reproduce`."""


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
    module = None if name == "reproduce" else importlib.import_module(f"tacit.cli.{MODULES.get(name, name)}")
    if hasattr(module, f"{name}_app"):
        group = typer.main.get_group(getattr(module, f"{name}_app"))
        for each in group.commands.values():
            _read_strictly(each)
        return group
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, cls=GroupedCommand)(brought() if module is None else getattr(module, f"{name}_command"))
    return _read_strictly(typer.main.get_command(single))


def brought() -> Any:
    """The function of `tacit reproduce`; raises `MissingExtra` where no installed package brings it."""
    try:
        (entry,) = entry_points(group=PAPERS, name="reproduce")
        return entry.load()
    except (ValueError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("tacit_papers"):
            raise
        raise MissingExtra(
            "tacit_papers must be installed for this; it is not. Run pip install . in a clone of the project, "
            "whose build holds both packages."
        ) from None


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
