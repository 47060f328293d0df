"""Training of one group of shadow models: stacked in parts on several threads, or one by one.

Training of one shadow model by the ordinary modules of torch: for networks that cannot be stacked.

Batches of every model of a group of shadow models at each step.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.attacks.reference_models import Recipe
from tacit.attacks.stacked_group import DTYPES, Group, not_stackable
from tacit.clipping import FlatClip
from tacit.gradients import ClippedSum
from tacit.models import mlp
from tacit.noise import SecureStream, Stream

Step = tuple["Tensor", "Tensor | None"]


def batches(
    rows: Sequence[np.ndarray], draws: Sequence[np.random.Generator], recipe: Recipe, *, steps: int
) -> Iterator[Step]:
    """For each step the rows of the records (models, batch), and a mask of those that count; None if all do.

    Non-private models pass through their own records in a new order each epoch. For private ones, Poisson sampling
    takes a record with probability batch_size / n; shorter rows are padded with records that do not count.

    Args:
        rows: the records of each model.
        draws: the random source of each model.
        recipe: batch size, and whether the models are private.
        steps: number of batches.
    """
    import torch

    if not recipe.private:
        sources = [_shuffled(own, draw, recipe.batch_size) for own, draw in zip(rows, draws, strict=True)]
        for _ in range(steps):
            yield torch.from_numpy(np.stack([next(source) for source in sources])), None
        return
    for _ in range(steps):
        drawn = [_poisson(own, draw, recipe.batch_size) for own, draw in zip(rows, draws, strict=True)]
        width = max(1, *(len(batch) for batch in drawn))
        index, kept = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.float32)
        for place, batch in enumerate(drawn):
            index[place, : len(batch)], kept[place, : len(batch)] = batch, 1.0
        yield torch.from_numpy(index), torch.from_numpy(kept)


def _shuffled(rows: np.ndarray, draw: np.random.Generator, size: int) -> Iterator[np.ndarray]:
    while True:
        order = draw.permutation(rows)
        for start in range(0, len(order) - size + 1, size):
            yield order[start : start + size]


def _poisson(rows: np.ndarray, draw: np.random.Generator, size: int) -> np.ndarray:
    """A binomial number of distinct records, the same law as one coin for each of them."""
    rate = min(1.0, size / len(rows))
    return draw.choice(rows, draw.binomial(len(rows), rate), replace=False, shuffle=False)


def train_alone(
    model: nn.Module, data: tuple[Tensor, Tensor], steps: Iterable[Step], recipe: Recipe, stream: Stream
) -> dict[str, Tensor]:
    """Train `model` on each batch, and return its state by name.

    Args:
        model: trained in place; products are in the precision of its parameters.
        data: inputs and labels of all records.
        steps: batches of one model, as `batches` gives them.
        recipe: optimizer, clipping and noise.
        stream: source of the noise of private models.

    Raises:
        UnsupportedModel: the recipe is private, and the model mixes records.
    """
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    values = list(parameters.values())
    if recipe.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(values, lr=recipe.learning_rate, fused=True)
    else:
        optimizer = torch.optim.SGD(values, lr=recipe.learning_rate, momentum=recipe.momentum)
    clip = FlatClip(recipe.clip_norm) if recipe.clip_norm is not None else None
    clipped = ClippedSum(model, clip) if clip is not None else None
    for index, kept in steps:
        rows = index[0] if kept is None else index[0][kept[0] > 0]
        inputs, labels = data[0][rows], data[1][rows]
        if clip is None or clipped is None:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
        else:
            sums = clipped(_losses, inputs, labels)[0].as_released().parts if len(rows) else {}
            for name, value in parameters.items():
                noise = torch.empty(value.numel())
                stream.fill_normal(noise.numpy())
                total = noise.view_as(value).mul_((recipe.noise_multiplier or 0.0) * clip.sensitivity)
                value.grad = ((total + sums[name]) if name in sums else total).to(value.dtype) / recipe.batch_size
        for value in values:
            if recipe.l2_penalty and value.dim() > 1 and value.grad is not None:
                value.grad.add_(value.detach(), alpha=2 * recipe.l2_penalty)
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


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
