"""Pruning criteria: iterative magnitude, random, magnitude at initialisation, SynFlow.

`compact`: the network of a ticket without its dead neurons, whose smaller layers take the same steps.

`PartSampling`: Poisson sampling from one part of the records, whose size and records are secret.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tacit import check
from tacit.mechanisms import Mechanism
from tacit.noise import Stream
from tacit.sampling import Batch, Sampler, Sampling
from tacit.sampling.poisson import bernoulli
from tacit.tickets.ticket import Mask, Ticket, prunable

Masks = dict[str, Tensor]
# The number of rounds of the SynFlow paper.
_SYNFLOW_ROUNDS = 100


def by_magnitude(weights: Mapping[str, Tensor], masks: Mapping[str, Tensor], shares: Mapping[str, float]) -> Masks:
    """Masks after one round of magnitude pruning, layer by layer.

    Prunes those of layer l's n surviving weights whose magnitude is at most the round(p_l n)-th smallest, counted from
    0 (Frankle & Carbin 2019; the paper's section 3, with p = .3 and .2 for the last layer). A layer that would lose
    its last weights keeps them.

    Args:
        weights: trained values.
        masks: 1 where a weight survived so far.
        shares: p_l in [0, 1) of every layer.

    Example:
        >>> by_magnitude({"w": torch.tensor([1.0, -3.0, 2.0])}, {"w": torch.ones(3)}, {"w": 0.1})["w"]
        tensor([0., 1., 1.])
    """
    found: Masks = {}
    for name, mask in masks.items():
        share = check.real("share", shares[name], low=0.0, high=1.0, open_high=True)
        magnitude = weights[name].detach().abs()
        surviving = magnitude[mask > 0].sort().values
        cut = surviving[min(round(share * len(surviving)), len(surviving) - 1)]
        left = mask * (magnitude > cut)
        found[name] = left if left.any() else mask
    return found


def paper_shares(names: Sequence[str], *, hidden: float = 0.3, last: float = 0.2) -> dict[str, float]:
    """The paper's share of every layer: 30 % of each but the last, 20 % of that.

    Example:
        >>> paper_shares(["0.weight", "2.weight"])
        {'0.weight': 0.3, '2.weight': 0.2}
    """
    return dict.fromkeys(names[:-1], hidden) | {names[-1]: last}


def dense_masks(model: nn.Module, names: Sequence[str]) -> Masks:
    """Masks of the weights `names` that keep all of them."""
    return {name: torch.ones_like(value) for name, value in model.named_parameters() if name in names}


def random_masks(model: nn.Module, kept: Mapping[str, float], generator: torch.Generator) -> Masks:
    """Uniformly random masks that keep the share `kept` of each layer; they touch no data.

    Example:
        >>> int(random_masks(nn.Linear(4, 5), {"weight": 0.25}, torch.Generator())["weight"].sum())
        5
    """
    scores = {name: torch.rand(model.get_parameter(name).shape, generator=generator) for name in kept}
    return _largest(scores, kept)


def start_magnitude_masks(model: nn.Module, kept: Mapping[str, float]) -> Masks:
    """Masks of the largest initial weights, a share `kept` of each layer; they touch no data.

    Example:
        >>> int(start_magnitude_masks(nn.Linear(4, 5), {"weight": 0.25})["weight"].sum())
        5
    """
    return _largest({name: model.get_parameter(name).detach().abs() for name in kept}, kept)


def synflow_masks(model: nn.Module, density: float, example: Tensor, names: Sequence[str] = ()) -> Masks:
    """Masks by iterative synaptic flow (Tanaka, Kunin, Yamins & Ganguli 2020, Algorithm 1); they touch no data.

    With all weights replaced by their magnitudes, the score of a weight is |w dR/dw|, R the sum of the outputs for an
    input of ones; an exponential schedule of 100 rounds over all layers together avoids cutting a layer off.

    Args:
        model: the network at its start; left alone.
        density: share of all prunable weights to keep, in (0, 1].
        example: one input, whose shape and type alone count.
        names: of the prunable parameters; all by default.

    Raises:
        InvalidInput: the density is out of range.

    Example:
        >>> int(synflow_masks(nn.Linear(4, 5), 0.5, torch.zeros(4))["weight"].sum())
        10
    """
    check.probability("density", density, open_low=True)
    names = list(names) or prunable(model)
    positive = copy.deepcopy(model).eval().double()
    with torch.no_grad():
        for parameter in positive.parameters():
            parameter.abs_()
    own = dict(positive.named_parameters())
    magnitudes = {name: own[name].detach().clone() for name in names}
    masks = {name: torch.ones_like(own[name]) for name in names}
    ones = torch.ones_like(example[None] if example.dim() else example, dtype=torch.float64)
    for step in range(1, _SYNFLOW_ROUNDS + 1):
        with torch.no_grad():
            for name in names:
                own[name].copy_(magnitudes[name] * masks[name])
        flow = positive(ones).sum()
        gradients = torch.autograd.grad(flow, [own[name] for name in names])
        scores = {n: (own[n].detach() * g).abs() for n, g in zip(names, gradients, strict=True)}
        masks = _largest_together(scores, density ** (step / _SYNFLOW_ROUNDS))
    return {name: mask.to(model.get_parameter(name).dtype) for name, mask in masks.items()}


def _largest(scores: Mapping[str, Tensor], kept: Mapping[str, float]) -> Masks:
    return {name: _top(score, round(kept[name] * score.numel())) for name, score in scores.items()}


def _largest_together(scores: Mapping[str, Tensor], density: float) -> Masks:
    flat = torch.cat([score.flatten() for score in scores.values()])
    mask = _top(flat, max(1, round(density * flat.numel())))
    parts = mask.split([score.numel() for score in scores.values()])
    return {name: part.view_as(score) for (name, score), part in zip(scores.items(), parts, strict=True)}


def _top(score: Tensor, count: int) -> Tensor:
    mask = torch.zeros_like(score).flatten()
    mask[score.flatten().topk(max(1, min(count, score.numel()))).indices] = 1.0
    return mask.view_as(score)


# Elementwise and without randomness or parameters.
_ELEMENTWISE = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity)


@dataclass(frozen=True)
class _Kept:
    """What is left of the linear layer at `path`: its `outputs` and `inputs` by number."""

    path: str
    outputs: Tensor
    inputs: Tensor


class Compact(nn.Module):
    """The sparse network of a ticket without the inputs and hidden neurons that no surviving weight reads.

    Such a neuron reaches no output, so its own weights have gradient zero: the network computes the same, the
    per-example norms are the same, and a step changes the weights that are left exactly as in the masked network.

    Attributes:
        removed: numbers of removed inputs and of removed hidden neurons.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1))
        >>> start = {name: value.detach() for name, value in model.named_parameters()}
        >>> small = compact(Ticket({"0.weight": torch.tensor([[1.0, 0.0]])}, start, "public"), model)
        >>> small.removed
        (1, 0)
    """

    read: Tensor | None

    def __init__(self, ticket: Ticket, layers: list[tuple[str, nn.Module]], kept: Mapping[str, _Kept]):
        super().__init__()
        self._ticket, self._kept = ticket, kept
        first = next(iter(kept.values()))
        total = ticket.start[f"{first.path}.weight"].shape[1]
        self.register_buffer("read", first.inputs if len(first.inputs) < total else None)
        parts = [self._small(path, layer) if isinstance(layer, nn.Linear) else layer for path, layer in layers]
        self.layers = nn.Sequential(*(part for part in parts if not isinstance(part, nn.Flatten)))
        neurons = sum(len(ticket.start[f"{layer.path}.weight"]) - len(layer.outputs) for layer in kept.values())
        self.removed = total - len(first.inputs), neurons

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of the layers for the inputs that are read."""
        flat = inputs.flatten(1)
        return self.layers(flat if self.read is None else flat.index_select(1, self.read))

    def scattered(self, model: nn.Module) -> nn.Module:
        """`model`, of the ticket's architecture, with the weights of this network; what was removed is at its start."""
        small = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for name, value in self._ticket.start.items():
                model.get_parameter(name).copy_(value * self._ticket.masks.get(name, 1.0))
            for kept, layer in zip(self._kept.values(), small, strict=True):
                place = torch.meshgrid(kept.outputs, kept.inputs, indexing="ij")
                model.get_parameter(f"{kept.path}.weight")[place] = layer.weight
                if layer.bias is not None:
                    model.get_parameter(f"{kept.path}.bias")[kept.outputs] = layer.bias
        return model

    def _small(self, path: str, layer: nn.Linear) -> nn.Linear:
        kept, start = self._kept[path], self._ticket.start
        weight = start[f"{path}.weight"][kept.outputs][:, kept.inputs]
        small = nn.Linear(*reversed(weight.shape), bias=layer.bias is not None).to(weight)
        with torch.no_grad():
            small.weight.copy_(weight)
            if layer.bias is not None:
                small.bias.copy_(start[f"{path}.bias"][kept.outputs])
        mask = self._ticket.masks.get(f"{path}.weight")
        inner = None if mask is None else mask[kept.outputs][:, kept.inputs]
        if inner is not None and not bool(inner.all()):
            parametrize.register_parametrization(small, "weight", Mask(inner.to(weight)))
        return small


