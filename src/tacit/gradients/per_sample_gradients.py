"""Per-sample gradients of one parameter, each in the cheapest form that still has norms.

Every form answers three questions: the squared norm of each per-sample gradient, the gradients as one tensor, and
their weighted sum. B is the batch size, T the number of positions at which one record uses the parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from tacit.gradients.buffers import Buffers, recording, row_squares

# Rounding allowance of a Gram norm, relative to (sum_t |a_t| |b_t|)^2: its terms may cancel, their rounding does not.
_GRAM_ROUNDING = 16
# Per-sample matrices up to so many values (16 MB) stay from the norm to the weighted sum; larger ones are made twice.
_KEPT_VALUES = 2**22
# Added to a square that is multiplied by another: far more than what float32 rounds to zero (1e-45), far below a norm.
_UNDERFLOW = 1e-30
# Share of a matrix below which its selected entries, one by one, cost less than a product of the whole matrix.
_SPARSE_SHARE = 0.15
# Terms that are added one after another: more would cost digits.
_SEQUENTIAL_TERMS = 128


class PerSampleGradients(ABC):
    """Per-sample gradients of the parameter `name`, shape (B, *parameter.shape), in some form."""

    name: str

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """Squared norm of each gradient, shape (B,); below its true value by rounding at most."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The gradients as one tensor, which `reshape` brings to (B, *parameter.shape)."""

    @abstractmethod
    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """Add sum_i factors_i gradient_i to `gradient_sum`, which has the parameter's shape."""

    def per_unit(self, size: int) -> PerSampleGradients:
        """Sums of every `size` gradients in a row, shape (B / size, *parameter.shape)."""
        return DenseGradients(self.name, self.dense().unflatten(0, (-1, size)).sum(1))

    def over_positions(self) -> PerSampleGradients:
        """The same gradients in a form to which further uses of the parameter can be added."""
        return self

    def masked(self, name: str, mask: Tensor) -> PerSampleGradients:
        """Gradients in W = `name`, these being the gradients in W * mask."""
        return DenseGradients(name, self.dense().reshape(-1, *mask.shape) * mask)

    def scattered(self, name: str, flat_index: Tensor) -> PerSampleGradients:
        """Gradients in the vector `name`, whose values stand at `flat_index` of the tensor that these belong to."""
        return DenseGradients(name, self.dense().flatten(1)[:, flat_index])

    def values(self) -> int:
        """Values that this form holds in memory."""
        return sum(
            part.numel() if isinstance(part, Tensor) else part.values()
            for part in vars(self).values()
            if isinstance(part, Tensor | PerSampleGradients)
        )


