"""The data set probe: a record of a data set is made of its own entry alone.

Copies of the data set are made in which half of every attribute with one entry per record is replaced. The records
outside of that half must stay as they were, and those inside must change, else the probe did not reach the data.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from tacit.errors import InvalidInput
from tacit.gradients.module_state import same

_TRUSTED = (TensorDataset, Subset, ConcatDataset)
_TRIALS = 4  # a data set in which every record takes in one other is missed with probability about 2^-16
_RECORDS = 4


def is_trusted(data: Any) -> bool:
    """Whether a data set is one of torch's own, over trusted ones, whose records are made of their own entries."""
    if type(data) not in _TRUSTED:
        return False
    inner = [data.dataset] if isinstance(data, Subset) else data.datasets if isinstance(data, ConcatDataset) else []
    return all(is_trusted(each) for each in inner)


def dataset_probe(data: Dataset[Any]) -> bool:
    """Whether it was tested, and holds, that a record does not depend on the entries of others.

    Returns:
        True for a trusted data set, or one that passed; False where no attribute with one entry per record was found,
        or replacing entries changed nothing, so that nothing was tested.

    Raises:
        InvalidInput: a record changed although its own entry did not.

    Example:
        >>> dataset_probe(TensorDataset(torch.zeros(8, 2)))
        True
    """
    if is_trusted(data):
        return True
    if type(data) is Subset:
        return dataset_probe(data.dataset)
    if type(data) is ConcatDataset:
        tested = [dataset_probe(each) for each in data.datasets]
        return all(tested)
    size = len(data)  # type: ignore[arg-type]
    columns = {name: value for name, value in getattr(data, "__dict__", {}).items() if _per_record(value, size)}
    if not columns or size < 2:
        return False
    draw = np.random.default_rng(random.SystemRandom().getrandbits(60))
    try:
        halves = [_half(size, draw) for _ in range(_TRIALS)]
        # A half and its complement: what depends on one fixed record shows in one of the two.
        reached = [_trial(data, columns, each, draw) for half in halves for each in (half, ~half)]
    except InvalidInput:
        raise
    except Exception:
        # Data sets refuse replaced entries in many ways; then nothing was tested.
        return False
    return any(reached)


def _half(size: int, draw: np.random.Generator) -> np.ndarray:
    """A random half of the records, shape (size,)."""
    replaced = np.zeros(size, dtype=bool)
    replaced[draw.permutation(size)[: size // 2]] = True
    return replaced


def _trial(data: Any, columns: dict[str, Any], replaced: np.ndarray, draw: np.random.Generator) -> bool:
    """One replacement; whether it reached the records that were replaced."""
    other = copy.copy(data)
    for name, value in columns.items():
        setattr(other, name, _with_others(value, replaced))
    kept, moved = np.flatnonzero(~replaced), np.flatnonzero(replaced)
    for at in draw.choice(kept, min(_RECORDS, len(kept)), replace=False):
        before = _record(data, int(at))
        if not _alike(before, _record(other, int(at))):
            if not _alike(before, _record(data, int(at))):
                # It draws from a generator of its own, so that a difference says nothing.
                return False
            raise InvalidInput(
                f"records of {type(data).__name__} must each be made of their own entry; got one that changes with "
                "other entries (a statistic of the data, or another record mixed in). Compute statistics on public "
                "data, and mix nothing before clipping."
            )
    reached = draw.choice(moved, min(_RECORDS, len(moved)), replace=False)
    return any(not _alike(_record(data, int(at)), _record(other, int(at))) for at in reached)


def _record(data: Any, at: int) -> list[Any]:
    """The leaves of one record, drawn with the same generators every time."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 (data sets draw from it)
    try:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        return tree_leaves(data[at])
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def _per_record(value: Any, size: int) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return value.ndim > 0 and len(value) == size
    return isinstance(value, list | tuple) and len(value) == size


def _with_others(value: Any, replaced: np.ndarray) -> Any:
    order = np.where(replaced, np.roll(np.arange(len(replaced)), 1), np.arange(len(replaced)))
    if isinstance(value, Tensor):
        changed = value[torch.from_numpy(order)]
        if value.is_floating_point():
            where = torch.from_numpy(replaced)
            changed[where] = 1.0 - 1.5 * changed[where]
        return changed
    if isinstance(value, np.ndarray):
        changed = value[order]
        if np.issubdtype(value.dtype, np.floating):
            changed[replaced] = 1.0 - 1.5 * changed[replaced]
        return changed
    return type(value)(value[at] for at in order)


def _alike(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(same(*_arrays(one, other)) for one, other in zip(left, right, strict=True))


def _arrays(one: Any, other: Any) -> tuple[Any, Any]:
    plain = isinstance(one, Tensor | np.ndarray | int | float | str | bytes | bool | type(None))
    return (one, other) if plain else (repr(one), repr(other))
