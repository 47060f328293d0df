"""Tensors made from parameters alone: masked, normalised, sliced and combined weights.

Such a tensor W = f(theta) is the same for every example, so the gradient of an example in theta is the pullback
J^T (dL_i / dW), J the derivative of f. Masks and rearrangements keep whatever cheap form the gradient in W has; any
other f is pulled back example by example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import (
    Tensor,
    _weight_norm,  # pyright: ignore[reportPrivateImportUsage]
)
from torch.utils._pytree import tree_map

from tacit.gradients.per_sample_gradients import Contribution, Masked, Rows, Scattered, Single

DETACHING = {Tensor.detach, Tensor.data.__get__}  # type: ignore[attr-defined]
_MULTIPLYING = {torch.mul, Tensor.mul}
# Every value of the argument stands at most once in the result, so the pullback keeps norms.
_REARRANGING = {
    *(Tensor.t, Tensor.transpose, Tensor.permute, Tensor.view, Tensor.reshape, Tensor.flatten, Tensor.unflatten),
    *(Tensor.squeeze, Tensor.unsqueeze, Tensor.chunk, Tensor.split, Tensor.narrow, Tensor.select, Tensor.unbind),
    *(Tensor.contiguous, Tensor.clone, Tensor.movedim, Tensor.swapaxes, Tensor.T.__get__, Tensor.mT.__get__),  # type: ignore[attr-defined]
    *(torch.t, torch.transpose, torch.permute, torch.reshape, torch.flatten, torch.squeeze, torch.unsqueeze),
    *(torch.chunk, torch.split, torch.narrow, torch.select, torch.unbind, torch.clone, torch.movedim),
}

_SCATTERING = {torch.index_copy, Tensor.index_copy}
_RESHAPING = {Tensor.view, Tensor.reshape, torch.reshape, Tensor.unflatten}


@dataclass
class Derived:
    """One tensor made from parameters.

    Attributes:
        value: the tensor, which autograd can follow to its sources.
        shown: the same as the model sees it.
        sources: name -> leaf of every parameter that it is made from.
        mask: what the only source was multiplied by, if that is all.
        moved: whether it holds values of the only source, each at most once.
        places: where the values of the only source stand in it, counted row by row, if all else is constant.
    """

    value: Tensor
    shown: Tensor
    sources: dict[str, Tensor]
    mask: Tensor | None = None
    moved: bool = False
    places: Tensor | None = None

    def pull(self, contribution: Contribution) -> list[Contribution]:
        """What a gradient in this tensor contributes to its sources."""
        names, leaves = list(self.sources), list(self.sources.values())
        if self.mask is not None:
            if isinstance(contribution, Single):
                return [Masked(names[0], contribution, self.mask)]
            return [Rows(names[0], contribution.rows().reshape(-1, *self.mask.shape) * self.mask)]
        if self.places is not None:
            if isinstance(contribution, Single):
                return [Scattered(names[0], contribution, self.places)]
            return [Rows(names[0], contribution.rows().flatten(1)[:, self.places])]
        if self.moved:
            return [Moved(names[0], contribution, self.value, leaves[0])]
        rows = contribution.rows().reshape(-1, *self.value.shape)
        found = torch.autograd.grad(self.value, leaves, rows, is_grads_batched=True, retain_graph=True)
        return [Rows(name, gradients) for name, gradients in zip(names, found, strict=True)]


def derive(
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    known: Mapping[int, str],
    leaf: Callable[[str, Tensor], Tensor],
    derived: Mapping[str, Derived],
) -> tuple[Any, list[Derived]]:
    """`func` on parameters and constants: its result as the model sees it, and every tensor in it.

    Args:
        known: id -> name of the parameters and derived tensors among the arguments.
        leaf: name and parameter -> what stands for it in the pullback.
        derived: by name, what was made before.
    """
    sources: dict[str, Tensor] = {}
    inner: list[Derived] = []

    def followed(value: Any) -> Any:
        name = known.get(id(value)) if isinstance(value, Tensor) else None
        if name is None:
            return value
        if name in derived:
            inner.append(derived[name])
            sources.update(derived[name].sources)
            return derived[name].value
        sources[name] = leaf(name, value)
        return sources[name]

    given, named = tree_map(followed, (tuple(args), dict(kwargs)))
    made = _plain_weight_norm(*given, **named) if func is _weight_norm else func(*given, **named)
    moved = len(sources) == 1 and all(one.moved for one in inner) and _rearranges(func, given)
    mask = _mask(given, sources) if func in _MULTIPLYING and not inner and not named else None
    places = _places(func, given, sources, inner)
    found: list[Derived] = []

    def shown(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        found.append(Derived(value, value.detach(), dict(sources), mask, moved, places))
        return found[-1].shown

    return tree_map(shown, made), found


@dataclass
class Moved:
    """Gradients in a rearrangement or a part of a parameter: the same values in other places, zeros elsewhere."""

    name: str
    inner: Contribution
    value: Tensor
    leaf: Tensor

    def squared_norms(self) -> Tensor:
        return self.inner.squared_norms()

    def rows(self) -> Tensor:
        rows = self.inner.rows().reshape(-1, *self.value.shape)
        return torch.autograd.grad(self.value, self.leaf, rows, is_grads_batched=True, retain_graph=True)[0]

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        part = torch.zeros(self.value.shape, dtype=total.dtype, device=total.device)
        self.inner.add_weighted(part, factors)
        total += torch.autograd.grad(self.value, self.leaf, part.to(self.value.dtype), retain_graph=True)[0]

    def joined(self, size: int) -> Moved:
        return Moved(self.name, self.inner.joined(size), self.value, self.leaf)

    def span(self) -> tuple[int, int] | None:
        """Where the values stand in the parameter, if they are one contiguous piece of it."""
        start = int(self.value.storage_offset() - self.leaf.storage_offset())
        same = self.value.untyped_storage()._cdata == self.leaf.untyped_storage()._cdata
        return (start, start + self.value.numel()) if same and self.value.is_contiguous() else None


@dataclass
class Disjoint:
    """Gradients in parts of a parameter that do not overlap: their squared norms add up."""

    name: str
    parts: list[Moved]

    def squared_norms(self) -> Tensor:
        return torch.stack([part.squared_norms() for part in self.parts]).sum(0)

    def rows(self) -> Tensor:
        return torch.stack([part.rows() for part in self.parts]).sum(0)

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        for part in self.parts:
            part.add_weighted(total, factors)

    def joined(self, size: int) -> Disjoint:
        return Disjoint(self.name, [part.joined(size) for part in self.parts])


def disjoint(uses: list[Contribution]) -> Disjoint | None:
    """`uses` of one parameter as one contribution, if they are parts of it that do not overlap."""
    moved = [use for use in uses if isinstance(use, Moved)]
    spans = sorted(span for use in moved if (span := use.span()) is not None)
    apart = all(before[1] <= after[0] for before, after in pairwise(spans))
    return Disjoint(moved[0].name, moved) if 1 < len(uses) == len(spans) and apart else None


def _rearranges(func: Callable[..., Any], given: tuple[Any, ...]) -> bool:
    if func is not Tensor.__getitem__:
        return func in _REARRANGING
    index = given[1] if isinstance(given[1], tuple) else (given[1],)
    return all(part is None or part is Ellipsis or isinstance(part, int | slice) for part in index)


def _mask(given: tuple[Any, ...], sources: dict[str, Tensor]) -> Tensor | None:
    if len(given) != 2 or len(sources) != 1:
        return None
    (leaf,) = sources.values()
    other = given[1] if given[0] is leaf else given[0]
    fits = isinstance(other, Tensor) and other is not leaf and other.shape == leaf.shape and not other.requires_grad
    return other.to(leaf.dtype) if fits else None


def _places(
    func: Callable[..., Any], given: tuple[Any, ...], sources: dict[str, Tensor], inner: list[Derived]
) -> Tensor | None:
    """Where values of the only source were put into a constant vector, or one that was reshaped since."""
    if func in _RESHAPING and len(inner) == 1:
        return inner[0].places
    if func not in _SCATTERING or inner or len(given) != 4:
        return None
    base, dim, index, value = given
    fits = base.dim() == 1 and dim in (0, -1) and any(value is leaf for leaf in sources.values())
    return index if fits and len(sources) == 1 else None


def _plain_weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """v g / |v| by operations that `torch.func` can batch."""
    axes = [axis for axis in range(v.dim()) if axis != dim] if dim != -1 else list(range(v.dim()))
    return v * (g / v.square().sum(axes, keepdim=True).sqrt())
