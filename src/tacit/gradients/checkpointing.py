"""Gradient checkpointing, left out where per-sample gradients are made.

A checkpointed segment runs again during the backward pass, where the capture of its operations would be missed, and the
reentrant form gives a segment whose inputs need no gradient none at all. The engine keeps the activations anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils import checkpoint as torch_checkpoint

_LOCK = threading.Lock()
_depth = 0


class _RunOnce:
    """Stands in for `CheckpointFunction`, the reentrant form: the segment runs once, with its graph."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        return function(*args)


def _run_once(*_: Any, **__: Any) -> Iterator[None]:
    """Stands in for what prepares the other form: it prepares nothing."""
    yield


_ORIGINAL = torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator


@contextmanager
def without_checkpointing() -> Iterator[None]:
    """Inside, `torch.utils.checkpoint.checkpoint` runs its segment once and keeps the activations.

    Example:
        >>> import torch
        >>> runs = []
        >>> def segment(x):
        ...     runs.append(1)
        ...     return x.exp()
        >>> x = torch.zeros(1, requires_grad=True)
        >>> with without_checkpointing():
        ...     torch_checkpoint.checkpoint(segment, x, use_reentrant=False).backward()
        >>> len(runs)
        1
    """
    global _depth
    with _LOCK:
        _depth += 1
        if _depth == 1:
            _replace(_RunOnce, _run_once)
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if not _depth:
                _replace(*_ORIGINAL)


def _replace(reentrant: Any, other: Any) -> None:
    torch_checkpoint.CheckpointFunction = reentrant
    torch_checkpoint._checkpoint_without_reentrant_generator = other
