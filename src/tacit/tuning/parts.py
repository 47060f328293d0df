"""The parts of a search's records: those that trials train on, score on, and set aside as their holdout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit import check
from tacit.data import Dataset
from tacit.noise import Stream
from tacit.runs.methods.base import Predict


@dataclass(frozen=True)
class ScoredRecords:
    """The records that scores are computed on.

    Attributes:
        x: their inputs.
        y: their classes.
    """

    x: np.ndarray
    y: np.ndarray

    def right(self, predict: Predict) -> int:
        """How many are classified right; one record changes it by at most 1."""
        return int(np.count_nonzero(predict(self.x).argmax(axis=1) == self.y))


@dataclass(frozen=True)
class Parts:
    """The parts, no record in two of them; the same for all trials, so that a record pays for one of them.

    Attributes:
        training: what trials train on.
        scored: what scores are computed on.
        held: the holdout of every trial; None without [validation].
    """

    training: Dataset
    scored: ScoredRecords
    held: Dataset | None

    @classmethod
    def of(cls, dataset: Dataset, *, public: bool, aside: np.ndarray, held: np.ndarray | None) -> Parts:
        """The parts of `dataset`: scores on its public test records, or on those `aside`.

        Args:
            dataset: with all training records.
            public: whether scores are computed on the test records.
            aside: for scores, bool (rows,).
            held: for the holdout, bool (rows,), none of those aside.
        """
        scored = (
            ScoredRecords(dataset.x_test, dataset.y_test)
            if public
            else ScoredRecords(dataset.x_train[aside], dataset.y_train[aside])
        )
        if held is None:
            return cls(dataset.without(aside), scored, None)
        return cls(dataset.without(aside | held), scored, dataset.without(~held))


def draw_held(aside: np.ndarray, share: float, stream: Stream) -> np.ndarray:
    """Which of the records that are not `aside` go to the holdout, each by a coin of its own, bool (rows,).

    Raises:
        InvalidInput: one of the two parts is empty.
    """
    held = ~aside & (stream.uniform(len(aside)) < share)
    if not held.any() or (held | aside).all():
        raise check.fail("share of [validation]", "one that leaves records for training and for the holdout", share)
    return held
