"""Results of sweeps as flat rows, for tables and files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tacit import check
from tacit.sweeps.store import Result

_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One flat row a result: sweep, every setting, every number of its value, seconds."""
    return [
        {"sweep": result.sweep} | settings_row(result) | value_row(result) | {"seconds": round(result.seconds, 3)}
        for result in results
    ]


def settings_row(result: Result) -> dict[str, Any]:
    """Every setting of a result; those of a section as `section.name`."""
    return dict(_flat("", result.settings))


def value_row(result: Result) -> dict[str, Any]:
    """Every number and text of a result's value; those of a table in it as `table.name`."""
    return dict(_flat("", result.value if isinstance(result.value, dict) else {"value": result.value}))


def varying(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without what is the same in all of them."""
    names = dict.fromkeys(name for row in rows for name in row)
    kept = [name for name in names if any(row.get(name) != rows[0].get(name) for row in rows)]
    return [{name: row[name] for name in kept if name in row} for row in rows]


def export(results: Sequence[Result], path: str | Path) -> None:
    """Write `table(results)` as .csv or .parquet (which needs the extra `data`)."""
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise check.fail("path", "a .csv or .parquet file", str(path))
    import pandas as pd

    from tacit import atomic

    frame = pd.DataFrame(table(results))
    text = frame.to_csv(index=False).encode() if path.suffix == ".csv" else frame.to_parquet(index=False)
    atomic.write_bytes(path, text)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), item)
    elif isinstance(value, list | tuple):
        yield prefix, json.dumps(value)
    else:
        yield prefix, _NOT_FINITE.get(value, value) if isinstance(value, str) else value
