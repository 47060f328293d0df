"""Canaries through the production path: what an attacker who sees every release learns of who was in.

A canary is a record that the trainer samples, clips and adds noise to like any other. Its gradient lies in a lane, a
parameter beside the model's own that no real record touches, and is far longer than the clipping bound. The trainer
gets the model with its lane, the records and the optimizer, and knows nothing of the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from tacit import check

KINDS = ("dirac", "gradient")
_REACH = 1e3  # how far beyond the clipping bound a canary's gradient lies

Records = tuple[tuple[Tensor, Tensor], Tensor]


class Train(Protocol):
    """A trainer: many private updates of `model` on `inputs` and `targets`, e.g. `tacit.training.fit`."""

    def __call__(
        self,
        model: nn.Module,
        inputs: tuple[Tensor, Tensor],
        targets: Tensor,
        *,
        loss: Callable[[Tensor, Tensor], Tensor],
        optimizer: Optimizer,
    ) -> Any:
        """Train `model` in place.

        Args:
            model: with the canaries' parameter.
            inputs: records and the place of each, shapes (n, ...) and (n,) or (n, width).
            targets: labels, shape (n,).
            loss: of outputs and targets, one value for each record.
            optimizer: of the parameters of `model`.
        """
        ...


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

    Dirac canaries have a coordinate each: a place is its number, 0 for real records. Gradient canaries are unit
    vectors: a place is the vector, zero for real records.
    """

    def __init__(self, body: nn.Module, kind: str, width: int):
        super().__init__()
        self.body = body
        self.lane = nn.Embedding(width + 1, 1) if kind == "dirac" else nn.Linear(width, 1, bias=False)
        nn.init.zeros_(self.lane.weight)

    def forward(self, inputs: Tensor, place: Tensor) -> Tensor:
        """Outputs of the body and, as the last column, the value at each record's place."""
        return torch.cat([self.body(inputs), self.lane(place)], dim=1)


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
        kind: "dirac", a coordinate for each canary, whose scores are then independent; or "gradient", random unit
            vectors in `width` dimensions, which disturb each other.
        width: dimensions of gradient canaries; the number of Dirac canaries otherwise.
        seed: of the gradient canaries' directions, no secret.

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
        kind: str = "dirac",
        width: int,
        seed: int = 0,
    ):
        self.kind = check.choice("kind", kind, KINDS)
        self.width = check.count("width", width, minimum=2)
        if not observers:
            raise check.fail("observers", "one observer at least", 0)
        self._train, self._body, self._optimizer, self.observers = train, body, optimizer, observers
        self._inputs, self._targets = torch.as_tensor(inputs), torch.as_tensor(targets)
        self.classes = check.count("classes", classes, minimum=2)
        self._clip_norm = check.positive("clip_norm", clip_norm)
        self._sample_rate = check.probability("sample_rate", sample_rate, open_low=True)
        self._draw = np.random.default_rng(seed)

    def __call__(self, included: np.ndarray) -> np.ndarray:
        """Train once with the canaries that `included` (m,) chooses; the score of each by the first observer."""
        directions = None if self.kind == "dirac" else self._directions(len(included))
        if directions is None and len(included) != self.width:
            raise check.fail("included", f"of {self.width} Dirac canaries", len(included))
        model = WithLane(self._body(), self.kind, self.width)
        optimizer = self._optimizer(model)
        inputs, targets = self._records(np.flatnonzero(included), directions)
        unit = self._sample_rate * len(targets) / self._clip_norm
        optimizer.register_step_pre_hook(lambda *_: self._observe(model, directions, unit))
        self._train(model, inputs, targets, loss=self._loss, optimizer=optimizer)
        return np.asarray(self.observers[0].total)

    def _directions(self, canaries: int) -> np.ndarray:
        vectors = self._draw.standard_normal((canaries, self.width))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def _records(self, chosen: np.ndarray, directions: np.ndarray | None) -> Records:
        """The real records and the chosen canaries, whose inputs are zero and whose label is one past the classes."""
        n, m = len(self._targets), len(chosen)
        inputs = torch.cat([self._inputs, self._inputs.new_zeros(m, *self._inputs.shape[1:])])
        targets = torch.cat([self._targets, self._targets.new_full((m,), self.classes)])
        if directions is None:
            return (inputs, torch.cat([torch.zeros(n, dtype=torch.int64), torch.from_numpy(chosen + 1)])), targets
        places = torch.from_numpy(directions[chosen].astype(np.float32))
        return (inputs, torch.cat([torch.zeros(n, self.width), places])), targets

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        canary = targets == self.classes
        real = F.cross_entropy(outputs[:, :-1], targets.clamp(max=self.classes - 1), reduction="none")
        return torch.where(canary, outputs[:, -1] * (_REACH * self._clip_norm), real)

    def _observe(self, model: WithLane, directions: np.ndarray | None, unit: float) -> None:
        gradient = model.lane.weight.grad
        if gradient is None:
            return
        seen = gradient.detach().cpu().double().numpy().reshape(-1) * unit
        for observer in self.observers:
            observer.add(seen[1:] if directions is None else directions @ seen)
