"""One training run from a configuration to a card; the folder it leaves can be audited later.

Settings are light; running them loads torch, so `audit`, `train` and `Run` load on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tacit.runs.config import Config, TableConfig, config_from_table, preset_names, read_config, recipe_config

if TYPE_CHECKING:
    from tacit.runs.audits import audit_run
    from tacit.runs.followers import follow, join, leave
    from tacit.runs.prediction import LoadedModel, load
    from tacit.runs.run import Run, resume, train
    from tacit.runs.table_training import TrainedTable, train_table

__all__ = [
    "Config",
    "LoadedModel",
    "Run",
    "TableConfig",
    "TrainedTable",
    "audit_run",
    "config_from_table",
    "follow",
    "join",
    "leave",
    "load",
    "preset_names",
    "read_config",
    "recipe_config",
    "resume",
    "train",
    "train_table",
]

_HOMES = {
    "LoadedModel": "tacit.runs.prediction",
    "load": "tacit.runs.prediction",
    "follow": "tacit.runs.followers",
    "join": "tacit.runs.followers",
    "leave": "tacit.runs.followers",
    "Run": "tacit.runs.run",
    "TrainedTable": "tacit.runs.table_training",
    "train_table": "tacit.runs.table_training",
    "audit_run": "tacit.runs.audits",
    "resume": "tacit.runs.run",
    "train": "tacit.runs.run",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tacit.runs' has no attribute {name!r}")
