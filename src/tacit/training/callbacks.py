"""Callbacks of the training loop: early stopping, best weights, progress bar, TensorBoard, and the base of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
# Entries of a row that the progress bar leaves out, because it counts steps itself.
_COUNTERS = ("epoch", "learning_rate")


class Callback:
    """Base of all callbacks: override what is needed.

    Every value passed to a callback depends on the training data only through the noise. A use of held-out data, such
    as a choice of when to stop, is not covered by the guarantee for those data.

    Example:
        >>> class Record(Callback):
        ...     taken = 0
        ...     def on_step(self, taken, planned): self.taken = taken
        >>> record = Record()
        >>> record.on_step(1, 10); record.taken
        1
    """

    def on_plan(self, plan: Plan) -> None:
        """Called once, before the first step of a private run."""

    def on_step(self, taken: int, planned: int) -> None:
        """Called after every step."""

    def on_epoch(self, row: Row) -> str | None:
        """Called with the newest row of the history; a returned sentence ends the run and is recorded as the reason."""

    def on_end(self) -> None:
        """Called when the run is over, however it ended."""

    def state(self) -> dict[str, Any]:
        """State for a checkpoint: plain values and tensors."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""


def stateful(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks that have a state."""
    return [callback for callback in callbacks if type(callback).state is not Callback.state]


class Functions(Callback):
    """Plain functions as a callback; their return values are ignored.

    Args:
        on_plan: called with the resolved plan before the first step, e.g. to write down what is about to be spent.
        on_step: called with (steps taken, steps planned) after every step.
        on_epoch: called with the newest row of the history after every epoch.

    Example:
        >>> Functions(on_step=lambda taken, planned: print(taken, "of", planned)).on_step(1, 10)
        1 of 10
    """

    def __init__(
        self,
        on_plan: Callable[[Plan], object] | None = None,
        on_step: Callable[[int, int], object] | None = None,
        on_epoch: Callable[[Row], object] | None = None,
    ):
        self._on_plan, self._on_step, self._on_epoch = on_plan or _ignore, on_step or _ignore, on_epoch or _ignore

    def on_plan(self, plan: Plan) -> None:
        """Call the function of the plan."""
        self._on_plan(plan)

    def on_step(self, taken: int, planned: int) -> None:
        """Call the function of the steps."""
        self._on_step(taken, planned)

    def on_epoch(self, row: Row) -> None:
        """Call the function of the rows."""
        self._on_epoch(row)


class BestValue:
    """Best value so far of one metric of the history; NaN is never the best.

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

    def improves(self, row: Row) -> bool:
        """Whether `row` has a better value, which then becomes the best."""
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
        metric: name of a metric that `evaluate` returns.
        patience: number of epochs without a gain, >= 1.
        better: "higher" or "lower".
        least_gain: >= 0; a value is better only if it differs by more than this.

    Raises:
        InvalidInput: an argument breaks its rule, or a row has no such metric.

    Example:
        >>> stopping = EarlyStopping("accuracy", patience=1)
        >>> stopping.on_epoch({"accuracy": 0.8})
        >>> stopping.on_epoch({"accuracy": 0.7})
        'accuracy has not become better than 0.8 for 1 epochs'
    """

    def __init__(self, metric: str, *, patience: int = 3, better: str = "higher", least_gain: float = 0.0):
        self._best = BestValue(metric, better, least_gain)
        self._patience = check.count("patience", patience)
        self._waited = 0

    def on_epoch(self, row: Row) -> str | None:
        """Sentence that ends the run once the patience is exhausted; None before."""
        self._waited = 0 if self._best.improves(row) else self._waited + 1
        if self._waited < self._patience:
            return None
        return f"{self._best.metric} has not become better than {self._best.value} for {self._waited} epochs"

    def state(self) -> dict[str, Any]:
        """Best value, and epochs since."""
        return {"best": self._best.value, "waited": self._waited}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self._best.value, self._waited = state["best"], state["waited"]


class BestModel(Callback):
    """Restore the weights of the best epoch at the end of the run; they are as private as those of any other epoch.

    Args:
        model: the model that is trained.
        metric: name of a metric that `evaluate` returns.
        better: "higher" or "lower".

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> best = BestModel(model, "loss", better="lower")
        >>> best.on_epoch({"loss": 0.5})
        >>> best.on_end()
    """

    def __init__(self, model: nn.Module, metric: str, *, better: str = "higher"):
        self._model = model
        self._best = BestValue(metric, better, 0.0)
        self._weights: dict[str, Tensor] = {}

    def on_epoch(self, row: Row) -> None:
        """Keep a copy of the weights of the best epoch."""
        if self._best.improves(row):
            self._weights = {name: value.detach().clone() for name, value in self._model.state_dict().items()}

    def on_end(self) -> None:
        """Restore the weights of the best epoch."""
        if self._weights:
            self._model.load_state_dict(self._weights)

    def state(self) -> dict[str, Any]:
        """Best value and its weights."""
        return {"best": self._best.value, "weights": self._weights}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self._best.value, self._weights = state["best"], state["weights"]


class AverageModel(Callback):
    """Release the exponential mean of the weights over the steps in place of the last ones; post-processing.

    After step t the mean moves to it by 1 - min(decay, (1 + t) / (10 + t)); without `decay` it is the plain mean over
    the second half of the steps. The run itself goes on from the weights,
    and a checkpoint keeps both.

    Args:
        model: the model that is trained.
        decay: in (0, 1), or None.

    Raises:
        InvalidInput: `decay` is outside.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> average = AverageModel(model, 0.9)
        >>> average.on_step(1, 10)
        >>> average.on_end()

    Source: Polyak & Juditsky 1992; De et al. 2022 (arXiv 2204.13650), section 3.
    """

    def __init__(self, model: nn.Module, decay: float | None = None):
        self._model = model
        self._decay = decay if decay is None else check.probability("decay", decay, open_low=True, open_high=True)
        self._mean: dict[str, Tensor] = {}

    def on_step(self, taken: int, planned: int) -> None:
        """Move the mean."""
        share = 1 / max(1, taken - planned // 2)
        if self._decay is not None:
            share = 1 - min(self._decay, (1 + taken) / (10 + taken))
        for name, value in self._model.named_parameters():
            if name in self._mean:
                self._mean[name].lerp_(value.detach(), share)
            else:
                self._mean[name] = value.detach().clone()

    def on_end(self) -> None:
        """Put the mean in place of the weights."""
        self._model.load_state_dict(self._mean, strict=False)

    def state(self) -> dict[str, Any]:
        """The mean."""
        return {"decay": self._decay, "mean": self._mean}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`."""
        self._mean = state["mean"]


class ProgressBar(Callback):
    """Progress bar of the steps with the newest metrics and epsilon, in a terminal (on stderr) or a notebook.

    Example:
        >>> bar = ProgressBar()
        >>> bar.on_epoch({"epoch": 1.0, "accuracy": 0.9})
        >>> bar.on_end()
    """

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._row = ""

    def on_step(self, taken: int, planned: int) -> None:
        """Move the bar."""
        if self._progress is None or self._task is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            row, console = TextColumn("{task.fields[row]}"), Console(stderr=True)
            self._progress = Progress(*columns, row, console=console, refresh_per_second=4)
            self._progress.start()
            self._task = self._progress.add_task("training", total=planned, row="")
        self._progress.update(self._task, completed=taken, row=self._row)

    def on_epoch(self, row: Row) -> None:
        """Show the newest metrics."""
        self._row = ", ".join(f"{name} {value:.4g}" for name, value in _named(row).items() if name not in _COUNTERS)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, row=self._row)

    def on_end(self) -> None:
        """Close the bar."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None


class TensorBoard(Callback):
    """Write every row of the history to `folder` for TensorBoard: metrics, epsilon so far, learning rate.

    It writes only the history: released and public numbers, never gradients, norms or training losses. It needs the
    extra: pip install 'tacit[tensorboard]'.

    Args:
        folder: folder of the event files.

    Raises:
        InvalidInput: TensorBoard is not installed.

    Example:
        >>> writer = TensorBoard("logs")  # doctest: +SKIP
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
        """Write the numbers of `row`."""
        for name, value in _named(row).items():
            self._writer.add_scalar(name, value, int(row["steps"]))
        self._writer.flush()

    def on_end(self) -> None:
        """Close the event file."""
        self._writer.close()


def _named(row: Row) -> Row:
    """The numbers of `row` without the steps; the name of a privacy number includes its standing."""
    return {
        f"{name} ({value.standing})" if isinstance(value, Answer) else name: float(value)
        for name, value in row.items()
        if name != "steps"
    }


def _ignore(*values: object) -> None:
    """Default of a function that is not given."""
