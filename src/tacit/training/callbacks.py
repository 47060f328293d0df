"""What may look on while a model is trained: it sees the plan, counts, and what was measured on public data.

Callbacks that show a run to a person: a progress bar and TensorBoard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tacit import check
from tacit.errors import InvalidInput
from tacit.tradeoff import Answer
from tacit.training.plan import Plan

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


Row = dict[str, float]


class Callback:
    """Base of all callbacks: overwrite what is needed.

    Nothing that a callback is given depends on the training data but through the noise. What it does with held-out
    data, such as choosing when to stop, is outside the guarantee of those data.
    """

    def on_plan(self, plan: Plan) -> None:
        """Called once, before the first step of a private run."""

    def on_step(self, taken: int, planned: int) -> None:
        """Called after every step."""

    def on_epoch(self, row: Row) -> str | None:
        """Called with the newest row of the history; a sentence ends the run here and is kept as the reason."""

    def on_end(self) -> None:
        """Called when the run is over, however it ended."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of this callback: plain values and tensors."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""


class Functions(Callback):
    """Plain functions as a callback; what they return is ignored."""

    def __init__(
        self,
        on_plan: Callable[[Plan], object] | None = None,
        on_step: Callable[[int, int], object] | None = None,
        on_epoch: Callable[[Row], object] | None = None,
    ):
        self._on_plan, self._on_step, self._on_epoch = on_plan, on_step, on_epoch

    def on_plan(self, plan: Plan) -> None:
        if self._on_plan is not None:
            self._on_plan(plan)

    def on_step(self, taken: int, planned: int) -> None:
        if self._on_step is not None:
            self._on_step(taken, planned)

    def on_epoch(self, row: Row) -> None:
        if self._on_epoch is not None:
            self._on_epoch(row)


class Best:
    """The best value so far of one number of the history; NaN is never the best.

    Args:
        metric: its name in the rows, one that `evaluate` measures on public or held-out data.
        better: "higher" or "lower".
        least_gain: >= 0; a value counts as better only when it is so by more than this.
    """

    def __init__(self, metric: str, better: str, least_gain: float):
        self.metric = metric
        self._sign = {"higher": 1.0, "lower": -1.0}[check.choice("better", better, ("higher", "lower"))]
        self._least_gain = check.real("least_gain", least_gain, low=0.0)
        self.value: float | None = None

    def beaten(self, row: Row) -> bool:
        """Whether `row` has a better value, which is then the best."""
        value = float(row[check.choice("metric", self.metric, row)])
        gain = float("inf") if self.value is None else self._sign * (value - self.value)
        if value != value or gain <= self._least_gain:
            return False
        self.value = value
        return True


class EarlyStopping(Callback):
    """End the run when a metric has not become better for `patience` epochs in a row.

    Every step up to there is in the ledger, so the guarantee for the training data holds. The metric must come from
    public or held-out data: on the training data itself the choice would leak.

    Args:
        metric, better, least_gain: as in `Best`.
        patience: epochs without a gain, >= 1.
    """

    def __init__(self, metric: str, *, patience: int = 3, better: str = "higher", least_gain: float = 0.0):
        self._best = Best(metric, better, least_gain)
        self._patience = check.count("patience", patience)
        self._waited = 0

    def on_epoch(self, row: Row) -> str | None:
        self._waited = 0 if self._best.beaten(row) else self._waited + 1
        if self._waited < self._patience:
            return None
        return f"{self._best.metric} has not become better than {self._best.value} for {self._waited} epochs"

    def state(self) -> dict[str, Any]:
        return {"best": self._best.value, "waited": self._waited}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._best.value, self._waited = state["best"], state["waited"]


class BestModel(Callback):
    """Leave `model` with its weights of the best epoch instead of the last; as private as any other epoch's.

    Args:
        model: the model that is trained.
        metric, better: as in `Best`.
    """

    def __init__(self, model: nn.Module, metric: str, *, better: str = "higher"):
        self._model = model
        self._best = Best(metric, better, 0.0)
        self._weights: dict[str, Tensor] = {}

    def on_epoch(self, row: Row) -> None:
        if self._best.beaten(row):
            self._weights = {name: value.detach().clone() for name, value in self._model.state_dict().items()}

    def on_end(self) -> None:
        if self._weights:
            self._model.load_state_dict(self._weights)

    def state(self) -> dict[str, Any]:
        return {"best": self._best.value, "weights": self._weights}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._best.value, self._weights = state["best"], state["weights"]


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
