"""A gradient of every trainable parameter as one flat vector, and large temporary arrays that are used again.

A fresh array of some megabytes costs a page fault for every 4 KB that is touched, which is more than the arithmetic of
a small model.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn import functional as F

from tacit import check
from tacit.errors import UnsupportedModel
from tacit.gradients.rounding import second_level, square_sums

# Four bytes, four times as the graph, gradients of activations and temporary results stand beside what a capture holds,
# and half of the memory stays free.
_BYTES_PER_VALUE = 32
# Free bytes where the system does not say.
_ASSUMED = 2**32
_SAID = ("out of memory", "can't allocate memory", "not enough memory")


def held_values(device: torch.device) -> int:
    """Values of per-sample gradients that fit into the memory that is free now."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _available()
    return free // _BYTES_PER_VALUE


def _available() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return _ASSUMED
    found = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(next(found, _ASSUMED // 1024)) * 1024


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that no memory was left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(said in str(error) for said in _SAID)


def trim_memory() -> None:
    """Return to the system what this process holds and does not use.

    The C library keeps what was freed: after the checks of a first batch, several times what a step needs. Only that of
    Linux has the call; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


# Per-sample matrices up to so many values (16 MB) stay from the norm to the weighted sum; larger ones are made twice.
MOST_KEPT_VALUES = 2**22
# Terms added one by one at the first of two levels of a sum; so few keep its rounding small.
_FIRST_LEVEL = 64
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
            _MADE[buffer.data_ptr()] = buffer
        return buffer[:size].view(*shape)


# Buffers by address, as long as they are kept.
_MADE: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


def extended(rows: Tensor, count: int) -> Tensor | None:
    """`rows` with uninitialised ones after them, `count` in all; None unless they lie in a buffer with room for that.

    Args:
        rows: all of the batch that is in use: what comes after it in a buffer belongs to nobody else.
        count: >= the number of rows.
    """
    buffer, shape = _MADE.get(rows.data_ptr()), (count, *rows.shape[1:])
    size = math.prod(shape)
    if buffer is None or buffer.numel() < size or not rows.is_contiguous() or rows.dtype != buffer.dtype:
        return None
    return buffer[:size].view(shape)


# References to the storage of a buffer without views: the buffer, and the storage object that is asked.
_OWN_REFERENCES = 2


def _leased(buffer: Tensor) -> bool:
    """Whether any other tensor, view of a view included, still reads the memory of `buffer`."""
    return torch._C._storage_Use_Count(buffer.untyped_storage()._cdata) > _OWN_REFERENCES


def recording() -> bool:
    """Whether a graph is being recorded, which manages its own memory."""
    return get_proxy_mode() is not None


def fused() -> AbstractContextManager[None]:
    """Operations recorded inside will be fused into loops by a compiler."""
    return check.within(_FUSED, True)


def row_squares(rows: Tensor) -> Tensor:
    """Sum of squares of every row, shape (B,)."""
    flat = rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)
    count, length = flat.shape
    if _FUSED.get():
        # A compiled sum adds one by one in each SIMD lane; two levels keep its rounding as small as torch's own.
        squares = F.pad(flat, (0, -length % _FIRST_LEVEL)).square()
        return second_level(squares.view(count, -1, _FIRST_LEVEL).sum(2))
    return square_sums(flat)


@dataclass(frozen=True)
class FlatGradient:
    """The gradient as one vector, and its parts by parameter.

    Attributes:
        flat: the vector.
        parts: parameter name -> view of `flat` with the parameter's shape, in the order of the parameters.
        slack: nu of a clipped sum: its sensitivity, rounding included, is 1 + nu times that of its clip; public.
        released_in: type that a release is rounded to, which the type of `flat` does not show; None for that one.

    Example:
        >>> from torch import nn
        >>> FlatGradient.zeros(dict(nn.Linear(2, 1).named_parameters())).flat
        tensor([0., 0., 0.])
    """

    flat: Tensor
    parts: dict[str, Tensor]
    slack: float = 0.0
    released_in: torch.dtype | None = None

    @classmethod
    def zeros(cls, trainable: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> FlatGradient:
        """The gradient 0, in float32, or in float64 if any parameter is; or in `dtype` if that is wider."""
        dtypes = {wide(parameter.dtype) for parameter in trainable.values()} | ({dtype} if dtype else set())
        device = next(iter(trainable.values())).device
        if any(parameter.device != device for parameter in trainable.values()):
            raise UnsupportedModel("the model has parameters on several devices. Move it to one.")
        size = sum(parameter.numel() for parameter in trainable.values())
        widest = max(dtypes, key=lambda dtype: dtype.itemsize)
        return cls.of(torch.zeros(size, dtype=widest, device=device), trainable)

    @classmethod
    def of(
        cls, flat: Tensor, trainable: Mapping[str, Tensor], slack: float = 0.0, released_in: torch.dtype | None = None
    ) -> FlatGradient:
        """`flat` with its parts, one of the shape of every parameter.

        Args:
            flat: all values, in the order of the parameters.
            trainable: parameter name -> tensor.
            slack: see the attributes.
            released_in: see the attributes.
        """
        parts = flat.split_with_sizes([parameter.numel() for parameter in trainable.values()])
        named = zip(trainable.items(), parts, strict=True)
        return cls(flat, {name: part.view(parameter.shape) for (name, parameter), part in named}, slack, released_in)

    def as_released(self) -> FlatGradient:
        """The gradient in the type of the model. Whether a batch was summed in a wider one is private."""
        if self.released_in is None or self.released_in == self.flat.dtype:
            return self
        return FlatGradient.of(self.flat.to(self.released_in), self.parts)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type that gradients of `dtype` are clipped and summed in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


class Total:
    """Sum of the parts of one logical batch: the part itself where there is one, else in double precision.

    A total that was begun is added to in place, in the precision that it was begun in.

    Example:
        >>> from torch import nn
        >>> trainable = dict(nn.Linear(2, 1).named_parameters())
        >>> total = Total(trainable)
        >>> for _ in range(2):
        ...     total.add(FlatGradient.zeros(trainable))
        >>> total.gradient().flat.dtype
        torch.float64
    """

    def __init__(self, trainable: Mapping[str, Tensor]):
        self._trainable = trainable
        self._sum: FlatGradient | None = None
        self.in_place = False

    def begin(self, dtype: torch.dtype) -> None:
        """Zeros of `dtype`, to which all that follows is added in place."""
        self._sum, self.in_place = FlatGradient.zeros(self._trainable, dtype), True

    def add(self, part: FlatGradient) -> None:
        """Add `part`, which must not be used any more."""
        if self._sum is None:
            self._sum = part
            return
        if not self.in_place:
            wider = self._sum.flat.double()
            self._sum, self.in_place = FlatGradient.of(wider, self._trainable, part.slack, part.released_in), True
        self._sum.flat.add_(part.flat)

    def gradient(self) -> FlatGradient:
        """The sum of all parts; zero without any."""
        return FlatGradient.zeros(self._trainable) if self._sum is None else self._sum
