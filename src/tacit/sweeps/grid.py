"""A grid of training runs from a TOML file: a preset, fixed settings, and lists whose combinations are run."""

from __future__ import annotations

import itertools
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting import Result
from tacit.audit import AuditResult
from tacit.errors import InvalidInput
from tacit.models import home_of
from tacit.reports import Card
from tacit.reports.words import by_trust
from tacit.runs import Config, config_from_table, read_config, train
from tacit.runs.held_out import measured_exactly
from tacit.sweeps.store import LEDGER, NOT_KEPT
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
    name = check.text("name", table.get("name", path.stem))
    preset = check.text("preset", table.get("preset", "digits"))
    fixed, lists = _section("fixed", table), _section("grid", table)
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise check.fail(f"grid.{key}", "a list with at least one value", values)
    combinations = itertools.product(*lists.values())
    runs = [fixed | dict(zip(lists, values, strict=True)) for values in combinations]
    return Grid(name, tuple(_task(preset, overrides) for overrides in runs))


def run(data_dir: str | os.PathLike[str] | None, **settings: Any) -> dict[str, Any]:
    """One run of a grid: its metrics, attacks and guarantee, and the result of every accountant.

    The guarantee is the smallest epsilon of the best standing. `epsilon` and `standing` are by accountant. The ledger
    goes into the total of the sweep. Of private test records nothing is kept: every trial would cost them.
    """
    config = config_from_table(settings)
    if not measured_exactly(config):
        config = replace(config, test_epsilon=0.0, attacks=())
    with tempfile.TemporaryDirectory() as folder:
        card = train(config, data_dir=data_dir, out=folder).card
    results = by_trust(card.account.results)
    return {
        "metrics": dict(card.metrics),
        "measure": card.measure,
        "guarantee": _guarantee(card, results),
        "epsilon": {result.tradeoff.source: result.epsilon for result in results},
        "standing": {result.tradeoff.source: result.tradeoff.standing.value for result in results},
        "attack": {audit.attack: _found(audit) for audit in card.audits},
        LEDGER: card.ledger.spec(),
    }


def _section(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise check.fail(name, f"a [{name}] section", found)
    return found


def _task(preset: str, overrides: Mapping[str, Any]) -> Task:
    """The task of a run, with its whole configuration, so that editing the preset later changes nothing."""
    config = read_config(preset, overrides)
    if config.test_epsilon:
        hint = "Train the setting that you choose, and measure that."
        raise check.fail(
            "test_epsilon", "left out in a sweep, every run of which would cost it", config.test_epsilon, hint
        )
    secret = {} if config.unsafe_seed is None else {"unsafe_seed": config.unsafe_seed}
    shown = {name: NOT_KEPT if name == "unsafe_seed" else value for name, value in overrides.items()}
    return Task(
        f"{__name__}:run",
        config.settings() | dict.fromkeys(secret, NOT_KEPT),
        30.0,
        reads_data=True,
        files=tuple(_files(config)),
        label=f"{preset} with {shown}",
        secret=secret,
    )


def _files(config: Config) -> Iterator[str]:
    """The user's own files that a run reads: the table, and the source of the model."""
    if config.table is not None:
        yield config.table.path
    home = home_of(config.model) if ":" in config.model else None
    if home is not None:
        yield str(home)


def _guarantee(card: Card, results: Sequence[Result]) -> dict[str, Any]:
    best = results[0].row() if results else {}
    named = {name: best.get(name) for name in ("epsilon", "accountant", "standing", "delta")}
    ledger = card.ledger
    return named | {"relation": ledger.relation.value, "unit": ledger.unit, "unsafe": list(ledger.unsafe)}


def _found(audit: AuditResult) -> dict[str, Any]:
    row = audit.row()
    return {name: row[name] for name in ("advantage", "epsilon_lower", "confidence")} | {"standing": "measured"}
