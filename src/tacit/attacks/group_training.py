"""Training of one group of shadow models: stacked in parts on several threads, or one by one."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn

from tacit.attacks.batches import batches
from tacit.attacks.one_by_one import train_alone
from tacit.attacks.reference_models import Recipe
from tacit.attacks.stacked_group import DTYPES, Group, not_stackable
from tacit.models import mlp
from tacit.noise import SecureStream, Stream

TOGETHER, TOGETHER_IMAGES = 64, 1
"""Models in one tensor program, without and with convolutions, which gain nothing from a second model: of several they
are one grouped convolution, whose weight gradients take longer than theirs one by one."""
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupTraining:
    """What all groups of shadow models have in common.

    Attributes:
        inputs: of all records, (n, ...).
        labels: of all records, int64 (n,).
        recipe: of every model.
        steps: number of batches of every model.
        classes: number of logits.
        network: makes a network with the initial weights of a seed; None for the fully connected one of the recipe.
        stream: source of the noise of private models.
    """

    inputs: Tensor
    labels: Tensor
    recipe: Recipe
    steps: int
    classes: int
    network: Callable[[int], nn.Module] | None
    stream: Stream

    def train(self, included: np.ndarray, draws: Sequence[np.random.Generator]) -> dict[str, Tensor]:
        """Parameters and buffers by name, (models, *shape), of one model for each row of `included`."""
        rows = [np.flatnonzero(row) for row in included]
        if self._stackable:
            return self._stacked(rows, draws)
        found = [self._alone(*one) for one in zip(rows, draws, strict=True)]
        return {name: torch.stack([state[name] for state in found]) for name in found[0]}

    @cached_property
    def template(self) -> nn.Module:
        """A network of the shape of all."""
        with torch.random.fork_rng(devices=[]):
            if self.network is not None:
                return self.network(0)
            return nn.Sequential(nn.Flatten(), mlp(self._widths[0], self.classes, hidden=self.recipe.hidden))

    @property
    def _widths(self) -> list[int]:
        return [math.prod(self.inputs.shape[1:]), *self.recipe.hidden, self.classes]

    @cached_property
    def _stackable(self) -> bool:
        reason = not_stackable(self.template) or self._failure()
        if reason:
            _log.warning("shadow models are trained one by one: %s cannot be stacked", reason)
        return not reason

    def _failure(self) -> str:
        """What keeps a stacked step of two models on one record from running; empty where it runs."""
        group = Group(self.template, [self.template.state_dict()] * 2, self.recipe)
        record, label = (torch.stack([values[:1]] * 2) for values in (self._typed, self.labels))
        try:
            group.step(record, label, None, SecureStream())
        except RuntimeError:
            return "an operation of a layer"
        return ""

    @cached_property
    def _typed(self) -> Tensor:
        """The inputs in the precision of the products; integers as they are."""
        return self.inputs.to(DTYPES[self.recipe.precision]) if self.inputs.is_floating_point() else self.inputs

    def _stacked(self, rows: list[np.ndarray], draws: Sequence[np.random.Generator]) -> dict[str, Tensor]:
        """Parts of the group on threads of one core each; each part is one tensor program."""
        # A seeded stream must give its values in one order.
        threads = min(torch.get_num_threads(), len(rows)) if self.stream.secure or not self.recipe.private else 1
        convolves = any(isinstance(module, _CONVOLUTIONS) for module in self.template.modules())
        together = TOGETHER_IMAGES if convolves else TOGETHER
        count = min(len(rows), threads * math.ceil(len(rows) / (threads * together)))
        parts = np.array_split(np.arange(len(rows)), count)
        first, stop, before = [self._first(draw) for draw in draws], Event(), torch.get_num_threads()
        inputs = self._typed

        def train(part: np.ndarray) -> dict[str, Tensor]:
            if threads > 1:
                torch.set_num_threads(1)
            with torch.no_grad(), _flushed():
                group = Group(self.template, [first[place] for place in part], self.recipe)
                own = batches([rows[k] for k in part], [draws[k] for k in part], self.recipe, steps=self.steps)
                for index, kept in own:
                    if stop.is_set():
                        break
                    group.step(inputs[index], self.labels[index], kept, self.stream)
                return group.parameters()

        if threads == 1:
            found = [train(part) for part in parts]
        else:
            with ThreadPoolExecutor(threads) as pool:
                try:
                    found = list(pool.map(train, parts))
                finally:
                    stop.set()
                    pool.shutdown(cancel_futures=True)
                    torch.set_num_threads(before)
        return {name: torch.cat([state[name] for state in found]) for name in found[0]}

    def _first(self, draw: np.random.Generator) -> Mapping[str, Tensor]:
        """Initial weights of one model: Glorot-uniform with biases 0, or those of its network."""
        if self.network is not None:
            return self.network(int(draw.integers(2**31))).state_dict()
        state = {name: torch.zeros_like(value) for name, value in self.template.state_dict().items()}
        weights = [value for name, value in state.items() if name.endswith("weight")]
        for weight, pair in zip(weights, pairwise(self._widths), strict=True):
            matrix = draw.uniform(-1, 1, pair).astype(np.float32) * np.float32(np.sqrt(6 / sum(pair)))
            weight.copy_(torch.from_numpy(matrix).T)
        return state

    def _alone(self, rows: np.ndarray, draw: np.random.Generator) -> dict[str, Tensor]:
        held = torch.float64 if self.recipe.precision == "float64" else torch.float32
        model = self.template
        model.load_state_dict(self._first(draw))
        inputs = self.inputs.to(held) if self.inputs.is_floating_point() else self.inputs
        steps = batches([rows], [draw], self.recipe, steps=self.steps)
        return train_alone(model.to(held).train(), (inputs, self.labels), steps, self.recipe, self.stream)


@contextmanager
def _flushed() -> Iterator[None]:
    """Denormals are zero in this thread: penalties and idle units drive weights there, which is many times slower."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
