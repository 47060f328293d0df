"""Replacing the layers that cannot be trained privately."""

from __future__ import annotations

import copy
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import remove_parametrizations
from torch.nn.utils.spectral_norm import remove_spectral_norm

from tacit.errors import UnsupportedModel
from tacit.gradients.doctor import Problem, groups, problems, spectral


class Fixed(NamedTuple):
    """A repaired copy of a model, and code lines that do the same: path of the layer -> statement."""

    model: nn.Module
    changes: dict[str, str]


def fix(model: nn.Module) -> Fixed:
    """A copy of `model` without the layers that `problems` names; weights, devices, types and modes stay.

    Batch normalisation becomes group normalisation with the same scale and shift; running statistics of instance
    normalisation, spectral normalisation and `max_norm` are switched off. A repaired model is another function of its
    inputs and has to be trained anew or fine-tuned.

    Raises `UnsupportedModel` for what has no repair, such as layers without parameters yet.
    """
    empty = [problem for problem in problems(model) if _empty(model.get_submodule(problem.path))]
    if empty:
        raise UnsupportedModel(" ".join(map(str, empty)))
    repaired, changes = copy.deepcopy(model), {}
    for problem in problems(repaired):
        repaired, line = _repair(repaired, problem)
        changes[problem.path] = line
    if left := problems(repaired):
        raise UnsupportedModel(" ".join(map(str, left)))
    return Fixed(repaired, changes)


def _empty(layer: nn.Module) -> bool:
    return isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params()  # type: ignore[misc]


def _repair(model: nn.Module, problem: Problem) -> tuple[nn.Module, str]:
    layer = model.get_submodule(problem.path)
    name = _code(problem.path)
    if (found := spectral(layer)) is not None:
        remove = remove_parametrizations if found[1] else remove_spectral_norm
        remove(layer, found[0])
        return model, f"{remove.__name__}({name}, {found[0]!r})"
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        layer.max_norm = None
        return model, f"{name}.max_norm = None"
    if isinstance(layer, _InstanceNorm):
        new: nn.Module = _without_statistics(layer)
        text = f"{type(layer).__name__}({layer.num_features}, affine={layer.affine})"
    elif isinstance(layer, _BatchNorm) and layer.num_features:
        new = _group_norm(layer)
        text = f"GroupNorm({groups(layer, layer.num_features)}, {layer.num_features}, eps={layer.eps:g})"
    else:
        raise UnsupportedModel(str(problem))
    return _replaced(model, layer, new), f"{name} = nn.{text}"


def _code(path: str) -> str:
    """The layer at `path` as Python code writes it."""
    parts = path.split(".") if path else []
    return "model" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    new = nn.GroupNorm(groups(layer, channels), channels, eps=layer.eps, affine=layer.affine)
    new.weight, new.bias = layer.weight, layer.bias
    return new.train(layer.training)


def _without_statistics(layer: _InstanceNorm) -> _InstanceNorm:
    new = copy.copy(layer)
    new._buffers = dict.fromkeys(layer._buffers)
    new.track_running_stats = False
    return new


def _replaced(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """`model` with `new` wherever `old` stood."""
    if model is old:
        return new
    for parent in model.modules():
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)
    return model
