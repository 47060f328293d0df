"""Tensors made from parameters alone: masked, normalised, sliced and combined weights.

Such a tensor W = f(theta) is the same for every record, so the per-sample gradient in theta is the pullback
J^T (dL_i / dW), J the derivative of f. Masks and rearrangements keep whatever cheap form the gradient in W has; any
other f is pulled back record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from tacit.gradients.embedding_rows import EmbeddingRows
from tacit.gradients.per_sample_gradients import DenseGradients, PerSampleGradients
from tacit.gradients.rounding import Blocks

_WEIGHT_NORM = torch._weight_norm  # pyright: ignore[reportPrivateImportUsage]
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
        detached: the same as the model receives it.
        sources: name -> leaf of every parameter that it is made from.
        mask: what the only source was multiplied by, if that is all.
        rearranged: whether it holds values of the only source, each at most once.
        flat_index: where the values of the only source stand in it, row by row, if everything else is constant.
        rows: index of the row of the only source at each of its positions, if it is an embedding.
    """

    value: Tensor
    detached: Tensor
    sources: dict[str, Tensor]
    mask: Tensor | None = None
    rearranged: bool = False
    flat_index: Tensor | None = None
    rows: Tensor | None = None

    def pullback(self, gradients: PerSampleGradients) -> list[PerSampleGradients]:
        """Per-sample gradients in the sources, given those in this tensor."""
        names, leaves = list(self.sources), list(self.sources.values())
        if self.mask is not None:
            return [gradients.masked(names[0], self.mask)]
        if self.flat_index is not None:
            return [gradients.scattered(names[0], self.flat_index)]
        if self.rows is not None:
            return [self._rows_looked_up(names[0], gradients.dense())]
        if self.rearranged:
            return [RearrangedGradients(names[0], gradients, self.value, leaves[0])]
        dense = gradients.dense().reshape(-1, *self.value.shape)
        found = torch.autograd.grad(self.value, leaves, dense, is_grads_batched=True, retain_graph=True)
        return [DenseGradients(name, one) for name, one in zip(names, found, strict=True)]

    def _rows_looked_up(self, name: str, gradients: Tensor) -> EmbeddingRows:
        """Rows of the table `name`, the same ones for every record."""
        assert self.rows is not None
        gradients = gradients.reshape(len(gradients), self.rows.numel(), self.value.shape[-1])
        return EmbeddingRows(name, self.rows.flatten().expand(gradients.shape[:2]), gradients, self.sources[name].shape)


