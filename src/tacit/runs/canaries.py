"""Canaries through the production path: what an attacker who sees every release learns of who was in.

A canary is a record that the trainer samples, clips and adds noise to like any other. Its gradient lies in a lane, a
parameter beside the model's own that no real record touches, and is far longer than the clipping bound. The trainer
gets the model with its lane, the records and the optimizer, and knows nothing of the audit.

What the canary run repeats: noise, sampling and steps, as the ledger of the run states them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from tacit import audit, check, mechanisms
from tacit import sampling as samplings
from tacit.accounting import Ledger
from tacit.audit.canaries import Separated
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.gradients.inputs import Loss
from tacit.noise import SeededStream, Stream
from tacit.noise.correlated import CorrelatedNoise, Whitening
from tacit.noise.rounded_gaussian import grid_of
from tacit.relation import Relation
from tacit.runs.config import Config
from tacit.sampling.cyclic import CyclicSampler
from tacit.training.optimizers import is_plain

_REACH = 1e3  # how far beyond the clipping bound a canary's gradient lies

Records = tuple[tuple[Tensor, Tensor], Tensor]
Train = Callable[..., Any]
"""A trainer, e.g. `tacit.training.fit`: many private updates of a model in place, called with

- the model, with the canaries' parameter;
- the inputs, records and the place of each, shapes (n, ...) and (n,), and their labels, shape (n,);
- `loss=`, of outputs and labels, one value for each record, and `optimizer=`, of the model's parameters.
"""


class Observer(Protocol):
    """Scores canaries from their coordinates of one release after another."""

    @property
    def total(self) -> np.ndarray | float:
        """The score of each canary so far, shape (canaries,)."""
        ...

    def add(self, release: np.ndarray) -> None:
        """Add one release, the coordinate of each canary, shape (canaries,)."""
        ...


class WithLane(nn.Module):
    """`body` with a lane: (inputs, place) -> logits and the lane's value at that place, shape (batch, classes + 1).

    Every canary has a coordinate of its own: a place is its number, 0 for real records.
    """

    def __init__(self, body: nn.Module, width: int):
        super().__init__()
        self.body = body
        self.lane = nn.Embedding(width + 1, 1)
        nn.init.zeros_(self.lane.weight)

    def forward(self, inputs: Tensor, place: Tensor) -> Tensor:
        """Outputs of the body and, as the last column, the value at each record's place."""
        return torch.cat([self.body(inputs), self.lane(place)], dim=1)


