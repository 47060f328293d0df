"""One training run from a configuration to a card; the folder it leaves can be audited later."""

from tacit.runs.audit import audit
from tacit.runs.config import Config, TableConfig, config_from_table, preset_names, read_config
from tacit.runs.train import Run, train

__all__ = ["Config", "Run", "TableConfig", "audit", "config_from_table", "preset_names", "read_config", "train"]
