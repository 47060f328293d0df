"""`Records`: a data set of columns, of which tacit itself reads row i for record i; `StreamedRecords`: of a stream.

Of a stream, coin i of a step is thrown for position i of the pass, before the stream is read. Coins are independent, of
one probability, and follow no record. So every record that a pass yields once is in the batch with that probability,
independently of others, wherever it stands: the batch is a Poisson sample, in whatever order the stream comes, also if
the order changes from pass to pass. Positions that no record has are in no batch. One pass may serve the coins of
several steps, because coins do not depend on what was released.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from tacit import check
from tacit.errors import InvalidInput
from tacit.sampling import Batch, Sampler
from tacit.sampling.poisson import GroupedPoissonSampling
from tacit.training.captured import is_container, is_table
from tacit.training.plan_options import PlanOptions
from tacit.training.watched_column import length_of


class Records(Dataset[Any]):
    """Record i is row i of every column, and what `per_record` makes of it.

    That each record is made of its own entries is so by construction. `per_record` is watched in training: a run in
    which it reads other data or keeps state from record to record is `conditional`.

    Args:
        columns: one column of n >= 1 rows, or a tuple or dict of them: tensors, arrays, memory-mapped files, lists of
            Python values, data frames (pandas, polars), Arrow tables, Hugging Face data sets. A row of a frame or table
            is a dict.
        per_record: makes a record, such as (input, target), of one row of the columns: decoding, tokenising, random
            augmentation. The rows themselves by default.
        units: for each record the person or group that it belongs to, n keys; batches are drawn and gradients clipped
            by these then, and the guarantee is theirs. Each record is a unit of its own by default.

    Raises:
        InvalidInput: columns of several lengths, of none, or of a class whose entries code of its own gives.

    Example:
        >>> import torch
        >>> data = Records({"pixels": torch.zeros(4, 2), "label": [0, 1, 1, 0]},
        ...                per_record=lambda row: (row["pixels"] / 255, row["label"]))
        >>> len(data), data[1]
        (4, (tensor([0., 0.]), 1))
    """

    def __init__(
        self,
        columns: Any,
        *,
        per_record: Callable[[Any], Any] | None = None,
        units: Sequence[object] | np.ndarray | None = None,
    ):
        self.columns = _columns("columns", columns)
        self.per_record = per_record
        lengths = {name: length_of(column) for name, column in _named("columns", self.columns)}
        if len(set(lengths.values())) != 1 or not min(lengths.values()):
            raise check.fail("columns", "of one length of at least 1", lengths)
        self._length = next(iter(lengths.values()))
        self.units = None if units is None else np.asarray(units)
        if self.units is not None and self.units.shape != (self._length,):
            raise check.fail("units", f"one key for each of the {self._length} records", f"shape {self.units.shape}")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        row = _row(self.columns, index)
        return row if self.per_record is None else self.per_record(row)


def with_units(options: PlanOptions, data: Any) -> PlanOptions:
    """`options` that draw the units of `data`, where it has some.

    Args:
        options: of the run.
        data: a data set or loader.

    Raises:
        InvalidInput: the options draw otherwise.
    """
    units = _units(data.dataset if isinstance(data, DataLoader) else data)
    if units is None:
        return options
    if options.sampling != "poisson":
        raise check.fail("sampling", "left out with Records(units=...), which are drawn as a whole", options.sampling)
    return replace(options, sampling=GroupedPoissonSampling(units))


def _units(data: Any) -> np.ndarray | None:
    if isinstance(data, Subset):
        units = _units(data.dataset)
        return None if units is None else units[list(data.indices)]
    return data.units if type(data) is Records else None


def _columns(name: str, value: Any) -> Any:
    """The value with its frames and tables as dicts of columns; raises for what is no column."""
    check.that(not isinstance(value, tuple | Mapping) or value, name, "at least one column", value)
    if isinstance(value, tuple):
        return tuple(_columns(f"{name}[{place}]", each) for place, each in enumerate(value))
    if isinstance(value, Mapping):
        return {key: _columns(f"{name}[{key!r}]", each) for key, each in value.items()}
    if isinstance(value, list) and any(isinstance(each, Tensor | np.ndarray) for each in value):
        raise InvalidInput(
            f"{name} must be a tuple or dict of columns, or one column; got a list of tensors. Give tuple({name}) if "
            f"these are columns, and torch.stack({name}) if they are rows."
        )
    if not is_container(value):
        hint = "Give its columns, or a data set with a __getitem__ of its own."
        raise check.fail(name, "made of tensors, arrays, lists, frames or tables", type(value).__name__, hint)
    names = getattr(value, "column_names", getattr(value, "columns", None))
    if names is None or is_table(value):
        return value
    return {str(each): value[each] for each in names}


def _named(name: str, columns: Any) -> list[tuple[str, Any]]:
    if isinstance(columns, tuple | dict):
        parts = columns.items() if isinstance(columns, dict) else enumerate(columns)
        return [found for key, each in parts for found in _named(f"{name}[{key!r}]", each)]
    return [(name, columns)]


def _row(columns: Any, index: int) -> Any:
    if isinstance(columns, tuple):
        return tuple(_row(each, index) for each in columns)
    if isinstance(columns, dict):
        return {name: _row(each, index) for name, each in columns.items()}
    if hasattr(columns, "iloc"):
        return columns.iloc[index]
    row = columns[index]
    return row.as_py() if hasattr(row, "as_py") else row


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
