"""One training run from a configuration to a card; the folder it leaves can be audited later.

All names load on first use: running needs torch, and who only reads a ledger beside a run needs no settings either.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.runs.audits import audit_run
    from tacit.runs.config import Config, TableConfig, config_from_table, preset_names, read_config, recipe_config
    from tacit.runs.prediction import LoadedModel, load
    from tacit.runs.run import Run, follow, join, leave, resume, train
    from tacit.runs.trained_table import TrainedTable, train_table

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

_HOMES = ("config", "prediction", "run", "trained_table", "audits")  # light ones first


def __getattr__(name: str) -> Any:
    for home in _HOMES if name in __all__ else ():
        module = importlib.import_module(f"tacit.runs.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'tacit.runs' has no attribute {name!r}")