def compact(ticket: Ticket, model: nn.Module) -> Compact | None:
    """The ticket's network without its dead neurons; None where none is dead, or `model` is not a plain stack.

    Args:
        ticket: masks and start.
        model: of the ticket's architecture; left alone. A plain stack is `nn.Sequential`, nested or not, of linear
            layers and elementwise activations, with `nn.Flatten` at most before the first.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 1))
        >>> start = {name: value.detach() for name, value in model.named_parameters()}
        >>> compact(Ticket({"0.weight": torch.ones(1, 2)}, start, "public"), model) is None
        True
    """
    layers = _stack(model)
    if layers is None:
        return None
    linear = [path for path, layer in layers if isinstance(layer, nn.Linear)]
    needed = torch.arange(len(ticket.start[f"{linear[-1]}.weight"]))
    kept: dict[str, _Kept] = {}
    for path in reversed(linear):
        weight = ticket.start[f"{path}.weight"]
        mask = ticket.masks.get(f"{path}.weight", torch.ones_like(weight))
        read = (mask[needed] != 0).any(0).nonzero().flatten()
        # A layer needs an input, even one that nothing reads.
        read = read if len(read) else torch.arange(1)
        kept[path] = _Kept(path, needed, read)
        needed = read
    ordered = {path: kept[path] for path in linear}
    small = Compact(ticket, layers, ordered)
    return small if any(small.removed) else None


