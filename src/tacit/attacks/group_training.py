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

from tacit.attacks.batches import Step, batches
from tacit.attacks.one_by_one import train_alone
from tacit.attacks.reference_models import Recipe
from tacit.attacks.stacked_group import DTYPES, Group
from tacit.attacks.stacked_images import Conv
from tacit.attacks.stacked_layers import Layer, Weighted
from tacit.attacks.stacked_network import layers_of
from tacit.models import mlp
from tacit.noise import Stream

TOGETHER, TOGETHER_IMAGES = 64, 1
"""Models in one tensor program, without and with convolutions. Convolutions gain nothing from a second model, whose
activations drive those of the first out of the cache (benchmarks/audit.py)."""

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

    def _layers(self) -> list[Layer] | str:
        if not self.inputs.is_floating_point():
            return "an input that is not of real numbers"
        return layers_of(self.template, images=self.inputs.dim() == 4)

    @cached_property
    def _stackable(self) -> bool:
        reason = self._layers()
        if isinstance(reason, str):
            _log.warning("shadow models are trained one by one: %s cannot be stacked", reason)
        return not isinstance(reason, str)

    @cached_property
    def _prepared(self) -> Tensor:
        """The inputs of the first layer with weights, (n, ...), images with channels last."""
        h = self.inputs.to(DTYPES[self.recipe.precision])
        h = (h.permute(0, 2, 3, 1) if h.dim() == 4 else h).contiguous()[None]
        for layer in self._split()[0]:
            h = layer.forward(h)
        return h[0].contiguous()

    def _split(self) -> tuple[list[Layer], list[Layer]]:
        """Layers before the first weights, which can be done once for all steps, and the others."""
        layers = self._layers()
        assert not isinstance(layers, str)
        first = next(place for place, layer in enumerate(layers) if isinstance(layer, Weighted))
        return layers[:first], layers[first:]

    def _stacked(self, rows: list[np.ndarray], draws: Sequence[np.random.Generator]) -> dict[str, Tensor]:
        """Parts of the group on threads of one core each; each part is one tensor program."""
        # A seeded stream must give its values in one order.
        threads = min(torch.get_num_threads(), len(rows)) if self.stream.secure or not self.recipe.private else 1
        together = TOGETHER_IMAGES if any(isinstance(layer, Conv) for layer in self._split()[1]) else TOGETHER
        count = min(len(rows), threads * math.ceil(len(rows) / (threads * together)))
        parts = np.array_split(np.arange(len(rows)), count)
        first, stop, before = [self._first(draw) for draw in draws], Event(), torch.get_num_threads()
        _ = self._prepared

        def train(part: np.ndarray) -> dict[str, Tensor]:
            if threads > 1:
                torch.set_num_threads(1)
            with torch.no_grad(), _flushed():
                group = Group(self._split()[1], [first[place] for place in part], self.recipe)
                own = batches([rows[k] for k in part], [draws[k] for k in part], self.recipe, steps=self.steps)
                for step in own:
                    if stop.is_set():
                        break
                    self._step(group, step)
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

    def _step(self, group: Group, step: Step) -> None:
        index, kept = step
        inputs = self._prepared.index_select(0, index.view(-1))
        group.step(inputs.view(*index.shape, *inputs.shape[1:]), self.labels[index], kept, self.stream)

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
