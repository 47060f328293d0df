"""A grid of training runs from a TOML file: a preset, fixed settings, and lists whose combinations are run.

The total of a sweep: all of its runs read the same records, and whoever reads the table may keep the best.
"""

import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.audit import AuditResult
from tacit.budget import find_registry
from tacit.errors import Refused
from tacit.models import code_of
from tacit.reports.words import by_trust
from tacit.runs import config_from_table, read_config, train
from tacit.runs.held_out import measured_exactly
from tacit.runs.run_budget import NONE, planned_run
from tacit.serialization import toml_table
from tacit.sweeps.store import LEDGER, NOT_KEPT, Result
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
    table = toml_table("sweep", path)
    check.keys("the sweep", table, ["name", "preset", "fixed", "grid"])
    name = check.text("name", table.get("name", path.stem))
    preset = check.text("preset", table.get("preset", "digits"))
    given = {name: table.get(name, {}) for name in ("fixed", "grid")}
    fixed, lists = (check.instance(name, each, dict, f"a [{name}] section") for name, each in given.items())
    for key, values in lists.items():
        check.that(isinstance(values, list) and values, f"grid.{key}", "a list with at least one value", values)
    runs = [fixed | dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
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
    best = results[0].row() if results else {}
    guarantee = {name: best.get(name) for name in ("epsilon", "accountant", "standing", "delta")}
    guarantee |= {"relation": card.ledger.relation.value, "unit": card.ledger.unit, "unsafe": list(card.ledger.unsafe)}
    return {
        "metrics": dict(card.metrics),
        "measure": card.measure,
        "guarantee": guarantee,
        "epsilon": {result.tradeoff.source: result.epsilon for result in results},
        "standing": {result.tradeoff.source: result.tradeoff.standing.value for result in results},
        "attack": {audit.attack: _found(audit) for audit in card.audits},
        LEDGER: card.ledger.spec(),
    }


def _task(preset: str, overrides: Mapping[str, Any]) -> Task:
    """The task of a run, with its whole configuration, so that editing the preset later changes nothing."""
    config = read_config(preset, overrides)
    rule = "left out in a sweep, every run of which would cost it"
    hint = "Train the setting that you choose, and measure that."
    check.that(not config.test_epsilon, "test_epsilon", rule, config.test_epsilon, hint)
    # Besides settings, a run depends on the user's own files: the table, and the source of the model.
    sources = code_of(config.model)[-1:] if ":" in config.model else ()
    secret = {} if config.unsafe_seed is None else {"unsafe_seed": config.unsafe_seed}
    shown = {name: NOT_KEPT if name == "unsafe_seed" else value for name, value in overrides.items()}
    return Task(
        f"{__name__}:run",
        config.settings() | dict.fromkeys(secret, NOT_KEPT),
        30.0,
        reads_data=True,
        files=(*([] if config.table is None else [config.table.path]), *map(str, sources)),
        label=f"{preset} with {shown}",
        secret=secret,
    )


def _found(audit: AuditResult) -> dict[str, Any]:
    row = audit.row()
    return {name: row[name] for name in ("advantage", "epsilon_lower", "confidence")} | {"standing": "measured"}


Group = tuple[str, str, str]


def sweep_totals(results: Sequence[Result]) -> dict[Group, Ledger]:
    """What all runs on each (data set, relation, unit) spent together.

    Raises:
        InvalidInput: a stored ledger was edited.
    """
    totals: dict[Group, Ledger] = {}
    for result in results:
        if not isinstance(result.value, dict) or LEDGER not in result.value:
            continue
        ledger = Ledger.from_spec(result.value[LEDGER])
        group = (_records(result.settings), ledger.relation.value, ledger.unit)
        total = totals.setdefault(group, Ledger(relation=ledger.relation, unit=ledger.unit))
        with total.planned():  # A grid is fixed before its first run.
            total.absorb(ledger)
    return totals


def check_affordable(name: str, tasks: Sequence[Task], dataset: str) -> None:
    """Refuse a sweep whose runs would cross a cap together, before the first of them begins and reads records.

    What a run costs is known beforehand where the data set declares its number of records and the method is "gradient";
    other runs are checked one by one as they begin.

    Args:
        name: of the sweep.
        tasks: its runs that are to be made.
        dataset: of the registry, to which they are charged; `NONE` for none.

    Raises:
        BudgetExceeded: with what is left.
        InvalidInput: there is no registry, or no such data set in it.
    """
    registry = find_registry()
    if dataset == NONE:
        return
    if registry is None:
        raise check.fail("budget", "the name of a data set in a registry", dataset, "Run tacit budget init NAME.")
    found = registry.dataset(dataset)
    known = found.known
    records, ahead = known.facts.get("records"), Ledger(relation=known.relation, unit=known.unit)
    for task in {task.key(None): task for task in tasks}.values():
        planned = planned_run(config_from_table({**task.settings, "unsafe_seed": None}), records)
        if planned is not None:
            ahead.add(planned)
    if ahead.entries:
        found.check(ahead, name)


def total_sentences(results: Sequence[Result]) -> Iterator[str]:
    """One sentence for each data set: how many runs were made and what they cost together."""
    for (records, relation, unit), ledger in sweep_totals(results).items():
        mine = [each for each in results if _records(each.settings) == records and LEDGER in each.value]
        delta = max(float(each.settings.get("delta", 1e-5)) for each in mine)
        try:
            spent = accountant("pld")(ledger)
        except Refused as refusal:
            yield f"Total of {len(mine)} runs on {records}: no accountant answers. {refusal}"
            continue
        cost = f"epsilon {float(spent.epsilon(delta)):.4g} at delta {delta:g} ({spent.source}, {spent.standing.value})"
        yield (
            f"Total of {len(mine)} runs on {records}: {cost}, {relation}, unit {unit}. Whoever keeps "
            "the best of them has spent all of it."
        )


def _records(settings: dict[str, Any]) -> str:
    """What tells whose records a run reads: the data set, and the file of a table."""
    table = settings.get("table")
    return str(table["path"] if isinstance(table, dict) else settings.get("dataset", "digits"))
