"""One record many times: what the structure of a data set shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

MEND = "give each record once, tacit.Records(..., units=...), or say why by facts.declare('unit', 'why')"
"""What to do about a record that is there several times."""


def repeated_records(data: Any) -> str:
    """How the structure of `data` yields one record at several places; empty where it does not.

    Indices of a `Subset` that repeat, a data set that stands twice in a `ConcatDataset`, and tensors whose rows share
    memory, as `expand` and `unfold` give them, count. Rows that were copied beforehand do not show.

    Args:
        data: a data set, a tensor or array, or a tuple, list or dict of them.

    Example:
        >>> rows = TensorDataset(torch.zeros(3, 2))
        >>> repeated_records(Subset(rows, [0, 1, 1])), repeated_records(rows)
        ('Subset yields one record at several places', '')
    """
    if isinstance(data, Subset | ConcatDataset):
        found = list(_places(data))
        if len(set(found)) < len(found):
            return f"{type(data).__name__} yields one record at several places"
    for value in _arrays(data):
        if _overlaps(value):
            return "rows of a tensor share memory, as windows or copies of one row do"
    return ""


def _places(data: Any) -> Iterator[tuple[int, Any]]:
    """(data set, number) of every record, through subsets and joined sets."""
    if isinstance(data, Subset):
        inner = list(_places(data.dataset)) if isinstance(data.dataset, Subset | ConcatDataset) else None
        for place in data.indices:
            yield (id(data.dataset), int(place)) if inner is None else inner[int(place)]
    elif isinstance(data, ConcatDataset):
        for each in data.datasets:
            yield from _places(each)
    else:
        yield from ((id(data), place) for place in range(len(data)))


def _arrays(data: Any) -> Iterator[Any]:
    if isinstance(data, Tensor | np.ndarray):
        yield data
    elif isinstance(data, TensorDataset):
        yield from data.tensors
    elif isinstance(data, Subset):
        yield from _arrays(data.dataset)
    elif isinstance(data, ConcatDataset):
        yield from (each for part in data.datasets for each in _arrays(part))
    elif isinstance(data, Dataset):
        yield from _arrays(getattr(data, "columns", ()))
    elif isinstance(data, dict):
        yield from (each for part in data.values() for each in _arrays(part))
    elif isinstance(data, list | tuple) and len(data) < 100:
        yield from (each for part in data for each in _arrays(part))


def _overlaps(value: Any) -> bool:
    """Whether two entries of an array are one."""
    if isinstance(value, Tensor) and value.layout != torch.strided:
        return False
    strides = value.stride() if isinstance(value, Tensor) else [step // value.itemsize for step in value.strides]
    steps = sorted((abs(step), size) for step, size in zip(strides, value.shape, strict=True) if size > 1)
    reach = 0
    for step, size in steps:
        if step <= reach:
            return True
        reach += (size - 1) * step
    return False
