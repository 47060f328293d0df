"""One record many times: what the structure of a data set shows."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

MEND = "give each record once, tacit.Records(..., units=...), or say why by facts.declare('unit', 'why')"
"""What to do about a record that is there several times."""


def repeated_records(data: Any) -> str:
    """How the structure of `data` yields one record at several places; empty where it does not.

    Indices of a `Subset` that repeat, a data set that stands twice in a `ConcatDataset`, and tensors whose rows share
    memory, as `expand` and `unfold` give them, count; so do items of a list that share memory. Rows that were copied
    beforehand do not show.

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
    own = list(vars(data).values()) if isinstance(data, Dataset) and not isinstance(data, Subset) else []
    for value in [data, *own]:
        if isinstance(value, list) and _share_memory(value):
            return "items of a list share memory, as windows or copies of one record do"
    return ""


def _share_memory(items: list[Any]) -> bool:
    """Whether a tensor or array of one item begins within the memory of another's."""
    spans = []
    for place, item in enumerate(items):
        for value in tree_leaves(item) if isinstance(item, Tensor | np.ndarray | tuple | list | dict) else ():
            if isinstance(value, Tensor | np.ndarray) and _strides(value) and math.prod(value.shape):
                spans.append((*span(value), place))
    reach, owner = 0, -1
    for start, end, place in sorted(spans):
        if start < reach and place != owner:
            return True
        if end > reach:
            reach, owner = end, place
    return False


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


def _strides(value: Any) -> list[int]:
    """Of an array, in bytes; none of a single number and of a tensor of another layout."""
    if not isinstance(value, Tensor):
        return list(value.strides)
    return [step * value.element_size() for step in value.stride()] if value.layout == torch.strided else []


def span(value: Any) -> tuple[int, int]:
    """First byte of an array or strided tensor, and the byte behind its last one.

    Args:
        value: of at least one entry.

    Example:
        >>> first, behind = span(torch.zeros(4, 3)[:, 1])
        >>> behind - first
        40
    """
    start = value.data_ptr() if isinstance(value, Tensor) else value.__array_interface__["data"][0]
    width = value.element_size() if isinstance(value, Tensor) else value.itemsize
    reaches = [(size - 1) * step for size, step in zip(value.shape, _strides(value), strict=True)]
    return start + sum(each for each in reaches if each < 0), start + sum(each for each in reaches if each > 0) + width


def _overlaps(value: Any) -> bool:
    """Whether two entries of an array are one."""
    steps = sorted((abs(step), size) for step, size in zip(_strides(value), value.shape, strict=False) if size > 1)
    reach = 0
    for step, size in steps:
        if step <= reach:
            return True
        reach += (size - 1) * step
    return False
