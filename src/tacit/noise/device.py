"""The rounded Gaussian mechanism on the device of a tensor, with bits that the device makes itself.

The bits are ChaCha20 (RFC 8439) under a key that the stream of the host gives to each call: 32 bits of U and 32 of V
for each pair. The first tier is that of the compiled code, operation by operation in single precision, so its error
bound holds (docs/explanation/floating_point.md). The values that it leaves open, one in two thousand, go to the host,
which decides them exactly with the further bits of their pairs, the other 32 of U among them.

On CUDA one kernel does both, where Triton is installed and the kernel gives the stored answer of a self-test bit for
bit; else tensor operations do, with the same bits out on every device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from tacit import check
from tacit.noise.rounded_gaussian import MARGIN_1, Undecided, decide_exactly, grid_of
from tacit.noise.stream import Stream

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
PAIRS_PER_BLOCK = 8  # a block of ChaCha20 has 16 words of 32 bits
_MOST = 1 << 30  # values under one key: places are numbers of 32 bits
_CHUNK = 1 << 17  # blocks at a time of the tensor operations: 16 MB of words
_LOG = (-0.10192846, 0.16025998, -0.17137401, 0.1992436, -0.24983245, 0.3333425)


def rounded_gaussian_(values: Tensor, stream: Stream, *, std: float) -> Tensor:
    """Overwrite `values` with g RN((values + tau N) / g), as `tacit.noise.rounded_gaussian` does on the host.

    Args:
        values: float32 or float64, finite, contiguous, on any device: the computed sum S.
        stream: source of the key, and of the bits that refine a decision.
        std: standard deviation of the noise, in [2^-100, 2^100].

    Returns:
        `values`.

    Raises:
        InvalidInput: values are not finite, or `std` is out of range.

    Example:
        >>> from tacit.noise import SeededStream
        >>> released = rounded_gaussian_(torch.zeros(4), SeededStream(0), std=1.0)
        >>> bool((released * 16 % 1 == 0).all())
        True
    """
    if values.dtype not in (torch.float32, torch.float64) or not values.is_contiguous():
        raise check.fail("values", "contiguous, float32 or float64", str(values.dtype))
    tau, grid = grid_of(std)
    tier = (kernel() if values.is_cuda else None) or by_tensors
    for part in values.view(-1).split(_MOST) if values.numel() else ():
        key = torch.from_numpy(stream.bits(4).view(np.int32).copy()).to(values.device)
        found = tier(part, key, grid, tau / grid)
        if found.places.numel():
            _decide(part, found, stream, grid, tau / grid)
    return values


@dataclass(frozen=True)
class OpenValues:
    """What a first tier leaves open, one entry a value.

    Attributes:
        places: of the values, int32; the cosines of all pairs stand before their sines.
        radius_words: the first 32 bits of U of their pairs, int32.
        angle_words: 32 bits of V, int32.
    """

    places: Tensor
    radius_words: Tensor
    angle_words: Tensor

    @classmethod
    def joined(cls, parts: list[OpenValues]) -> OpenValues:
        """All of them."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))


DeviceTier = Callable[[Tensor, Tensor, float, float], OpenValues]
"""(values, key, grid, tau / grid) -> what is open; `values` holds the results elsewhere."""


def _decide(values: Tensor, found: OpenValues, stream: Stream, grid: float, scale: float) -> None:
    """Decide the open values on the host, and bring them back."""
    at, count = found.places.long(), len(found.places)
    words = [found.places, found.radius_words, found.angle_words, values[at].view(torch.int32)]
    packed = torch.cat(words).cpu().numpy()  # one copy, as each waits for the device
    places = packed[:count].astype(np.int64)
    pairs = (values.numel() + 1) // 2
    sines = places >= pairs
    own = np.where(sines, places - pairs, places)
    refinement = stream.refinement()
    high = packed[count : 2 * count].view(np.uint32).astype(np.uint64) << np.uint64(32)
    radius_words = high | (refinement.of_values(own) & np.uint64(0xFFFFFFFF))
    undecided = Undecided(np.arange(count), own, sines, radius_words, packed[2 * count : 3 * count])
    centres = packed[3 * count :].view(np.float64 if values.dtype == torch.float64 else np.float32)
    decide_exactly(undecided, centres, refinement, grid, scale)
    values[at] = torch.from_numpy(centres).to(values.device)