@dataclass
class LaneMonitors:
    """Monitors of the noise and the sampler on the lane of Dirac canaries, where the sum before noise is known.

    A coordinate of the lane holds one clipping bound where its canary is in the batch, and nothing otherwise. So the
    released value tells the noise that was added, and `sampling` tells who was in the batch.

    Attributes:
        training: as the ledger says.
        clip_norm: of the run. It decides the grid that the rounded Gaussian mechanism releases sums on.
        slack: share by which the noise is larger, to cover the rounding of sums.
        noise: of all coordinates of the lane.
        batches: of all records and canaries; None before the run.
        batch: the records of the latest batch.
        group_of: the group of each record and canary, where the sampling has groups; a secret of the run.
    """

    training: Training
    clip_norm: float
    slack: float = 0.0
    noise: audit.NoiseMonitor = field(default_factory=audit.NoiseMonitor)
    batches: audit.SamplerMonitor | audit.GroupMonitor | audit.AllocationMonitor | None = None
    batch: np.ndarray | None = None
    group_of: np.ndarray | None = None

    def __post_init__(self) -> None:
        self._draw = np.random.default_rng(0)  # spreads values over their grid cell; no secret
        self._whitening: Whitening | None = None

    @property
    def sampling(self) -> samplings.Sampling:
        """That of the run, whose samplers are those of the production path, and show here what they issue."""
        return _watched(self.training.sampling, self)

    def begin(self, records: int) -> None:
        """Start anew for a run on so many records."""
        self.noise, self.batches, self.group_of = audit.NoiseMonitor(), None, None
        self._records = records
        strategy = self.training.strategy
        self._whitening = None if strategy is None else Whitening(strategy)

    def take(self, batch: samplings.Batch, sampler: samplings.Sampler) -> None:
        """Count a batch of `sampler` that is about to be trained on."""
        self.batch = batch.indices
        if isinstance(sampler, CyclicSampler):
            self.group_of = sampler.group_of()
            if not isinstance(self.batches, audit.GroupMonitor):
                rate = min(1.0, sampler.groups * self.training.sample_rate)
                self.batches = audit.GroupMonitor(sampler.groups, rate=rate, block=self.training.block)
            self.batches.add(batch.indices, self.group_of)
            return
        # Without groups by what the ledger states, and not by what the sampler says.
        if self.batches is None or isinstance(self.batches, audit.GroupMonitor):
            if self.training.allocation is None:
                self.batches = audit.SamplerMonitor(self._records, self.training.sample_rate)
            else:
                self.batches = audit.AllocationMonitor(self._records, *self.training.allocation)
        self.batches.add(batch.indices)

    def observe(self, release: np.ndarray, real: int, chosen: np.ndarray) -> None:
        """Count a release in units of the clipping bound.

        Args:
            release: on the lane, shape (width + 1,); the first coordinate is that of the real records.
            real: number of real records, which come before the canaries.
            chosen: coordinate of each canary that is among the records, shape (included,).
        """
        before_noise = np.zeros(len(release))
        if self.batch is not None:
            canaries = self.batch[self.batch >= real] - real
            before_noise[1:] = np.bincount(chosen[canaries], minlength=len(release) - 1)
        noise = release - before_noise
        if self._whitening is not None:
            noise = self._whitening.add(noise)
        self.noise.add(self._spread(noise / (self.training.noise_multiplier * (1 + self.slack))))
        self.batch = None

    def _spread(self, z: np.ndarray) -> np.ndarray:
        """Undo the rounding to the grid g: with a uniform value of [-g/2, g/2] added, a law that is normal again.

        Rounding and the uniform value add g^2 / 12 to the variance each.
        """
        std = self.training.noise_multiplier * self.clip_norm * (1 + self.slack)
        grid = grid_of(std)[1] / std
        return (z + grid * self._draw.uniform(-0.5, 0.5, len(z))) / np.sqrt(1 + grid**2 / 6)

    def verdicts(self) -> dict[str, bool]:
        """Whether each monitor passed."""
        return {"noise": self.noise.passed, "sampler": self.batches is not None and self.batches.passed}


def _watched(sampling: samplings.Sampling, monitors: LaneMonitors) -> samplings.Sampling:
    """`sampling`, whose samplers show each batch as it is redeemed for its step."""
    kind: Any = type(sampling)

    class Watched(kind):
        def sampler(self, records: int, sample_rate: float, stream: Stream) -> samplings.Sampler:
            sampler = super().sampler(records, sample_rate, stream)
            redeem = sampler.redeem

            def seen(batch: samplings.Batch) -> None:
                redeem(batch)
                monitors.take(batch, sampler)

            sampler.redeem = seen
            return sampler

    return Watched(**vars(sampling))


