"""The white-box audit: canaries through one more training of the run, by its execution record and its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit import check
from tacit.accounting import Ledger
from tacit.attacks import Scores
from tacit.audit import LikelihoodRatio, LowOrderBits, one_run
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.gradients import clipped_sum
from tacit.gradients.inputs import Loss
from tacit.gradients.rounding import single_slack, slack
from tacit.mechanisms import Gaussian, Mechanism, Poisson
from tacit.relation import Relation
from tacit.runs.builders import network_of, optimizer_of, scheduler_of
from tacit.runs.canaries import CanaryLane, LaneMonitors
from tacit.runs.config import Config
from tacit.runs.execution import stored_execution
from tacit.runs.methods.base import Progress
from tacit.serialization import json_table
from tacit.training import fit
from tacit.training.execution_record import ExecutionRecord, with_threads
from tacit.training.release import LEAST_AHEAD

WHITE_BOX = "white_box"
LOW_ORDER_BITS = "low_order_bits"
TAKES = (
    "White-box audits take runs of method gradient on classes with flat clipping, Poisson batches, the same Gaussian "
    "noise at every step and the relation add_remove."
)
_VALUES = 200_000  # of noise that the monitor should see: an error of its size of .8 % is then an alarm
_AGREEMENT = 1e-9  # relative; settings and ledger print the same double


@dataclass(frozen=True)
class Training:
    """What the ledger of a run says was run: `steps` times Gaussian noise on a Poisson sample.

    Attributes:
        noise_multiplier: std / clip_norm.
        sample_rate: in (0, 1].
        steps: number of steps, those lost to an interruption included.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int


@dataclass(frozen=True)
class WhiteBox:
    """Result of the canary run.

    Attributes:
        scores: of the canaries, independent trials.
        monitors: whether the monitor of that name passed.
        execution: by what the canary run was computed.
    """

    scores: Scores
    monitors: dict[str, bool]
    execution: ExecutionRecord


def training_of(config: Config, dataset: Dataset, ledger: Ledger) -> Training:
    """What the canary run repeats, from the ledger.

    Raises:
        InvalidInput: white-box audits do not take the run; the sentence says which they take.
    """
    if config.method != "gradient" or dataset.task == "regression":
        raise _not_taken(f"method {config.method} on {dataset.task}")
    if config.section("clip").type != "flat":
        raise _not_taken(f"{config.section('clip').type} clipping")
    if ledger.relation != Relation.ADD_REMOVE:
        raise _not_taken(f"the relation {ledger.relation.value}")
    steps = {_step_of(entry.mechanism) for entry in ledger.entries}
    if len(steps) != 1 or None in steps:
        raise _not_taken("steps of another kind, or of several kinds")
    (step,) = steps
    assert step is not None
    return Training(*step, sum(entry.steps for entry in ledger.entries))


def check_settings(config: Config, dataset: Dataset, folder: Path, training: Training) -> None:
    """Compare the settings of config.json and card.json with what the ledger recorded.

    Args:
        config: of the run.
        dataset: of the run.
        folder: of the run, whose card.json is read if it is there.
        training: from the ledger.

    Raises:
        InvalidInput: a setting is not what the ledger recorded.
    """
    card = json_table("card.json", folder / "card.json") if (folder / "card.json").exists() else {}
    settings = check.instance("settings of card.json", card.get("settings", {}), dict, "a table")
    said: list[tuple[str, str, Any, float]] = [
        ("noise_multiplier", "card.json", settings.get("noise_multiplier"), training.noise_multiplier),
        ("sample_rate", "card.json", settings.get("sample_rate"), training.sample_rate),
        ("clip_norm", "card.json", settings.get("clip_norm"), config.clip_norm),
        ("noise_multiplier", "config.json", config.noise_multiplier, training.noise_multiplier),
        ("batch_size", "config.json", config.batch_size, training.sample_rate * len(dataset.y_train)),
    ]
    for name, file, value, recorded in said:
        if value is not None and not _agree(value, recorded):
            source = "config.json" if name == "clip_norm" else "ledger.json"
            raise check.fail(
                f"{name} of {file}", f"{recorded:g}, as in {source}", value, "One of the two files was changed."
            )


