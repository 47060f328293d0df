"""`execution.json`: the execution records of a run, one for each way in which its steps were computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit import check
from tacit.serialization import json_table, json_text, write_text
from tacit.training.execution_record import ExecutionRecord

EXECUTION = "execution.json"
"""The file in a run's folder with its execution records."""


def store_execution(folder: Path, record: ExecutionRecord) -> None:
    """Add `record` to those of the run in `folder`, unless it is the latest of them already.

    A run that is resumed with other threads or another version so has two records.
    """
    earlier = stored_execution(folder)
    if earlier and not earlier[-1].differences(record):
        return
    write_text(folder / EXECUTION, json_text({"records": [each.table() for each in (*earlier, record)]}))


def stored_execution(folder: Path) -> tuple[ExecutionRecord, ...]:
    """The records of the run in `folder`, oldest first; none where the file is not there.

    Raises `InvalidInput` where the file holds something else.
    """
    path = folder / EXECUTION
    if not path.is_file():
        return ()
    rows = check.instance("records of execution.json", json_table(EXECUTION, path).get("records"), list, "a list")
    return tuple(ExecutionRecord.from_table(row) for row in rows)


def differences(stored: Sequence[ExecutionRecord], audit: ExecutionRecord) -> tuple[str, ...]:
    """Why `audit` did not run what the records say was run; empty where it did."""
    if not stored:
        return ("no execution record is stored with the run",)
    several = (f"the run was computed in {len(stored)} ways, since it was resumed",) if len(stored) > 1 else ()
    return (*several, *stored[-1].differences(audit))
