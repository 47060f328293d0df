"""Rounding of clipped sums, bounded: how far neighbouring computed sums may lie apart beyond the clipping norm.

Let c_i be the contribution of unit i as the operands of the machine define it: the activations, gradients of outputs
and factors that were computed, read as real numbers. Two roundings follow.

* **Norms.** A computed square sum of n terms is at least (1 - n u) of the exact one, u the unit roundoff, in any
  order of summation; the square of a computed norm at least (1 - (n + 3) u). No norm here takes more than
  `NORM_TERMS` roundings in a row, because long sums have two levels. Terms that may cancel (Gram matrices, sums over
  positions) have a bound of their own on what rounding hides: it is covered by `POSITION_SHARE` of the norm where it
  is small, as it mostly is; otherwise the norm is raised. So ||c_i|| <= C (1 + `norm_slack`).
* **Sum.** With every value in at most h roundings, the error is at most gamma_h sum_i |c_i| in every coordinate,
  gamma_h = h u / (1 - h u) (Higham 2002, sections 3.1 and 4.2), so at most gamma_h b C in L2 norm for a batch of b
  units. `blocks` chooses h by b so that 2 h b u stays below the slack of sums whatever the batch.

Neighbouring computed sums are then at most C (1 + nu) apart, nu = `slack`: a public number that neither the batch nor
its size enters. It is chosen by the expected size, which is public too: a batch far above it costs time, not privacy.

Sums over positions may cancel. Those of single precision are added in double precision, and their norms cover a share
of the sum of the terms' lengths, which bounds what cancels. Those of double precision are made unit by unit: what is
added is then a function of the unit alone, rounding included, and its norm covers what that rounding may hide.
"""

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput

# Terms of a sum of squares at its first level; the second is in double precision or as short.
FIRST_LEVEL = 1024
# Roundings in a row of any norm: two sums over a level and its parts for each side of an outer product, and products.
NORM_TERMS = 4096
POSITION_SHARE = 2.0**-14
"""Share of a norm that covers what rounding hides of single-precision sums over positions.

Norms of ordinary records are then those of float64 up to a few units of rounding; raised ones only shorten
contributions.
"""
# Units of a batch times roundings of each value, at a slack of 1: 2^23 makes 2 h b u = 1 in single precision; a share
# of it covers the denominator of gamma, and physical batches that are added in double precision.
_WORK = 0.975 * 2**23
SINGLE_SLACKS = tuple(2.0**-power for power in (12, 11, 10, 9, 8))
"""Bounds on 2 gamma_h b that a run in single precision may choose from, ascending."""
DOUBLE_SLACK = 2.0**-13
"""The same in double precision, see `MOST_UNITS`."""
MOST_UNITS = 2**19
"""Units of a batch, at most: one value then meets less than 2^20 roundings, 2 2^20 2^19 2^-53 = 2^-13."""
# Rows of operands that are converted at a time in double precision: few, so that they stay in the cache.
_DOUBLE_ROWS = 256
# Units times rows of a double-precision sum over positions, at a slack of 1. Of T positions, whose lengths sum to at
# most 2^24 / T times the raised norm, it errs by 2^27 T 2^-53 times that: by a quarter of the clipping norm.
_POSITION_WORK = 2**27


