"""Per-sample gradients of an embedding table, kept as the rows that each record looked up.

Of a sum or mean over positions every looked-up row of a record gets the same gradient g, padding none. The gradient in
the table is then g times the number of times that the record looked up each row: counts are exact, nothing cancels, and
one product of a sparse and a dense matrix makes the weighted sum.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from tacit.gradients.flat_gradient import recording, row_squares
from tacit.gradients.per_sample_gradients import PerSampleGradients, add_positions
from tacit.gradients.rounding import Blocks, raised, second_level, square_sums

# Tables up to so many values (8 MB) are summed whole; of larger ones only the rows looked up.
WHOLE_TABLE = 2**20


class PooledRows:
    """Gradients of records whose positions all get one gradient, or none: row v gets `counts[i, v]` times `rows[i]`.

    Args:
        records: which records of the batch these are, shape (B,).
        rows: one gradient for each of these records, shape (records, d).
        kept: the positions that have it, shape (records, T).
        index: (B, T) integers, of all records of the batch.
        words: rows of the table, V.

    Attributes:
        all: whether these are all records of the batch.
    """

    def __init__(self, records: Tensor, rows: Tensor, kept: Tensor, index: Tensor, words: int):
        self.records, self.rows = records, rows.double()
        self.all = len(self.rows) == len(index)
        places = np.where(kept.numpy(), index[records].numpy(), words)
        places.sort(axis=1)
        first = np.ones(places.shape, dtype=bool)
        np.not_equal(places[:, 1:], places[:, :-1], out=first[:, 1:])
        starts = np.flatnonzero(first)
        counts = np.diff(starts, append=places.size)
        looked_up = places.flat[starts]
        real = looked_up < words
        bounds = np.searchsorted(starts[real], np.arange(len(places) + 1) * places.shape[1])
        self.counts = csr_array((counts[real].astype(np.float64), looked_up[real], bounds), shape=(len(places), words))

    @classmethod
    def of(cls, gradient: Tensor, index: Tensor, words: int) -> PooledRows | None:
        """The pooled records of a batch; None if there are none.

        The answer for a record follows from that record alone, so that its norm is the same in every batch.

        Args:
            gradient: (B, T, d), T >= 2.
            index: (B, T) integers.
            words: rows of the table.

        Example:
            >>> gradient = torch.tensor([[[1.0], [1.0]], [[0.0], [2.0]], [[1.0], [2.0]]])
            >>> found = PooledRows.of(gradient, torch.tensor([[1, 1], [0, 2], [0, 2]]), 3)
            >>> found.records.tolist(), found.rows.tolist(), found.counts.toarray().tolist()
            ([True, True, False], [[1.0], [2.0]], [[0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
        """
        first, second = gradient[:, 0], gradient[:, 1]
        records = (first == second).all(1) | (first == 0).all(1) | (second == 0).all(1)
        if not records.any():
            return None
        own = gradient if records.all() else gradient[records]
        rows, kept = own[:, 0].clone(), own.new_ones(own.shape[:2], dtype=torch.bool)
        same = (own == own[:, :1]).flatten(1).all(1)
        others = (~same).nonzero().flatten()
        if len(others):
            padded = own[others]
            kept[others] = (padded != 0).any(2)
            rows[others] = padded[torch.arange(len(others)), kept[others].byte().argmax(1)]
            same[others] = ((padded == rows[others].unsqueeze(1)).all(2) | ~kept[others]).all(1)
        records = records.index_put((records.nonzero().flatten(),), same)
        return cls(records, rows[same], kept[same], index, words)

    def squared_norms(self) -> Tensor:
        """|g|^2 times the sum of the squared counts, in double precision."""
        squares = np.add.reduceat(np.append(np.square(self.counts.data), 0.0), self.counts.indptr[:-1])
        squares[np.diff(self.counts.indptr) == 0] = 0.0
        return square_sums(self.rows) * torch.from_numpy(squares)

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """Add the weighted sum to the table, made in double precision in one operation for each record and row.

        Args:
            gradient_sum: (V, d).
            factors: one for each of these records.
        """
        weighted = (self.rows * factors.double().unsqueeze(1)).numpy()
        if gradient_sum.numel() <= WHOLE_TABLE:
            gradient_sum += torch.from_numpy(self.counts.T @ weighted)
            return
        found, place = np.unique(self.counts.indices, return_inverse=True)
        counts = csr_array((self.counts.data, place, self.counts.indptr), shape=(len(weighted), len(found)))
        gradient_sum[torch.from_numpy(found).long()] += torch.from_numpy(counts.T @ weighted).to(gradient_sum.dtype)


class EmbeddingRows(PerSampleGradients):
    """Embedding gradients: row `index[i, t]` of the table gets `gradient[i, t]`.

    Args:
        name: of the parameter.
        index: (B, T) integers.
        gradient: (B, T, d); zero at positions without a gradient, such as padding.
        shape: of the table, (V, d).
    """

    def __init__(self, name: str, index: Tensor, gradient: Tensor, shape: torch.Size):
        self.name, self.index, self.gradient, self.shape = name, index, gradient, shape
        self._pooled: PooledRows | None = None
        self._examined = False

    def _pooled_rows(self) -> PooledRows | None:
        """The gradients of the records whose positions all get one; None without any, while recording, or on a GPU."""
        if not self._examined and not recording() and self.gradient.device.type == "cpu" and self.index.shape[1] > 1:
            self._pooled = PooledRows.of(self.gradient, self.index, self.shape[0])
        self._examined = True
        return self._pooled

    def squared_norms(self) -> Tensor:
        """Gradients at equal indices of one record are summed before they are squared."""
        positions = self.index.shape[1]
        if positions == 1:
            return row_squares(self.gradient)
        found = self._pooled_rows()
        if found is None:
            return self._norms_by_position()
        squares = found.squared_norms().to(self.gradient.dtype)
        if found.all:
            return squares
        every = squares.new_empty(len(self.index))
        every[found.records] = squares
        every[~found.records] = self.select(~found.records)._norms_by_position()
        return every

    def _norms_by_position(self) -> Tensor:
        positions = self.index.shape[1]
        ordered, order = _sorted(self.index)
        same = ordered[:, 1:] == ordered[:, :-1]
        first = F.pad(~same, (1, 0), value=True)
        lengths = square_sums(self.gradient)
        mass = second_level(lengths.sqrt())
        # Rows of single precision are added in double precision, and rounded once.
        roundings = positions if self.gradient.dtype == torch.float64 else 0
        if recording():
            every = torch.arange(order.numel(), device=order.device)
            return raised(self._run_squares(order, first, every), mass, roundings)
        # An index that a record looks up once needs no sum; the others are few in most data.
        repeated = F.pad(same, (1, 0)) | F.pad(same, (0, 1))
        unique = torch.ones_like(repeated).scatter_(1, order, ~repeated)
        squares = second_level(lengths * unique)
        chosen = repeated.flatten().nonzero().flatten()
        return raised(squares + self._run_squares(order, first, chosen), mass, roundings)

    def _run_squares(self, order: Tensor, first: Tensor, chosen: Tensor) -> Tensor:
        """Sum of squares of the sums over runs of equal indices, over the `chosen` places of the sorted indices."""
        positions = self.index.shape[1]
        record = chosen // positions
        run = first.flatten()[chosen].cumsum(0) - 1
        values = self.gradient.reshape(-1, self.shape[1])[record * positions + order.flatten()[chosen]]
        sums = values.new_zeros(values.shape, dtype=torch.float64).index_add_(0, run, values.double())
        owner = torch.zeros_like(record).scatter_(0, run, record)
        total = torch.zeros(len(order), dtype=torch.float64, device=order.device)
        return total.index_add_(0, owner, square_sums(sums)).to(values.dtype)

    def dense(self) -> Tensor:
        """One table for each record."""
        table = self.gradient.new_zeros((len(self.index), *self.shape))
        index = self.index.unsqueeze(-1).expand_as(self.gradient)
        return table.scatter_add_(1, index, self.gradient)

    def add_to(self, gradients: Tensor) -> None:
        """Rows are added where they belong; no table is made."""
        index = self.index.unsqueeze(-1).expand_as(self.gradient)
        gradients.scatter_add_(1, index, self.gradient.to(gradients.dtype))

    def add_weighted(self, gradient_sum: Tensor, factors: Tensor) -> None:
        """Weighted rows are added where they belong; no table is made."""
        weighted = self.gradient.to(gradient_sum.dtype) * factors.to(gradient_sum.dtype).view(-1, 1, 1)
        gradient_sum.view(self.shape).index_add_(0, self.index.flatten(), weighted.reshape(-1, self.shape[1]))

    def select(self, index: slice | Tensor) -> EmbeddingRows:
        """The gradients in `index`."""
        return EmbeddingRows(self.name, self.index[index], self.gradient[index], self.shape)

    def add_in_blocks(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        """In double precision, as positions may cancel each other; those of double precision record by record."""
        found = self._pooled_rows()
        if found is None or not found.all:
            rest = slice(None) if found is None else ~found.records
            self.select(rest)._add_by_position(gradient_sum, factors[rest], blocks)
        if found is not None:
            found.add_weighted(gradient_sum.view(self.shape), factors[found.records])

    def _add_by_position(self, gradient_sum: Tensor, factors: Tensor, blocks: Blocks) -> None:
        if self.gradient.dtype == torch.float64:
            self._merged().add_weighted(gradient_sum, factors)
            return
        if recording() or gradient_sum.numel() <= WHOLE_TABLE or gradient_sum.dtype == torch.float64:
            add_positions(self, gradient_sum, factors, blocks)
            return
        found, place = torch.unique(self.index, return_inverse=True)
        compact = EmbeddingRows(self.name, place, self.gradient, torch.Size((len(found), self.shape[1])))
        rows = torch.zeros(compact.shape, dtype=torch.float64, device=gradient_sum.device)
        add_positions(compact, rows, factors, blocks)
        gradient_sum.view(self.shape)[found] += rows.to(gradient_sum.dtype)

    def _merged(self) -> EmbeddingRows:
        """The same gradients with the sum over each index at one of its positions, and 0 at the others."""
        ordered, order = _sorted(self.index)
        first = F.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
        run = first.flatten().cumsum(0) - 1
        values = self.gradient.take_along_dim(order.unsqueeze(-1), 1).flatten(0, 1)
        sums = torch.zeros_like(values).index_add_(0, run, values)[run].view_as(self.gradient)
        return EmbeddingRows(self.name, ordered, sums * first.unsqueeze(-1), self.shape)

    def per_unit(self, size: int) -> EmbeddingRows:
        """Records of one unit are further positions."""
        index, gradient = self.index.unflatten(0, (-1, size)), self.gradient.unflatten(0, (-1, size))
        return EmbeddingRows(self.name, index.flatten(1), gradient.flatten(1, 2), self.shape)


def _sorted(index: Tensor) -> tuple[Tensor, Tensor]:
    """Every row in ascending order, and the positions it came from.

    numpy sorts integers several times faster than torch does on a CPU; position and index share one integer there.
    """
    if index.device.type != "cpu" or recording():
        return index.sort(dim=1)
    bits = (index.shape[1] - 1).bit_length()
    packed = index.long() << bits | torch.arange(index.shape[1], device=index.device)
    packed = torch.from_numpy(np.sort(packed.numpy(), axis=1))
    return packed >> bits, packed & ((1 << bits) - 1)
