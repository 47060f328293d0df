"""Streams as data sets: Poisson batches of an `IterableDataset`, from as many passes as memory asks for.

Coin i of a step is thrown for position i of the pass, before the stream is read. Coins are independent, of one
probability, and follow no record. So every record that a pass yields once is in the batch with that probability,
independently of others, wherever it stands: the batch is a Poisson sample, in whatever order the stream comes, also if
the order changes from pass to pass. Positions that no record has are in no batch. One pass may serve the coins of
several steps, because coins do not depend on what was released.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils.data import Dataset

from tacit import check
from tacit.errors import InvalidInput
from tacit.sampling import Batch, Sampler

DECLARED = "the stream yields every record once in each pass, made from it alone"


class StreamedRecords(Dataset[Any]):
    """A stream of records as a data set for the loader that `make_private` gets, with Poisson sampling.

    Args:
        stream: yields all records once whenever it is iterated, such as an `IterableDataset` over shards; in any order.
        public_size: a public bound on the number of records, >= 1: the sample rate is batch_size / public_size.
        steps_per_pass: steps that one pass over the stream serves, >= 1; about so many batches are held in memory.

    Raises:
        InvalidInput: an argument breaks its rule; while training, where a pass yields more than `public_size` records.

    Example:
        >>> records = StreamedRecords([(0.5, 1), (0.25, 0)], public_size=4)
        >>> len(records), records.present([1, 3], [])
        (4, [1])
    """

    def __init__(self, stream: Iterable[Any], public_size: int, steps_per_pass: int = 1):
        self.stream = stream
        self.public_size = check.count("public_size", public_size)
        self.steps_per_pass = check.count("steps_per_pass", steps_per_pass)
        self._held: dict[int, Any] = {}
        self._read: set[int] = set()

    def __len__(self) -> int:
        return self.public_size

    def __getitem__(self, index: int) -> Any:
        found = self.__getitems__([index])
        if not found:
            raise IndexError(index)
        return found[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The records at these positions; none for positions that no record has."""
        return [self._held[index] for index in self.present(indices, [])]

    def present(self, indices: Sequence[int], ahead: Iterable[int]) -> list[int]:
        """Those of `indices` that have a record, after a pass where they have not been read.

        Args:
            indices: positions of a batch.
            ahead: positions of later batches, which the same pass reads.
        """
        if not self._read.issuperset(indices):
            self._pass({*indices, *ahead})
        return [index for index in indices if index in self._held]

    def _pass(self, wanted: set[int]) -> None:
        self._held, self._read = {}, wanted
        count = 0
        for count, record in enumerate(self.stream, start=1):
            if count - 1 in wanted:
                self._held[count - 1] = record
        if count > self.public_size:
            raise InvalidInput(
                f"public_size must be at least the number of records of the stream; got {self.public_size}. Records "
                "past it would never be drawn."
            )


class AheadSampler(Sampler):
    """Batches of another sampler, drawn `steps` at a time; those in hand are dropped at a checkpoint, and drawn anew.

    Args:
        sampler: of independent batches.
        steps: drawn at a time, >= 1.
    """

    def __init__(self, sampler: Sampler, steps: int):
        self._sampler, self._steps = sampler, steps
        self.expected_size = sampler.expected_size
        self.drawn: list[Batch] = []

    def draw(self) -> Batch:
        """The next of the batches in hand, or the first of new ones."""
        if not self.drawn:
            self.drawn = [self._sampler.draw() for _ in range(self._steps)]
        return self.drawn.pop(0)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with fresh batches."""
        super().restore(state)
        self.drawn = []
