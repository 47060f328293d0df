"""A run on several processes: rank 0 runs `train`, the others follow its private training and write nothing."""

from __future__ import annotations

import os
from pathlib import Path

from torch import distributed as dist

from tacit import check
from tacit.accounting import Ledger
from tacit.runs.builders import dataset_of
from tacit.runs.config import Config
from tacit.runs.features import featured
from tacit.runs.methods import Job, method_of
from tacit.runs.run_signature import CHECKPOINT
from tacit.training.ranks import check_one_process, world_size


def join(config: Config) -> int:
    """The rank of this process among those that a launcher such as torchrun started; 0 where it is alone.

    Initialises the process group (gloo) where no one has.

    Args:
        config: of the run; every rank has the same.

    Raises:
        InvalidInput: the method or the private validation of `config` is of one process only.
        TrainingMisuse: there are several processes, and neither a process group nor torchrun that tells of it.

    Example:
        >>> join(Config(noise_multiplier=1.0))
        0
    """
    if world_size() == 1:
        return 0
    if not method_of(config).trains_on_ranks:
        raise check.fail("method", "gradient on several processes", config.method, "Start one process (WORLD_SIZE=1).")
    if (kind := config.section("validation").type) != "none":
        raise check.fail("validation", "none on several processes", kind, "Start one process (WORLD_SIZE=1).")
    if not dist.is_initialized():
        if not dist.is_torchelastic_launched():
            check_one_process()
        dist.init_process_group("gloo")
    return dist.get_rank()


def leave() -> None:
    """End the process group of a run that is over, where there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def follow(
    config: Config,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    resumed: str | os.PathLike[str] | None = None,
) -> None:
    """Take part in the private training that rank 0 runs with the same `config`; call it on every other rank.

    Nothing is written, charged or measured here; the ledger is a copy of rank 0's.

    Args:
        config: settings of the run, those of rank 0.
        data_dir: folder of the original data files.
        resumed: folder of the run that rank 0 goes on with; None for a new one.

    Raises:
        TrainingMisuse: ranks differ in data, model or plan.
    """
    folder = Path(resumed) if resumed is not None else Path(os.devnull)
    dataset = featured(config, dataset_of(config, data_dir), folder)
    kept = resumed is not None and (folder / CHECKPOINT).exists()
    ledger = Ledger(relation=config.relation)
    method_of(config).follow(Job(config, dataset, ledger, folder, resume=kept, checkpoints=kept))
