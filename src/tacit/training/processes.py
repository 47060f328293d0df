"""One process: each replica of a model would draw batches and noise of its own, and keep a ledger for itself."""

from __future__ import annotations

import os

import torch
from torch import nn

from tacit.errors import TrainingMisuse

# Wrappers by name, over all base classes, so that nothing is imported to find them.
_PARALLEL = frozenset(
    ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine")
)


def check_one_process(model: nn.Module) -> None:
    """Raise `TrainingMisuse` where a run would be one of several.

    Args:
        model: the module to train; none of its submodules may be a wrapper for several devices or processes.

    Raises:
        TrainingMisuse: the process group or the environment has more than one rank, or a wrapper is found.

    Example:
        >>> check_one_process(nn.Linear(2, 1))
    """
    wrapper = next((name for inner in model.modules() if (name := _parallel(inner))), None)
    ranks = _ranks()
    if wrapper is None and ranks == 1:
        return
    got = f"{wrapper} around a module" if wrapper is not None else f"{ranks} ranks"
    raise TrainingMisuse(
        f"private training must run in one process on one device; got {got}. Each replica would draw its own batches "
        "and noise, and count only itself. Start one process (WORLD_SIZE=1) and set CUDA_VISIBLE_DEVICES to one device."
    )


def _parallel(module: nn.Module) -> str | None:
    return next((kind.__name__ for kind in type(module).__mro__ if kind.__name__ in _PARALLEL), None)


def _ranks() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    told = os.environ.get("WORLD_SIZE", "1")
    return int(told) if told.isdigit() else 1
