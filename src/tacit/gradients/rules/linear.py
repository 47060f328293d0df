"""Fully connected layers with any leading axes, and outer products where each record has one position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from tacit.gradients.capture import Capture, Uncovered, captures
from tacit.gradients.flat_gradient import Buffers, recording, row_squares
from tacit.gradients.per_sample_gradients import UNDERFLOW, DenseGradients, OuterProductSum, PerSampleGradients
from tacit.gradients.rounding import FIRST_LEVEL, Blocks, second_level

# Share of a matrix below which its selected entries, one by one, cost less than a product of the whole matrix.
_SPARSE_SHARE = 0.15
# Terms that are added one after another: more would cost digits.
_SEQUENTIAL_TERMS = 128
# Values of all blocks of a sum together (1 MB) that one product makes in less time than several do.
_JOINT_VALUES = 2**18
# Values of an operand that is converted to double precision as a whole: a larger one falls out of the cache.
_CONVERTED_VALUES = 2**19


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
        underflow = UNDERFLOW * max(self.left.shape[1], self.right.shape[1])
        return (row_squares(self.left) + underflow) * (row_squares(self.right) + underflow)

    def dense(self) -> Tensor:
        """The matrices, shape (B, p, d)."""
        return self.left.unsqueeze(2) * self.right.unsqueeze(1)

    def weighted(self, factors: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(factors_i left_i) as columns, shape (p, B), and the inputs, shape (B, d), both as `dtype`."""
        return (self.left.to(dtype) * factors.to(dtype).unsqueeze(1)).t(), self.right.to(dtype)

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One matrix product."""
        gradient_sum.addmm_(*self.weighted(factors, gradient_sum.dtype))

    def select(self, index: slice) -> OuterProduct:
        """The gradients in `index`."""
        return replace(self, left=self.left[index], right=self.right[index])

    def add_in_blocks(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        """Blocks of equal size in one product where they are few and small; else one product for each block."""
        if gradient_sum.dtype != self.right.dtype and self.right.numel() > _CONVERTED_VALUES:
            super().add_in_blocks(gradient_sum, factors, blocks)
            return
        left, right = self.weighted(factors, gradient_sum.dtype)
        count = len(factors)
        equal = blocks.equal_parts(count)
        if equal > 1 and equal * gradient_sum.numel() <= _JOINT_VALUES:
            by_block = torch.bmm(left.unflatten(1, (equal, -1)).transpose(0, 1), right.unflatten(0, (equal, -1)))
            gradient_sum += by_block.sum(0)
            return
        if recording():
            for start in range(0, count, blocks.rows):
                index = slice(start, start + blocks.rows)
                gradient_sum += left[:, index] @ right[index]
            return
        # `gradient_sum` holds zeros: writing over them spares a pass over memory.
        torch.mm(left[:, : blocks.rows], right[: blocks.rows], out=gradient_sum)
        if count > blocks.rows:
            part = self.buffers.like(("part", self.name), gradient_sum)
            for start in range(blocks.rows, count, blocks.rows):
                index = slice(start, start + blocks.rows)
                gradient_sum += torch.mm(left[:, index], right[index], out=part)

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
        left, right = self.inner.left.square() + UNDERFLOW, self.inner.right.square() + UNDERFLOW
        return short_sums(short_product(left, self.mask.square()) * right)

    def dense(self) -> Tensor:
        """The masked matrices."""
        return self.inner.dense() * self.mask

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One matrix product, then the mask."""
        left, right = self.inner.weighted(factors, gradient_sum.dtype)
        gradient_sum.addcmul_(left @ right, self.mask.to(gradient_sum.dtype))

    def select(self, index: slice) -> MaskedOuterProduct:
        """The gradients in `index`."""
        return replace(self, inner=self.inner.select(index))


def short_sums(values: Tensor) -> Tensor:
    """Sums over the last axis of values >= 0, in two levels where it is long."""
    if values.shape[-1] <= FIRST_LEVEL:
        return values.sum(-1)
    padded = F.pad(values, (0, -values.shape[-1] % FIRST_LEVEL))
    return second_level(padded.unflatten(-1, (-1, FIRST_LEVEL)).sum(-1))


