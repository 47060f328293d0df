"""Training runs of the papers: a preset with a few settings changed, seeded so that a result can be had again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tacit.sweeps import Task


def history(
    preset: str, seed: int, private: bool, settings: dict[str, Any], *, data_dir: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """`test` after every epoch of the private run, or of its non-private twin; the noise is seeded, hence not private.

    `settings` override those of the preset.
    """
    from tacit.accounting import Ledger
    from tacit.runs import read_config
    from tacit.runs.methods import Job
    from tacit.runs.pieces import dataset_of

    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    config = read_config(preset, given | {"init_seed": seed, "unsafe_seed": seed})
    with tempfile.TemporaryDirectory() as folder:
        job = Job(config, dataset_of(config, data_dir), Ledger(relation=config.relation), Path(folder))
        rows = config.own.train(job).history if private else config.own.twin(job)
    return {"test": [row["test"] for row in rows]}


def history_task(preset: str, seed: int, *, seconds: float, private: bool = True, **settings: Any) -> Task:
    """The task whose value is `history`."""
    given = {"preset": preset, "seed": seed, "private": private, "settings": settings}
    return Task(f"{__name__}:history", given, seconds, reads_data=True)
