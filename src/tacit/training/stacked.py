"""Data sets and loaders of `torch.utils.data` as tensors in memory, where a batch is gathered in microseconds."""

from __future__ import annotations

import os
from collections.abc import Sized
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from tacit import check
from tacit.errors import InvalidInput
from tacit.training.collation import collated, collation_of


def stacked(dataset: Dataset[Any] | DataLoader[Any]) -> tuple[Any, Any]:
    """Inputs and targets of every record, in order; a record is (input, target) or (input, ..., target).

    A loader gives its data set and `collate_fn`; its order and batches do not matter. Every record is read once, so a
    random augmentation would be frozen: `make_private` reads records anew for each batch.

    Raises `InvalidInput` for a data set without a length, one too large for memory, records of another form, and for a
    `collate_fn` that makes a record's row depend on other records, as padding to the longest does.
    """
    collate = collation_of(dataset)
    if isinstance(dataset, DataLoader):
        dataset = dataset.dataset
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        hint = "Private sampling draws records by number."
        raise check.fail("inputs", "a data set with a length", type(dataset).__name__, hint)
    if isinstance(dataset, TensorDataset) and collate is default_collate:
        return _split(dataset.tensors)
    if not len(dataset):
        raise check.fail("inputs", "at least one record", 0)
    _check_memory(_bytes(collate([dataset[0]])) * len(dataset))
    return _split(collated(collate, [dataset[i] for i in range(len(dataset))]))


def _split(columns: Any) -> tuple[Any, Tensor]:
    if not isinstance(columns, list | tuple) or len(columns) < 2:
        kind = f"{len(columns)} values" if isinstance(columns, list | tuple) else type(columns).__name__
        raise check.fail("records of inputs", "pairs (input, target)", kind, "Return both from the data set.")
    *inputs, targets = columns
    return (inputs[0] if len(inputs) == 1 else tuple(inputs)), targets


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return sum(_bytes(item) for item in values)


def _check_memory(needed: int) -> None:
    free = _free_memory()
    # Records are held one by one and then stacked, so both are there at once.
    if free is not None and 2 * needed > free:
        raise InvalidInput(
            f"inputs must be a data set that fits in memory twice; got one of about {needed / 2**30:.1f} GiB for "
            f"{free / 2**30:.1f} GiB free. Use make_private, which reads the records of a batch when it is drawn."
        )


def _free_memory() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