def white_box(
    config: Config,
    dataset: Dataset,
    ledger: Ledger,
    folder: Path,
    *,
    canaries: int,
    attack: str = WHITE_BOX,
    on_progress: Progress = lambda *_: None,
) -> WhiteBox:
    """Train the run once more with half of the canaries among its records, and score every canary.

    Mechanisms are those of the ledger; engine, precision, physical batch size, schedule and threads are those of the
    run's execution record, or of its settings where there is none.

    Args:
        config: of the run.
        dataset: of the run.
        ledger: of the run.
        folder: of the run.
        canaries: how many, >= 2.
        attack: WHITE_BOX for the likelihood ratio of all releases, LOW_ORDER_BITS for what they cannot have come from.
        on_progress: called with (stage, done, total).

    Raises:
        InvalidInput: the audit does not take the run, or settings and ledger contradict each other.
    """
    training = training_of(config, dataset, ledger)
    check_settings(config, dataset, folder, training)
    records = stored_execution(folder)
    known = records[-1] if records else ExecutionRecord.of(nn.Module(), **_execution_of(config))
    monitors = LaneMonitors(training.noise_multiplier, training.sample_rate, config.clip_norm)
    train = _Trainer(config, training, known, monitors, attack == LOW_ORDER_BITS, on_progress)
    train.lane = lane = CanaryLane(
        train,
        lambda: network_of(config, dataset),
        dataset.x_train,
        dataset.y_train,
        classes=len(dataset.classes),
        optimizer=lambda model: optimizer_of(config, model),
        clip_norm=config.clip_norm,
        sample_rate=training.sample_rate,
        observers=[LikelihoodRatio(training.noise_multiplier, training.sample_rate)],
        width=canaries,
        idle=_idle(network_of(config, dataset), canaries, training.steps),
        monitors=monitors,
        after_steps=not train.bits,
    )
    with with_threads(known.threads):
        scores = one_run(lane, attack=attack, canaries=canaries)
    assert train.execution is not None
    return WhiteBox(scores, monitors.verdicts(), train.execution)


@dataclass
class _Trainer:
    """The production path as `CanaryLane` calls it."""

    config: Config
    training: Training
    known: ExecutionRecord
    monitors: LaneMonitors
    bits: bool
    on_progress: Progress
    lane: CanaryLane | None = None
    execution: ExecutionRecord | None = None

    def __call__(
        self, model: nn.Module, inputs: tuple[Tensor, Tensor], targets: Tensor, *, loss: Loss, optimizer: Optimizer
    ) -> None:
        config, training, known = self.config, self.training, self.known
        # The number of parameters changes it by 1e-6: 16 stands for that of the lane and its body.
        self.monitors.slack = slack(torch.float32, 16, single_slack(training.sample_rate * len(targets)))
        if self.bits and self.lane is not None:
            self.lane.observers = [self._low_order_bits(model, inputs, targets, loss)]
        self.execution = fit(
            model,
            inputs,
            targets,
            loss=loss,
            optimizer=optimizer,
            clip_norm=config.clip_norm,
            sampling=self.monitors.sampling,
            noise_multiplier=training.noise_multiplier,
            sample_rate=training.sample_rate,
            steps=training.steps,
            scheduler=scheduler_of(config, optimizer, training.steps),
            scheduler_per="step",
            engine=known.engine,
            precision=known.precision,
            max_physical_batch_size=known.max_physical_batch_size,
            on_step=self._after_step,
        ).execution

    def _after_step(self, done: int, total: int) -> None:
        if self.lane is not None:
            self.lane.observe_step()
        self.on_progress("training with canaries", done, total)

    def _low_order_bits(
        self, model: nn.Module, inputs: tuple[Tensor, Tensor], targets: Tensor, loss: Loss
    ) -> LowOrderBits:
        """The score, with what the last record, a canary, adds to the clipped sum."""
        last = (inputs[0][-1:], inputs[1][-1:])
        clipped, _ = clipped_sum(model, loss, last, targets[-1:], clip_norm=self.config.clip_norm)
        size = len(targets) * self.training.sample_rate
        std = self.training.noise_multiplier * self.config.clip_norm * (1 + self.monitors.slack)
        return LowOrderBits(std, size, float(clipped["lane.weight"].sum()))


def _execution_of(config: Config) -> dict[str, Any]:
    names = ("engine", "precision", "max_physical_batch_size")
    return {name: getattr(config, name) for name in names}


def _step_of(mechanism: Mechanism) -> tuple[float, float] | None:
    """(noise multiplier, sampling rate) of Gaussian noise on a Poisson sample; None for anything else."""
    base, rate = (mechanism.base, mechanism.sample_rate) if isinstance(mechanism, Poisson) else (mechanism, 1.0)
    return (base.noise_multiplier, rate) if type(base) is Gaussian and base.noise_multiplier > 0 else None


def _not_taken(got: str) -> InvalidInput:
    return check.fail("run", "one that white-box audits take", got, TAKES)


def _agree(value: Any, recorded: float) -> bool:
    return isinstance(value, int | float) and bool(np.isclose(value, recorded, rtol=_AGREEMENT, atol=0.0))


def _idle(body: nn.Module, canaries: int, steps: int) -> int:
    """Coordinates of the lane besides the canaries: for enough values, and for noise of the body to recur in it.

    From `LEAST_AHEAD` values on, noise is drawn by another thread; the lane must not carry a run beyond that.
    """
    size = sum(parameter.numel() for parameter in body.parameters() if parameter.requires_grad)
    wanted = max(-(-_VALUES // steps), size + 1)
    room = LEAST_AHEAD - 2 - size if size < LEAST_AHEAD else wanted
    return max(0, min(wanted, room) - canaries)
