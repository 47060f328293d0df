"""The stored form of an item: ITEM.csv has its rows, ITEM.runs.csv every run, ITEM.json how both came about.

Two items of a paper with the same runs share one table of them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.serialization import json_table, json_text, plain_values, write_text
from tacit.sweeps import Result, Task
from tacit_papers.base import Item
from tacit_papers.records import Record, common, from_csv, joined, to_csv, without

_ROW = ("quantity", "published", "ours", "difference", "tolerance", "pass", "standing", "repeats")
_PROVENANCE = (
    "paper", "item", "title", "size", "version", "figures", "command", "versions", "machine", "finished", "tasks",
    "task_seconds",
)  # fmt: skip
_TABLE = ("runs", "runs_table", "common_settings")


def write_item(path: Path, item: Mapping[str, Any]) -> None:
    """Write an item to `path` (ITEM.json) and the two tables beside it.

    Args:
        path: of the provenance; its suffix is replaced for the tables.
        item: the provenance, "rows" as `Row.plain` gives them, and "runs" with the keys "task", "settings", "value"
            and "seconds".
    """
    runs, rows = plain_values(item["runs"]), plain_values(item["rows"])
    shared = common([run["settings"] for run in runs])
    varying = [_in_order(run | {"settings": without(run["settings"], shared)}) for run in runs]
    compared = [{name: row[name] for name in _ROW if row[name] is not None} for row in rows]
    write_text(path.with_suffix(".csv"), to_csv(compared, columns=_ROW))
    table = _write_runs(path, to_csv(varying, lines_of="value"))
    provenance = {name: item[name] for name in _PROVENANCE}
    provenance |= {"runs": len(runs), "runs_table": table, "common_settings": shared}
    write_text(path, json_text(provenance) + "\n")


def read_item(path: Path) -> dict[str, Any]:
    """The item that `write_item` wrote to `path`; raises `InvalidInput` where it is anything else."""
    provenance = json_table(path.name, path)
    missing = sorted({*_PROVENANCE, *_TABLE} - provenance.keys())
    if missing:
        raise check.fail(path.name, f"a table with {', '.join(missing)}", str(path), "Reproduce the item again.")
    count, table, shared = (provenance.pop(name) for name in _TABLE)
    compared, runs = _read_table(path.with_suffix(".csv")), _read_table(path.with_name(table))
    if len(runs) != count:
        raise check.fail(table, f"a table of {count} runs", len(runs), "Reproduce the item again.")
    where = {"paper": provenance["paper"], "item": provenance["item"]}
    rows = [where | {name: row.get(name) for name in _ROW} for row in compared]
    return provenance | {
        "rows": rows,
        "runs": [run | {"settings": joined(run.get("settings", {}), shared)} for run in runs],
    }


def task_name(function: str) -> str:
    """The name of a task's function without its module, which may move."""
    return function.rpartition(":")[2]


def results_of(tasks: Sequence[Task], stored: Mapping[str, Any]) -> list[Result | None]:
    """The stored runs as results, one for each task in their order; None where a task is not among them.

    Args:
        tasks: of the item, as this version plans them.
        stored: the item, from `read_item`.
    """
    runs = {_key(run["task"], run["settings"]): run for run in stored["runs"]}
    finished = datetime.fromisoformat(stored["finished"]).replace(tzinfo=UTC).timestamp() if stored["finished"] else 0.0

    def found(task: Task) -> Result | None:
        run = runs.get(_key(task_name(task.function), task.settings))
        if run is None:
            return None
        where = f"{stored['paper']}/{stored['item']}"
        versions = dict(stored["versions"])
        return Result(where, task.function, dict(task.settings), run["value"], run["seconds"], finished, versions)

    return [found(task) for task in tasks]


def values_of(item: Item, stored: Mapping[str, Any]) -> list[Any] | None:
    """The stored values in the order of the tasks; None where the item plans other runs, or has another version."""
    if stored["version"] != item.version:
        return None
    runs = {_key(run["task"], run["settings"]): run["value"] for run in stored["runs"]}
    plan = [_key(task_name(task.function), task.settings) for task in item.tasks(stored["size"])]
    if not runs.keys() <= set(plan) or (len(runs) < len(plan) and not item.partial):
        return None
    return [runs.get(key) for key in plan]


def _in_order(run: Mapping[str, Any]) -> Record:
    """The run with its fields in one order and its settings sorted, so that the same runs give the same table."""
    settings = json.loads(json.dumps(run["settings"], sort_keys=True))
    return {"task": run["task"], "seconds": run["seconds"], "settings": settings, "value": run["value"]}


def _key(task: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([task, plain_values(dict(settings))], sort_keys=True)


def _write_runs(path: Path, text: str) -> str:
    """Write the table of runs, unless another item has it already; returns the name of the table."""
    own = path.with_suffix(".runs.csv")
    if own.exists() and own.read_text(encoding="utf-8") != text:
        _leave_to_others(own)
    for table in sorted(path.parent.glob("*.runs.csv"), key=lambda table: table != own):
        if table.read_text(encoding="utf-8") == text:
            return table.name
    write_text(own, text)
    return own.name


def _leave_to_others(table: Path) -> None:
    """Remove `table`; every other item that shares it gets a copy."""
    for path in table.parent.glob("*.json"):
        provenance = json_table(path.name, path)
        if provenance.get("runs_table") == table.name and path.with_suffix(".runs.csv") != table:
            copy = path.with_suffix(".runs.csv")
            write_text(copy, table.read_text(encoding="utf-8"))
            write_text(path, json_text(provenance | {"runs_table": copy.name}) + "\n")
    table.unlink()


def _read_table(path: Path) -> list[Record]:
    try:
        return from_csv(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, csv.Error, IndexError) as error:
        raise InvalidInput(f"{path.name} must be a table of results; got {str(path)!r}. {error}") from None
