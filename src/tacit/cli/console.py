"""Output of commands: the terminal, without markup, and progress bars on stderr.

Names and paths are the user's, so brackets in them are printed as they are. Bars are drawn on a terminal only.

Values that the shell completes; `tacit --install-completion` sets it up.

The commands and their help: commands by what they are for, options by what they set; without markup.

A command's module is imported when the command is called, so that `tacit --help` imports no other.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment
from typer.core import TyperCommand, TyperGroup

from tacit import check
from tacit.errors import MissingExtra


class Interrupted(Exception):
    """Ctrl-C in a command that says how to go on: its message; typer would drop that of a `KeyboardInterrupt`."""


REFUTED = 3
"""Exit code of a refuted claim, and of files that were changed."""


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
    stages = TextColumn("{task.description:<18}", markup=False)
    columns = [kind() for kind in (BarColumn, MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn)]
    console = screen(stderr=True)
    with Progress(stages, *columns, console=console, refresh_per_second=4, disable=not console.is_terminal) as progress:
        bars: dict[str, Any] = {}

        def on_progress(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(bars[stage], completed=done, total=total)

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
    **dict.fromkeys(("card", "predict", "serve"), "runs"),
    **dict.fromkeys(("check", "key"), "statement"),
    "calibrate": "account",
    "doctor": "verify",
    **dict.fromkeys(("plan", "tune"), "train"),
    "results": "sweep",
    "table": "data",
}
"""Command -> the module that it shares with others."""
PAPERS = "tacit.papers"
"""The entry point through which the package tacit_papers brings `tacit reproduce`."""


_COMPLETED = {"preset": presets, "accountant": accountants}
_ROW = re.compile(r"    (\w+)(?: \((.+?)\))?: (.*)")


def declared(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with the options that its signature and its docstring declare.

    Parameters before `*` are arguments of the command line, the others options. Each has its help in a section of the
    docstring, `Args:` or the heading of a group of options; in parentheses after its name may stand other flags than
    that name, and the word for its value.
    """
    about, rows = described(command.__doc__)

    def option(each: inspect.Parameter) -> inspect.Parameter:
        if each.name not in rows:  # Annotated by hand, as a setting with a flag is.
            return each
        section, names, text = rows[each.name]
        flags = [name for name in names if name.startswith("--")] or [f"--{each.name.replace('_', '-')}"]
        word = next((name for name in names if not name.startswith("--")), None)
        group = None if section == "Args" else section
        given = {"help": text, "metavar": word, "rich_help_panel": group, "autocompletion": _COMPLETED.get(each.name)}
        is_option = each.kind is inspect.Parameter.KEYWORD_ONLY
        made = typer.Option(*flags, **given) if is_option else typer.Argument(**given)
        return each.replace(annotation=Annotated[each.annotation, made])

    @wraps(command)
    def called(**given: Any) -> None:
        command(**given)

    signature = inspect.signature(command, eval_str=True)
    every = [option(each) for each in signature.parameters.values()]
    called.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in every}
    called.__doc__ = about
    return called


def described(text: str | None) -> tuple[str, dict[str, tuple[str, list[str], str]]]:
    r"""What a docstring says before its first section, and of each name in a section the section, words and sentence.

    Example:
        >>> described("Do it.\n\nArgs:\n    out (FILE): To write.")
        ('Do it.', {'out': ('Args', ['FILE'], 'To write.')})
    """
    about, rows, section, name = [], dict[str, tuple[str, list[str], str]](), "", ""
    for line in inspect.cleandoc(text or "").splitlines():
        if re.fullmatch(r"[A-Z][\w .-]*:", line):
            section = line[:-1]
        elif section and (row := _ROW.fullmatch(line)):
            name, names, said = row.groups(default="")
            rows[name] = section, [each for each in names.split(", ") if each], said
        elif section and line:
            rows[name] = (*rows[name][:2], f"{rows[name][2]} {line.strip()}")
        elif not section:
            about.append(line)
    return "\n".join(about).strip(), rows


class CommandGroup(typer.Typer):
    """Commands under one word, such as `tacit budget`.

    Args:
        text: its help.
    """

    def __init__(self, text: str):
        super().__init__(help=text, no_args_is_help=True, rich_markup_mode=None)

    def command(self, name: str | None = None, **given: Any) -> Any:
        """Register the command that the function under it `declared`."""
        register = super().command(name, **given)
        return lambda function: (register(declared(function)), function)[1]


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
    function = brought() if module is None else declared(getattr(module, f"{name}_command"))
    single.command(name, cls=GroupedCommand)(function)
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
