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

from tacit.gradients.flat_gradient import MOST_KEPT_VALUES, Buffers, recording, row_squares
from tacit.gradients.rounding import Blocks, covering, raised, square_sums

# Positions that one product adds up; more are added part by part, which rounds less.
_POSITIONS = 32
# Values whose conversion to double precision takes less time than the operations of a few blocks.
_FEW_VALUES = 2**14
# Added to a square that is multiplied by another: far more than what float32 rounds to zero (1e-45), far below a norm.
UNDERFLOW = 1e-30


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
        """Add sum_i factors_i gradient_i to `gradient_sum`, which has the parameter's shape, in its precision."""

    @abstractmethod
    def select(self, index: slice) -> PerSampleGradients:
        """The gradients in `index`."""

    def add_in_blocks(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        """`add_weighted` block by block, so that no value meets more roundings than `blocks` was made for.

        Args:
            gradient_sum: zeros of the parameter's shape, of the type of `blocks`.
            factors: shape (B,).
            blocks: from `tacit.gradients.rounding.blocks`.
        """
        _add_blocks(self, gradient_sum, factors, blocks.rows)

    def per_unit(self, size: int) -> PerSampleGradients:
        """Sums of every `size` gradients in a row, shape (B / size, *parameter.shape)."""
        return DenseGradients(self.name, self.dense().unflatten(0, (-1, size)).sum(1))

    def over_positions(self) -> PerSampleGradients:
        """The same gradients in a form to which further uses of the parameter can be added."""
        return self

    def add_to(self, gradients: Tensor) -> None:
        """Add these to `gradients`, shape (B, *parameter.shape)."""
        gradients += self.dense().reshape(gradients.shape)

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
        add_rows(gradient_sum, self.gradients.reshape(len(factors), -1), factors)

    def add_in_blocks(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        """All at once in double precision where there are few values, which costs less than several blocks."""
        if len(factors) <= blocks.rows or self.gradients.numel() > _FEW_VALUES:
            super().add_in_blocks(gradient_sum, factors, blocks)
            return
        rows = self.gradients.reshape(len(factors), -1).double()
        gradient_sum += torch.mv(rows.t(), factors.double()).view(gradient_sum.shape)

    def select(self, index: slice) -> DenseGradients:
        """The gradients in `index`."""
        return DenseGradients(self.name, self.gradients[index])


def _long_product(left: Tensor, right: Tensor) -> Tensor:
    """The product left @ right, so that no value is a sum of more than `_POSITIONS` terms and of so many parts."""
    total = torch.matmul(left[..., :_POSITIONS], right[..., :_POSITIONS, :])
    for start in range(_POSITIONS, left.shape[-1], _POSITIONS):
        index = slice(start, start + _POSITIONS)
        total += torch.matmul(left[..., index], right[..., index, :])
    return total


def _gram_precision(operand: Tensor) -> torch.dtype:
    """Of Gram matrices: double on processors, where their cost is small beside the model's; graphics cards lack it."""
    return operand.dtype if operand.is_cuda else torch.float64


def add_rows(gradient_sum: Tensor, rows: Tensor, factors: Tensor) -> None:
    """Add the weighted sum of `rows`, (B, values), to `gradient_sum`, in its precision."""
    dtype = gradient_sum.dtype
    gradient_sum.view(-1).addmv_(rows.to(dtype).t(), factors.to(dtype))


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
        small = batch * groups * outputs * inputs <= MOST_KEPT_VALUES
        work = positions**2 * (outputs + inputs) if small else positions * (outputs + inputs)
        gram = groups == 1 and work < outputs * inputs
        if small and not gram:
            self._matrices = self.buffers.product(("matrices", self.name), self.left, self.right)
            self.left = self.right = self.left.new_empty(0)
            return row_squares(self._matrices)
        if gram:
            return self._gram()
        size = max(1, MOST_KEPT_VALUES // (groups * outputs * inputs))
        parts = zip(self.left.split(size), self.right.split(size), strict=True)
        squares = torch.cat([row_squares(_long_product(left, right)) for left, right in parts])
        return raised(squares, self._mass(), min(positions, _POSITIONS) + positions // _POSITIONS)

    def _mass(self) -> Tensor:
        """Sum of the lengths of the terms of each gradient."""
        underflow = self._underflow()
        left, right = square_sums(self.left.mT) + underflow, square_sums(self.right) + underflow
        return (left.sqrt() * right.sqrt()).sum((1, 2))

    def _one_position(self) -> Tensor:
        underflow = self._underflow()
        if self.left.shape[1] == 1:
            return (row_squares(self.left) + underflow) * (row_squares(self.right) + underflow)
        left, right = square_sums(self.left[..., 0]), square_sums(self.right[..., 0, :])
        return ((left + underflow) * (right + underflow)).sum(1)

    def _gram(self) -> Tensor:
        """Sum over t, u of <left_t, left_u> <right_t, right_u>, with what rounding may hide of it.

        The terms may cancel, their rounding does not: with p outputs, d inputs and T positions it is at most
        gamma_{p + d + 2T + 2} (sum_t |left_t| |right_t|)^2.
        """
        positions, width = self.left.shape[3], self.left.shape[2] + self.right.shape[3]
        size = max(1, MOST_KEPT_VALUES // (positions * (positions + width)))
        parts = zip(self.left[:, 0].split(size), self.right[:, 0].split(size), strict=True)
        return torch.cat([self._gram_of(left, right) for left, right in parts])

    def _gram_of(self, left: Tensor, right: Tensor) -> Tensor:
        exact = _gram_precision(left)
        left, right = left.to(exact), right.to(exact)
        outer, inner = torch.bmm(left.mT, left), torch.bmm(right, right.mT)
        squares = [gram.diagonal(dim1=1, dim2=2) + self._underflow() for gram in (outer, inner)]
        magnitude = (squares[0].sqrt() * squares[1].sqrt()).sum(1).square()
        roundings = left.shape[1] + right.shape[2] + 2 * left.shape[2] + 8
        # A hundredth more covers the rounding of the bound itself.
        allowance = 1.01 * roundings * torch.finfo(exact).eps / 2 * magnitude
        computed = outer.mul_(inner).sum(2).sum(1).clamp_(min=0.0)
        return covering(computed.to(self.left.dtype), (computed + allowance).to(self.left.dtype))

    def _underflow(self) -> float:
        return UNDERFLOW * max(self.left.shape[2], self.right.shape[3])

    @property
    def factored(self) -> bool:
        """Whether both sides are still at hand, so that `dense` makes matrices of its own."""
        return self._matrices is None

    def dense(self) -> Tensor:
        """The matrices, shape (B, G, p, d)."""
        return torch.matmul(self.left, self.right) if self._matrices is None else self._matrices

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One product over records and positions together, or one with the matrices where they were kept."""
        if self._matrices is not None:
            add_rows(gradient_sum, self._matrices.flatten(1), factors)
            return
        dtype = gradient_sum.dtype
        groups, outputs = self.left.shape[1:3]
        weighted = self.left.to(dtype) * factors.to(dtype).view(-1, 1, 1, 1)
        if self.left.shape[1:4:2] == (1, 1):
            gradient_sum.view(outputs, -1).addmm_(weighted[:, 0, :, 0].t(), self.right[:, 0, 0].to(dtype))
            return
        for group, matrix in enumerate(gradient_sum.view(groups, outputs, -1)):
            left = weighted[:, group].transpose(0, 1).reshape(outputs, -1)
            right = self.right[:, group].reshape(-1, self.right.shape[3])
            matrix.addmm_(left, right.to(dtype))

    def select(self, index: slice) -> OuterProductSum:
        """The gradients in `index`."""
        if self._matrices is None:
            return OuterProductSum(self.name, self.left[index], self.right[index], self.buffers)
        chosen = OuterProductSum(self.name, self.left, self.right, self.buffers)
        chosen._matrices = self._matrices[index]
        return chosen

    def add_in_blocks(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        """In double precision where positions may cancel each other."""
        if self._matrices is not None or self.left.shape[3] == 1:
            super().add_in_blocks(gradient_sum, factors, blocks)
            return
        add_positions(self, gradient_sum, factors, blocks)

    def per_unit(self, size: int) -> OuterProductSum:
        """Records of one unit are further positions."""
        left = self.left.unflatten(0, (-1, size)).permute(0, 2, 3, 1, 4).flatten(3)
        right = self.right.unflatten(0, (-1, size)).permute(0, 2, 1, 3, 4).flatten(2, 3)
        return OuterProductSum(self.name, left, right, self.buffers)


def add_positions(gradients: PerSampleGradients, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
    """`add_weighted` in double precision, few records at a time: sums over positions, which may cancel.

    Args:
        gradients: of one parameter.
        gradient_sum: zeros of the parameter's shape.
        factors: shape (B,).
        blocks: from `tacit.gradients.rounding.blocks`.
    """
    total = gradient_sum
    if total.dtype != torch.float64:
        total = torch.zeros(total.shape, dtype=torch.float64, device=total.device)
    _add_blocks(gradients, total, factors, blocks.position_rows)
    if total is not gradient_sum:
        gradient_sum.copy_(total)


def _add_blocks(gradients: PerSampleGradients, gradient_sum: Tensor, factors: Tensor, rows: int) -> None:
    """Add blocks of `rows` records one after another to `gradient_sum`, which holds zeros.

    Each is made by itself: terms that cancel in one are rounded at their own size, and must not round another's.
    """
    gradients.select(slice(0, rows)).add_weighted(gradient_sum, factors[:rows])
    part = None
    for start in range(rows, len(factors), rows):
        index = slice(start, start + rows)
        # A graph manages its own memory.
        part = torch.zeros_like(gradient_sum) if part is None or recording() else part.zero_()
        gradients.select(index).add_weighted(part, factors[index])
        gradient_sum += part


def sum_of_uses(uses: Sequence[PerSampleGradients], shape: torch.Size) -> PerSampleGradients:
    """Gradients of a parameter of `shape` that is used several times: they add up before they are squared."""
    if len(uses) == 1:
        return uses[0]
    name, sums = uses[0].name, [use for use in uses if isinstance(use, OuterProductSum)]
    if len(sums) == len(uses) and all(use.left.shape[1:3] == sums[0].left.shape[1:3] for use in sums):
        left, right = torch.cat([use.left for use in sums], 3), torch.cat([use.right for use in sums], 2)
        return OuterProductSum(name, left, right, sums[0].buffers)
    # A sum may be written into: products made here, or a copy of what somebody else may still read.
    first = next((use for use in uses if isinstance(use, OuterProductSum) and use.factored), None)
    gradients = uses[0].dense().clone() if first is None else first.dense()
    gradients = gradients.reshape(-1, *shape)
    for use in uses[1:] if first is None else [use for use in uses if use is not first]:
        use.add_to(gradients)
    return DenseGradients(name, gradients)
