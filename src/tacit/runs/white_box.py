"""The white-box audit: canaries through one more training of the run, by its execution record and its ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit import check
from tacit.accounting import Ledger
from tacit.attacks import Scores
from tacit.audit import GroupedLikelihoodRatio, LikelihoodRatio, LowOrderBits, one_run
from tacit.audit.correlated_canaries import Separated, separated
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.gradients import clipped_sum
from tacit.gradients.inputs import Loss
from tacit.gradients.rounding import single_slack, slack
from tacit.mechanisms import (
    BallsAndBins,
    CyclicAllocation,
    CyclicPoisson,
    Gaussian,
    Mechanism,
    MinSeparation,
    Poisson,
    Strategy,
    ToeplitzStrategy,
)
from tacit.noise.whitening import whitened
from tacit.relation import Relation
from tacit.runs.builders import network_of, optimizer_of, scheduler_of
from tacit.runs.canaries import CanaryLane, LaneMonitors, Observer
from tacit.runs.config import Config
from tacit.runs.execution import stored_execution
from tacit.runs.methods.base import Progress
from tacit.sampling import (
    BallsAndBinsSampling,
    CyclicAllocationSampling,
    CyclicPoissonSampling,
    PoissonSampling,
    Sampling,
)
from tacit.serialization import json_table
from tacit.training import fit
from tacit.training.correlation import Correlation
from tacit.training.execution_record import ExecutionRecord, with_threads
from tacit.training.release import LEAST_AHEAD

WHITE_BOX = "white_box"
LOW_ORDER_BITS = "low_order_bits"
TAKES = (
    "White-box audits take runs of method gradient on classes with flat clipping, the relation add_remove and the same "
    "Gaussian noise at every step: on Poisson batches, or, correlated or not, on batches of groups in turn."
)
_VALUES = 200_000  # of noise that the monitor should see: an error of its size of .8 % is then an alarm
_AGREEMENT = 1e-9  # relative; settings and ledger print the same double


@dataclass(frozen=True)
class Training:
    """What the ledger of a run says was run: `steps` times Gaussian noise on a sample.

    Attributes:
        noise_multiplier: std / clip_norm.
        sample_rate: in (0, 1].
        steps: number of steps, those lost to an interruption included.
        sampling: of the batches.
        mechanism: of a run whose records take part in the steps of one group alone; None for Poisson batches.
        strategy: of noise that is correlated over the steps; None for independent noise.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    sampling: Sampling = field(default_factory=PoissonSampling)
    mechanism: Separated | None = None
    strategy: Strategy | None = None

    @property
    def noise(self) -> str | Strategy:
        """As `fit` takes it."""
        return "independent" if self.strategy is None else self.strategy

    @property
    def block(self) -> int | None:
        """Turns of a group in which each record has one; None where it is drawn at every turn by itself."""
        return self.mechanism.steps_per_block if isinstance(self.mechanism, CyclicAllocation) else None

    def observer(self, groups: Callable[[], np.ndarray]) -> Observer:
        """The likelihood ratio of canaries, whose group `groups` gives after the run."""
        if self.mechanism is None:
            return LikelihoodRatio(self.noise_multiplier, self.sample_rate)
        strategy = self.strategy if self.strategy is not None else ToeplitzStrategy(self.steps, (1.0,))
        return GroupedLikelihoodRatio(self.mechanism, strategy, self.noise_multiplier, groups)


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
    mechanisms = list({entry.mechanism for entry in ledger.entries})
    steps = sum(entry.steps for entry in ledger.entries)
    training = _training(mechanisms[0], steps) if len(mechanisms) == 1 else None
    if training is None:
        raise _not_taken("steps of another kind, or of several kinds")
    return training


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
    records = len(dataset.y_train)
    settings = check.instance("settings of card.json", card.get("settings", {}), dict, "a table")
    said: list[tuple[str, str, Any, float]] = [
        ("noise_multiplier", "card.json", settings.get("noise_multiplier"), training.noise_multiplier),
        ("sample_rate", "card.json", _drawn_at(training, settings.get("sample_rate")), training.sample_rate),
        ("clip_norm", "card.json", settings.get("clip_norm"), config.clip_norm),
        ("noise_multiplier", "config.json", config.noise_multiplier, training.noise_multiplier),
        (
            "batch_size",
            "config.json",
            config.batch_size and _drawn_at(training, config.batch_size / records) * records,
            training.sample_rate * records,
        ),
    ]
    for name, file, value, recorded in said:
        if value is not None and not _agree(value, recorded):
            source = "config.json" if name == "clip_norm" else "ledger.json"
            raise check.fail(
                f"{name} of {file}", f"{recorded:g}, as in {source}", value, "One of the two files was changed."
            )


def _drawn_at(training: Training, sample_rate: Any) -> Any:
    """The rate at which batches are drawn where `sample_rate` was asked for: whole turns or bins round it down."""
    if not isinstance(sample_rate, int | float) or isinstance(training.mechanism, CyclicPoisson | None):
        return sample_rate
    if isinstance(training.sampling, BallsAndBinsSampling):
        return 1 / training.sampling.bins(sample_rate)
    assert isinstance(training.sampling, CyclicAllocationSampling)
    assert training.sampling.groups is not None
    return 1 / (training.sampling.groups * training.sampling.steps_per_block(sample_rate))


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
    check_settings(config, dataset, folder, training)
    records = stored_execution(folder)
    known = records[-1] if records else ExecutionRecord.of(nn.Module(), **_execution_of(config))
    monitors = LaneMonitors(
        training.noise_multiplier,
        training.sample_rate,
        config.clip_norm,
        drawn=training.sampling,
        block=training.block,
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


def _training(mechanism: Mechanism, steps: int) -> Training | None:
    """`steps` of `mechanism`; None if it is neither Gaussian noise on a Poisson sample nor one of groups in turn."""
    apart = separated(mechanism)
    if apart is None:
        base, rate = (mechanism.base, mechanism.sample_rate) if isinstance(mechanism, Poisson) else (mechanism, 1.0)
        # The law of a kind of Gaussian may be another one.
        if not isinstance(base, Gaussian) or type(base) is not Gaussian or not base.noise_multiplier > 0:
            return None
        return Training(base.noise_multiplier, rate, steps)
    if isinstance(apart, BallsAndBins):
        assert isinstance(apart.base, Gaussian)
        return Training(apart.base.noise_multiplier, 1 / apart.steps_per_epoch, steps, BallsAndBinsSampling(), apart)
    base = apart.base
    if steps != base.strategy.iterations or not whitened(base.strategy):
        return None
    strategy = base.strategy if base.strategy.bands > 1 else None
    if isinstance(apart, MinSeparation):
        rate, sampling = 1 / apart.separation, BallsAndBinsSampling()
    elif isinstance(apart, CyclicPoisson):
        rate, sampling = apart.sample_rate / apart.groups, CyclicPoissonSampling(apart.groups)
    else:
        rate = 1 / (apart.groups * apart.steps_per_block)
        sampling = CyclicAllocationSampling(apart.groups)
    return Training(base.noise_multiplier, rate, steps, sampling, apart, strategy)


def _groups(lane: CanaryLane, monitors: LaneMonitors, training: Training) -> np.ndarray:
    """The group of every canary: of those that took part, theirs; of the others, a random one."""
    assert training.mechanism is not None
    assert monitors.group_of is not None
    groups = int(monitors.group_of.max()) + 1
    found = np.random.default_rng().integers(groups, size=lane.width)
    found[lane.chosen] = monitors.group_of[len(monitors.group_of) - len(lane.chosen) :]
    return found


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