class CanaryLane:
    """One run of a trainer with some of the canaries in: the `lane` of `tacit.audit.one_run_audit`.

    Args:
        train: the production path, or what claims to be one.
        body: makes a fresh model, (batch, ...) to (batch, classes) logits.
        inputs: real records, shape (n, ...).
        targets: their labels, shape (n,).
        classes: of the model.
        optimizer: makes the optimizer of a model.
        clip_norm: clipping norm as claimed; a release is read in units of clip_norm / (sample_rate * records).
        sample_rate: sampling rate as claimed, in (0, 1].
        observers: score the canaries; the one that `__call__` answers with is the first.
        width: the number of Dirac canaries, a coordinate for each, so that their scores are independent.
        idle: further coordinates of the lane, which nothing but noise reaches.
        monitors: watch the lane; the trainer must sample by `monitors.sampling`.
        after_steps: whether the trainer calls `observe_step` after every step. Plain SGD is then read off the weights:
            a hook on the optimizer would make it take another code path.

    Raises:
        InvalidInput: there is no observer, or a number is outside its range.
    """

    def __init__(
        self,
        train: Train,
        body: Callable[[], nn.Module],
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        classes: int,
        optimizer: Callable[[nn.Module], Optimizer],
        clip_norm: float,
        sample_rate: float,
        observers: Sequence[Observer],
        width: int,
        idle: int = 0,
        monitors: LaneMonitors | None = None,
        after_steps: bool = False,
    ):
        self.width = check.count("width", width, minimum=2)
        if not observers:
            raise check.fail("observers", "one observer at least", 0)
        self._train, self._body, self._optimizer, self.observers = train, body, optimizer, observers
        self._inputs, self._targets = torch.as_tensor(inputs), torch.as_tensor(targets)
        self.classes = check.count("classes", classes, minimum=2)
        self._clip_norm = check.positive("clip_norm", clip_norm)
        self._sample_rate = check.probability("sample_rate", sample_rate, open_low=True)
        self._idle = check.count("idle", idle, minimum=0)
        self._monitors = monitors
        self._after_steps = after_steps
        self.observe_step: Callable[[], None] = lambda: None

    def __call__(self, included: np.ndarray) -> np.ndarray:
        """Train once with the canaries that `included` (m,) chooses; the score of each by the first observer."""
        if len(included) != self.width:
            raise check.fail("included", f"of {self.width} Dirac canaries", len(included))
        model = WithLane(self._body(), self.width + self._idle)
        optimizer = self._optimizer(model)
        self.chosen = np.flatnonzero(included)
        inputs, targets = self._records(self.chosen)
        unit = self._sample_rate * len(targets) / self._clip_norm
        if self._monitors is not None:
            self._monitors.begin(len(targets))
        if self._after_steps and is_plain(optimizer):
            self._read_weights(model, optimizer, unit)
        else:
            self.observe_step = lambda: None
            optimizer.register_step_pre_hook(lambda *_: self._read_gradient(model, unit))
        loss = _loss_of(self.classes, _REACH * self._clip_norm)
        self._train(model, inputs, targets, loss=loss, optimizer=optimizer)
        return np.asarray(self.observers[0].total)

    def _records(self, chosen: np.ndarray) -> Records:
        """The real records and the chosen canaries, whose inputs are zero and whose label is one past the classes."""
        n, m = len(self._targets), len(chosen)
        inputs = torch.cat([self._inputs, self._inputs.new_zeros(m, *self._inputs.shape[1:])])
        targets = torch.cat([self._targets, self._targets.new_full((m,), self.classes)])
        return (inputs, torch.cat([torch.zeros(n, dtype=torch.int64), torch.from_numpy(chosen + 1)])), targets

    def _read_gradient(self, model: WithLane, unit: float) -> None:
        gradient = model.lane.weight.grad
        if gradient is not None:
            self._observe(_values(gradient) * unit)

    def _read_weights(self, model: WithLane, optimizer: Optimizer, unit: float) -> None:
        """Let `observe_step` read the release off the change of the weights, -rate * release by plain SGD."""
        before = [_values(model.lane.weight)]
        rates = [optimizer.param_groups[0]["lr"]]

        def observe() -> None:
            after = _values(model.lane.weight)
            self._observe((before[0] - after) * (unit / rates[0]))
            before[0], rates[0] = after, optimizer.param_groups[0]["lr"]

        self.observe_step = observe

    def _observe(self, seen: np.ndarray) -> None:
        """Show a release on the lane, in units of the clipping bound."""
        if self._monitors is not None:
            self._monitors.observe(seen, len(self._targets), self.chosen)
        for observer in self.observers:
            observer.add(seen[1 : self.width + 1])


def _loss_of(classes: int, scale: float) -> Loss:
    """The loss of each real record, and `scale` times the last output of each canary.

    It reads constants alone: what reached the streams of the lane might draw, and would be typed at every pass.
    """

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        real = F.cross_entropy(outputs[:, :-1], targets.clamp(max=classes - 1), reduction="none")
        return torch.where(targets == classes, outputs[:, -1] * scale, real)

    return loss


