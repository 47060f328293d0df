"""Per-sample gradients of an embedding table whose looked-up rows were pooled: all rows of a record get one gradient.

Of a sum or mean over positions every looked-up row of a record gets the same gradient g, padding none. The gradient in
the table is then g times the number of times that the record looked up each row: counts are exact, nothing cancels, and
one product of a sparse and a dense matrix makes the weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from tacit.gradients.rounding import square_sums

# Tables up to so many values (8 MB) are summed whole; of larger ones only the rows looked up.
WHOLE_TABLE = 2**20


@dataclass(frozen=True)
class Pooled:
    """Records whose positions all get one gradient, or none: which ones, their gradients, where they have one.

    Attributes:
        records: shape (B,).
        rows: one gradient for each of these records, shape (records, d).
        kept: the positions that have it, shape (records, T).
    """

    records: Tensor
    rows: Tensor
    kept: Tensor

    @classmethod
    def of(cls, gradient: Tensor) -> Pooled | None:
        """The pooled records of a batch; None if there are none.

        The answer for a record follows from that record alone, so that its norm is the same in every batch.

        Args:
            gradient: (B, T, d), T >= 2.

        Example:
            >>> found = Pooled.of(torch.tensor([[[1.0], [1.0]], [[0.0], [2.0]], [[1.0], [2.0]]]))
            >>> found.records.tolist(), found.rows.tolist(), found.kept.tolist()
            ([True, True, False], [[1.0], [2.0]], [[True, True], [False, True]])
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
        return cls(records.index_put((records.nonzero().flatten(),), same), rows[same], kept[same])


class PooledRows:
    """Gradients of pooled records: row v of the table gets `counts[i, v]` times `rows[i]`.

    Args:
        found: with records.
        index: (B, T) integers, of all records of the batch.
        words: rows of the table, V.

    Attributes:
        records: which records of the batch these are, shape (B,).
        all: whether all of them are.
    """

    def __init__(self, found: Pooled, index: Tensor, words: int):
        self.records, self.rows = found.records, found.rows.double()
        self.all = len(self.rows) == len(index)
        places = np.where(found.kept.numpy(), index[found.records].numpy(), words)
        places.sort(axis=1)
        first = np.ones(places.shape, dtype=bool)
        np.not_equal(places[:, 1:], places[:, :-1], out=first[:, 1:])
        starts = np.flatnonzero(first)
        counts = np.diff(starts, append=places.size)
        looked_up = places.flat[starts]
        kept = looked_up < words
        bounds = np.searchsorted(starts[kept], np.arange(len(places) + 1) * places.shape[1])
        self.counts = csr_array((counts[kept].astype(np.float64), looked_up[kept], bounds), shape=(len(places), words))

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