@dataclass(frozen=True)
class Blocks:
    """How the weighted sum over the units of a physical batch is made.

    Attributes:
        rows: units that are added in one operation, >= 1; blocks are then added one after another.
        dtype: of the sum; operands are converted to it.
        position_rows: the same where a unit has several positions, whose sum is in double precision; 1 for sums that
            are a function of each unit alone.
    """

    rows: int
    dtype: torch.dtype
    position_rows: int

    def equal_parts(self, count: int) -> int:
        """Number of equal parts of `count` units with no more roundings than blocks of `rows`; 0 where there is none.

        Example:
            >>> [Blocks(117, torch.float32, 1).equal_parts(units) for units in (0, 100, 256, 263)]
            [1, 1, 4, 0]
        """
        least, most = max(1, -(-count // self.rows)), self.rows + count / self.rows
        allowed = (parts for parts in range(least, 2 * least + 1) if count // parts + parts <= most)
        return next((parts for parts in allowed if count % parts == 0), 0)


def single_slack(expected_batch_size: float | None = None) -> float:
    """Slack of single-precision sums for batches of B units on average; the largest where B is not known.

    The smallest in `SINGLE_SLACKS` that adds B + 3 sqrt(B) units in one operation: one batch of a thousand is larger.

    Example:
        >>> [single_slack(size) for size in (37, 4096)] == [2**-11, 2**-8]
        True
    """
    largest = SINGLE_SLACKS[-1]
    if expected_batch_size is None:
        return largest
    units = math.ceil(expected_batch_size + 3 * expected_batch_size**0.5)
    return next((each for each in SINGLE_SLACKS if blocks(units, units, torch.float32, each).rows == units), largest)


def blocks(rows: int, units: int, dtype: torch.dtype, single: float, additions: int = 0) -> Blocks:
    """Blocks for `rows` units of a physical batch, in a logical batch of `units` privacy units.

    Single precision with rows of a block + blocks + 2 roundings, as few blocks as the bound allows; double precision
    where it allows none.

    Args:
        rows: units of the physical batch, padded ones included.
        units: of the logical batch.
        dtype: of the operands, float32 or float64.
        single: one of `SINGLE_SLACKS`.
        additions: of sums of physical batches in single precision, one rounding each.

    Raises:
        InvalidInput: there are more than `MOST_UNITS` units.

    Example:
        >>> [blocks(b, b, torch.float32, 2**-8).rows for b in (100, 256, 400)]
        [100, 117, 69]
        >>> blocks(4096, 4096, torch.float32, 2**-8).dtype
        torch.float64
    """
    if units > MOST_UNITS:
        raise InvalidInput(f"a batch must be of at most {MOST_UNITS} units; got more. Lower the sampling rate.")
    position_rows = 1
    if dtype == torch.float32:
        position_rows = max(1, int(_POSITION_WORK * single) // max(1, units))
        roundings = int(_WORK * single) // max(1, units) - 2 - additions
        if rows + 1 <= roundings:
            return Blocks(max(1, rows), dtype, position_rows)
        # The largest m with m + rows / m + 1 <= roundings.
        root = (roundings - 2) ** 2 - 4 * rows
        if roundings > 2 and root >= 0:
            return Blocks(int((roundings - 2 + root**0.5) // 2), dtype, position_rows)
    return Blocks(_DOUBLE_ROWS, torch.float64, position_rows)


def norm_slack(dtype: torch.dtype, parameters: int) -> float:
    """Share by which the norm of a clipped contribution may exceed its bound, for a model of so many parameters."""
    unit = torch.finfo(dtype).eps / 2
    terms = NORM_TERMS + parameters
    return (1 + _position_share(dtype)) * (1 + 0.5 * terms * unit / (1 - terms * unit)) - 1


def slack(dtype: torch.dtype, parameters: int, single: float) -> float:
    """Nu: share by which neighbouring computed sums may lie further apart than the clipping norm.

    Args:
        dtype: float32 or float64, in which gradients are clipped.
        parameters: number of tensors that are trained.
        single: one of `SINGLE_SLACKS`, for float32.

    Example:
        >>> [f"{slack(torch.float32, 8, single_slack(size)):.2%}" for size in (37, 4096)]
        ['0.07%', '0.41%']
    """
    sums = single if dtype == torch.float32 else DOUBLE_SLACK
    return (1 + norm_slack(dtype, parameters)) * (1 + sums) - 1


def square_sums(values: Tensor) -> Tensor:
    """Sum of squares over the last axis, in two levels where it is long."""
    length = values.shape[-1]
    if length <= FIRST_LEVEL:
        return _short_square_sums(values)
    rest = length % FIRST_LEVEL
    parts = [_short_square_sums(values[..., : length - rest].unflatten(-1, (-1, FIRST_LEVEL)))]
    if rest:
        parts.append(_short_square_sums(values[..., length - rest :]).unsqueeze(-1))
    return second_level(torch.cat(parts, -1) if rest else parts[0])


def _short_square_sums(values: Tensor) -> Tensor:
    """Sum of squares over the last axis.

    The square of a norm stores no squares; it costs three roundings more. Norms over strided axes are slow.
    """
    if values.stride(-1) != 1:
        return values.square().sum(-1)
    return torch.linalg.vector_norm(values, dim=-1).square()


def second_level(parts: Tensor) -> Tensor:
    """Sum over the last axis in double precision, rounded once."""
    return parts.sum(-1, dtype=torch.float64).to(parts.dtype)


def raised(squares: Tensor, mass: Tensor, positions: int) -> Tensor:
    """Squared norms that cover what rounding may hide of gradients that are sums over `positions`, see `covering`.

    Args:
        squares: computed squared norms.
        mass: sum of the lengths of the terms of each gradient.
        positions: number of terms.
    """
    unit = torch.finfo(squares.dtype).eps / 2
    # A hundredth more covers the rounding of the mass itself.
    return covering(squares, (squares.sqrt() + 1.01 * (positions + 2) * unit * mass).square())


def covering(squares: Tensor, highest: Tensor) -> Tensor:
    """`squares` where `POSITION_SHARE` of the norm covers all up to `highest`; there what it does not cover is added.

    Args:
        squares: computed squared norms.
        highest: bounds on the true ones.
    """
    return torch.maximum(squares, highest * (1 + _position_share(squares.dtype)) ** -2)


def _position_share(dtype: torch.dtype) -> float:
    return 0.0 if dtype == torch.float64 else POSITION_SHARE


@contextmanager
def precise_products() -> Iterator[None]:
    """Context in which float32 is multiplied in float32: in matrices, convolutions and recurrent layers.

    In TensorFloat-32, the default of convolutions on CUDA, or in bfloat16, a norm and the sum that it scales would
    differ by more than `slack` covers.
    """
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:
        legacy = "highest"  # The caller set the newer settings below, which torch does not put in words of the older.
    loose = [(each, each.fp32_precision) for each in _settings() if each.fp32_precision not in ("ieee", "none")]
    if legacy != "highest":
        torch.set_float32_matmul_precision("highest")
    for each, _ in loose:
        each.fp32_precision = "ieee"
    try:
        yield
    finally:
        if legacy != "highest":
            torch.set_float32_matmul_precision(legacy)
        for each, before in loose:
            each.fp32_precision = before


@functools.cache
def _settings() -> list[Any]:
    """Settings of torch 2.9 and later for the kinds of products of each library; of cuDNN before that."""
    backends: Any = torch.backends
    if not hasattr(backends.cudnn, "conv"):
        return [_Legacy()]
    on_device = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn] if torch.cuda.is_available() else []
    return [backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn, *on_device]


class _Legacy:
    """`torch.backends.cudnn.allow_tf32` of earlier torch, in the words of the later settings."""

    @property
    def fp32_precision(self) -> str:
        return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        torch.backends.cudnn.allow_tf32 = value != "ieee"
