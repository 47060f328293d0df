"""Low-rank adapters: a frozen model with small trainable matrices beside its linear layers.

Private training touches the adapters alone, so clipping and noise act in few dimensions and the frozen weights cost no
per-sample gradient.
"""

import copy
import fnmatch
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit import check


class LoraLinear(nn.Module):
    """y = W x + c + (alpha / rank) B A x with W and c frozen; B starts at zero, so the model starts unchanged.

    Args:
        base: the layer whose weights stay.
        rank: rows of A and columns of B, >= 1.
        alpha: scale of the adapter, times 1 / rank, > 0.

    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.
    """

    def __init__(self, base: nn.Linear, *, rank: int, alpha: float):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scale = check.positive("alpha", alpha) / check.count("rank", rank)
        like = {"dtype": base.weight.dtype, "device": base.weight.device}
        self.down = nn.Parameter(torch.empty(rank, base.in_features, **like))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, **like))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, input: Tensor) -> Tensor:
        """The frozen layer's output plus the adapter's."""
        return self.base(input) + F.linear(F.linear(input, self.down) * self.scale, self.up)

    def merged(self) -> nn.Linear:
        """One linear layer that computes the same."""
        layer = copy.deepcopy(self.base)
        with torch.no_grad():
            layer.weight += self.scale * (self.up @ self.down)
        return layer


def add_lora(
    model: nn.Module, *, rank: int = 8, alpha: float = 16.0, patterns: Sequence[str] = ("*",), keep: Sequence[str] = ()
) -> nn.Module:
    """Freeze `model` and put an adapter beside every linear layer whose path matches.

    Args:
        model: changed in place.
        rank: of every adapter, see `LoraLinear`.
        alpha: scale of every adapter, see `LoraLinear`.
        patterns: shell patterns of paths, e.g. ("*.qkv", "*.out"); the whole path or its last part may match.
        keep: patterns of layers that stay trainable as they are, e.g. ("head",).

    Returns:
        The model itself.

    Raises:
        InvalidInput: a pattern matches no layer.

    Example:
        >>> model = add_lora(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), rank=1, keep=["2"])
        >>> [name for name, p in model.named_parameters() if p.requires_grad]
        ['0.down', '0.up', '2.weight', '2.bias']
    """
    linear = {path: layer for path, layer in model.named_modules() if type(layer) is nn.Linear}
    wanted = [path for path in linear if path and _matches(path, patterns) and not _matches(path, keep)]
    paths = [path for path, _ in model.named_modules() if path]
    for pattern in (*patterns, *keep):
        if not any(_matches(path, (pattern,)) for path in (wanted if pattern in patterns else paths)):
            hint = f"There are {list(linear)}."
            raise check.fail("patterns", "paths of linear layers below the model", pattern, hint)
    model.requires_grad_(False)
    for path in paths:
        if _matches(path, keep):
            model.get_submodule(path).requires_grad_(True)
    for path in wanted:
        model.set_submodule(path, LoraLinear(linear[path], rank=rank, alpha=alpha))
    return model


def merge_lora(model: nn.Module) -> nn.Module:
    """A copy of `model` with every adapter added to the weights beside it: the architecture it had before."""
    merged = copy.deepcopy(model)
    for path, layer in list(merged.named_modules()):
        if isinstance(layer, LoraLinear):
            merged.set_submodule(path, layer.merged())
    return merged


def _matches(path: str, patterns: Sequence[str]) -> bool:
    last = path.rpartition(".")[2]
    return any(fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(last, pattern) for pattern in patterns)