@dataclass
class DenseGradients(PerSampleGradients):
    """The gradients themselves; for biases, scales and whatever is small."""

    name: str
    gradients: Tensor

    def squared_norms(self) -> Tensor:
        """Sum of squares of each gradient."""
        return row_squares(self.gradients)

    def dense(self) -> Tensor:
        """The gradients."""
        return self.gradients

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One product of a matrix and a vector."""
        gradient_sum.view(-1).addmv_(self.gradients.reshape(len(factors), -1).t(), factors)


class OuterProductSum(PerSampleGradients):
    """Matrix gradients sum_t left_t right_t^T, one matrix for each of G groups.

    Their norms come from two vectors when T = 1. Otherwise they come from the matrices or from the Gram matrices of
    both sides, whichever is cheaper; matrices that are small stay for the weighted sum, and both sides are released.

    Args:
        name: of the parameter.
        left: (B, G, p, T), gradients with respect to the outputs.
        right: (B, G, T, d), the inputs.
        buffers: memory in which the matrices are made.
    """

    def __init__(self, name: str, left: Tensor, right: Tensor, buffers: Buffers):
        self.name = name
        self.left, self.right = left, right
        self.buffers = buffers
        self._matrices: Tensor | None = None

    @classmethod
    def of_positions(cls, name: str, left: Tensor, right: Tensor, buffers: Buffers) -> OuterProductSum:
        """One group: `left` is (B, T, p), `right` is (B, T, d).

        Args:
            name: of the parameter.
            left: output gradients, shape (B, T, p).
            right: inputs, shape (B, T, d).
            buffers: memory for intermediate results.
        """
        return cls(name, left.mT.unsqueeze(1), right.unsqueeze(1), buffers)

    def squared_norms(self) -> Tensor:
        """Squared norms from vectors, matrices or Gram matrices (ghost norms, Li et al. 2022), the cheapest of them."""
        batch, groups, outputs, positions = self.left.shape
        inputs = self.right.shape[3]
        if positions == 1:
            return self._one_position()
        small = batch * groups * outputs * inputs <= _KEPT_VALUES
        work = positions**2 * (outputs + inputs) if small else positions * (outputs + inputs)
        gram = groups == 1 and work < outputs * inputs
        if small and not gram:
            self._matrices = self.buffers.product(("matrices", self.name), self.left, self.right)
            self.left = self.right = self.left.new_empty(0)
            return row_squares(self._matrices)
        if gram:
            return self._gram()
        size = max(1, _KEPT_VALUES // (groups * outputs * inputs))
        parts = zip(self.left.split(size), self.right.split(size), strict=True)
        return torch.cat([row_squares(torch.matmul(left, right)) for left, right in parts])

    def _one_position(self) -> Tensor:
        underflow = self._underflow()
        if self.left.shape[1] == 1:
            return (row_squares(self.left) + underflow) * (row_squares(self.right) + underflow)
        left, right = self.left.square().sum((2, 3)), self.right.square().sum((2, 3))
        return ((left + underflow) * (right + underflow)).sum(1)

    def _gram(self) -> Tensor:
        """Sum over t, u of <left_t, left_u> <right_t, right_u>, plus an allowance for the rounding of its terms."""
        left, right = self.left[:, 0], self.right[:, 0]
        outer, inner = torch.bmm(left.mT, left), torch.bmm(right, right.mT)
        squares = [gram.diagonal(dim1=1, dim2=2) + self._underflow() for gram in (outer, inner)]
        magnitude = (squares[0].sqrt() * squares[1].sqrt()).sum(1).square()
        allowance = _GRAM_ROUNDING * torch.finfo(left.dtype).eps * magnitude
        return outer.mul_(inner).sum((1, 2)).clamp_(min=0.0).add_(allowance)

    def _underflow(self) -> float:
        return _UNDERFLOW * max(self.left.shape[2], self.right.shape[3])

    def dense(self) -> Tensor:
        """The matrices, shape (B, G, p, d)."""
        return torch.matmul(self.left, self.right) if self._matrices is None else self._matrices

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One product over records and positions together, or one with the matrices where they were kept."""
        if self._matrices is not None:
            gradient_sum.view(-1).addmv_(self._matrices.flatten(1).t(), factors)
            return
        groups, outputs = self.left.shape[1:3]
        if self.left.shape[1:4:2] == (1, 1):
            weighted = self.left[:, 0, :, 0] * factors.view(-1, 1)
            gradient_sum.view(outputs, -1).addmm_(weighted.t(), self.right[:, 0, 0])
            return
        weighted = self.left * factors.view(-1, 1, 1, 1)
        for group, matrix in enumerate(gradient_sum.view(groups, outputs, -1)):
            left = weighted[:, group].transpose(0, 1).reshape(outputs, -1)
            right = self.right[:, group].reshape(-1, self.right.shape[3])
            matrix.addmm_(left, right)

    def per_unit(self, size: int) -> OuterProductSum:
        """Records of one unit are further positions."""
        left = self.left.unflatten(0, (-1, size)).permute(0, 2, 3, 1, 4).flatten(3)
        right = self.right.unflatten(0, (-1, size)).permute(0, 2, 1, 3, 4).flatten(2, 3)
        return OuterProductSum(self.name, left, right, self.buffers)


