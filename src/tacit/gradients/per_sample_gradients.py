"""What one use of a parameter contributes to per-example gradients, kept in the cheapest form that still has norms.

Every form answers three questions: the squared norm of each example's gradient, the gradients themselves, and their
weighted sum. B is the batch, T the positions at which one example uses the parameter.

Matrix gradients of layers that an example uses at one position only, which is what most small models do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from tacit.gradients.buffers import Buffers, recording, row_squares

# Rounding allowance of a Gram norm, relative to (sum_t |a_t| |b_t|)^2: its terms may cancel, their rounding does not.
_GRAM_ROUNDING = 16
_KEPT = 2**22  # values of per-example matrices that are kept from the norm to the weighted sum


class Contribution(Protocol):
    """Per-example gradients of one parameter, shape (B, *parameter.shape), in some form."""

    name: str

    def squared_norms(self) -> Tensor:
        """Squared norm of each example's gradient, never below its true value by more than rounding; shape (B,)."""
        ...

    def rows(self) -> Tensor:
        """The gradients, shape (B, *parameter.shape)."""
        ...

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        """Add sum_i factors_i gradient_i to `total`, which has the parameter's shape."""
        ...

    def joined(self, size: int) -> Contribution:
        """The sums of every `size` gradients in a row, shape (B / size, *parameter.shape)."""
        ...


@dataclass
class Rows:
    """The gradients themselves; for biases, scales and whatever is small."""

    name: str
    gradients: Tensor

    def squared_norms(self) -> Tensor:
        return row_squares(self.gradients)

    def rows(self) -> Tensor:
        return self.gradients

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        total.view(-1).addmv_(self.gradients.reshape(len(factors), -1).t(), factors)

    def joined(self, size: int) -> Rows:
        return Rows(self.name, self.gradients.unflatten(0, (-1, size)).sum(1))