def _values(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy().reshape(-1).copy()


TAKES = (
    "White-box audits take runs of method gradient on classes with flat clipping, add_remove or zero_out, and the same "
    "Gaussian noise at every step: on Poisson batches, by random allocation or balanced iteration, or, "
    "correlated or not, on batches of groups in turn."
)
_AGREEMENT = 1e-9  # relative; settings and ledger print the same double

Allocated = mechanisms.BalancedIteration | mechanisms.RandomAllocation
"""Mechanisms whose records take part in a known number of steps, in secret ones."""


@dataclass(frozen=True)
class Training:
    """What the ledger of a run says was run: `steps` times Gaussian noise on a sample.

    Attributes:
        noise_multiplier: std / clip_norm.
        sample_rate: in (0, 1].
        steps: number of steps, those lost to an interruption included.
        sampling: of the batches.
        mechanism: of a run whose records take part in the steps of one group alone, or in a known number of steps; None
            for Poisson batches.
        strategy: of noise that is correlated over the steps; None for independent noise.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    sampling: samplings.Sampling = field(default_factory=samplings.PoissonSampling)
    mechanism: Separated | Allocated | None = None
    strategy: mechanisms.Strategy | None = None

    @property
    def noise(self) -> str | mechanisms.Strategy:
        """As `fit` takes it."""
        return "independent" if self.strategy is None else self.strategy

    @property
    def block(self) -> int | None:
        """Turns of a group in which each record has one; None where it is drawn at every turn by itself."""
        return self.mechanism.steps_per_block if isinstance(self.mechanism, mechanisms.CyclicAllocation) else None

    @property
    def allocation(self) -> tuple[int, int] | None:
        """(T, k) where every record is in k of every T steps, of no group; None otherwise."""
        if isinstance(self.mechanism, mechanisms.BalancedIteration):
            return self.mechanism.iterations, self.mechanism.participations
        return (self.mechanism.steps_per_epoch, 1) if isinstance(self.mechanism, mechanisms.RandomAllocation) else None

    def observer(self, groups: Callable[[], np.ndarray]) -> Observer:
        """The likelihood ratio of canaries, whose group `groups` gives after the run."""
        if self.mechanism is None:
            return audit.LikelihoodRatio(self.noise_multiplier, self.sample_rate)
        if isinstance(self.mechanism, Allocated):
            assert self.allocation is not None
            return audit.AllocationLikelihoodRatio(self.noise_multiplier, *self.allocation)
        strategy = self.strategy if self.strategy is not None else mechanisms.ToeplitzStrategy(self.steps, (1.0,))
        return audit.GroupedLikelihoodRatio(self.mechanism, strategy, self.noise_multiplier, groups)

    def audited(self, affordable: int, wanted: int) -> Training:
        """The steps that default evidence repeats: the first ones where they are a mechanism of their own, else all.

        Args:
            affordable: steps that the time allows, where the first ones do.
            wanted: how many of them at most.
        """
        first = max(1, min(affordable, wanted, self.steps // 2))
        if self.mechanism is None:
            return replace(self, steps=first)
        if isinstance(self.mechanism, mechanisms.RandomAllocation):
            epoch = self.mechanism.steps_per_epoch
            return replace(self, steps=epoch * max(1, first // epoch))
        return self

    def simulated(self, included: np.ndarray, true_noise: float, seed: int) -> np.ndarray:
        """Scores of canaries in a simulated run whose noise may be another than is claimed.

        Args:
            included: whether each canary takes part, shape (canaries,).
            true_noise: that is added, >= 0, in units of the clipping norm.
            seed: of the run.
        """
        draw, count = np.random.default_rng(seed), len(included)
        correlation = None if self.strategy is None else CorrelatedNoise.of(self.strategy)
        sampler = self.sampling.sampler(count, self.sample_rate, SeededStream(seed))
        observer = self.observer(lambda: sampler.group_of() if isinstance(sampler, CyclicSampler) else np.zeros(count))
        for _ in range(self.steps):
            total = np.zeros(count)
            batch = sampler.draw().indices
            total[batch] = included[batch]
            rows = total if correlation is None else correlation.encode(total)
            rows = rows + true_noise * draw.standard_normal(rows.shape)
            observer.add(rows if correlation is None else correlation.decode(rows))
        return np.asarray(observer.total)


def training_of(config: Config, dataset: Dataset, ledger: Ledger) -> Training:
    """What the canary run repeats, from the ledger.

    Raises:
        InvalidInput: white-box audits do not take the run; the sentence says which they take.
    """
    if config.method != "gradient" or dataset.task == "regression":
        raise _not_taken(f"method {config.method} on {dataset.task}")
    if config.section("clip").type != "flat":
        raise _not_taken(f"{config.section('clip').type} clipping")
    if ledger.relation is Relation.REPLACE_ONE:
        raise _not_taken(f"the relation {ledger.relation.value}")
    mechanisms = list({entry.mechanism for entry in ledger.entries})
    steps = sum(entry.steps for entry in ledger.entries)
    training = _training(mechanisms[0], steps) if len(mechanisms) == 1 else None
    if training is None:
        raise _not_taken("steps of another kind, or of several kinds")
    return training


def check_settings(config: Config, dataset: Dataset, card: Mapping[str, Any], training: Training) -> None:
    """Compare the settings of config.json and card.json with what the ledger recorded.

    Args:
        config: of the run.
        dataset: of the run.
        card: content of card.json; empty where there is none.
        training: from the ledger.

    Raises:
        InvalidInput: a setting is not what the ledger recorded.
    """
    records = config.public_size or len(dataset.y_train)
    settings = check.instance("settings of card.json", card.get("settings", {}), dict, "a table")
    of_card = {name: settings.get(name) for name in ("noise_multiplier", "sample_rate", "clip_norm")}
    of_card["sample_rate"] = _drawn_at(training, of_card["sample_rate"])
    asked = config.batch_size and _drawn_at(training, config.batch_size / records) * records
    of_config = {"noise_multiplier": config.noise_multiplier, "batch_size": asked}
    recorded = {name: getattr(training, name) for name in ("noise_multiplier", "sample_rate")}
    recorded |= {"clip_norm": config.clip_norm, "batch_size": training.sample_rate * records}
    for file, stated in (("card.json", of_card), ("config.json", of_config)):
        for name, value in stated.items():
            if value is not None and not _agree(value, recorded[name]):
                source = "config.json" if name == "clip_norm" else "ledger.json"
                rule = f"{recorded[name]:g}, as in {source}"
                raise check.fail(f"{name} of {file}", rule, value, "One of the two files was changed.")


def _drawn_at(training: Training, sample_rate: Any) -> Any:
    """The rate at which batches are drawn where `sample_rate` was asked for: whole turns or bins round it down."""
    known = training.mechanism
    if not isinstance(sample_rate, int | float) or known is None or isinstance(known, mechanisms.CyclicPoisson):
        return sample_rate
    independent = mechanisms.ToeplitzStrategy(training.steps, (1.0,))
    run = mechanisms.MatrixGaussian(training.noise_multiplier, training.strategy or independent)
    base = known.base if isinstance(known, mechanisms.RandomAllocation) else run
    drawn = _training(training.sampling.mechanism(base, 1, sample_rate), training.steps)
    return None if drawn is None else drawn.sample_rate


def _training(mechanism: mechanisms.Mechanism, steps: int) -> Training | None:
    """`steps` of `mechanism`; None unless it is Gaussian noise on a Poisson sample, `Allocated` or of groups."""
    rate, sampling, whole = 1.0, samplings.PoissonSampling(), steps
    match mechanism:
        case mechanisms.Poisson():
            rate = mechanism.sample_rate
        case mechanisms.RandomAllocation():
            rate, sampling = 1 / mechanism.steps_per_epoch, samplings.RandomAllocationSampling()
        case mechanisms.BalancedIteration():
            whole = mechanism.iterations
            rate, sampling = mechanism.participations / whole, samplings.BalancedIterationSampling(iterations=whole)
        case mechanisms.BallsAndBins():
            rate, sampling = 1 / mechanism.steps_per_epoch, samplings.BallsAndBinsSampling()
        case mechanisms.MinSeparation():
            rate, sampling = 1 / mechanism.separation, samplings.BallsAndBinsSampling()
        case mechanisms.CyclicPoisson():
            rate, sampling = mechanism.sample_rate / mechanism.groups, samplings.CyclicPoissonSampling(mechanism.groups)
        case mechanisms.CyclicAllocation():
            sampling = samplings.CyclicAllocationSampling(mechanism.groups)
            rate = 1 / (mechanism.groups * mechanism.steps_per_block)
    known = mechanism if isinstance(mechanism, Separated | Allocated) else None
    base = mechanism.base if isinstance(mechanism, Separated | Allocated | mechanisms.Poisson) else mechanism
    strategy = None
    if isinstance(base, mechanisms.MatrixGaussian) and isinstance(known, Separated):
        whole = base.strategy.iterations
        strategy = base.strategy if base.strategy.bands > 1 else None
    elif type(base) is not mechanisms.Gaussian:  # The law of a kind of Gaussian may be another one.
        return None
    if steps != whole or not base.noise_multiplier > 0:
        return None
    return Training(base.noise_multiplier, rate, steps, sampling, known, strategy)


def _not_taken(got: str) -> InvalidInput:
    return check.fail("run", "one that white-box audits take", got, TAKES)


def _agree(value: Any, recorded: float) -> bool:
    return isinstance(value, int | float) and bool(np.isclose(value, recorded, rtol=_AGREEMENT, atol=0.0))