def by_tensors(values: Tensor, key: Tensor, grid: float, scale: float) -> OpenValues:
    """The first tier by tensor operations, on any device.

    Args:
        values: shape (count,), contiguous; overwritten where they are decided.
        key: of `key_stream`.
        grid: g, a power of two.
        scale: tau / g.
    """
    pairs = (values.numel() + 1) // 2
    blocks = -(-pairs // PAIRS_PER_BLOCK)
    parts = []
    for start in range(0, blocks, _CHUNK):
        size = min(_CHUNK, blocks - start)
        words = key_stream(key, start, size)
        for row in range(PAIRS_PER_BLOCK):
            # Pair `row * blocks + block` takes words 2 row and 2 row + 1 of its block.
            first = row * blocks + start
            count = min(size, pairs - first)
            if count > 0:
                radius, angle = words[2 * row, :count], words[2 * row + 1, :count]
                parts.append(_tier_of(values, first, radius, angle, grid, scale))
    return OpenValues.joined(parts)


def _tier_of(values: Tensor, first: int, radius: Tensor, angle: Tensor, grid: float, scale: float) -> OpenValues:
    """The first tier of the pairs from `first` on, with one word of U and of V each."""
    pairs, count = (values.numel() + 1) // 2, len(radius)
    normals, found = normals_of_words(radius, angle), []
    for normal, start in zip(normals, (first, pairs + first), strict=True):
        part = values[start : start + count]
        noise = (normal[: len(part)] * scale).to(values.dtype)
        centres = part * (1.0 / grid)
        whole = centres.round()
        noisy = noise + (centres - whole)
        nearest = noisy.round()
        # Written so that NaN is open: comparisons with it are false.
        opened = ~((noisy - nearest).abs() < 0.5 - MARGIN_1)
        part.copy_(torch.where(opened, part, (whole + nearest) * grid + 0.0))
        at = opened.nonzero().flatten()
        found.append(OpenValues((at + start).to(torch.int32), radius[at], angle[at]))
    return OpenValues.joined(found)


def normals_of_words(radius: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Both normals of each pair in float32; NaN where 31 bits of U do not bound the radius.

    Args:
        radius: the first 32 bits of U, int32.
        angle: 32 bits of V, int32.

    Example:
        >>> [bool(each.isnan()) for each in normals_of_words(torch.tensor([0]).int(), torch.tensor([0]).int())]
        [True, True]
    """
    u = (radius >> 1) & 0x7FFFFFFF
    high, low = (u & ~127).to(torch.float32), (u & 127).to(torch.float32) + 0.5
    e = (high.view(torch.int32) - 0x3F3504F3) >> 23
    unit = ((127 - e) << 23).view(torch.float32)
    f = (high * unit - 1.0) + low * unit
    square = f * f
    p = torch.full_like(f, _LOG[0])
    for coefficient in _LOG[1:]:
        p = p * f + coefficient
    log_m = (f - 0.5 * square) + (square * f) * p
    length = torch.sqrt((31 - e).to(torch.float32) * 1.3862944 - 2.0 * log_m)
    length = torch.where((high < 131072.0) | (high >= 2147483520.0), math.nan, length)
    q = ((angle + 0x20000000) >> 30) & 3
    t = (angle - (q << 30)).to(torch.float32) * 1.4629181e-09
    y = t * t
    sine = t + (t * y) * ((-0.00019495634 * y + 0.008331979) * y - 0.16666651)
    cosine = (1.0 - 0.5 * y) + (y * y) * (-0.0013652449 * y + 0.041661277)
    odd = (q & 1) == 1
    first, second = torch.where(odd, sine, cosine), torch.where(odd, cosine, sine)
    first = torch.where((q + 1) & 2 == 2, -first, first)
    return length * first, length * torch.where(q & 2 == 2, -second, second)


def key_stream(key: Tensor, start: int, count: int) -> Tensor:
    """Words of the blocks `start` to `start + count` of ChaCha20 with nonce 0, int32 of shape (16, count).

    Args:
        key: 256 secret bits that nothing else uses, int32 of shape (8,).
        start: number of the first block, below 2^31.
        count: of blocks.

    Source: RFC 8439, Section 2.3.

    Example:
        >>> key_stream(torch.zeros(8).int(), 0, 1)[0, 0].item() & 0xFF
        118
    """
    state = torch.zeros((16, count), dtype=torch.int32, device=key.device)
    state[:4] = torch.tensor(_CONSTANTS, dtype=torch.int32, device=key.device)[:, None]
    state[4:12] = key[:, None]
    state[12] = torch.arange(start, start + count, dtype=torch.int32, device=key.device)
    a, b, c, d = (state[row : row + 4].clone() for row in (0, 4, 8, 12))
    for _ in range(10):
        a, b, c, d = _quarters(a, b, c, d)
        a, b, c, d = _quarters(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.cat([a, b, c, d]) + state


def _quarters(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four quarter rounds side by side."""
    for first, second in ((16, 12), (8, 7)):
        a = a + b
        d = _rotated(d ^ a, first)
        c = c + d
        b = _rotated(b ^ c, second)
    return a, b, c, d


def _rotated(words: Tensor, by: int) -> Tensor:
    return (words << by) | ((words >> (32 - by)) & ((1 << by) - 1))


@functools.cache
def kernel() -> DeviceTier | None:
    """The first tier in one kernel; None where Triton is absent, or the kernel gives other bits than the operations."""
    try:
        from tacit.noise.device_kernel import first_tier
    except ImportError:
        return None

    def tier(values: Tensor, key: Tensor, grid: float, scale: float) -> OpenValues:
        return OpenValues(*first_tier(values, key, grid, scale))

    return tier if agrees(tier, "cuda") else None


def agrees(tier: DeviceTier, device: str) -> bool:
    """Whether `tier` gives the bits of `by_tensors` on the host, in both precisions, for values of both signs."""
    key = torch.arange(1, 9, dtype=torch.int32) * 0x1E3779B9
    for dtype in (torch.float32, torch.float64):
        host = torch.linspace(-30, 30, 40_961, dtype=dtype)
        there = host.clone().to(device)
        ours, theirs = by_tensors(host, key, 2.0**-4, 17.5), tier(there, key.to(device), 2.0**-4, 17.5)
        order = theirs.places.cpu().sort()
        same = torch.equal(host.view(torch.uint8), there.cpu().view(torch.uint8))
        if not same or not torch.equal(ours.places.sort().values, order.values):
            return False
        for name in ("radius_words", "angle_words"):
            mine = getattr(ours, name)[ours.places.sort().indices]
            if not torch.equal(mine, getattr(theirs, name).cpu()[order.indices]):
                return False
    return True
