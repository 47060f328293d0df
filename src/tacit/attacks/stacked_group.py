"""One training step of a group of stacked networks, by `torch.func`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from tacit.attacks.reference_models import Recipe
from tacit.clipping import FlatClip
from tacit.noise import Stream

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
_BYTES_AT_ONCE = 2**26
"""Of per-sample gradients."""
_DENSE = (nn.Sequential, nn.Flatten, nn.Linear, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU)
"""Layers whose per-sample gradients are outer products."""
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
        self._held = {
            name: nn.Parameter(torch.stack([model[name] for model in first]).to(self._held_type)) for name in first[0]
        }
        self._clip = FlatClip(recipe.clip_norm) if recipe.clip_norm is not None else None
        values = list(self._held.values())
        if recipe.optimizer == "adam":
            self._optimizer: torch.optim.Optimizer = torch.optim.Adam(values, lr=recipe.learning_rate, fused=True)
        else:
            self._optimizer = torch.optim.SGD(values, lr=recipe.learning_rate, momentum=recipe.momentum, fused=True)

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
            gradients = self._noisy(self._clipped(used, inputs, labels, kept, self._clip), self._clip, stream)
        for name, value in self._held.items():
            gradient = gradients[name].to(self._held_type)
            if self._recipe.l2_penalty and value.dim() > 2:
                gradient.add_(value.detach(), alpha=2 * self._recipe.l2_penalty)
            value.grad = gradient
        self._optimizer.step()

    def _loss(self, used: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of one model on a batch."""
        return F.cross_entropy(functional_call(self._network, used, (inputs,)).to(self._held_type), labels)

    def _loss_of_one(self, used: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        return self._loss(used, record[None], label[None])

    def _clipped(
        self, used: dict[str, Tensor], inputs: Tensor, labels: Tensor, kept: Tensor | None, clip: FlatClip
    ) -> dict[str, Tensor]:
        """Sum of each model's clipped per-sample gradients, of some records at a time."""
        if all(isinstance(module, _DENSE) for module in self._network.modules()):
            return self._clipped_dense(used, inputs, labels, kept, clip)
        per_sample = vmap(grad(self._loss_of_one), (None, 0, 0))
        size = sum(value.numel() for value in used.values()) * self.dtype.itemsize
        sums = {name: torch.zeros_like(value) for name, value in self._held.items()}
        counted = torch.ones_like(labels, dtype=torch.float32) if kept is None else kept
        parts = (each.split(max(1, _BYTES_AT_ONCE // size), dim=1) for each in (inputs, labels, counted))
        for x, y, count in zip(*parts, strict=True):
            gradients = {
                name: value.to(self._held_type) for name, value in _over_models(per_sample, used, x, y).items()
            }
            squares = torch.stack([value.flatten(2).square().sum(2) for value in gradients.values()]).sum(0)
            factors = clip.factors(squares.sqrt(), rounding=torch.finfo(torch.float32).eps) * count
            for name, value in gradients.items():
                sums[name] += torch.einsum("mb,mb...->m...", factors.to(value.dtype), value)
        return sums

    def _clipped_dense(
        self, used: dict[str, Tensor], inputs: Tensor, labels: Tensor, kept: Tensor | None, clip: FlatClip
    ) -> dict[str, Tensor]:
        """Sum of each dense model's clipped per-sample gradients, none of which is formed.

        That of a layer is the outer product of its input and the gradient of its output, so its norm is the product of
        theirs.
        """
        layers = {name: layer for name, layer in self._network.named_modules() if isinstance(layer, nn.Linear)}
        outer, inner = vmap(self._at_layers, (0, 0, 0, None))(used, inputs, labels, layers)
        outer = {name: value.to(self._held_type) for name, value in outer.items()}
        inner = {name: value.to(self._held_type) for name, value in inner.items()}
        biased = {name: float(layer.bias is not None) for name, layer in layers.items()}
        squares = torch.stack(
            [outer[name].square().sum(2) * (inner[name].square().sum(2) + biased[name]) for name in layers]
        ).sum(0)
        factors = clip.factors(squares.sqrt(), rounding=torch.finfo(torch.float32).eps)
        factors = (factors if kept is None else factors * kept).to(self._held_type)
        sums = {}
        for name in layers:
            weighted, prefix = outer[name] * factors[:, :, None], f"{name}." if name else ""
            sums[f"{prefix}weight"] = weighted.mT @ inner[name]
            if biased[name]:
                sums[f"{prefix}bias"] = weighted.sum(1)
        return sums

    def _at_layers(
        self, used: dict[str, Tensor], inputs: Tensor, labels: Tensor, layers: Mapping[str, nn.Linear]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Gradients of the summed loss of one model at the outputs of `layers`, and their inputs."""

        def total(shifts: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            seen: dict[str, Tensor] = {}

            def shifted(name: str, _: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
                seen[name] = given[0]
                return output + shifts[name]

            hooks = [layer.register_forward_hook(partial(shifted, name)) for name, layer in layers.items()]
            try:
                return self._loss(used, inputs, labels) * len(inputs), seen
            finally:
                for hook in hooks:
                    hook.remove()

        zeros = {
            name: used[f"{name}.weight" if name else "weight"].new_zeros(len(inputs), layer.out_features)
            for name, layer in layers.items()
        }
        return grad(total, has_aux=True)(zeros)

    def _noisy(self, sums: dict[str, Tensor], clip: FlatClip, stream: Stream) -> dict[str, Tensor]:
        """(sums + N(0, (noise_multiplier clip_norm)^2)) / expected batch size."""
        std = (self._recipe.noise_multiplier or 0.0) * clip.sensitivity
        for value in sums.values():
            if std:
                noise = torch.empty_like(value.flatten())
                stream.fill_normal(noise.numpy())
                value.add_(noise.view_as(value), alpha=std)
        return {name: value.div_(self._recipe.batch_size) for name, value in sums.items()}


def _over_models(
    gradients: Callable[..., dict[str, Tensor]], used: dict[str, Tensor], inputs: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """`gradients` of every model; of a single one without a stacked axis, under which a convolution takes longer."""
    if len(labels) > 1:
        return vmap(gradients)(used, inputs, labels)
    found = gradients({name: value[0] for name, value in used.items()}, inputs[0], labels[0])
    return {name: value[None] for name, value in found.items()}