def derive(
    func: Callable[..., Any],
    args: Any,
    kwargs: Any,
    known: Mapping[int, str],
    leaf: Callable[[str, Tensor], Tensor],
    derived: Mapping[str, Derived],
) -> tuple[Any, list[Derived]]:
    """Call `func` on parameters and constants and follow every tensor that it makes.

    Args:
        func: an operation of torch.
        args: its positional arguments.
        kwargs: its named arguments.
        known: id -> name of the parameters and derived tensors among the arguments.
        leaf: name and parameter -> the tensor that stands for it in the pullback.
        derived: by name, what was made before.

    Returns:
        The result as the model receives it, and every derived tensor in it.
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
    result = _batchable_weight_norm(*given, **named) if func is _WEIGHT_NORM else func(*given, **named)
    rearranged = len(sources) == 1 and all(one.rearranged for one in inner) and _rearranges(func, given)
    mask = _mask(given, sources) if func in _MULTIPLYING and not inner and not named else None
    flat_index = _flat_index(func, given, sources, inner)
    rows = given[0] if func is F.embedding and not inner and _looks_up_plainly(given, named) else None
    found: list[Derived] = []

    def detached(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        found.append(Derived(value, value.detach(), dict(sources), mask, rearranged, flat_index, rows))
        return found[-1].detached

    return tree_map(detached, result), found


@dataclass
class RearrangedGradients(PerSampleGradients):
    """Gradients in a rearrangement or a part of a parameter: the same values in other places, zeros elsewhere."""

    name: str
    inner: PerSampleGradients
    value: Tensor
    leaf: Tensor

    def squared_norms(self) -> Tensor:
        """Those of the gradients in the rearrangement."""
        return self.inner.squared_norms()

    def dense(self) -> Tensor:
        """The gradients in the whole parameter."""
        gradients = self.inner.dense().reshape(-1, *self.value.shape)
        return torch.autograd.grad(self.value, self.leaf, gradients, is_grads_batched=True, retain_graph=True)[0]

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """The weighted sum is made in the rearrangement and pulled back once."""
        self._add_part(gradient_sum, lambda part: self.inner.add_weighted(part, factors))

    def add_in_blocks(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        """The same block by block."""
        self._add_part(gradient_sum, lambda part: self.inner.add_in_blocks(part, factors, blocks))

    def _add_part(self, gradient_sum: Tensor, add: Callable[[Tensor], None]) -> None:
        part = torch.zeros(self.value.shape, dtype=gradient_sum.dtype, device=gradient_sum.device)
        add(part)
        # Autograd keeps the type of the weights: of a wider sum what they hold, then what is left of it.
        while True:
            held = part.to(self.value.dtype)
            pulled = torch.autograd.grad(self.value, self.leaf, held, retain_graph=True)[0]
            gradient_sum += pulled
            if held.dtype.itemsize >= part.dtype.itemsize:
                return
            part = (part - held).to(held.dtype)

    def select(self, index: slice) -> RearrangedGradients:
        """The gradients in `index`."""
        return RearrangedGradients(self.name, self.inner.select(index), self.value, self.leaf)

    def per_unit(self, size: int) -> RearrangedGradients:
        """The rearrangement of the sums."""
        return RearrangedGradients(self.name, self.inner.per_unit(size), self.value, self.leaf)

    def span(self) -> tuple[int, int] | None:
        """Where the values stand in the parameter, if they are one contiguous piece of it."""
        start = int(self.value.storage_offset() - self.leaf.storage_offset())
        same = self.value.untyped_storage()._cdata == self.leaf.untyped_storage()._cdata
        return (start, start + self.value.numel()) if same and self.value.is_contiguous() else None


@dataclass
class DisjointParts(PerSampleGradients):
    """Gradients in parts of a parameter that do not overlap: their squared norms add up."""

    name: str
    parts: list[RearrangedGradients]

    def squared_norms(self) -> Tensor:
        """Sum over the parts."""
        return torch.stack([part.squared_norms() for part in self.parts]).sum(0)

    def dense(self) -> Tensor:
        """Sum over the parts, each in the whole parameter."""
        return torch.stack([part.dense() for part in self.parts]).sum(0)

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """Part after part."""
        for part in self.parts:
            part.add_weighted(gradient_sum, factors)

    def add_in_blocks(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        """Part after part, each block by block; no value is in two parts."""
        for part in self.parts:
            part.add_in_blocks(gradient_sum, factors, blocks)

    def select(self, index: slice) -> DisjointParts:
        """The gradients in `index`."""
        return DisjointParts(self.name, [part.select(index) for part in self.parts])

    def per_unit(self, size: int) -> DisjointParts:
        """The sums part by part."""
        return DisjointParts(self.name, [part.per_unit(size) for part in self.parts])

    def values(self) -> int:
        """Those of all parts."""
        return sum(part.values() for part in self.parts)


def disjoint(uses: list[PerSampleGradients]) -> DisjointParts | None:
    """Gradients of all `uses` of one parameter, if they are parts of it that do not overlap; else None."""
    parts = [use for use in uses if isinstance(use, RearrangedGradients)]
    spans = sorted(span for use in parts if (span := use.span()) is not None)
    separate = all(before[1] <= after[0] for before, after in pairwise(spans))
    return DisjointParts(parts[0].name, parts) if 1 < len(uses) == len(spans) and separate else None


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


def _flat_index(
    func: Callable[..., Any], given: tuple[Any, ...], sources: dict[str, Tensor], inner: list[Derived]
) -> Tensor | None:
    """Where values of the only source were put into a constant vector, or one that was reshaped since."""
    if func in _RESHAPING and len(inner) == 1:
        return inner[0].flat_index
    if func not in _SCATTERING or inner or len(given) != 4:
        return None
    base, dim, index, value = given
    fits = base.dim() == 1 and dim in (0, -1) and any(value is leaf for leaf in sources.values())
    return index if fits and len(sources) == 1 else None


def _looks_up_plainly(given: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether an embedding gives each row of its table the sum of the gradients at its positions, without padding."""
    names = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq")
    options: dict[str, Any] = {**dict(zip(names, given[2:], strict=False)), **named}
    unset = options.get("padding_idx") is None and options.get("max_norm") is None
    return len(given) >= 2 and unset and not options.get("scale_grad_by_freq")


def _batchable_weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Weight norm, v g / |v|, by operations that `torch.func` can batch."""
    axes = [axis for axis in range(v.dim()) if axis != dim] if dim != -1 else list(range(v.dim()))
    return v * (g / v.square().sum(axes, keepdim=True).sqrt())
