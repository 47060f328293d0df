"""A grid of training runs from a TOML file: a preset, fixed settings, and lists whose combinations are run."""

from __future__ import annotations

import itertools
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tacit import check
from tacit.errors import InvalidInput
from tacit.runs import Config, read_config, train
from tacit.sweeps.task import Task


@dataclass(frozen=True)
class Grid:
    """A named sweep of `tacit train` runs."""

    name: str
    tasks: tuple[Task, ...]


def read_grid(path: str | Path) -> Grid:
    """The sweep that a TOML file describes.

        name = "adult-noise"          # optional, the file's name by default
        preset = "adult"              # a preset or configuration file that every run starts from
        [fixed]                       # settings of every run
        epochs = 5
        [grid]                        # every combination is one run
        noise_multiplier = [0.6, 1.0]
        init_seed = [0, 1, 2]

    Raises `InvalidInput` for an unknown key, an empty list, or a combination that `tacit train` would refuse.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise check.fail("sweep", "a file that exists", str(path)) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"sweep must be a TOML file; got {str(path)!r}. {error}") from None
    check.keys("the sweep", table, ["name", "preset", "fixed", "grid"])
    lists: Mapping[str, Any] = table.get("grid", {})
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise check.fail(f"grid.{key}", "a list with at least one value", values)
    combinations = itertools.product(*lists.values())
    runs = [table.get("fixed", {}) | dict(zip(lists, values, strict=True)) for values in combinations]
    preset = table.get("preset", "digits")
    for overrides in runs:
        check.keys("the sweep", overrides, [each.name for each in fields(Config)])
        read_config(preset, overrides)
    tasks = [Task(f"{__name__}:run", {"preset": preset} | overrides, 30.0, reads_data=True) for overrides in runs]
    return Grid(table.get("name", path.stem), tuple(tasks))


def run(preset: str, data_dir: str | os.PathLike[str] | None, **overrides: Any) -> dict[str, Any]:
    """One run of a grid: the metrics of its card and the epsilon of every accountant."""
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in overrides.items()}
    config = read_config(preset, given)
    with tempfile.TemporaryDirectory() as folder:
        card = train(config, data_dir=data_dir, out=folder).card
    answers = {result.tradeoff.source: float(result.epsilon) for result in card.account.results}
    attacks = {audit.attack: float(audit.advantage) for audit in card.audits}
    return {"metrics": dict(card.metrics), "epsilon": answers, "advantage": attacks}
