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
from tacit.audit import LowOrderBits, one_run
from tacit.data import Dataset
from tacit.gradients import clipped_sum
from tacit.gradients.inputs import Loss
from tacit.gradients.rounding import single_slack, slack
from tacit.runs.audited_training import Training, check_settings, training_of
from tacit.runs.builders import network_of, optimizer_of, scheduler_of
from tacit.runs.canaries import CanaryLane, LaneMonitors
from tacit.runs.config import Config
from tacit.runs.methods.base import Progress
from tacit.runs.open_run import open_run
from tacit.training import Functions, fit
from tacit.training.execution_record import ExecutionRecord, with_threads
from tacit.training.release import Correlation

WHITE_BOX = "white_box"
LOW_ORDER_BITS = "low_order_bits"
_VALUES = 200_000  # of noise that the monitor should see: an error of its size of .8 % is then an alarm


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
    if attack == LOW_ORDER_BITS and training.strategy is not None:
        raise check.fail("attack", f"{WHITE_BOX} where noise is correlated", attack, "Estimates lie on no grid.")
    run = open_run(folder)
    check_settings(config, dataset, run.own_card, training)
    records = run.execution
    known = records[-1] if records else ExecutionRecord.of(nn.Module(), **_execution_of(config))
    monitors = LaneMonitors(
        training.noise_multiplier,
        training.sample_rate,
        config.clip_norm,
        drawn=training.sampling,
        block=training.block,
        allocation=training.allocation,
        strategy=training.strategy,
    )
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
        observers=[training.observer(lambda: _groups(lane, monitors, training))],
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
        if training.strategy is not None:
            self.monitors.slack = Correlation(training.strategy).slack(self.monitors.slack)
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
            noise=training.noise,
            noise_multiplier=training.noise_multiplier,
            sample_rate=training.sample_rate,
            steps=training.steps,
            scheduler=scheduler_of(config, optimizer, training.steps),
            scheduler_per="step",
            engine=known.engine,
            precision=known.precision,
            max_physical_batch_size=known.max_physical_batch_size,
            callbacks=[Functions(on_step=self._after_step)],
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


def _groups(lane: CanaryLane, monitors: LaneMonitors, training: Training) -> np.ndarray:
    """The group of every canary: of those that took part, theirs; of the others, a random one."""
    assert training.mechanism is not None
    assert monitors.group_of is not None
    groups = int(monitors.group_of.max()) + 1
    found = np.random.default_rng().integers(groups, size=lane.width)
    found[lane.chosen] = monitors.group_of[len(monitors.group_of) - len(lane.chosen) :]
    return found


def _idle(body: nn.Module, canaries: int, steps: int) -> int:
    """Coordinates of the lane besides the canaries: for enough values, and for noise of the body to recur in it."""
    size = sum(parameter.numel() for parameter in body.parameters() if parameter.requires_grad)
    return max(0, max(-(-_VALUES // steps), size + 1) - canaries)
