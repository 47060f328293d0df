"""Matrix gradients of layers that an example uses at one position only, which is what most small models do."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.contributions import Outer, Rows
from tacit.gradients.scratch import Scratch, recording, row_squares

_UNSEEN = 1e-30  # more than a square below the smallest float32 can hide
_FEW = 0.4  # share of a matrix below which its places one by one are cheaper than the matrix
_SHORT = 64  # terms that are added one after another: more would cost digits


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
        left, right = self._squares("left", self.inner.left), self._squares("right", self.inner.right)
        rows, columns = len(left), len(right)
        if recording() or len(self.places) > _FEW * rows * columns:
            mask = right.new_zeros(rows * columns).index_fill(0, self.places, 1.0).view(rows, columns)
            return ((mask.t() @ left) * right).sum(0)
        places = self.places if bool((self.places.diff() > 0).all()) else self.places.sort().values
        row = places // columns
        starts = torch.searchsorted(places, torch.arange(rows, device=places.device) * columns)
        within = torch.arange(len(places), device=places.device) - starts[row]
        first = (within % _SHORT == 0).nonzero().flatten()
        sums = F.embedding_bag(places % columns, right, first, mode="sum")
        return sums.mul_(left[row[first]]).sum(0)

    def _squares(self, side: str, values: Tensor) -> Tensor:
        """Squares by column, no smaller than what float32 can hide."""
        return self.inner.scratch.copy((side, self.name), values.t()).square_().add_(_UNSEEN)

    def rows(self) -> Tensor:
        return self.inner.rows().flatten(1)[:, self.places]

    def add_weighted(self, total: Tensor, factors: Tensor) -> None:
        weighted = self.inner.left * factors.unsqueeze(1)
        sums = self.inner.scratch.product(("sums", self.name), weighted.t()[None, None], self.inner.right[None, None])
        total += sums.flatten()[self.places]

    def joined(self, size: int) -> Rows:
        return Rows(self.name, self.rows()).joined(size)
