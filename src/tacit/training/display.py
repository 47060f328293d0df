"""Callbacks that show a run to a person: a progress bar and TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import InvalidInput
from tacit.tradeoff import Answer
from tacit.training.callbacks import Callback, Row

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_COUNTED = ("epoch", "learning_rate")


class ProgressBar(Callback):
    """A bar of the steps with the newest metrics and epsilon beside it, in a terminal (on stderr) or a notebook."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._row = ""

    def on_step(self, taken: int, planned: int) -> None:
        if self._progress is None or self._task is None:
            self._progress = _bar()
            self._progress.start()
            self._task = self._progress.add_task("training", total=planned, row="")
        self._progress.update(self._task, completed=taken, row=self._row)

    def on_epoch(self, row: Row) -> None:
        self._row = ", ".join(f"{name} {value:.4g}" for name, value in _named(row).items() if name not in _COUNTED)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, row=self._row)

    def on_end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None


class TensorBoard(Callback):
    """Write every row of the history to `folder` for TensorBoard: metrics, epsilon so far, learning rate.

    Only what the history has is written: released and public numbers, never gradients, norms or training losses.
    Needs the extra: pip install 'tacit[tensorboard]'.

    Args:
        folder: where the event files go.
    """

    def __init__(self, folder: str | Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InvalidInput(
                "TensorBoard must be installed to log to it; it is not. Run pip install 'tacit[tensorboard]'."
            ) from None
        self._writer = SummaryWriter(str(folder))

    def on_epoch(self, row: Row) -> None:
        for name, value in _named(row).items():
            self._writer.add_scalar(name, value, int(row["steps"]))
        self._writer.flush()

    def on_end(self) -> None:
        self._writer.close()


def _named(row: Row) -> Row:
    """The numbers of `row` but the steps; the name of a privacy number says its standing."""
    standings = {name: value.standing for name, value in row.items() if isinstance(value, Answer)}
    return {
        f"{name} ({standings[name]})" if name in standings else name: float(value)
        for name, value in row.items()
        if name != "steps"
    }


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, TextColumn("{task.fields[row]}"), console=console, refresh_per_second=4)
