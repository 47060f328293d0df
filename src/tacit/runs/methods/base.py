"""What a training method is: how it trains, compares itself with training without privacy, and is loaded again.

Going on with a run that was stopped: every run ends in a card, and what may have been lost counts as spent.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from tacit import check
from tacit.accounting import Ledger
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.runs.builders import Progress, no_progress
from tacit.runs.config import Config
from tacit.runs.decision_metrics import metric_on_test
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import LEDGER, MODEL, TRAINED
from tacit.runs.settings import Folder
from tacit.serialization import json_text, write_bytes, write_text
from tacit.signing import Origin, origin_of, signature_of
from tacit.training import PrivateHoldout
from tacit.training.resume import LOST

Predict = Callable[[np.ndarray], np.ndarray]
Baseline = tuple[Sequence[Mapping[str, float]], Predict | None]
"""`test` after each epoch of a training without privacy, and its predictions, which attacks are measured on."""
Scalar = str | int | float | bool | None
Settings = TypeVar("Settings")
Built = TypeVar("Built")
_ROWS_AT_A_TIME = 256  # of a released model, such as trees that every row meets at once


@dataclass(frozen=True)
class Job:
    """One run as a method receives it.

    Attributes:
        config: every setting; the method's own are its section.
        dataset: what to train and test on.
        ledger: where every release is recorded, with the run's relation; nothing private leaves a method without it.
        folder: where the method saves what `load` reads. The dispatcher writes ledger, card and settings there.
        resume: go on with the run in `folder` that was stopped.
        on_progress: called with (stage, done, total) by whatever takes over two seconds.
        data_dir: folder of the data files, for a method that reads public data besides.
        sign: signs the folder, so that a ledger that was written ahead cannot be taken away unnoticed.
        reserve: reserves what a ledger holds in the registry of the project; raises `BudgetExceeded` where a cap of the
            data set would be crossed.
        checkpoints: whether a method that keeps checkpoints does so for this run.
        measures_test: whether results on the test records may be measured and kept while it trains: they are public.
        holdout: private validation records, which are none of `dataset`.
    """

    config: Config
    dataset: Dataset
    ledger: Ledger
    folder: Path
    resume: bool = False
    on_progress: Progress = no_progress
    data_dir: Folder | None = None
    sign: Callable[[], None] = lambda: None
    reserve: Callable[[Ledger], None] = lambda ledger: None
    checkpoints: bool = True
    measures_test: bool = True
    holdout: PrivateHoldout | None = None

    def write_ahead(self, *planned: tuple[Mechanism, int]) -> None:
        """Save the ledger as it would stand after `planned`: a run killed later never understates what was spent."""
        ahead = self.ledger.copy()
        for mechanism, steps in planned:
            # A composition has no entry of its own: a ledger with one could not be read again.
            for part, inner in mechanism.parts():
                ahead.add(part, inner * steps, "planned training")
        self.reserve(ahead)
        ahead.save(self.folder / "ledger.json")
        self.sign()


@dataclass(frozen=True)
class Trained:
    """What a method returns for the card.

    Attributes:
        predict: inputs (n, ...) to class probabilities (n, classes), or to values (n,) for a regression.
        model: what was trained, in a few words.
        algorithm: how, in a few words, e.g. "DP-SGD".
        settings: single values for the card, no seed among them.
        history: `test` after each epoch, for the training curve, where the job `measures_test`; empty without epochs.
        metrics: further numbers for the card.
        units: how many privacy units (ledger.unit) the training data holds; the records where None.
        config: the settings that `load` needs, where they are not those of the job.
    """

    predict: Predict
    model: str
    algorithm: str
    settings: Mapping[str, Scalar]
    history: Sequence[Mapping[str, float]] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    units: int | None = None
    config: Config | None = None


class Method(ABC, Generic[Settings]):
    """One way to train privately.

    Args:
        settings: the method's section; see `runs.method_settings`.

    Attributes:
        resumed_by: the command that goes on with it, before the name of its folder.
        keeps_checkpoints: whether `train` goes on from the checkpoint in the folder; otherwise it begins anew, and what
            was written ahead counts as lost.
        is_search: whether it makes trials, each of which sets validation records aside itself, and the card leaves out
            how long the run took.
        trains_on_ranks: whether several processes can train together, rank 0 by `train` and others by `follow`.
        takes_weights: whether records and classes may have weights in the loss.
        saves_releases: whether the ledger is on disk before every release; otherwise `train` writes it ahead.
    """

    resumed_by: ClassVar[str] = "tacit train --resume"
    keeps_checkpoints: ClassVar[bool] = False
    saves_releases: ClassVar[bool] = False
    is_search: ClassVar[bool] = False
    trains_on_ranks: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False

    def __init__(self, settings: Settings):
        self.settings = settings

    def check(self, job: Job) -> None:
        """Raise `InvalidInput` for settings that do not fit the data, before anything is written."""
        hint = "It is the expected number of records."
        check.real("batch_size", job.config.batch_size, low=1, high=self.units(job), hint=hint)

    def units(self, job: Job) -> int:
        """The number of privacy units in the training data."""
        return len(job.dataset.y_train)

    @abstractmethod
    def train(self, job: Job) -> Trained:
        """Train privately, record every release in `job.ledger`, save into `job.folder` what `load` needs."""

    def follow(self, job: Job) -> None:
        """Take part in the private training of rank 0, and write nothing."""
        raise check.fail("method", "gradient on several processes", job.config.method, "Start one process.")

    def untrained(self, job: Job) -> Trained:
        """A model that no record entered, saved for `load`: all that is left where the whole budget was lost.

        A method that keeps checkpoints has no need of it.
        """
        raise check.fail("method", "one that can be resumed", job.config.method, "Start the run anew.")

    @abstractmethod
    def nonprivate_baseline(self, job: Job) -> Baseline:
        """The same training without privacy; its last `test` stands beside the private one."""

    @abstractmethod
    def load(self, job: Job) -> Predict:
        """The `predict` of the run in `job.folder`; raises `InvalidInput` where that is not complete."""

    def module(self, job: Job) -> nn.Module:
        """What `load` gives as a module, features to answers in float64; raises `InvalidInput` where there is none."""
        hint = "Its answers average over a posterior; tacit.load reads the run."
        raise check.fail("method", "one whose model is a single network", job.config.method, hint)


class Released(nn.Module):
    """A model that was released at once: its buffers, which are all that is stored of it.

    Args:
        tensors: each that the class declares; raises `KeyError` where one is left out.
    """

    def __init__(self, **tensors: Tensor):
        super().__init__()
        for name in type(self).__annotations__:
            self.register_buffer(name, tensors[name])

    def answers(self, inputs: np.ndarray) -> np.ndarray:
        """Class probabilities of rows, some at a time."""
        parts = torch.from_numpy(np.ascontiguousarray(inputs)).split(_ROWS_AT_A_TIME)
        with torch.no_grad():
            return torch.cat([self(part) for part in parts]).numpy()


class OneRelease(Method[Settings]):
    """A method that releases its model at once, by an estimator of `tacit.erm` whose noise an epsilon calibrates.

    Attributes:
        kind: of its model.
    """

    saves_releases: ClassVar[bool] = True
    kind: ClassVar[type[Released]]

    def check(self, job: Job) -> None:
        """Raise `InvalidInput` without an epsilon, or for data that it does not take."""
        method = job.config.method
        if job.config.epsilon is None:
            raise check.fail("epsilon", f"given for method {method}", None, "Its noise is calibrated.")
        rule = self.refusal(job.dataset)
        check.that(not rule, "dataset", f"{rule} for method {method}", job.dataset.name)

    @abstractmethod
    def refusal(self, dataset: Dataset) -> str:
        """What a data set must be that is not taken; empty for one that is."""

    def train(self, job: Job) -> Trained:
        """Release the model once."""
        job.on_progress("private training", 0, 1)
        trained = self.release(job)
        job.on_progress("private training", 1, 1)
        return trained

    @abstractmethod
    def release(self, job: Job) -> Trained:
        """Fit the estimator and keep the model."""

    @staticmethod
    def given(job: Job) -> dict[str, Any]:
        """Arguments that every estimator takes from the configuration."""
        names = ("epsilon", "delta", "relation", "strict", "unsafe_seed")
        config = {name: getattr(job.config, name) for name in names}
        return config | {"classes": range(len(job.dataset.classes)), "ledger": job.ledger}

    def kept(self, job: Job, released: Released, **told: Any) -> Trained:
        """Save the released model; `told` is what the card says of it, by the names of `Trained`."""
        store(job, dict(released.named_buffers()))
        return Trained(predict=released.answers, **told)

    def nonprivate_baseline(self, job: Job) -> Baseline:
        """The test metric of a model of scikit-learn without privacy."""
        return baseline_of(job, self.unprotected)

    @abstractmethod
    def unprotected(self, job: Job) -> Predict:
        """The predictions of that model."""

    def load(self, job: Job) -> Predict:
        """The released model of the run in `job.folder`."""
        return self.module(job).answers

    def module(self, job: Job) -> Released:
        """The released model of the run in `job.folder`."""
        return stored(job, lambda tensors: self.kind(**tensors))


def store(job: Job, tensors: Mapping[str, Tensor]) -> None:
    """Save what a released model is made of, for `stored`."""
    write_bytes(job.folder / MODEL, save({name: each.contiguous() for name, each in tensors.items()}))


def stored(job: Job, build: Callable[[dict[str, Tensor]], Built]) -> Built:
    """What `build` makes of the model in `job.folder`; raises `InvalidInput` where there is none of its names."""
    path = job.folder / MODEL
    try:
        return build(load(path.read_bytes()))
    except (OSError, SafetensorError, KeyError):
        raise check.fail("RUN", "the folder of a finished run, with model.safetensors in it", str(path)) from None


def baseline_of(job: Job, train: Callable[[Job], Predict]) -> Baseline:
    """A training without privacy that has no epochs."""
    job.on_progress("non-private baseline", 0, 1)
    predict = train(job)
    job.on_progress("non-private baseline", 1, 1)
    return [{"test": metric_on_test(job.dataset, predict(job.dataset.x_test))}], predict


def outputs_of(dataset: Dataset) -> int:
    """Scores of a record: one for two classes, else one for each class."""
    return len(dataset.classes) if len(dataset.classes) > 2 else 1


class SavedLedger(Ledger):
    """A ledger that is on disk before `add` returns, for methods of few releases.

    Args:
        path: the file.
        relation: as in `Ledger`.
        on_saved: called once it is on disk and before the release, so that the file cannot be taken away unnoticed.
        reserve: called with the ledger as it will stand, before anything is recorded.
    """

    def __init__(
        self,
        path: Path,
        *,
        relation: Relation | str,
        on_saved: Callable[[], None],
        reserve: Callable[[Ledger], None] = lambda ledger: None,
    ):
        super().__init__(relation=relation)
        self._path: Path | None = path
        self._on_saved, self._reserve = on_saved, reserve

    def add(self, mechanism: Mechanism, steps: int = 1, note: str = "") -> None:
        """Record that `mechanism` runs now, in the file first of all."""
        ahead = self.copy()
        ahead.add(mechanism, steps, note)
        self._reserve(ahead)
        super().add(mechanism, steps, note)
        if self._path is not None:
            self.save(self._path)
            self._on_saved()

    def absorb(self, other: Ledger, note: str = "") -> None:
        """Record what ran under `other`; the file is replaced once, so that it never holds a part of it."""
        path, self._path = self._path, None
        super().absorb(other, note)
        self._path = path
        if path is not None:
            self.save(path)
            self._on_saved()


def trained_model(job: Job, method: Method) -> Trained:
    """The private model of the run: trained, taken from an earlier attempt that finished, or what the budget leaves.

    A method without checkpoints begins anew after an interruption; what the earlier attempt may have released counts as
    lost beside it. Where the run had a target epsilon, that leaves nothing to train with.
    """
    if not job.resume or method.keeps_checkpoints:
        return method.train(job)
    kept = _kept(job, method)
    if kept is not None:
        job.ledger.absorb(open_run(job.folder).ledger)
        return kept
    if not (job.folder / LEDGER).exists():
        return method.train(job)
    lost = open_run(job.folder).ledger
    job.ledger.absorb(_lost(lost))
    if job.config.epsilon is None or not lost.entries:
        return method.train(job)
    left = method.untrained(job)
    why = "an interruption lost what the whole budget was spent on"
    return replace(left, settings={**left.settings, "stopped": why})


def keep_trained(job: Job, method: Method, trained: Trained) -> None:
    """Write down what the card will say, so that a kill from here on costs nothing; not where checkpoints do that."""
    if method.keeps_checkpoints:
        return
    table = trained_table(trained)
    write_text(job.folder / TRAINED, json_text({"trained": table, "signature": signature_of(TRAINED, table)}))
    job.sign()


def _kept(job: Job, method: Method) -> Trained | None:
    """What an earlier attempt wrote down once it had trained; None where it did not come so far."""
    path = job.folder / TRAINED
    if not path.exists() or not (job.folder / MODEL).exists():
        return None
    content = open_run(job.folder).table(TRAINED)
    table = check.instance(f"trained of {TRAINED}", content.get("trained"), dict, "a table")
    if origin_of(TRAINED, table, content.get("signature")) is Origin.EDITED:
        raise InvalidInput(f"{TRAINED} must be as the run wrote it; it was edited. Start anew in another folder.")
    return trained_from(table, method.load(job))


def trained_table(trained: Trained) -> dict[str, Any]:
    """What a card says of `trained`, as plain values."""
    names = [each.name for each in fields(trained) if each.name not in ("predict", "config")]
    return json.loads(json_text({name: getattr(trained, name) for name in names}))


def trained_from(table: Mapping[str, Any], predict: Predict) -> Trained:
    """The model of a `trained_table` with its predictions."""
    metrics = {name: None if value is None else float(value) for name, value in table["metrics"].items()}
    history = [{name: float(value) for name, value in row.items()} for row in table["history"]]
    rest = {name: value for name, value in table.items() if name not in ("metrics", "history")}
    return Trained(predict=predict, history=history, metrics=metrics, **rest)


def _lost(ledger: Ledger) -> Ledger:
    """The same ledger, every entry of it marked as lost."""
    marked = ledger.copy()
    marked._entries = []
    for entry in ledger.entries:
        marked.add(entry.mechanism, entry.steps, LOST)
    return marked
