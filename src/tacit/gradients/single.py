"""Matrix gradients of layers that an example uses at one position only, which is what most small models do."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from tacit.gradients.contributions import Outer, Rows
from tacit.gradients.scratch import Scratch, recording, row_squares

_UNSEEN = 1e-30  # more than a square below the smallest float32 can hide
_FEW = 0.15  # share of a matrix below which its places one by one are cheaper than the matrix
_SHORT = 128  # terms that are added one after another: more would cost digits


@dataclass
class Single:
    """Gradients left right^T, whose norm is |left| |right|; left is (B, p), right is (B, d)."""

    name: str
    left: Tensor
    right: Tensor
    scratch: Scratch

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
