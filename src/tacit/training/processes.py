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


def check_one_process(model: nn.Module | None = None) -> None:
    """Raise `TrainingMisuse` where a run, of `model` if there is one yet, would be one of several.

    Example:
        >>> check_one_process(nn.Linear(2, 1))
    """
    check_processes(model if model is not None else nn.Module(), 1)


def replica_of(model: nn.Module) -> nn.Module:
    """The module inside of `DistributedDataParallel`, or `model` itself.

    The wrapper would average what it hooks; the ranks of a private run exchange clipped sums instead.
    """
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def check_processes(model: nn.Module, processes: int) -> None:
    """Raise `TrainingMisuse` where a run would be one of others than its own `processes`.

    Args:
        model: the module to train; none of its submodules may be a wrapper for several devices or processes.
        processes: how many train together by one plan and one ledger, >= 1.

    Raises:
        TrainingMisuse: the process group or the environment has more than one rank, or a wrapper is found.

    Example:
        >>> check_processes(nn.Linear(2, 1), 1)
    """
    wrapper = next((name for inner in model.modules() if (name := _parallel(inner))), None)
    ranks = world_size()
    if wrapper is None and ranks == processes:
        return
    got = f"{wrapper} around a module" if wrapper is not None else f"{ranks} ranks"
    raise TrainingMisuse(
        f"private training must run in one process on one device; got {got}. Each replica would draw its own batches "
        "and noise, and count only itself. Use make_private(..., distributed=True) with the whole module on each rank "
        "or after fully_shard(module), or start one process (WORLD_SIZE=1) on one device."
    )


def _parallel(module: nn.Module) -> str | None:
    return next((kind.__name__ for kind in type(module).__mro__ if kind.__name__ in _PARALLEL), None)


def world_size() -> int:
    """How many processes the process group has, or else the launcher says that it started; 1 without either."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    told = os.environ.get("WORLD_SIZE", "1")
    return int(told) if told.isdigit() else 1