class Outer:
    """Matrix gradients sum_t left_t right_t^T, one matrix for each of G groups.

    Their norms come from two vectors when T = 1, else from the matrices or from the Gram matrices of both sides,
    whichever is cheaper; matrices that are small stay for the weighted sum, and both sides are let go.

    Args:
        left: (B, G, p, T), gradients with respect to the outputs.
        right: (B, G, T, d), the inputs.
        scratch: where the matrices are made.
    """

    def __init__(self, name: str, left: Tensor, right: Tensor, scratch: Buffers):
        self.name = name
        self.left, self.right = left, right
        self.scratch = scratch
        self._matrices: Tensor | None = None

    def squared_norms(self) -> Tensor:
        batch, groups, outputs, positions = self.left.shape
        inputs = self.right.shape[3]
        if positions == 1:
            return self._single()
        small = batch * groups * outputs * inputs <= _KEPT
        work = positions**2 * (outputs + inputs) if small else positions * (outputs + inputs)
        gram = groups == 1 and work < outputs * inputs
        if small and not gram:
            self._matrices = self.scratch.product(("matrices", self.name), self.left, self.right)
            self.left = self.right = self.left.new_empty(0)
            return row_squares(self._matrices)
        if gram:
            return self._gram()
        size = max(1, _KEPT // (groups * outputs * inputs))
        parts = zip(self.left.split(size), self.right.split(size), strict=True)
        return torch.cat([row_squares(torch.matmul(left, right)) for left, right in parts])

    def _single(self) -> Tensor:
        if self.left.shape[1] == 1:
            left, right = row_squares(self.left), row_squares(self.right)
            return (left + self._unseen()) * (right + self._unseen())
        left, right = self.left.square().sum((2, 3)), self.right.square().sum((2, 3))
        return ((left + self._unseen()) * (right + self._unseen())).sum(1)

    def _gram(self) -> Tensor:
        """sum_{t,u} <left_t, left_u> <right_t, right_u>, plus an allowance for the rounding of cancelling terms."""
        left, right = self.left[:, 0], self.right[:, 0]
        outer, inner = torch.bmm(left.mT, left), torch.bmm(right, right.mT)
        squares = [gram.diagonal(dim1=1, dim2=2) + self._unseen() for gram in (outer, inner)]
        magnitude = (squares[0].sqrt() * squares[1].sqrt()).sum(1).square()
        allowance = _GRAM_ROUNDING * torch.finfo(left.dtype).eps * magnitude
        return outer.mul_(inner).sum((1, 2)).clamp_(min=0.0).add_(allowance)

    def _unseen(self) -> float:
        """More than squares below the smallest float32 can hide in a sum of squares that is multiplied by another."""
        return 1e-30 * max(self.left.shape[2], self.right.shape[3])

    def rows(self) -> Tensor:
        return torch.matmul(self.left, self.right) if self._matrices is None else self._matrices

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        if self._matrices is not None:
            total.view(-1).addmv_(self._matrices.flatten(1).t(), factors)
            return
        groups, outputs = self.left.shape[1:3]
        if self.left.shape[1:4:2] == (1, 1):
            weighted = self.left[:, 0, :, 0] * factors.view(-1, 1)
            total.view(outputs, -1).addmm_(weighted.t(), self.right[:, 0, 0])
            return
        weighted = self.left * factors.view(-1, 1, 1, 1)
        for group, matrix in enumerate(total.view(groups, outputs, -1)):
            left = weighted[:, group].transpose(0, 1).reshape(outputs, -1)
            right = self.right[:, group].reshape(-1, self.right.shape[3])
            matrix.addmm_(left, right)

    def joined(self, size: int) -> Outer:
        """Records of one unit are further positions."""
        left = self.left.unflatten(0, (-1, size)).permute(0, 2, 3, 1, 4).flatten(3)
        right = self.right.unflatten(0, (-1, size)).permute(0, 2, 1, 3, 4).flatten(2, 3)
        return Outer(self.name, left, right, self.scratch)


class Lookup:
    """Embedding gradients: row `index[i, t]` of the table gets `gradient[i, t]`.

    Args:
        index: (B, T) integers.
        gradient: (B, T, d); zero where the position counts for nothing.
        shape: of the table, (V, d).
    """

    def __init__(self, name: str, index: Tensor, gradient: Tensor, shape: torch.Size):
        self.name, self.index, self.gradient, self.shape = name, index, gradient, shape

    def squared_norms(self) -> Tensor:
        """Gradients at equal indices of one example are summed before they are squared."""
        positions = self.index.shape[1]
        if positions == 1:
            return row_squares(self.gradient)
        ordered, order = _sorted(self.index)
        same = ordered[:, 1:] == ordered[:, :-1]
        first = F.pad(~same, (1, 0), value=True)
        if recording():
            return self._run_squares(order, first, torch.arange(order.numel(), device=order.device))
        # An index that an example looks up once needs no sum; the others are few in most data.
        repeated = F.pad(same, (1, 0)) | F.pad(same, (0, 1))
        alone = torch.ones_like(repeated).scatter_(1, order, ~repeated)
        squares = (self.gradient.square().sum(2) * alone).sum(1)
        return squares + self._run_squares(order, first, repeated.flatten().nonzero().flatten())

    def _run_squares(self, order: Tensor, first: Tensor, chosen: Tensor) -> Tensor:
        """Sum of squares of the sums over runs of equal indices, over the `chosen` places of the sorted indices."""
        positions = self.index.shape[1]
        example = chosen // positions
        run = first.flatten()[chosen].cumsum(0) - 1
        values = self.gradient.reshape(-1, self.shape[1])[example * positions + order.flatten()[chosen]]
        sums = values.new_zeros(values.shape).index_add_(0, run, values)
        owner = torch.zeros_like(example).scatter_(0, run, example)
        return values.new_zeros(len(order)).index_add_(0, owner, sums.square().sum(1))

    def rows(self) -> Tensor:
        table = self.gradient.new_zeros((len(self.index), *self.shape))
        index = self.index.unsqueeze(-1).expand_as(self.gradient)
        return table.scatter_add_(1, index, self.gradient)

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        weighted = self.gradient * factors.view(-1, 1, 1)
        total.view(self.shape).index_add_(0, self.index.flatten(), weighted.reshape(-1, self.shape[1]))

    def joined(self, size: int) -> Lookup:
        index, gradient = self.index.unflatten(0, (-1, size)), self.gradient.unflatten(0, (-1, size))
        return Lookup(self.name, index.flatten(1), gradient.flatten(1, 2), self.shape)


def _sorted(index: Tensor) -> tuple[Tensor, Tensor]:
    """Every row in ascending order, and the positions it came from.

    numpy sorts integers several times faster than torch does on a CPU; position and index share one integer there.
    """
    if index.device.type != "cpu" or recording():
        return index.sort(dim=1)
    bits = (index.shape[1] - 1).bit_length()
    packed = index.long() << bits | torch.arange(index.shape[1])
    packed = torch.from_numpy(np.sort(packed.numpy(), axis=1))
    return packed >> bits, packed & ((1 << bits) - 1)


def merged(uses: list[Contribution], shape: torch.Size) -> Contribution:
    """The contribution of a parameter that is used several times: gradients add up before they are squared."""
    if len(uses) == 1:
        return uses[0]
    outers = [use for use in uses if isinstance(use, Outer)]
    if len(outers) == len(uses) and all(use.left.shape[1:3] == outers[0].left.shape[1:3] for use in outers):
        left, right = torch.cat([use.left for use in outers], 3), torch.cat([use.right for use in outers], 2)
        return Outer(uses[0].name, left, right, outers[0].scratch)
    total = uses[0].rows().reshape(-1, *shape)
    for use in uses[1:]:
        total = total + use.rows().reshape(-1, *shape)
    return Rows(uses[0].name, total)


_UNSEEN = 1e-30  # more than a square below the smallest float32 can hide
_FEW = 0.15  # share of a matrix below which its places one by one are cheaper than the matrix
_SHORT = 128  # terms that are added one after another: more would cost digits


@dataclass
class Single:
    """Gradients left right^T, whose norm is |left| |right|; left is (B, p), right is (B, d)."""

    name: str
    left: Tensor
    right: Tensor
    scratch: Buffers

    def squared_norms(self) -> Tensor:
        # A sum of squares that is multiplied by another must not hide what underflowed.
        unseen = _UNSEEN * max(self.left.shape[1], self.right.shape[1])
        return (row_squares(self.left) + unseen) * (row_squares(self.right) + unseen)

    def rows(self) -> Tensor:
        return self.left.unsqueeze(2) * self.right.unsqueeze(1)

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        weighted = self.left * factors.unsqueeze(1)
        total.addmm_(weighted.t(), self.right)

    def outer(self) -> Outer:
        """The same as a sum over one position."""
        left, right = self.left.unsqueeze(1).unsqueeze(3), self.right.unsqueeze(1).unsqueeze(1)
        return Outer(self.name, left, right, self.scratch)

    def joined(self, size: int) -> Outer:
        return self.outer().joined(size)


@dataclass
class Masked:
    """Gradients left right^T of W * mask in W, which are masked too."""

    name: str
    inner: Single
    mask: Tensor

    def squared_norms(self) -> Tensor:
        """sum_jk mask_jk^2 left_j^2 right_k^2: one more product of the layer's size."""
        left, right = self.inner.left.square() + _UNSEEN, self.inner.right.square() + _UNSEEN
        return ((left @ self.mask.square()) * right).sum(1)

    def rows(self) -> Tensor:
        return self.inner.rows() * self.mask

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        weighted = self.inner.left * factors.unsqueeze(1)
        total.addcmul_(weighted.t() @ self.inner.right, self.mask)

    def joined(self, size: int) -> Rows:
        return Rows(self.name, self.rows()).joined(size)


@dataclass
class Scattered:
    """Gradients left right^T of a matrix in the parameter whose values stand at `places` of it, counted row by row."""

    name: str
    inner: Single
    places: Tensor

    def squared_norms(self) -> Tensor:
        """sum over the places (j, k) of left_j^2 right_k^2."""
        left, right = self.inner.left, self.inner.right
        rows, columns = left.shape[1], right.shape[1]
        if recording() or len(self.places) > _FEW * rows * columns:
            mask = right.new_zeros(rows * columns).index_fill_(0, self.places, 1.0).view(1, 1, rows, columns)
            sums = self.inner.scratch.product(("norms", self.name), self._squares("left", left)[None, None], mask)
            return (sums[0, 0] * self._squares("right", right)).sum(1)
        index, first, row = _layout(self.places, columns)
        sums = F.embedding_bag(index, self._squares("right", right.t()), first, mode="sum")
        return sums.mul_(self._squares("left", left.t())[row]).sum(0)

    def _squares(self, side: str, values: Tensor) -> Tensor:
        """Squares, no smaller than what float32 can hide."""
        if recording():
            return values.square() + _UNSEEN
        return self.inner.scratch.copy((side, self.name), values).square_().add_(_UNSEEN)

    def rows(self) -> Tensor:
        return self.inner.rows().flatten(1)[:, self.places]

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        weighted = self.inner.left * factors.unsqueeze(1)
        sums = self.inner.scratch.product(("sums", self.name), weighted.t()[None, None], self.inner.right[None, None])
        total += sums.flatten()[self.places]

    def joined(self, size: int) -> Rows:
        return Rows(self.name, self.rows()).joined(size)


_LAYOUTS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _layout(places: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """The places in bags of one row each: the column of each place, the first place of a bag, the row of a bag."""
    known = _LAYOUTS.get(places)
    if known is None or known[0] != (places._version, columns):
        ordered = places.sort().values
        row, index = ordered // columns, ordered % columns
        within = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)
        first = (within % _SHORT == 0).nonzero().flatten()
        known = _LAYOUTS[places] = (places._version, columns), (index, first, row[first])
    return known[1]
