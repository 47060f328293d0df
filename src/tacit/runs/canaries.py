"""Canaries through the production path: what an attacker who sees every release learns of who was in.

A canary is a record that the trainer samples, clips and adds noise to like any other. Its gradient lies in a lane, a
parameter beside the model's own that no real record touches, and is far longer than the clipping bound. The trainer
gets the model with its lane, the records and the optimizer, and knows nothing of the audit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from tacit import audit, check
from tacit import sampling as samplings
from tacit.gradients.inputs import Loss
from tacit.noise import Stream
from tacit.noise.correlated import Whitening
from tacit.noise.rounded_gaussian import grid_of
from tacit.runs.canary_training import Observer, Training
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
        check.that(observers, "observers", "one observer at least", 0)
        self._train, self._body, self._optimizer, self.observers = train, body, optimizer, observers
        self._inputs, self._targets = torch.as_tensor(inputs), torch.as_tensor(targets)
        self.classes = check.count("classes", classes, minimum=2)
        self._clip_norm = check.positive("clip_norm", clip_norm)
        self._sample_rate = check.probability("sample_rate", sample_rate, open_low=True)
        self._idle = check.count("idle", idle, minimum=0)
        self._monitors, self._after_steps = monitors, after_steps
        self.observe_step: Callable[[], None] = lambda: None

    def __call__(self, included: np.ndarray) -> np.ndarray:
        """Train once with the canaries that `included` (m,) chooses; the score of each by the first observer."""
        check.that(len(included) == self.width, "included", f"of {self.width} Dirac canaries", len(included))
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
