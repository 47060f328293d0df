"""The stored form of an item: ITEM.csv has its rows, ITEM.runs.csv every run, ITEM.json how both came about.

Two items of a paper with the same runs share one table of them.

Nested records as CSV text that reads back exactly: every number, text, None, list and missing key. A record is a
dictionary of JSON values. A key inside a section becomes the column `section.key`, and an absent key an empty cell. A
cell holds the JSON text of its value; text that is no JSON stands there bare. One field of a record may be a list of
dictionaries: each of them takes a line of its own, in columns `field[].key`, and a line with nothing in the other
columns continues the record above.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.serialization import json_table, json_text, plain_values, write_text
from tacit.sweeps import Result, Task
from tacit_papers.base import Item

Record = dict[str, Any]

_SEPARATORS = re.compile(r"([\\.\[])")
# A key of a column's name: separators in it are escaped.
_KEY = re.compile(r"(?:[^\\.\[]|\\.)*", re.DOTALL)
# Between the field whose dictionaries have lines of their own, and a key in them.
_INNER = "[]."


def to_csv(records: Sequence[Mapping[str, Any]], *, columns: Sequence[str] = (), lines_of: str = "") -> str:
    """CSV text of the records.

    Args:
        records: dictionaries of JSON values (numbers, infinities and NaN among them), each with at least one field
            besides `lines_of`.
        columns: written first, in this order, even where no record has them.
        lines_of: the field whose list of dictionaries takes one line each.

    Returns:
        A header and one line for each record, or one for each dictionary in its field `lines_of`.
    """
    lines = [line for record in records for line in _lines(record, lines_of)]
    top_level = {name: place for place, name in enumerate(dict.fromkeys(key for record in records for key in record))}
    found = sorted(
        dict.fromkeys(name for line in lines for name in line),
        key=lambda name: top_level[_unescaped(_field(name))],
    )
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys([*columns, *found])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def from_csv(text: str) -> list[Record]:
    """The records that `to_csv` wrote; raises `ValueError` where a line has too many or too few cells."""
    limit = csv.field_size_limit(sys.maxsize)  # A list of 10,000 numbers is longer than the default.
    try:
        header, *lines = list(csv.reader(io.StringIO(text, newline=""), strict=True)) or [[]]
    finally:
        csv.field_size_limit(limit)
    columns = [_column(name) for name in header]
    records: list[Record] = []
    for line in lines:
        if len(line) != len(columns):
            raise ValueError(f"A line must have as many cells as the header; got {line}.")
        own: Record = {}
        inner: dict[str, Record] = {}
        for (field, keys), cell in zip(columns, line, strict=True):
            if cell:
                _put(own if field is None else inner.setdefault(field, {}), keys, _decoded(cell))
        if own:
            records.append(own)
        for field, row in inner.items():
            records[-1].setdefault(field, []).append(row)
    return records


def common(records: Sequence[Mapping[str, Any]]) -> Record:
    """What several records agree on, as a record; empty for fewer than two of them."""
    if len(records) < 2:
        return {}
    first, *others = ({name: _encoded(value) for name, value in _flat(record)} for record in records)
    shared = {name for name, cell in first.items() if all(other.get(name) == cell for other in others)}
    return _nested({name: value for name, value in _flat(records[0]) if name in shared})


def without(record: Mapping[str, Any], shared: Mapping[str, Any]) -> Record:
    """`record` less the values that `common` found."""
    names = {name for name, _ in _flat(shared)}
    return _nested({name: value for name, value in _flat(record) if name not in names})


def joined(record: Mapping[str, Any], shared: Mapping[str, Any]) -> Record:
    """`record` with the values that `common` found: the inverse of `without`."""
    return _nested(dict(_flat(shared)) | dict(_flat(record)))


def _lines(record: Mapping[str, Any], lines_of: str) -> Iterator[dict[str, str]]:
    inner = record.get(lines_of)
    if not (isinstance(inner, list) and inner and all(isinstance(row, dict) and row for row in inner)):
        yield {name: _encoded(value) for name, value in _flat(record)}
        return
    own = {name: _encoded(value) for name, value in _flat({k: v for k, v in record.items() if k != lines_of})}
    for row in inner:
        yield own | {name: _encoded(value) for name, value in _flat(row, _escaped(lines_of) + _INNER)}
        own = {}


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Column and value of everything in a record; an empty section is a value."""
    for key, item in value.items():
        name = prefix + _escaped(key)
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{name}.")
        else:
            yield name, item


def _nested(flat: Mapping[str, Any]) -> Record:
    record: Record = {}
    for name, value in flat.items():
        _put(record, _keys(name), value)
    return record


def _put(record: Record, keys: Sequence[str], value: Any) -> None:
    *sections, key = keys
    for section in sections:
        record = record.setdefault(section, {})
    record[key] = value


def _column(name: str) -> tuple[str | None, list[str]]:
    """The field whose dictionaries the column belongs to, if any, and the keys in them or in the record."""
    field = _field(name)
    if name.startswith(_INNER, len(field)):
        return _unescaped(field), _keys(name[len(field + _INNER) :])
    return None, _keys(name)


def _escaped(key: str) -> str:
    if not key.isprintable():
        raise ValueError(f"A key must be printable text; got {key!r}.")
    return _SEPARATORS.sub(r"\\\1", key)


def _unescaped(key: str) -> str:
    return re.sub(r"\\(.)", r"\1", key, flags=re.DOTALL)


def _field(name: str, start: int = 0) -> str:
    """The key of a column's name that begins at `start`, with its escapes."""
    found = _KEY.match(name, start)
    return found.group() if found else ""


def _keys(name: str) -> list[str]:
    keys, start = [], 0
    while start <= len(name):
        field = _field(name, start)
        keys.append(_unescaped(field))
        start += len(field) + 1
    return keys


def _encoded(value: Any) -> str:
    bare = isinstance(value, str) and value.isprintable() and value and _decoded(value) == value
    return str(value) if bare else json.dumps(value)


def _decoded(cell: str) -> Any:
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


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