@dataclass
class OuterProduct(PerSampleGradients):
    """Gradients left right^T, whose norm is |left| |right|: a matrix that each record uses at one position only.

    Args:
        name: of the parameter.
        left: (B, p), gradients with respect to the outputs.
        right: (B, d), the inputs.
        buffers: memory for forms that are made from this one.
    """

    name: str
    left: Tensor
    right: Tensor
    buffers: Buffers

    def squared_norms(self) -> Tensor:
        """|left|^2 |right|^2."""
        underflow = _UNDERFLOW * max(self.left.shape[1], self.right.shape[1])
        return (row_squares(self.left) + underflow) * (row_squares(self.right) + underflow)

    def dense(self) -> Tensor:
        """The matrices, shape (B, p, d)."""
        return self.left.unsqueeze(2) * self.right.unsqueeze(1)

    def weighted_left(self, factors: Tensor) -> Tensor:
        """(factors_i left_i) as columns, shape (p, B)."""
        return (self.left * factors.unsqueeze(1)).t()

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One matrix product."""
        gradient_sum.addmm_(self.weighted_left(factors), self.right)

    def over_positions(self) -> OuterProductSum:
        """The same as a sum over one position."""
        return OuterProductSum.of_positions(self.name, self.left.unsqueeze(1), self.right.unsqueeze(1), self.buffers)

    def per_unit(self, size: int) -> OuterProductSum:
        """Records of one unit are positions of a sum."""
        return self.over_positions().per_unit(size)

    def masked(self, name: str, mask: Tensor) -> MaskedOuterProduct:
        """The masked form that keeps both vectors."""
        return MaskedOuterProduct(name, self, mask)

    def scattered(self, name: str, flat_index: Tensor) -> ScatteredOuterProduct:
        """The scattered form that keeps both vectors."""
        return ScatteredOuterProduct(name, self, flat_index)


@dataclass
class MaskedOuterProduct(PerSampleGradients):
    """Gradients left right^T of W * mask in W, which are masked too."""

    name: str
    inner: OuterProduct
    mask: Tensor

    def squared_norms(self) -> Tensor:
        """Sum over j, k of mask_jk^2 left_j^2 right_k^2: one more product of the layer's size."""
        left, right = self.inner.left.square() + _UNDERFLOW, self.inner.right.square() + _UNDERFLOW
        return ((left @ self.mask.square()) * right).sum(1)

    def dense(self) -> Tensor:
        """The masked matrices."""
        return self.inner.dense() * self.mask

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One matrix product, then the mask."""
        gradient_sum.addcmul_(self.inner.weighted_left(factors) @ self.inner.right, self.mask)


@dataclass
class ScatteredOuterProduct(PerSampleGradients):
    """Gradients left right^T of a matrix in the vector whose values stand at `flat_index` of it, row by row."""

    name: str
    inner: OuterProduct
    flat_index: Tensor

    def squared_norms(self) -> Tensor:
        """Sum over the entries (j, k) in `flat_index` of left_j^2 right_k^2."""
        left, right = self.inner.left, self.inner.right
        rows, columns = left.shape[1], right.shape[1]
        if recording() or len(self.flat_index) > _SPARSE_SHARE * rows * columns:
            mask = right.new_zeros(rows * columns).index_fill_(0, self.flat_index, 1.0).view(1, 1, rows, columns)
            sums = self.inner.buffers.product(("norms", self.name), self._squares("left", left)[None, None], mask)
            return (sums[0, 0] * self._squares("right", right)).sum(1)
        column, first, row = _row_bags(self.flat_index, columns)
        sums = F.embedding_bag(column, self._squares("right", right.t()), first, mode="sum")
        return sums.mul_(self._squares("left", left.t())[row]).sum(0)

    def _squares(self, side: str, values: Tensor) -> Tensor:
        if recording():
            return values.square() + _UNDERFLOW
        return self.inner.buffers.copy((side, self.name), values).square_().add_(_UNDERFLOW)

    def dense(self) -> Tensor:
        """The selected entries of the matrices."""
        return self.inner.dense().flatten(1)[:, self.flat_index]

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One matrix product, of which the selected entries are added."""
        weighted, right = self.inner.weighted_left(factors)[None, None], self.inner.right[None, None]
        sums = self.inner.buffers.product(("sums", self.name), weighted, right)
        gradient_sum += sums.flatten()[self.flat_index]


_ROW_BAGS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _row_bags(flat_index: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """The entries in bags of one row each: column of each entry, first entry of each bag, row of each bag."""
    known = _ROW_BAGS.get(flat_index)
    if known is None or known[0] != (flat_index._version, columns):
        ordered = flat_index.sort().values
        row, column = ordered // columns, ordered % columns
        within = torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)
        first = (within % _SEQUENTIAL_TERMS == 0).nonzero().flatten()
        known = _ROW_BAGS[flat_index] = (flat_index._version, columns), (column, first, row[first])
    return known[1]


def sum_of_uses(uses: Sequence[PerSampleGradients], shape: torch.Size) -> PerSampleGradients:
    """Gradients of a parameter of `shape` that is used several times: they add up before they are squared."""
    if len(uses) == 1:
        return uses[0]
    name, sums = uses[0].name, [use for use in uses if isinstance(use, OuterProductSum)]
    if len(sums) == len(uses) and all(use.left.shape[1:3] == sums[0].left.shape[1:3] for use in sums):
        left, right = torch.cat([use.left for use in sums], 3), torch.cat([use.right for use in sums], 2)
        return OuterProductSum(name, left, right, sums[0].buffers)
    gradients = uses[0].dense().reshape(-1, *shape)
    for use in uses[1:]:
        gradients = gradients + use.dense().reshape(-1, *shape)
    return DenseGradients(name, gradients)
