"""Pruning criteria: iterative magnitude, random, magnitude at initialisation, SynFlow."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from tacit import check
from tacit.tickets.ticket import prunable

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


def densities(names: Sequence[str], shares: Mapping[str, float], rounds: int) -> dict[str, float]:
    """Share of each layer's weights that `rounds` rounds of `by_magnitude` leave, up to rounding."""
    return {name: (1.0 - shares[name]) ** rounds for name in names}


def random_masks(model: nn.Module, kept: Mapping[str, float], generator: torch.Generator) -> Masks:
    """Uniformly random masks that keep the share `kept` of each layer; they touch no data.

    Example:
        >>> int(random_masks(nn.Linear(4, 5), {"weight": 0.25}, torch.Generator())["weight"].sum())
        5
    """
    scores = {name: torch.rand(_parameter(model, name).shape, generator=generator) for name in kept}
    return _largest(scores, kept)


def start_magnitude_masks(model: nn.Module, kept: Mapping[str, float]) -> Masks:
    """Masks of the largest initial weights, a share `kept` of each layer; they touch no data.

    Example:
        >>> int(start_magnitude_masks(nn.Linear(4, 5), {"weight": 0.25})["weight"].sum())
        5
    """
    return _largest({name: _parameter(model, name).detach().abs() for name in kept}, kept)


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
    return {name: mask.to(_parameter(model, name).dtype) for name, mask in masks.items()}


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


def _parameter(model: nn.Module, name: str) -> Tensor:
    return model.get_parameter(name)
