"""`execution.json`: the execution records of a run, one for each way in which its steps were computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tacit.runs.open_run import open_run
from tacit.runs.run_files import CONFIG, EXECUTION
from tacit.serialization import json_text, write_text
from tacit.training.execution_record import ExecutionRecord


def store_execution(folder: Path, record: ExecutionRecord) -> None:
    """Add `record` to those of the run in `folder`, unless it is the latest of them already.

    A run that is resumed with other threads or another version so has two records.
    """
    # A repetition for an audit is no run of its own.
    earlier = open_run(folder).execution if (folder / CONFIG).is_file() else ()
    if earlier and not earlier[-1].differences(record):
        return
    write_text(folder / EXECUTION, json_text({"records": [each.table() for each in (*earlier, record)]}))


def differences(stored: Sequence[ExecutionRecord], audit: ExecutionRecord) -> tuple[str, ...]:
    """Why `audit` did not run what the records say was run; empty where it did."""
    if not stored:
        return ("no execution record is stored with the run",)
    changed = (change.partition(":")[0] for one, other in pairwise(stored) for change in one.differences(other))
    names = ", ".join(dict.fromkeys(changed))
    several = (f"the run was computed in {len(stored)} ways, which differ in {names}",) if len(stored) > 1 else ()
    return (*several, *stored[-1].differences(audit))
