"""Training runs of the papers: a preset with a few settings changed, seeded so that a result can be had again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.sweeps import Task


def history(
    preset: str, seed: int, private: bool, settings: dict[str, Any], *, data_dir: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Test results ("test") after every epoch of a run, private or not; the noise is seeded, hence nothing is private.

    `settings` override those of the preset; the initial weights are drawn from `seed` too, unless they name init_seed.

    Args:
        preset: of `tacit train`.
        seed: of the noise and, unless `settings` name init_seed, of the weights.
        private: whether to train with privacy.
        settings: that override those of the preset.
        data_dir: folder of the data files.
    """
    from tacit.accounting import Ledger
    from tacit.runs import read_config
    from tacit.runs.builders import dataset_of
    from tacit.runs.methods import Job, method_of

    given = _with_tuples(settings)
    config = read_config(preset, {"init_seed": seed} | given | {"unsafe_seed": seed})
    method = method_of(config)
    with tempfile.TemporaryDirectory() as folder:
        dataset, ledger = dataset_of(config, data_dir), Ledger(relation=config.relation)
        job = Job(config, dataset, ledger, Path(folder), data_dir=data_dir)
        rows = method.train(job).history if private else method.nonprivate_baseline(job)[0]
    return {"test": [row["test"] for row in rows]}


def _with_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as tuples, in sections too: tasks are kept as JSON, which has no tuples."""
    kinds = {list: tuple, dict: _with_tuples}
    return {key: kinds.get(type(value), lambda same: same)(value) for key, value in settings.items()}


def history_task(preset: str, seed: int, *, seconds: float, private: bool = True, **settings: Any) -> Task:
    """The task whose value is `history`.

    Args:
        preset: of `tacit train`.
        seed: of the noise and the weights.
        seconds: expected duration.
        private: whether to train with privacy.
        settings: that override those of the preset.
    """
    given = {"preset": preset, "seed": seed, "private": private, "settings": settings}
    return Task(f"{__name__}:history", given, seconds, reads_data=True)
