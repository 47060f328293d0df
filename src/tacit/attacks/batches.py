"""Batches of every model of a group of shadow models at each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tacit.attacks.reference_models import Recipe

if TYPE_CHECKING:
    from torch import Tensor

Step = tuple["Tensor", "Tensor | None"]


def batches(
    rows: Sequence[np.ndarray], draws: Sequence[np.random.Generator], recipe: Recipe, *, steps: int
) -> Iterator[Step]:
    """For each step the rows of the records (models, batch), and a mask of those that count; None if all do.

    Non-private models pass through their own records in a new order each epoch. For private ones, Poisson sampling
    takes a record with probability batch_size / n; shorter rows are padded with records that do not count.

    Args:
        rows: the records of each model.
        draws: the random source of each model.
        recipe: batch size, and whether the models are private.
        steps: number of batches.
    """
    import torch

    if not recipe.private:
        sources = [_shuffled(own, draw, recipe.batch_size) for own, draw in zip(rows, draws, strict=True)]
        for _ in range(steps):
            yield torch.from_numpy(np.stack([next(source) for source in sources])), None
        return
    for _ in range(steps):
        drawn = [_poisson(own, draw, recipe.batch_size) for own, draw in zip(rows, draws, strict=True)]
        width = max(1, *(len(batch) for batch in drawn))
        index, kept = np.zeros((len(rows), width), np.int64), np.zeros((len(rows), width), np.float32)
        for place, batch in enumerate(drawn):
            index[place, : len(batch)], kept[place, : len(batch)] = batch, 1.0
        yield torch.from_numpy(index), torch.from_numpy(kept)


def _shuffled(rows: np.ndarray, draw: np.random.Generator, size: int) -> Iterator[np.ndarray]:
    while True:
        order = draw.permutation(rows)
        for start in range(0, len(order) - size + 1, size):
            yield order[start : start + size]


def _poisson(rows: np.ndarray, draw: np.random.Generator, size: int) -> np.ndarray:
    """A binomial number of distinct records, the same law as one coin for each of them."""
    rate = min(1.0, size / len(rows))
    return draw.choice(rows, draw.binomial(len(rows), rate), replace=False, shuffle=False)
