"""Large temporary arrays that are used again at every step.

A fresh array of some megabytes costs a page fault for every 4 KB that is touched, which is more than the arithmetic of
a small model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn import functional as F

from tacit.gradients.rounding import FIRST_LEVEL, second_level, square_sums

# Terms added one by one at the first of two levels of a sum; so few keep its rounding small.
_FIRST_LEVEL = 64
# Values squared at a time: 512 KB in float32 stay in the cache.
_CACHED_VALUES = 2**17
_FUSED = ContextVar("_FUSED", default=False)


class Buffers:
    """Memory by name. Tensors that view a buffer lease it: it is used again only after all of them are gone."""

    def __init__(self) -> None:
        self._buffers: dict[object, Tensor] = {}

    def copy(self, name: object, view: Tensor) -> Tensor:
        """`view` laid out contiguously."""
        return view.contiguous() if recording() else self._take(name, view.shape, view).copy_(view)

    def like(self, name: object, tensor: Tensor) -> Tensor:
        """An uninitialised tensor of the shape, type and device of `tensor`."""
        return torch.empty_like(tensor) if recording() else self._take(name, tensor.shape, tensor)

    def product(self, name: object, left: Tensor, right: Tensor) -> Tensor:
        """The product left @ right, for (B, G, p, T) and (B, G, T, d)."""
        if recording():
            return torch.matmul(left, right)
        product = self._take(name, (*left.shape[:3], right.shape[3]), left)
        if left.shape[1] == 1:
            torch.bmm(left[:, 0], right[:, 0], out=product[:, 0])
            return product
        return torch.matmul(left, right, out=product)

    def _take(self, name: object, shape: Sequence[int], like: Tensor) -> Tensor:
        """An uninitialised tensor of `shape`, with the type and device of `like`."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        kind = (like.dtype, like.device)
        fits = buffer is not None and buffer.numel() >= size and (buffer.dtype, buffer.device) == kind
        if buffer is None or not fits or _leased(buffer):
            # Poisson batches differ in size; a quarter more than asked for spares most of the next allocations.
            buffer = self._buffers[name] = torch.empty(size + size // 4, dtype=like.dtype, device=like.device)
        return buffer[:size].view(*shape)


# References to the storage of a buffer without views: the buffer, and the storage object that is asked.
_OWN_REFERENCES = 2


def _leased(buffer: Tensor) -> bool:
    """Whether any other tensor, view of a view included, still reads the memory of `buffer`."""
    return torch._C._storage_Use_Count(buffer.untyped_storage()._cdata) > _OWN_REFERENCES


def recording() -> bool:
    """Whether a graph is being recorded, which manages its own memory."""
    return get_proxy_mode() is not None


@contextmanager
def fused() -> Iterator[None]:
    """Operations recorded inside will be fused into loops by a compiler."""
    token = _FUSED.set(True)
    try:
        yield
    finally:
        _FUSED.reset(token)


def row_squares(rows: Tensor) -> Tensor:
    """Sum of squares of every row, shape (B,). Square and add: `norm` under-reads long float32 rows."""
    flat = rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)
    count, length = flat.shape
    if _FUSED.get():
        # A compiled sum adds one by one in each SIMD lane; two levels keep its rounding as small as torch's own.
        squares = F.pad(flat, (0, -length % _FIRST_LEVEL)).square()
        return second_level(squares.view(count, -1, _FIRST_LEVEL).sum(2))
    size = max(1, _CACHED_VALUES // max(1, length))
    if count <= size or recording():
        return square_sums(flat)
    width = length if length <= FIRST_LEVEL else length + -length % FIRST_LEVEL
    square = torch.zeros(size, width, dtype=flat.dtype, device=flat.device)
    pieces = []
    for piece in flat.split(size):
        squares = square[: len(piece)]
        torch.mul(piece, piece, out=squares[:, :length])
        pieces.append(squares.sum(1) if width <= FIRST_LEVEL else _two_levels(squares))
    return torch.cat(pieces)


def _two_levels(squares: Tensor) -> Tensor:
    return second_level(squares.view(len(squares), -1, FIRST_LEVEL).sum(2))
