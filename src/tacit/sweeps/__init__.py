"""Grids of runs in a resumable store, on local processes or a Ray cluster."""

from tacit.sweeps.run import stored, sweep
from tacit.sweeps.store import Result, Store, export, table
from tacit.sweeps.task import Task

__all__ = ["Result", "Store", "Task", "export", "stored", "sweep", "table"]
