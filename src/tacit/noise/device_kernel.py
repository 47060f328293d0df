"""The first tier of `tacit.noise.device` in one Triton kernel: bits, normals, addition and rounding in registers.

One lane makes one block of ChaCha20, which is eight pairs. No multiplication is contracted with an addition, and square
roots are rounded correctly, so the bits are those of the tensor operations.
"""

from __future__ import annotations

# pyright: reportMissingImports=false, reportIndexIssue=false
import torch
import triton
import triton.language as tl
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.noise.rounded_gaussian import MARGIN_1, NOT_FINITE

_LANES, _PAIRS = 128, 8


def first_tier(values: Tensor, key: Tensor, grid: float, scale: float) -> Tensor:
    """What `tacit.noise.device.by_tensors` gives, places in any order.

    Args:
        values: shape (count,), contiguous, on CUDA; overwritten where they are decided.
        key: 256 secret bits, int32 of shape (8,).
        grid: g, a power of two.
        scale: tau / g, of 24 bits.

    Returns:
        Places, words of U and words of V, int32 of shape (3, open values).

    Raises:
        InvalidInput: more values are open than ever are of finite ones.
    """
    size = values.numel()
    pairs = (size + 1) // 2
    blocks = -(-pairs // _PAIRS)
    room = size // 256 + 4096  # one in two thousand is open
    opened = torch.empty((3, room), dtype=torch.int32, device=values.device)
    count = torch.zeros(1, dtype=torch.int32, device=values.device)
    with torch.cuda.device_of(values):
        _kernel[(triton.cdiv(blocks, _LANES),)](
            *(values, opened, count, key, size, pairs, blocks, room),
            *(1.0 / grid, scale, grid, 0.5 - MARGIN_1),  # single precision holds each of them
            LANES=_LANES,
            num_warps=4,
            enable_fp_fusion=False,
        )
    found = int(count)
    if found > room:
        raise InvalidInput(NOT_FINITE)
    return opened[:, :found]


@triton.jit
def _quarter(a, b, c, d):
    a += b
    d ^= a
    d = (d << 16) | (d >> 16)
    c += d
    b ^= c
    b = (b << 12) | (b >> 20)
    a += b
    d ^= a
    d = (d << 8) | (d >> 24)
    c += d
    b ^= c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _normals(radius, angle):
    u = (radius >> 1).to(tl.int32)
    high = (u & ~127).to(tl.float32)
    low = (u & 127).to(tl.float32) + 0.5
    e = (high.to(tl.int32, bitcast=True) - 0x3F3504F3) >> 23
    unit = ((127 - e) << 23).to(tl.float32, bitcast=True)
    f = (high * unit - 1.0) + low * unit
    square = f * f
    p = f * -0.10192846 + 0.16025998
    p = p * f + -0.17137401
    p = p * f + 0.1992436
    p = p * f + -0.24983245
    p = p * f + 0.3333425
    log_m = (f - 0.5 * square) + (square * f) * p
    length = tl.sqrt_rn((31 - e).to(tl.float32) * 1.3862944 - 2.0 * log_m)
    length = tl.where((high < 131072.0) | (high >= 2147483520.0), float("nan"), length)
    q = (angle + 0x20000000) >> 30
    t = (angle - (q << 30)).to(tl.int32, bitcast=True).to(tl.float32) * 1.4629181e-09
    y = t * t
    sine = t + (t * y) * ((y * -0.00019495634 + 0.008331979) * y - 0.16666651)
    cosine = (1.0 - 0.5 * y) + (y * y) * (y * -0.0013652449 + 0.041661277)
    odd = (q & 1) == 1
    first = tl.where(odd, sine, cosine)
    second = tl.where(odd, cosine, sine)
    first = tl.where(((q + 1) & 2) == 2, -first, first)
    second = tl.where((q & 2) == 2, -second, second)
    return length * first, length * second


@triton.jit
def _rint(x):
    """The nearest integer, ties to even; a zero of either sign."""
    large = 8388608.0 if x.dtype == tl.float32 else 4503599627370496.0
    shift = tl.where(x < 0, -large, large).to(x.dtype)
    return tl.where(tl.abs(x) < large, (x + shift) - shift, x)


@triton.jit
def _release(values, opened, count, places, there, normal, radius, angle, inverse, scale, grid, limit, room):
    value = tl.load(values + places, mask=there, other=0.0)
    noise = (normal * scale).to(value.dtype)
    centre = value * inverse
    whole = _rint(centre)
    noisy = noise + (centre - whole)
    nearest = _rint(noisy)
    is_open = (tl.abs(noisy - nearest) < limit) == 0
    tl.store(values + places, (whole + nearest) * grid + 0.0, mask=there & (is_open == 0))
    marked = (there & is_open).to(tl.int32)
    found = tl.sum(marked)
    if found > 0:
        at = tl.atomic_add(count, found) + tl.cumsum(marked) - 1
        fits = (marked == 1) & (at < room)
        tl.store(opened + at, places.to(tl.int32), mask=fits)
        tl.store(opened + room + at, radius.to(tl.int32, bitcast=True), mask=fits)
        tl.store(opened + 2 * room + at, angle.to(tl.int32, bitcast=True), mask=fits)


@triton.jit
def _pair(values, opened, count, pair, size, pairs, radius, angle, inverse, scale, grid, limit, room):
    first, second = _normals(radius, angle)
    _release(values, opened, count, pair, pair < pairs, first, radius, angle, inverse, scale, grid, limit, room)
    there = (pair < pairs) & (pairs + pair < size)
    _release(values, opened, count, pairs + pair, there, second, radius, angle, inverse, scale, grid, limit, room)


@triton.jit(do_not_specialize=["size", "pairs", "blocks", "room", "inverse", "scale", "grid", "limit"])
def _kernel(values, opened, count, key, size, pairs, blocks, room, inverse, scale, grid, limit, LANES: tl.constexpr):
    block = tl.program_id(0) * LANES + tl.arange(0, LANES)
    zero = tl.zeros([LANES], tl.uint32)
    k0, k1, k2, k3 = _words(key, zero)
    k4, k5, k6, k7 = _words(key + 4, zero)
    number = block.to(tl.uint32)
    a0, a1, a2, a3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    b0, b1, b2, b3, c0, c1, c2, c3 = k0, k1, k2, k3, k4, k5, k6, k7
    d0, d1, d2, d3 = number, zero, zero, zero
    for _ in range(10):
        a0, b0, c0, d0 = _quarter(a0, b0, c0, d0)
        a1, b1, c1, d1 = _quarter(a1, b1, c1, d1)
        a2, b2, c2, d2 = _quarter(a2, b2, c2, d2)
        a3, b3, c3, d3 = _quarter(a3, b3, c3, d3)
        a0, b1, c2, d3 = _quarter(a0, b1, c2, d3)
        a1, b2, c3, d0 = _quarter(a1, b2, c3, d0)
        a2, b3, c0, d1 = _quarter(a2, b3, c0, d1)
        a3, b0, c1, d2 = _quarter(a3, b0, c1, d2)
    pair = tl.where(block < blocks, block, pairs).to(tl.int64)
    step = blocks.to(tl.int64)
    a0, a1, a2, a3 = a0 + 0x61707865, a1 + 0x3320646E, a2 + 0x79622D32, a3 + 0x6B206574
    _pair(values, opened, count, pair, size, pairs, a0, a1, inverse, scale, grid, limit, room)
    _pair(values, opened, count, pair + step, size, pairs, a2, a3, inverse, scale, grid, limit, room)
    _pair(values, opened, count, pair + 2 * step, size, pairs, b0 + k0, b1 + k1, inverse, scale, grid, limit, room)
    _pair(values, opened, count, pair + 3 * step, size, pairs, b2 + k2, b3 + k3, inverse, scale, grid, limit, room)
    _pair(values, opened, count, pair + 4 * step, size, pairs, c0 + k4, c1 + k5, inverse, scale, grid, limit, room)
    _pair(values, opened, count, pair + 5 * step, size, pairs, c2 + k6, c3 + k7, inverse, scale, grid, limit, room)
    _pair(values, opened, count, pair + 6 * step, size, pairs, d0 + number, d1, inverse, scale, grid, limit, room)
    _pair(values, opened, count, pair + 7 * step, size, pairs, d2, d3, inverse, scale, grid, limit, room)


@triton.jit
def _words(key, zero):
    return (
        zero + tl.load(key).to(tl.uint32, bitcast=True),
        zero + tl.load(key + 1).to(tl.uint32, bitcast=True),
        zero + tl.load(key + 2).to(tl.uint32, bitcast=True),
        zero + tl.load(key + 3).to(tl.uint32, bitcast=True),
    )
