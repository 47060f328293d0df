"""Settings of an own table: the [table] section of a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

from tacit import check
from tacit.data.declarations import Declarations
from tacit.data.delimited import TableFormat, table_file
from tacit.errors import MissingData
from tacit.runs.settings import known


@dataclass(frozen=True)
class TableConfig:
    """The [table] section: a CSV or Parquet file and what is declared about it; see `tacit.data.table`.

    Attributes:
        path: of the file, from the folder of the TOML file on.
        folder: of the TOML file.
    """

    path: str
    target: str
    classes: tuple[str | int | float, ...] | None = None
    task: str = "classification"
    target_range: tuple[float, ...] | None = None
    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: tuple[str | int | float, ...] = ()
    fill: Mapping[str, float | str] = field(default_factory=dict)
    indicator: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    user: str | None = None
    weights: str | None = None
    weight_bound: float | None = None
    read_from_data: tuple[str, ...] = ()
    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    header: bool = True
    names: tuple[str, ...] = ()
    test_fraction: float = 0.2
    seed: int = 0
    folder: str = ""

    def __post_init__(self) -> None:
        check.text("path of [table]", self.path)
        check.text("target of [table]", self.target)
        _ = self.declarations, self.form

    @property
    def form(self) -> TableFormat:
        """How the file is written."""
        return TableFormat(
            separator=self.separator,
            decimal=self.decimal,
            encoding=self.encoding,
            header=self.header,
            names=self.names,
        )

    @property
    def declarations(self) -> Declarations:
        """What is declared about the columns."""
        return Declarations(**{name: getattr(self, name) for name in _names(Declarations)})

    def file(self, data_dir: str | os.PathLike[str] | None) -> Path:
        """Where the file lies: `path` from `data_dir` on where one is given, else from the TOML file's folder on.

        Raises:
            MissingData: it is not there; the message names where it was looked for.
            InvalidInput: its name is not that of a table.
        """
        found = Path(self.folder if data_dir is None else data_dir, self.path)
        if not found.is_file():
            start = (
                "--data-dir" if data_dir is not None else "the TOML file" if self.folder else "the working directory"
            )
            hint = f"A relative path is one from {start} on; --data-dir names another folder."
            raise MissingData(
                f"path of [table] must be an existing CSV or Parquet file; got {self.path!r}, looked for at "
                f"{str(found.absolute())!r}. {hint}"
            )
        return table_file(found)


def table_config(section: Mapping[str, Any]) -> TableConfig:
    """The [table] section of plain values; dates of TOML become texts."""
    values = known(TableConfig, section, where="[table]", required=("path", "target"))
    return TableConfig(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value


def _names(kind: type) -> list[str]:
    return [each.name for each in fields(kind)]
