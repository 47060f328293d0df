"""Validation of models for private training, and the repair of those that fail it."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.parametrize import remove_parametrizations
from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm

from tacit.errors import UnsupportedModel

# Numbers of groups to try for group normalisation: 32 is the default of its paper (Wu & He 2018).
_GROUPS = (32, 16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Problem:
    """A layer that cannot be trained privately.

    Attributes:
        path: where it is in the model; empty for the model itself.
        layer: its type.
        reason: what is wrong, as the end of a sentence.
        fix: what to do, as a sentence.

    Example:
        >>> print(problems(nn.Sequential(nn.BatchNorm1d(8)))[0])
        layer '0' (BatchNorm1d) mixes the examples of a batch. Replace it by nn.GroupNorm(2, 8).
    """

    path: str
    layer: str
    reason: str
    fix: str

    def __str__(self) -> str:
        name = f"layer {self.path!r} ({self.layer})" if self.path else f"the model ({self.layer})"
        return f"{name} {self.reason}. {self.fix}"


def problems(model: nn.Module) -> list[Problem]:
    """Every layer that mixes records, keeps statistics of private data or changes weights in its forward pass.

    Types of layers do not show every problem; `leakage` and `verify_capture` test the rest with numbers.

    Example:
        >>> [problem.layer for problem in problems(nn.Embedding(5, 2, max_norm=1.0))]
        ['Embedding']
    """
    return [
        Problem(path, type(layer).__name__, reason, fix)
        for path, layer in model.named_modules()
        for reason, fix in _problems_of(layer)
    ]


def examine(model: nn.Module) -> None:
    """Raise `UnsupportedModel` naming every layer that cannot be trained privately, and its fix.

    Example:
        >>> examine(nn.Linear(3, 2))
    """
    if not isinstance(model, nn.Module):
        raise UnsupportedModel(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    found = problems(model)
    if found:
        raise UnsupportedModel(" ".join(map(str, found)))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UnsupportedModel("the model has no trainable parameter. Set requires_grad=True on what is to be trained.")


def _group_count(layer: nn.Module, channels: int) -> int:
    """Number of groups for the group normalisation that replaces a batch normalisation of `channels`.

    A group of one channel would lose its mean; without positions, as `BatchNorm1d` allows, two values say too little.
    """
    least = 3 if isinstance(layer, nn.BatchNorm1d) else 2
    return next((count for count in _GROUPS if not channels % count and channels // count >= least), 1)


def _spectral_norm(layer: nn.Module) -> tuple[str, bool] | None:
    """Name of the weight that this layer normalises by its spectral norm, and whether by parametrisation."""
    for name, parametrisation in getattr(layer, "parametrizations", nn.ModuleDict()).items():
        if any(isinstance(part, _SpectralNorm) for part in parametrisation.children()):
            return name, True
    hooks = layer._forward_pre_hooks.values()
    return next(((hook.name, False) for hook in hooks if isinstance(hook, SpectralNorm)), None)


def _problems_of(layer: nn.Module) -> Iterator[tuple[str, str]]:
    """Reason and fix of everything that is wrong with one layer."""
    if isinstance(layer, _InstanceNorm) and getattr(layer, "track_running_stats", False):
        yield "keeps statistics of the data", "Set track_running_stats=False."
    if isinstance(layer, _BatchNorm):
        channels = layer.num_features
        new = f"Replace it by nn.GroupNorm({_group_count(layer, channels)}, {channels})." if channels else ""
        yield "mixes the examples of a batch", new or "Use nn.GroupNorm."
    if _empty(layer):
        yield "has no parameters yet", "Run the model once before making it private."
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        yield "rescales the rows that a batch looks up, without noise (max_norm)", "Set max_norm=None."
    if _spectral_norm(layer) is not None:
        yield "updates vectors in every forward pass (spectral_norm)", "Remove it, or use weight_norm."
    for name, value in layer.named_parameters(recurse=False):
        if value.is_complex():
            remedy = f"Keep torch.view_as_real({name}) as the parameter, and use torch.view_as_complex of it."
            yield f"has a complex parameter, {name!r}, whose gradients are not clipped", remedy


class Fixed(NamedTuple):
    """A repaired copy of a model.

    Attributes:
        model: the copy.
        changes: path of the layer -> Python statement that repairs it.

    Example:
        >>> Fixed(nn.Linear(1, 1), {}).changes
        {}
    """

    model: nn.Module
    changes: dict[str, str]


def fix(model: nn.Module) -> Fixed:
    """A copy of `model` without the layers that `problems` names; weights, devices, types and modes stay.

    Batch normalisation becomes group normalisation with the same scale and shift; running statistics of instance
    normalisation, spectral normalisation and `max_norm` are switched off. A repaired model is another function of its
    inputs and has to be trained anew or fine-tuned.

    Raises:
        UnsupportedModel: a layer has no repair, such as one without parameters yet.

    Example:
        >>> fix(nn.Sequential(nn.BatchNorm1d(8))).changes
        {'0': 'model[0] = nn.GroupNorm(2, 8, eps=1e-05)'}
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
    if (found := _spectral_norm(layer)) is not None:
        remove = remove_parametrizations if found[1] else remove_spectral_norm
        remove(layer, found[0])
        return model, f"{remove.__name__}({name}, {found[0]!r})"
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        layer.max_norm = None
        return model, f"{name}.max_norm = None"
    if isinstance(layer, _InstanceNorm):
        new: nn.Module = copy.copy(layer)
        new._buffers, new.track_running_stats = dict.fromkeys(layer._buffers), False
        text = f"{type(layer).__name__}({layer.num_features}, affine={layer.affine})"
    elif isinstance(layer, _BatchNorm) and layer.num_features:
        sizes = _group_count(layer, layer.num_features), layer.num_features
        new = nn.GroupNorm(*sizes, eps=layer.eps, affine=layer.affine).train(layer.training)
        new.weight, new.bias = layer.weight, layer.bias
        text = f"GroupNorm({sizes[0]}, {sizes[1]}, eps={layer.eps:g})"
    else:
        raise UnsupportedModel(str(problem))
    return _replaced(model, layer, new), f"{name} = nn.{text}"


def _code(path: str) -> str:
    """The layer at `path` as Python code writes it."""
    parts = path.split(".") if path else []
    return "model" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def _replaced(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """`model` with `new` wherever `old` stood."""
    if model is old:
        return new
    for parent in model.modules():
        for name, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, name, new)
    return model
