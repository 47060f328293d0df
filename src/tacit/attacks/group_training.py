"""Training of one group of shadow models: stacked in parts on several threads, or one by one.

Batches of every model of a group of shadow models at each step.

One training step of a group of stacked networks, by `torch.func`.
"""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from tacit.attacks.reference_attacks import Recipe
from tacit.clipping import FlatClip
from tacit.gradients import ClippedSum
from tacit.losses import sequence_classification
from tacit.models import mlp
from tacit.noise import SecureStream, Stream


def batches(
    rows: Sequence[np.ndarray], draws: Sequence[np.random.Generator], recipe: Recipe, *, steps: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """For each step the rows of the records (models, batch), and a mask of those that count; None if all do.

    Non-private models pass through their own records in a new order each epoch. For private ones, Poisson sampling
    takes a record with probability batch_size / n; shorter rows are padded with records that do not count.

    Args:
        rows: the records of each model.
        draws: the random source of each model.
        recipe: batch size, and whether the models are private.
        steps: number of batches.
    """
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
    return draw.choice(rows, draw.binomial(len(rows), min(1.0, size / len(rows))), replace=False, shuffle=False)


def _optimizer(recipe: Recipe, values: list[nn.Parameter]) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(values, lr=recipe.learning_rate, fused=True)
    return torch.optim.SGD(values, lr=recipe.learning_rate, momentum=recipe.momentum, fused=True)


def _noisy(sums: dict[str, Tensor], recipe: Recipe, stream: Stream) -> dict[str, Tensor]:
    """(sums + N(0, (noise_multiplier clip_norm)^2)) / expected batch size."""
    std = (recipe.noise_multiplier or 0.0) * (recipe.clip_norm or 0.0)
    noise = {name: torch.zeros(value.numel()) for name, value in sums.items()}
    for values in noise.values() if std else ():
        stream.fill_normal(values.numpy())
    return {name: (sums[name] + noise[name].view_as(sums[name]) * std) / recipe.batch_size for name in sums}


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
            values = math.prod(self.inputs.shape[1:])
            return nn.Sequential(nn.Flatten(), mlp(values, self.classes, hidden=self.recipe.hidden))

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
            # Penalties and idle units drive weights to denormal numbers, which are many times slower than zeros.
            torch.set_flush_denormal(True)
            with torch.no_grad():
                group = Group(self.template, [first[place] for place in part], self.recipe)
                own = batches([rows[k] for k in part], [draws[k] for k in part], self.recipe, steps=self.steps)
                for index, kept in own:
                    if stop.is_set():
                        break
                    group.step(inputs[index], self.labels[index], kept, self.stream)
            return group.parameters()

        pool = ThreadPoolExecutor(threads)
        try:
            found = list((map if threads == 1 else pool.map)(train, parts))
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)
            torch.set_flush_denormal(False)
        return {name: torch.cat([state[name] for state in found]) for name in found[0]}

    def _first(self, draw: np.random.Generator) -> Mapping[str, Tensor]:
        """Initial weights of one model: Glorot-uniform with biases 0, or those of its network."""
        if self.network is not None:
            return self.network(int(draw.integers(2**31))).state_dict()
        state = {name: torch.zeros_like(value) for name, value in self.template.state_dict().items()}
        for weight in (value for name, value in state.items() if name.endswith("weight")):
            pair = weight.shape[::-1]
            matrix = draw.uniform(-1, 1, pair).astype(np.float32) * np.float32(np.sqrt(6 / sum(pair)))
            weight.copy_(torch.from_numpy(matrix).T)
        return state

    def _alone(self, rows: np.ndarray, draw: np.random.Generator) -> dict[str, Tensor]:
        """State by name of one model, by the modules of torch; raises `UnsupportedModel` where it mixes records."""
        recipe, held = self.recipe, torch.float64 if self.recipe.precision == "float64" else torch.float32
        model = self.template
        model.load_state_dict(self._first(draw))
        model.to(held).train()
        every = self.inputs.to(held) if self.inputs.is_floating_point() else self.inputs
        parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        optimizer = _optimizer(recipe, list(parameters.values()))
        clipped = ClippedSum(model, FlatClip(recipe.clip_norm)) if recipe.clip_norm is not None else None
        for index, kept in batches([rows], [draw], recipe, steps=self.steps):
            chosen = index[0] if kept is None else index[0][kept[0] > 0]
            inputs, labels = every[chosen], self.labels[chosen]
            if clipped is None:
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), labels).backward()
            else:
                found = clipped(sequence_classification, inputs, labels)[0].as_released().parts if len(chosen) else {}
                sums = {name: found.get(name, torch.zeros_like(value)) for name, value in parameters.items()}
                for name, gradient in _noisy(sums, recipe, self.stream).items():
                    parameters[name].grad = gradient.to(parameters[name].dtype)
            for value in parameters.values():
                if recipe.l2_penalty and value.dim() > 1 and value.grad is not None:
                    value.grad.add_(value.detach(), alpha=2 * recipe.l2_penalty)
            optimizer.step()
        return {name: value.detach().clone() for name, value in model.state_dict().items()}


DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
_BYTES_AT_ONCE = 2**26
"""Of per-sample gradients."""
_LIBRARIES = ("torch.nn.modules.", "tacit.models.")
_REFUSED = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase, nn.RNNBase, nn.MultiheadAttention, nn.RReLU)


def not_stackable(network: nn.Module) -> str:
    """The first thing in a network that cannot be stacked; empty where all of it can.

    Layers of torch and of this library are functions of weights and inputs, but for those that draw numbers, keep
    statistics or write into their weights. A class of the user's may do anything.

    Example:
        >>> not_stackable(nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4, 2)))
        ''
        >>> not_stackable(nn.Sequential(nn.Linear(3, 4), nn.Dropout()))
        'Dropout'
    """
    for module in network.modules():
        known = type(module).__module__.startswith(_LIBRARIES) and not isinstance(module, _REFUSED)
        hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        if not known or hooked or getattr(module, "max_norm", None) is not None:
            return type(module).__name__
    parameters = list(network.parameters())  # a shared one once
    whole = len(network.state_dict()) == len(parameters) and all(each.requires_grad for each in parameters)
    return "" if whole and parameters else "a buffer, or a parameter used twice or frozen"


class Group:
    """Networks of one shape, each of their parameters stacked along a first axis.

    Args:
        network: of the shape of all.
        first: initial parameters of each model by name.
        recipe: optimizer, clipping, noise and precision.
    """

    def __init__(self, network: nn.Module, first: Sequence[Mapping[str, Tensor]], recipe: Recipe):
        # A copy, as calls put their parameters into the module, and groups run on threads.
        self._network, self._recipe = copy.deepcopy(network).train(), recipe
        self.dtype = DTYPES[recipe.precision]
        self._held_type = torch.float64 if self.dtype == torch.float64 else torch.float32
        stacked = {name: torch.stack([model[name] for model in first]) for name in first[0]}
        self._held = {name: nn.Parameter(values.to(self._held_type)) for name, values in stacked.items()}
        self._clip = FlatClip(recipe.clip_norm) if recipe.clip_norm is not None else None
        self._optimizer = _optimizer(recipe, list(self._held.values()))

    def parameters(self) -> dict[str, Tensor]:
        """Copies of the parameters of all models by name, (models, *shape)."""
        return {name: value.detach().clone() for name, value in self._held.items()}

    def step(self, inputs: Tensor, labels: Tensor, kept: Tensor | None, stream: Stream) -> None:
        """Update every model on its own batch.

        Args:
            inputs: (models, batch, ...), in `self.dtype` where they are real numbers.
            labels: (models, batch).
            kept: (models, batch), 1 for records that count and 0 for padding; None if all do.
            stream: source of the noise of private models.
        """
        used = {name: value.detach().to(self.dtype) for name, value in self._held.items()}
        if self._clip is None:
            gradients = _over_models(grad(self._loss), used, inputs, labels)
        else:
            gradients = _noisy(self._clipped(used, inputs, labels, kept, self._clip), self._recipe, stream)
        for name, value in self._held.items():
            gradient = gradients[name].to(self._held_type)
            if self._recipe.l2_penalty and value.dim() > 2:
                gradient.add_(value.detach(), alpha=2 * self._recipe.l2_penalty)
            value.grad = gradient
        self._optimizer.step()

    def _loss(self, used: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of one model on a batch."""
        return F.cross_entropy(functional_call(self._network, used, (inputs,)).to(self._held_type), labels)

    def _clipped(
        self, used: dict[str, Tensor], inputs: Tensor, labels: Tensor, kept: Tensor | None, clip: FlatClip
    ) -> dict[str, Tensor]:
        """Sum of each model's clipped per-sample gradients, of some records at a time."""
        per_sample = vmap(grad(lambda used, x, y: self._loss(used, x[None], y[None])), (None, 0, 0))
        size = sum(value.numel() for value in used.values()) * self.dtype.itemsize
        sums = {name: torch.zeros_like(value) for name, value in self._held.items()}
        counted = torch.ones_like(labels, dtype=torch.float32) if kept is None else kept
        parts = (each.split(max(1, _BYTES_AT_ONCE // size), dim=1) for each in (inputs, labels, counted))
        for x, y, count in zip(*parts, strict=True):
            found = _over_models(per_sample, used, x, y)
            gradients = {name: value.to(self._held_type) for name, value in found.items()}
            squares = torch.stack([value.flatten(2).square().sum(2) for value in gradients.values()]).sum(0)
            factors = clip.factors(squares.sqrt(), rounding=torch.finfo(torch.float32).eps) * count
            for name, value in gradients.items():
                sums[name] += torch.einsum("mb,mb...->m...", factors.to(value.dtype), value)
        return sums


def _over_models(
    gradients: Callable[..., dict[str, Tensor]], used: dict[str, Tensor], inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """`gradients` of every model; of a single one without a stacked axis, under which a convolution takes longer."""
    if len(labels) > 1:
        return vmap(gradients)(used, inputs, labels)
    found = gradients({name: value[0] for name, value in used.items()}, inputs[0], labels[0])
    return {name: value[None] for name, value in found.items()}
