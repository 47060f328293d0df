"""Output of commands: the terminal, without markup, and progress bars on stderr.

Names and paths are the user's, so brackets in them are printed as they are. Bars are drawn on a terminal only.

Values that the shell completes; `tacit --install-completion` sets it up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment

from tacit import check


class Interrupted(Exception):
    """Ctrl-C in a command that says how to go on: its message; typer would drop that of a `KeyboardInterrupt`."""


ShowValues = Annotated[bool, typer.Option("--show-values", help="Error messages may quote values of the data.")]
"""The flag of commands that read data; `tacit.cli.main` acts on it for the whole command."""
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
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A callback (stage, done, total) that draws one bar for each stage."""
    columns = (
        TextColumn("{task.description:<18}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with _progress(*columns) as progress:
        bars: dict[str, int] = {}

        def on_progress(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                bars[stage] = progress.add_task(stage, total=total)
            progress.update(progress.task_ids[bars[stage]], completed=done, total=total)

        yield on_progress


@contextmanager
def sweep_bar(name: str) -> Iterator[Callable[[int, int, float], None]]:
    """A callback (done, total, expected seconds left) that draws one bar."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with _progress(*columns) as progress:
        bar = progress.add_task(name, total=None, left="")

        def on_progress(done: int, total: int, seconds_left: float) -> None:
            minutes, seconds = divmod(round(seconds_left), 60)
            left = f"about {minutes}:{seconds:02d} left" if done < total else "done"
            progress.update(bar, completed=done, total=total, left=left)

        yield on_progress


def _progress(*columns: ProgressColumn) -> Progress:
    """Progress bars on stderr; none where stderr is no terminal, so that a log holds sentences only."""
    console = screen(stderr=True)
    return Progress(*columns, console=console, refresh_per_second=4, disable=not console.is_terminal)


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