def _stack(model: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """The layers of a plain stack with their paths, in the order in which they run; None for any other model."""
    if not isinstance(model, nn.Sequential):
        return None
    parts = model.named_modules(remove_duplicate=False)
    layers = [(path, layer) for path, layer in parts if not isinstance(layer, nn.Sequential)]
    for place, (_, layer) in enumerate(layers):
        flattening = isinstance(layer, nn.Flatten) and (place, layer.start_dim, layer.end_dim) == (0, 1, -1)
        if not flattening and not isinstance(layer, (nn.Linear, *_ELEMENTWISE)):
            return None
    linear = [id(layer) for _, layer in layers if isinstance(layer, nn.Linear)]
    return layers if linear and len(linear) == len(set(linear)) else None


@dataclass(frozen=True)
class PartSampling(Sampling):
    """Every record of the part independently with probability `sample_rate`, and no other.

    Args:
        part: for each of all records whether it is in the part, by a coin of its own; secret.
        expected: how many records the part has on average, a public number: sizes of batches are in terms of it.
    """

    type: ClassVar[str] = "poisson"
    part: NDArray[np.bool_] = field(repr=False, compare=False)
    expected: int

    def sampler(self, records: int, sample_rate: float, stream: Stream) -> Sampler:
        """A Poisson sampler of the part alone."""
        return _PartSampler(np.flatnonzero(self.part), self.expected, sample_rate, stream)

    def mechanism(self, base: Mechanism, records: int, sample_rate: float) -> Mechanism:
        """`base` under Poisson sampling at `sample_rate`."""
        return base.poisson(sample_rate)

    def units(self, records: int) -> int:
        """Expected size of the part."""
        return self.expected


class _PartSampler(Sampler):
    def __init__(self, part: NDArray[np.int64], expected: int, sample_rate: float, stream: Stream):
        self.expected_size = expected * sample_rate
        self._part, self._rate, self._stream = part, sample_rate, stream

    def draw(self) -> Batch:
        return Batch(self._part[bernoulli(self._stream, len(self._part), self._rate)])