def short_product(left: Tensor, right: Tensor) -> Tensor:
    """The product left @ right of values >= 0, in double precision where its sums are long."""
    if left.shape[-1] <= FIRST_LEVEL:
        return left @ right
    return (left.double() @ right.double()).to(left.dtype)


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
            squares = self._squares("left", left)
            if rows > FIRST_LEVEL:
                sums = short_product(squares, mask[0, 0])
            else:
                sums = self.inner.buffers.product(("norms", self.name), squares[None, None], mask)[0, 0]
            return short_sums(sums * self._squares("right", right))
        column, first, row = _row_bags(self.flat_index, columns)
        sums = F.embedding_bag(column, self._squares("right", right.t()), first, mode="sum")
        return second_level(sums.mul_(self._squares("left", left.t())[row]).t())

    def _squares(self, side: str, values: Tensor) -> Tensor:
        if recording():
            return values.square() + UNDERFLOW
        return self.inner.buffers.copy((side, self.name), values).square_().add_(UNDERFLOW)

    def dense(self) -> Tensor:
        """The selected entries of the matrices."""
        return self.inner.dense().flatten(1)[:, self.flat_index]

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """One matrix product, of which the selected entries are added."""
        left, right = self.inner.weighted(factors, gradient_sum.dtype)
        sums = self.inner.buffers.product(("sums", self.name), left[None, None], right[None, None])
        gradient_sum += sums.flatten()[self.flat_index]

    def select(self, index: slice) -> ScatteredOuterProduct:
        """The gradients in `index`."""
        return replace(self, inner=self.inner.select(index))


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


@captures(F.linear)
def linear(capture: Capture, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_t = W a_t + c: the gradient of W is sum_t b_t a_t^T and that of c is sum_t b_t, b = d loss / d y.

    Args:
        capture: records what the backward pass needs.
        input: a, shape (B, ..., d).
        weight: W, shape (p, d).
        bias: c, shape (p,).

    Raises:
        Uncovered: the input is a parameter.
    """
    weight_name, bias_name = capture.name(weight), capture.name(bias)
    if capture.name(input):
        raise Uncovered(f"linear takes {capture.name(input)} as its input")
    input, axis = capture.batched(input, 1)
    kept = capture.keep(input)

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        if gradient.dim() == 2 and len(gradient) == capture.batch:
            if weight_name:
                yield OuterProduct(weight_name, gradient, kept, capture.buffers)
            if bias_name:
                yield DenseGradients(bias_name, gradient)
            return
        left = capture.by_record(gradient, axis, 1)
        if weight_name:
            yield OuterProductSum.of_positions(weight_name, left, capture.by_record(kept, axis, 1), capture.buffers)
        if bias_name:
            yield DenseGradients(bias_name, left.sum(1))

    return capture.root(F.linear(input, weight, bias), (kept,), gradients)


@captures(F.bilinear)
def bilinear(capture: Capture, first: Tensor, second: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y_o = x^T W_o z + c_o: a linear layer of the products x_j z_k.

    Args:
        capture: records what the backward pass needs.
        first: x, shape (B, ..., j).
        second: z, shape (B, ..., k).
        weight: W, shape (o, j, k).
        bias: c, shape (o,).

    Raises:
        Uncovered: the inputs have no common batch axis.
    """
    if (axis := capture.axis(first, 1)) is None or first.shape[:-1] != second.shape[:-1]:
        raise Uncovered("bilinear runs on inputs without a batch axis")
    weight_name, bias_name = capture.name(weight), capture.name(bias)
    kept = capture.keep(first), capture.keep(second)
    output = torch.einsum("...j,ojk,...k->...o", first, weight.detach(), second)

    def gradients(gradient: Tensor) -> Iterator[PerSampleGradients]:
        left = capture.by_record(gradient, axis, 1)
        if weight_name:
            x, z = (capture.by_record(side, axis, 1) for side in kept)
            products = torch.einsum("btj,btk->btjk", x, z).flatten(2)
            yield OuterProductSum.of_positions(weight_name, left, products, capture.buffers)
        if bias_name:
            yield DenseGradients(bias_name, left.sum(1))

    return capture.root(output if bias is None else output + bias.detach(), kept, gradients)
